//! Casts of jsonb to numbers and booleans: of the value that it holds, and not of its text.

use arrow::array::{ArrayRef, StringArray};
use arrow::datatypes::{DataType, Field};
use datafusion::common::Result;
use millrace_postgres::error::{SqlError, SqlState};
use millrace_postgres::types::{self, ANNOTATION, parse};

use super::{convert, named};

/// Whether a cast is one of these.
pub(super) fn converts(from: &Field, to: &Field) -> bool {
    from.metadata()
        .get(ANNOTATION)
        .is_some_and(|name| name == "jsonb")
        && (to.data_type().is_numeric() || to.data_type() == &DataType::Boolean)
}

/// The numbers or booleans; fractions are rounded for integers.
///
/// # Errors
/// 22023: a value is something else.
pub(super) fn converted(to: &Field, texts: &StringArray) -> Result<ArrayRef> {
    for text in texts.iter().flatten() {
        let kind = kind(text);
        let wanted = match to.data_type() {
            DataType::Boolean => "boolean",
            _ => "numeric",
        };
        if kind != wanted {
            let message = format!("cannot cast jsonb {kind} to type {}", types::plain_name(to));
            return Err(SqlError::new(SqlState::InvalidParameterValue, message).into());
        }
    }
    let read = |field: &Field| parse::column(field, texts).map_err(|cell| *cell.error);
    if !to.data_type().is_integer() {
        return Ok(read(to)?);
    }
    let numeric = named("numeric")?.field("", true);
    convert(&numeric, to, &read(&numeric)?)
}

/// What a value is, in PostgreSQL's words.
fn kind(text: &str) -> &'static str {
    match text.trim_start().as_bytes().first() {
        Some(b'"') => "string",
        Some(b'{') => "object",
        Some(b'[') => "array",
        Some(b't' | b'f') => "boolean",
        Some(b'n') | None => "null",
        Some(_) => "numeric",
    }
}
