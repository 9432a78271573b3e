//! Defaults that are quoted are read as their columns' types when a relation is made, as in PostgreSQL: what is no such value would
//! fail in each INSERT.

use std::sync::Arc;

use arrow::array::{ArrayRef, StringArray};
use arrow::datatypes::{DataType, Field};
use datafusion::sql::sqlparser::ast::{Expr, Value};
use millrace_catalog::ColumnDef;
use millrace_functions::cast;
use millrace_postgres::error::SqlResult;
use millrace_postgres::from_internal::df;

/// Reads those of the columns.
///
/// # Errors
/// One is no input of its column's type.
pub(super) fn check_quoted(columns: &[ColumnDef]) -> SqlResult<()> {
    for column in columns {
        let Some(Expr::Value(value)) = &column.default else {
            continue;
        };
        if let Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) = &value.value {
            let from = Field::new("default", DataType::Utf8, false);
            let values: ArrayRef = Arc::new(StringArray::from(vec![text.as_str()]));
            df(cast::convert(&from, &column.field, &values))?;
        }
    }
    Ok(())
}
