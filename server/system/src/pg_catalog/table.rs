//! Rows given as texts by column name, as a table with a given schema.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, StringArray};
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::catalog::{MemTable, TableProvider};
use millrace_postgres::error::{SqlError, SqlResult};
use millrace_postgres::from_internal::{self, df};
use millrace_postgres::types::{parse, stored};

/// A row: some of its values, as texts. What is not given is NULL where that may be, else 0, false or nothing.
pub type Row = HashMap<&'static str, String>;

/// The rows as a table.
///
/// # Errors
/// A text is not an input of its column's type.
pub fn provider(schema: &SchemaRef, rows: &[Row]) -> SqlResult<Arc<dyn TableProvider>> {
    let columns = schema
        .fields()
        .iter()
        .map(|field| {
            let missing = if field.is_nullable() {
                None
            } else {
                Some(zero(field.data_type()))
            };
            let texts: StringArray = rows
                .iter()
                .map(|row| row.get(field.name().as_str()).map(String::as_str).or(missing))
                .collect();
            // Texts are read as the type that tables hold, and then become what the column is.
            let read = stored(field);
            let plain = read
                .as_ref()
                .clone()
                .with_metadata(std::collections::HashMap::new());
            let array = parse::column(&plain, &texts).map_err(|cell| {
                SqlError::internal(format!(
                    "pg_catalog column {}: {}",
                    field.name(),
                    cell.error.message
                ))
            })?;
            arrow::compute::cast(&array, field.data_type()).map_err(from_internal::arrow)
        })
        .collect::<SqlResult<Vec<ArrayRef>>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    let batch = RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
        .map_err(from_internal::arrow)?;
    Ok(Arc::new(df(MemTable::try_new(
        Arc::clone(schema),
        vec![vec![batch]],
    ))?))
}

fn zero(data_type: &DataType) -> &'static str {
    match data_type {
        DataType::Boolean => "f",
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "",
        DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..) => "{}",
        _ => "0",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::{Field, Schema};

    #[test]
    fn what_is_not_given_has_a_plain_value() {
        let schema = Arc::new(Schema::new(vec![
            Field::new("a", DataType::Int32, false),
            Field::new("b", DataType::Utf8, true),
            Field::new(
                "c",
                DataType::List(Arc::new(Field::new("item", DataType::Int16, true))),
                true,
            ),
        ]));
        let rows = [
            Row::from([("c", "{1,2}".to_string())]),
            Row::from([("a", "7".to_string())]),
        ];
        assert_eq!(provider(&schema, &rows).unwrap().schema(), schema);
        assert!(provider(&schema, &[Row::from([("a", "x".to_string())])]).is_err());
    }
}
