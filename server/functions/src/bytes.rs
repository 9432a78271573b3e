//! Single bytes and bits of `bytea`: `get_byte`, `set_byte`, `get_bit`, `set_bit` and `bit_count`.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, Int32Array, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use datafusion::common::Result;
use datafusion::common::types::{NativeType, logical_int64};
use datafusion::logical_expr::{
    Coercion, ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignatureClass,
    Volatility,
};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};

use crate::arguments::on_arrays;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Function {
    GetByte,
    SetByte,
    GetBit,
    SetBit,
    BitCount,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OfBytes {
    function: Function,
    signature: Signature,
}

/// The functions.
pub fn udfs() -> Vec<Arc<ScalarUDF>> {
    use DataType::{Binary, Int64};
    [
        (Function::GetByte, vec![Binary, Int64]),
        (Function::SetByte, vec![Binary, Int64, Int64]),
        (Function::GetBit, vec![Binary, Int64]),
        (Function::SetBit, vec![Binary, Int64, Int64]),
        (Function::BitCount, vec![Binary]),
    ]
    .into_iter()
    .map(|(function, arguments)| {
        Arc::new(ScalarUDF::from(OfBytes {
            function,
            signature: Signature::coercible(arguments.iter().map(coercion).collect(), Volatility::Immutable),
        }))
    })
    .collect()
}

/// Whatever integer an index or a value is.
fn coercion(data_type: &DataType) -> Coercion {
    match data_type {
        DataType::Binary => Coercion::new_exact(TypeSignatureClass::Binary),
        _ => Coercion::new_implicit(
            TypeSignatureClass::Native(logical_int64()),
            vec![TypeSignatureClass::Integer],
            NativeType::Int64,
        ),
    }
}

/// The place that an index is among so many.
fn place(index: i64, count: usize) -> SqlResult<usize> {
    let found = usize::try_from(index).ok().filter(|index| *index < count);
    found.ok_or_else(|| {
        let last = i64::try_from(count).unwrap_or(i64::MAX) - 1;
        SqlError::new(
            SqlState::ArraySubscriptError,
            format!("index {index} out of valid range, 0..{last}"),
        )
    })
}

/// The byte and the bit in it, the lowest first.
fn bit(index: i64, bytes: &[u8]) -> SqlResult<(usize, u8)> {
    let place = place(index, bytes.len() * 8)?;
    Ok((place / 8, 1 << (place % 8)))
}

fn number(function: Function, bytes: &[u8], index: i64) -> SqlResult<i64> {
    Ok(match function {
        Function::GetByte => i64::from(bytes[place(index, bytes.len())?]),
        Function::GetBit => {
            let (byte, mask) = bit(index, bytes)?;
            i64::from(bytes[byte] & mask != 0)
        }
        _ => bytes.iter().map(|byte| i64::from(byte.count_ones())).sum(),
    })
}

fn changed(function: Function, bytes: &[u8], index: i64, value: i64) -> SqlResult<Vec<u8>> {
    let mut out = bytes.to_vec();
    if function == Function::SetByte {
        // As in PostgreSQL, what is more than a byte is cut off.
        out[place(index, bytes.len())?] = u8::try_from(value.rem_euclid(256)).unwrap_or_default();
        return Ok(out);
    }
    let (byte, mask) = bit(index, bytes)?;
    match value {
        0 => out[byte] &= !mask,
        1 => out[byte] |= mask,
        _ => {
            return Err(SqlError::new(
                SqlState::InvalidParameterValue,
                "new bit must be 0 or 1",
            ));
        }
    }
    Ok(out)
}

/// `substring` of bytes: the bytes, the place of the first, and how many; NULL where one of these is.
///
/// # Errors
/// The number of bytes is negative.
pub(crate) fn substring(arrays: &[ArrayRef]) -> Result<ArrayRef> {
    let bytes = cast(&arrays[0], &DataType::Binary)?;
    let bytes = bytes.as_binary::<i32>();
    let places = arrays[1..].iter().map(|array| cast(array, &DataType::Int64));
    let places = places.collect::<std::result::Result<Vec<ArrayRef>, _>>()?;
    let of_row = |row: usize| {
        let place = |at: usize| {
            places
                .get(at)
                .map(|place| place.as_primitive::<Int64Type>().value(row))
        };
        if bytes.is_null(row) || places.iter().any(|place| place.is_null(row)) {
            return Ok(None);
        }
        let (value, from) = (bytes.value(row), place(0).unwrap_or(1));
        let end = match place(1) {
            Some(count) if count < 0 => {
                return Err(SqlError::new(
                    SqlState::SubstringError,
                    "negative substring length not allowed",
                ));
            }
            Some(count) => from.saturating_add(count),
            None => i64::MAX,
        };
        let within = |at: i64| usize::try_from(at.max(1) - 1).map_or(value.len(), |at| at.min(value.len()));
        let from = within(from);
        Ok(Some(&value[from..within(end).max(from)]))
    };
    let parts = (0..bytes.len()).map(of_row).collect::<SqlResult<Vec<_>>>()?;
    Ok(Arc::new(BinaryArray::from_iter(parts)))
}

impl ScalarUDFImpl for OfBytes {
    fn name(&self) -> &str {
        match self.function {
            Function::GetByte => "get_byte",
            Function::SetByte => "set_byte",
            Function::GetBit => "get_bit",
            Function::SetBit => "set_bit",
            Function::BitCount => "bit_count",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(match self.function {
            Function::GetByte | Function::GetBit => DataType::Int32,
            Function::SetByte | Function::SetBit => DataType::Binary,
            Function::BitCount => DataType::Int64,
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let function = self.function;
        on_arrays(&args, |arrays, rows| {
            let bytes = cast(&arrays[0], &DataType::Binary)?;
            let bytes = bytes.as_binary::<i32>();
            let others = arrays[1..].iter().map(|array| cast(array, &DataType::Int64));
            let others = others.collect::<std::result::Result<Vec<ArrayRef>, _>>()?;
            let is_there =
                |row: &usize| bytes.is_valid(*row) && others.iter().all(|other| other.is_valid(*row));
            let other = |at: usize, row: usize| {
                others
                    .get(at)
                    .map_or(0, |other| other.as_primitive::<Int64Type>().value(row))
            };
            Ok(match function {
                Function::SetByte | Function::SetBit => {
                    let values = (0..rows).map(|row| {
                        let there = Some(row).filter(is_there);
                        there
                            .map(|row| changed(function, bytes.value(row), other(0, row), other(1, row)))
                            .transpose()
                    });
                    let values = values.collect::<SqlResult<Vec<Option<Vec<u8>>>>>()?;
                    Arc::new(BinaryArray::from_iter(values)) as ArrayRef
                }
                _ => {
                    let values = (0..rows).map(|row| {
                        let there = Some(row).filter(is_there);
                        there
                            .map(|row| number(function, bytes.value(row), other(0, row)))
                            .transpose()
                    });
                    let values: ArrayRef = Arc::new(values.collect::<SqlResult<Int64Array>>()?);
                    match function {
                        Function::BitCount => values,
                        _ => {
                            let small = values.as_primitive::<Int64Type>().iter();
                            let small = small.map(|value| value.and_then(|value| i32::try_from(value).ok()));
                            Arc::new(small.collect::<Int32Array>())
                        }
                    }
                }
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_counted_from_the_lowest() {
        let bytes = [0x12, 0x34];
        assert_eq!(number(Function::GetByte, &bytes, 1).unwrap(), 0x34);
        assert_eq!(number(Function::GetBit, &bytes, 1).unwrap(), 1);
        assert_eq!(number(Function::BitCount, &bytes, 0).unwrap(), 5);
        assert_eq!(changed(Function::SetBit, &bytes, 8, 1).unwrap(), [0x12, 0x35]);
        assert_eq!(changed(Function::SetByte, &bytes, 0, 256 + 7).unwrap(), [7, 0x34]);
        assert!(number(Function::GetByte, &bytes, 2).is_err());
        assert!(changed(Function::SetBit, &bytes, 0, 2).is_err());
    }
}
