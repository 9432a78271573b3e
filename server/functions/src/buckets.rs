//! `width_bucket(value, thresholds)`: how many of an array's elements, which ascend, are no larger than the value.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int32Array, make_comparator};
use arrow::compute::{SortOptions, cast};
use arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::logical_expr::binary::comparison_coercion;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use millrace_postgres::error::{SqlError, SqlState};

use crate::arguments::{no_such, on_arrays};

/// What `width_bucket` of two arguments is called here: that of four counts equal widths.
pub const NAME: &str = "bucket_of";

#[derive(Debug, PartialEq, Eq, Hash)]
struct BucketOf {
    signature: Signature,
}

/// The function.
pub fn udf() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(BucketOf {
        signature: Signature::user_defined(Volatility::Immutable),
    }))
}

impl ScalarUDFImpl for BucketOf {
    fn name(&self) -> &str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let common = match given {
            [value, DataType::List(item)] => comparison_coercion(value, item.data_type()),
            _ => None,
        };
        let Some(common) = common else {
            return Err(no_such("width_bucket", given).into());
        };
        Ok(vec![common.clone(), DataType::new_list(common, true)])
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int32)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        on_arrays(&args, |arrays, rows| {
            let lists = arrays[1].as_list::<i32>();
            let values = cast(&arrays[0], &lists.value_type())?;
            let compare = make_comparator(&values, lists.values(), SortOptions::default())?;
            let of_row = |row: usize| {
                if values.is_null(row) || lists.is_null(row) {
                    return Ok(None);
                }
                let offsets = lists.value_offsets();
                let first = usize::try_from(offsets[row]).unwrap_or_default();
                let end = usize::try_from(offsets[row + 1]).unwrap_or_default();
                if (first..end).any(|at| lists.values().is_null(at)) {
                    return Err(SqlError::new(
                        SqlState::NullValueNotAllowed,
                        "thresholds array must not contain NULLs",
                    ));
                }
                // They ascend: the first that is larger ends them.
                let (mut low, mut high) = (first, end);
                while low < high {
                    let middle = low + (high - low) / 2;
                    match compare(row, middle).is_lt() {
                        true => high = middle,
                        false => low = middle + 1,
                    }
                }
                Ok(i32::try_from(low - first).ok())
            };
            let buckets = (0..rows)
                .map(of_row)
                .collect::<std::result::Result<Int32Array, SqlError>>()?;
            Ok(Arc::new(buckets) as ArrayRef)
        })
    }
}
