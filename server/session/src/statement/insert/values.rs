//! VALUES of nothing but literals: read by the columns' text inputs, without a plan.
//!
//! That is what most INSERT statements have, and planning them costs far more than writing their rows.

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions, StringBuilder};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::sql::sqlparser::ast::{Expr, UnaryOperator, Value, Values};
use millrace_catalog::Relation;
use millrace_postgres::error::SqlResult;
use millrace_postgres::from_internal;

/// A literal as the text that its column reads.
enum Cell<'a> {
    Null,
    Text(&'a str),
    Negative(&'a str),
}

/// The literal in a cell, if it is one that a column of this type reads as PostgreSQL assigns it.
fn cell<'a>(expr: &'a Expr, target: &DataType) -> Option<Cell<'a>> {
    let whole = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    match expr {
        Expr::Value(value) => match &value.value {
            Value::Null => Some(Cell::Null),
            Value::SingleQuotedString(text) => Some(Cell::Text(text)),
            Value::Number(text, _) => number(text, target, whole).map(Cell::Text),
            Value::Boolean(value) if matches!(target, DataType::Boolean | DataType::Utf8) => {
                Some(Cell::Text(if *value { "true" } else { "false" }))
            }
            _ => None,
        },
        Expr::UnaryOp {
            op: UnaryOperator::Minus,
            expr,
        } => match expr.as_ref() {
            Expr::Value(value) => match &value.value {
                Value::Number(text, _) => number(text, target, whole).map(Cell::Negative),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    }
}

/// A fraction is rounded to an integer by a cast, and no number is a date: such cells are planned.
fn number<'a>(text: &'a str, target: &DataType, whole: impl Fn(&str) -> bool) -> Option<&'a str> {
    match target {
        DataType::Int16 | DataType::Int32 | DataType::Int64 | DataType::Utf8 => whole(text).then_some(text),
        DataType::Float32 | DataType::Float64 | DataType::Decimal128(..) => Some(text),
        _ => None,
    }
}

/// The rows as columns of texts; `None`: some cell is no literal, or the rows are not of one width.
///
/// # Errors
/// The columns cannot be put together.
pub fn literals(values: &Values, relation: &Relation, given: &[usize]) -> SqlResult<Option<RecordBatch>> {
    let Some(width) = values.rows.first().map(|row| row.content.len()) else {
        return Ok(None);
    };
    if width > given.len() || values.rows.iter().any(|row| row.content.len() != width) {
        return Ok(None);
    }
    let mut fields = vec![];
    let mut columns: Vec<arrow::array::ArrayRef> = vec![];
    for (index, position) in given.iter().take(width).enumerate() {
        let target = relation.schema().field(*position);
        let mut texts = StringBuilder::with_capacity(values.rows.len(), values.rows.len() * 8);
        for row in &values.rows {
            match cell(&row.content[index], target.data_type()) {
                Some(Cell::Null) => texts.append_null(),
                Some(Cell::Text(text)) => texts.append_value(text),
                Some(Cell::Negative(text)) => texts.append_value(format!("-{text}")),
                None => return Ok(None),
            }
        }
        fields.push(Field::new(target.name(), DataType::Utf8, true));
        columns.push(Arc::new(texts.finish()));
    }
    let options = RecordBatchOptions::new().with_row_count(Some(values.rows.len()));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)
        .map(Some)
        .map_err(from_internal::arrow)
}
