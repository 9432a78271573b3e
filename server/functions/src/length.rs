//! `length`, `octet_length` and `array_length`, which count otherwise in PostgreSQL: bytes have a length of their own, and an array
//! without elements has no dimension, so no length.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int32Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Int64Type};
use datafusion::common::{Result, exec_datafusion_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use millrace_postgres::error::{SqlError, SqlState};

use crate::arguments::on_arrays;

#[derive(Debug, PartialEq, Eq, Hash)]
enum Of {
    /// Characters of a text, bytes of a bytea.
    Value,
    /// Bytes of either.
    Bytes,
    /// Elements of an array in one of its dimensions.
    Dimension,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Length {
    of: Of,
    signature: Signature,
}

/// The functions.
pub fn udfs() -> Vec<Arc<ScalarUDF>> {
    [(Of::Value, 1), (Of::Bytes, 1), (Of::Dimension, 2)]
        .into_iter()
        .map(|(of, arguments)| {
            let signature = Signature::any(arguments, Volatility::Immutable);
            Arc::new(ScalarUDF::from(Length { of, signature }))
        })
        .collect()
}

impl ScalarUDFImpl for Length {
    fn name(&self) -> &str {
        match self.of {
            Of::Value => "length",
            Of::Bytes => "octet_length",
            Of::Dimension => "array_length",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        let fits = match (arg_types.first(), &self.of) {
            (Some(DataType::Null), _) => true,
            (Some(data_type), Of::Value | Of::Bytes) => data_type.is_string() || data_type.is_binary(),
            (Some(data_type), Of::Dimension) => matches!(
                data_type,
                DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..)
            ),
            (None, _) => false,
        };
        if fits {
            return Ok(DataType::Int32);
        }
        let types: Vec<String> = arg_types
            .iter()
            .map(|data_type| millrace_postgres::types::type_name(&Field::new("", data_type.clone(), true)))
            .collect();
        Err(SqlError::new(
            SqlState::UndefinedFunction,
            format!("function {}({}) does not exist", self.name(), types.join(", ")),
        )
        .into())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        on_arrays(&args, |arrays, rows| {
            Ok(match (arrays, &self.of) {
                ([values], _) if values.data_type() == &DataType::Null => {
                    Arc::new(Int32Array::new_null(rows))
                }
                ([values], Of::Value) => Arc::new(lengths(values)?),
                // A text is its bytes.
                ([values], Of::Bytes) => Arc::new(lengths(&cast(values, &DataType::Binary)?)?),
                ([lists, dimensions], Of::Dimension) => {
                    let dimensions = cast(dimensions, &DataType::Int64)?;
                    let dimensions = dimensions.as_primitive::<Int64Type>();
                    let out: Int32Array = (0..rows)
                        .map(|row| {
                            (lists.is_valid(row) && dimensions.is_valid(row))
                                .then(|| dimension(lists, row, dimensions.value(row)))
                                .flatten()
                        })
                        .collect();
                    Arc::new(out)
                }
                _ => return Err(exec_datafusion_err!("{} has other arguments", self.name())),
            })
        })
    }
}

fn count(length: usize) -> i32 {
    i32::try_from(length).unwrap_or(i32::MAX)
}

fn lengths(values: &ArrayRef) -> Result<Int32Array> {
    if values.data_type().is_binary() {
        let bytes = cast(values, &DataType::Binary)?;
        return Ok(bytes
            .as_binary::<i32>()
            .iter()
            .map(|bytes| bytes.map(|bytes| count(bytes.len())))
            .collect());
    }
    let texts = cast(values, &DataType::Utf8)?;
    Ok(texts
        .as_string::<i32>()
        .iter()
        .map(|text| {
            text.map(|text| {
                count(if text.is_ascii() {
                    text.len()
                } else {
                    text.chars().count()
                })
            })
        })
        .collect())
}

/// The elements in a dimension, the outermost being 1; `None`: the array has no such dimension, or no elements.
fn dimension(lists: &ArrayRef, row: usize, dimension: i64) -> Option<i32> {
    let items = match lists.data_type() {
        DataType::List(_) => lists.as_list::<i32>().value(row),
        DataType::LargeList(_) => lists.as_list::<i64>().value(row),
        DataType::FixedSizeList(..) => lists.as_fixed_size_list().value(row),
        _ => return None,
    };
    match dimension {
        _ if items.is_empty() => None,
        1 => Some(count(items.len())),
        2.. => self::dimension(&items, 0, dimension - 1),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{BinaryArray, ListArray, StringArray};
    use arrow::datatypes::Int32Type;

    #[test]
    fn bytes_and_characters_are_counted() {
        let bytes: ArrayRef = Arc::new(BinaryArray::from(vec![&b"\xde\xad"[..]]));
        assert_eq!(lengths(&bytes).unwrap(), Int32Array::from(vec![2]));
        let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("äb"), None]));
        assert_eq!(lengths(&texts).unwrap(), Int32Array::from(vec![Some(2), None]));
    }

    #[test]
    fn an_empty_array_has_no_length() {
        let lists: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>([
            Some(vec![Some(1), None]),
            Some(vec![]),
        ]));
        assert_eq!(dimension(&lists, 0, 1), Some(2));
        assert_eq!(dimension(&lists, 0, 2), None);
        assert_eq!(dimension(&lists, 1, 1), None);
    }
}
