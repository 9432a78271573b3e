//! `scale`, `min_scale` and `trim_scale`: digits of numerics behind the point.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int32Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Decimal128Type, Field, FieldRef};
use datafusion::common::Result;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use millrace_postgres::types::{NUMERIC_PRECISION, NUMERIC_SCALE, is_any_numeric};

use crate::arguments::{no_such, on_arrays};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Function {
    Scale,
    MinScale,
    TrimScale,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OfScale {
    function: Function,
    signature: Signature,
}

/// The functions.
pub fn udfs() -> Vec<Arc<ScalarUDF>> {
    [Function::Scale, Function::MinScale, Function::TrimScale]
        .into_iter()
        .map(|function| {
            Arc::new(ScalarUDF::from(OfScale {
                function,
                signature: Signature::any(1, Volatility::Immutable),
            }))
        })
        .collect()
}

/// The digits that a value needs, of so many.
fn needed(mut value: i128, mut scale: i32) -> i32 {
    if value == 0 {
        return 0;
    }
    while scale > 0 && value % 10 == 0 {
        value /= 10;
        scale -= 1;
    }
    scale.max(0)
}

impl ScalarUDFImpl for OfScale {
    fn name(&self) -> &str {
        match self.function {
            Function::Scale => "scale",
            Function::MinScale => "min_scale",
            Function::TrimScale => "trim_scale",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int32)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let given = &args.arg_fields[0];
        let is_number = given.data_type().is_integer()
            || matches!(given.data_type(), DataType::Decimal128(..) | DataType::Null);
        if !is_number {
            return Err(no_such(self.name(), std::slice::from_ref(given.data_type())).into());
        }
        // A numeric without a scale of its own has the digits that it needs.
        Ok(Arc::new(match self.function {
            Function::TrimScale => {
                let any = DataType::Decimal128(NUMERIC_PRECISION, NUMERIC_SCALE);
                let same = is_any_numeric(given)
                    || !matches!(given.data_type(), DataType::Decimal128(_, scale) if *scale > NUMERIC_SCALE);
                let data_type = if same { any } else { given.data_type().clone() };
                Field::new(self.name(), data_type, true)
            }
            _ => Field::new(self.name(), DataType::Int32, true),
        }))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let has_any_scale = is_any_numeric(&args.arg_fields[0]);
        let target = args.return_field.data_type().clone();
        on_arrays(&args, |arrays, rows| {
            let values = &arrays[0];
            if self.function == Function::TrimScale {
                return Ok(cast(values, &target)?);
            }
            let DataType::Decimal128(_, scale) = values.data_type() else {
                let zeros = (0..rows).map(|row| values.is_valid(row).then_some(0));
                return Ok(Arc::new(Int32Array::from_iter(zeros)) as ArrayRef);
            };
            let scale = i32::from(*scale);
            let as_printed = self.function == Function::Scale && !has_any_scale;
            let digits = values.as_primitive::<Decimal128Type>().iter().map(|value| {
                value.map(|value| {
                    if as_printed {
                        scale.max(0)
                    } else {
                        needed(value, scale)
                    }
                })
            });
            Ok(Arc::new(Int32Array::from_iter(digits)) as ArrayRef)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::needed;

    #[test]
    fn zeros_at_the_end_are_not_needed() {
        for (value, scale, digits) in [(84_100, 4, 2), (0, 5, 0), (-5, 1, 1), (100, 2, 0), (7, 0, 0)] {
            assert_eq!(needed(value, scale), digits, "{value} {scale}");
        }
    }
}
