//! VALUES of nothing but literals and parameters: read by the columns' text inputs, without a plan.
//!
//! That is what most INSERT statements have, and planning them costs far more than writing their rows.

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions, StringBuilder};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::sql::sqlparser::ast::{Expr, UnaryOperator, Value, Values};
use millrace_catalog::Relation;
use millrace_functions::syntax;
use millrace_postgres::error::SqlResult;
use millrace_postgres::from_internal;
use millrace_postgres::types::enumeration::EnumType;
use millrace_postgres::types::sql_name;

/// A literal as the text that its column reads.
enum Cell<'a> {
    Null,
    Text(&'a str),
    Negative(&'a str),
}

/// The literal in a cell, if it is one that the column reads as PostgreSQL assigns it.
fn cell<'a>(expr: &'a Expr, column: &Field) -> Option<Cell<'a>> {
    let target = column.data_type();
    let whole = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    match expr {
        Expr::Value(value) => match &value.value {
            Value::Null => Some(Cell::Null),
            Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) => Some(Cell::Text(text)),
            Value::Number(text, _) => number(text, column, whole).map(Cell::Text),
            Value::Boolean(value) if *target == DataType::Boolean || is_text(column) => {
                Some(Cell::Text(if *value { "true" } else { "false" }))
            }
            _ => None,
        },
        Expr::UnaryOp {
            op: UnaryOperator::Minus,
            expr,
        } => match expr.as_ref() {
            Expr::Value(value) => match &value.value {
                Value::Number(text, _) => number(text, column, whole).map(Cell::Negative),
                _ => None,
            },
            _ => None,
        },
        Expr::Function(_) => parameter(expr, column),
        _ => None,
    }
}

/// A parameter of a type of its own ([`crate::parameters::literal`]) that the column's type has as well, as the text of its value.
fn parameter<'a>(expr: &'a Expr, column: &Field) -> Option<Cell<'a>> {
    let (text, name) = syntax::cast_literal(expr)?;
    let of_column = sql_name(column);
    let is_same = name == of_column
        || EnumType::of(column).is_none() && without_modifiers(name) == without_modifiers(&of_column);
    let is_integer = matches!(name, "smallint" | "integer" | "bigint");
    let takes_integers = matches!(
        without_modifiers(&of_column).as_str(),
        "smallint" | "integer" | "bigint" | "real" | "double precision" | "numeric"
    );
    if !(is_same || is_integer && takes_integers) {
        return None;
    }
    Some(text.map_or(Cell::Null, Cell::Text))
}

/// `numeric(5,2)[]` without what is in parentheses.
fn without_modifiers(name: &str) -> String {
    match (name.find('('), name.rfind(')')) {
        (Some(begin), Some(end)) if begin < end => format!("{}{}", &name[..begin], &name[end + 1..]),
        _ => name.to_owned(),
    }
}

/// A fraction is rounded to an integer by a cast, and no number is a date: such cells are planned.
fn number<'a>(text: &'a str, column: &Field, whole: impl Fn(&str) -> bool) -> Option<&'a str> {
    match column.data_type() {
        DataType::Int16 | DataType::Int32 | DataType::Int64 => whole(text).then_some(text),
        DataType::Float32 | DataType::Float64 | DataType::Decimal128(..) => Some(text),
        _ if is_text(column) => whole(text).then_some(text),
        _ => None,
    }
}

/// Whether numbers and booleans may be assigned to the column as texts, which they may not to JSON.
fn is_text(column: &Field) -> bool {
    let name = sql_name(column);
    matches!(
        without_modifiers(&name).as_str(),
        "text" | "character varying" | "character"
    )
}

/// The rows as columns of texts; `None`: some cell is no literal, or the rows are not of one width.
///
/// # Errors
/// The columns cannot be put together.
pub fn literals(values: &Values, relation: &Relation, given: &[usize]) -> SqlResult<Option<RecordBatch>> {
    let rows: Vec<&[Expr]> = values.rows.iter().map(|row| row.content.as_slice()).collect();
    literal_rows(&rows, relation, given)
}

/// The same of rows that stand elsewhere.
///
/// # Errors
/// As [`literals`].
pub(crate) fn literal_rows(
    rows: &[&[Expr]],
    relation: &Relation,
    given: &[usize],
) -> SqlResult<Option<RecordBatch>> {
    let Some(width) = rows.first().map(|row| row.len()) else {
        return Ok(None);
    };
    if width > given.len() || rows.iter().any(|row| row.len() != width) {
        return Ok(None);
    }
    let mut fields = vec![];
    let mut columns: Vec<arrow::array::ArrayRef> = vec![];
    for (index, position) in given.iter().take(width).enumerate() {
        let target = relation.schema().field(*position);
        let mut texts = StringBuilder::with_capacity(rows.len(), rows.len() * 8);
        for row in rows {
            match cell(&row[index], target) {
                Some(Cell::Null) => texts.append_null(),
                Some(Cell::Text(text)) => texts.append_value(text),
                Some(Cell::Negative(text)) => texts.append_value(format!("-{text}")),
                None => return Ok(None),
            }
        }
        fields.push(Field::new(target.name(), DataType::Utf8, true));
        columns.push(Arc::new(texts.finish()));
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)
        .map(Some)
        .map_err(from_internal::arrow)
}
