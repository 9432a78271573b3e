//! `trim_array(array, n)`: the array without its last elements.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::{cast, concat};
use arrow::datatypes::{DataType, FieldRef, Int64Type};
use datafusion::common::Result;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use millrace_postgres::error::{SqlError, SqlState};

use crate::arguments::{no_such, on_arrays};

#[derive(Debug, PartialEq, Eq, Hash)]
struct TrimArray {
    signature: Signature,
}

/// The function.
pub fn udf() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(TrimArray {
        signature: Signature::any(2, Volatility::Immutable),
    }))
}

impl ScalarUDFImpl for TrimArray {
    fn name(&self) -> &str {
        "trim_array"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        Err(no_such(self.name(), given).into())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        match (args.arg_fields[0].data_type(), args.arg_fields[1].data_type()) {
            (DataType::List(_), count) if count.is_integer() || count.is_null() => {
                let field = args.arg_fields[0].as_ref().clone();
                Ok(Arc::new(field.with_name("trim_array").with_nullable(true)))
            }
            (array, count) => Err(no_such(self.name(), &[array.clone(), count.clone()]).into()),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        on_arrays(&args, |arrays, rows| {
            let lists = arrays[0].as_list::<i32>();
            let counts = cast(&arrays[1], &DataType::Int64)?;
            let counts = counts.as_primitive::<Int64Type>();
            let mut parts: Vec<ArrayRef> = vec![];
            let mut lengths = vec![];
            let is_there: Vec<bool> = (0..rows)
                .map(|row| lists.is_valid(row) && counts.is_valid(row))
                .collect();
            for (row, is_there) in is_there.iter().enumerate() {
                if !is_there {
                    lengths.push(0);
                    continue;
                }
                let elements = lists.value(row);
                let left = usize::try_from(counts.value(row))
                    .ok()
                    .and_then(|count| elements.len().checked_sub(count))
                    .ok_or_else(|| {
                        SqlError::new(
                            SqlState::ArraySubscriptError,
                            format!(
                                "number of elements to trim must be between 0 and {}",
                                elements.len()
                            ),
                        )
                    })?;
                lengths.push(left);
                parts.push(elements.slice(0, left));
            }
            let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
            let values = match parts.as_slice() {
                [] => lists.values().slice(0, 0),
                parts => concat(parts)?,
            };
            let DataType::List(item) = lists.data_type() else {
                return Err(no_such(self.name(), &[lists.data_type().clone()]).into());
            };
            let offsets = OffsetBuffer::from_lengths(lengths);
            let nulls = NullBuffer::from(is_there);
            Ok(Arc::new(ListArray::try_new(
                Arc::clone(item),
                offsets,
                values,
                Some(nulls),
            )?))
        })
    }
}
