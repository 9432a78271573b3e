//! A statement that was parsed and looked at, but not executed.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use millrace_parser::Parsed;
use millrace_resource::memory::Charge;
use postgres_types::Type;

use crate::key_select::Shape;

/// A statement that was parsed, and planned far enough to know its parameters and columns.
#[derive(Debug)]
pub struct Prepared {
    /// The statement. `None` is the empty statement (`;` or nothing but comments).
    pub parsed: Option<Arc<Parsed>>,
    /// The type of each parameter, `$1` first.
    pub param_types: Vec<Type>,
    /// The text of PREPARE; of the protocol's none.
    pub said: String,
    /// When it was prepared, in milliseconds since 1970-01-01 UTC.
    pub began_at_ms: i64,
    /// The columns that the statement answers with; `None` when it answers with none.
    pub columns: Option<SchemaRef>,
    /// Of a SELECT by equality, what an index is asked for.
    pub(crate) shape: Option<Shape>,
    /// What it takes.
    pub(crate) _charge: Option<Charge>,
}

/// About how much a statement of this text takes, parsed: several times its letters, and more for each word.
pub(crate) fn bytes_of(text: &str) -> usize {
    const PER_WORD: usize = 256;
    let words = text
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty());
    4 * text.len() + PER_WORD * words.count()
}
