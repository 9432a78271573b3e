//! Division of floats and of numerics.
//!
//! A float divided by zero is an error and not an infinity. A quotient of numerics has at least 16 digits after the
//! point. (PostgreSQL chooses the number of digits by the values, so that there are about 16 significant ones; here it
//! belongs to the type, and a small quotient shows fewer digits than there.)

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, Float32Array, Float64Array};
use arrow::datatypes::{DataType, Decimal128Type, Float32Type, Float64Type};
use datafusion::common::{Result, exec_datafusion_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::scalar::ScalarValue;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::types::NUMERIC_PRECISION;
use millrace_sql::numeric::{doubles_of, quotient as quotient_of_digits};

use crate::digits::too_many_digits;
use crate::names;

/// Digits after the point that a quotient has at least.
const QUOTIENT_SCALE: i8 = 16;

#[derive(Debug, PartialEq, Eq, Hash)]
struct Divide {
    signature: Signature,
}

/// The function.
pub fn udf() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(Divide {
        signature: Signature::any(2, Volatility::Immutable),
    }))
}

fn scale_of(data_type: &DataType) -> Option<i8> {
    match data_type {
        DataType::Int16 | DataType::Int32 | DataType::Int64 => Some(0),
        DataType::Decimal128(_, scale) => Some(*scale),
        _ => None,
    }
}

/// The type of a quotient; `None`: it is not divided here.
pub fn quotient(left: &DataType, right: &DataType) -> Option<DataType> {
    let is_float = |data_type: &DataType| matches!(data_type, DataType::Float32 | DataType::Float64);
    let is_decimal = |data_type: &DataType| matches!(data_type, DataType::Decimal128(..));
    match (left, right) {
        (DataType::Float32, DataType::Float32) => Some(DataType::Float32),
        (left, right)
            if is_float(left) && (is_float(right) || scale_of(right).is_some())
                || is_float(right) && scale_of(left).is_some() =>
        {
            Some(DataType::Float64)
        }
        (left, right) if is_decimal(left) || is_decimal(right) => {
            let scale = scale_of(left)?.max(scale_of(right)?).max(QUOTIENT_SCALE);
            Some(DataType::Decimal128(NUMERIC_PRECISION, scale))
        }
        _ => None,
    }
}

impl ScalarUDFImpl for Divide {
    fn name(&self) -> &str {
        "divide"
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        names::called(self.name(), args)
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        match arg_types {
            [left, right] => quotient(left, right)
                .ok_or_else(|| exec_datafusion_err!("divide takes two numbers, not {left} and {right}")),
            _ => Err(exec_datafusion_err!("divide takes two arguments")),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let scalar = args
            .args
            .iter()
            .all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let (left, right) = (&arrays[0], &arrays[1]);
        let out: ArrayRef = match args.return_field.data_type() {
            DataType::Float32 => {
                let pairs = left
                    .as_primitive::<Float32Type>()
                    .iter()
                    .zip(right.as_primitive::<Float32Type>());
                let out = pairs
                    .map(|(left, right)| {
                        let both = left.map(f64::from).zip(right.map(f64::from));
                        #[expect(clippy::cast_possible_truncation, reason = "both were real")]
                        both.map(|(left, right)| float(left, right).map(|value| value as f32))
                            .transpose()
                    })
                    .collect::<SqlResult<Float32Array>>()?;
                Arc::new(out)
            }
            DataType::Float64 => {
                let left = doubles_of(left)?;
                let right = doubles_of(right)?;
                let out = left
                    .as_primitive::<Float64Type>()
                    .iter()
                    .zip(right.as_primitive::<Float64Type>())
                    .map(|(left, right)| {
                        left.zip(right)
                            .map(|(left, right)| float(left, right))
                            .transpose()
                    })
                    .collect::<SqlResult<Float64Array>>()?;
                Arc::new(out)
            }
            target => {
                let DataType::Decimal128(_, scale) = target else {
                    return Err(exec_datafusion_err!("a quotient is not {target}"));
                };
                let ((left, left_scale), (right, right_scale)) = (decimals(left)?, decimals(right)?);
                // The quotient of the digits, times ten to this, is what the result holds.
                let shift = i32::from(*scale) + i32::from(right_scale) - i32::from(left_scale);
                let out = left
                    .iter()
                    .zip(right.iter())
                    .map(|(left, right)| {
                        left.zip(right)
                            .map(|(left, right)| numeric(left, right, shift))
                            .transpose()
                    })
                    .collect::<SqlResult<Decimal128Array>>()?;
                Arc::new(out.with_data_type(target.clone()))
            }
        };
        if scalar {
            Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&out, 0)?))
        } else {
            Ok(ColumnarValue::Array(out))
        }
    }
}

fn decimals(values: &ArrayRef) -> Result<(Decimal128Array, i8)> {
    let (data_type, scale) = match values.data_type() {
        DataType::Decimal128(_, scale) => (values.data_type().clone(), *scale),
        _ => (DataType::Decimal128(19, 0), 0),
    };
    let values = arrow::compute::cast(values, &data_type)?;
    Ok((values.as_primitive::<Decimal128Type>().clone(), scale))
}

fn by_zero() -> SqlError {
    SqlError::new(SqlState::DivisionByZero, "division by zero")
}

fn float(left: f64, right: f64) -> SqlResult<f64> {
    if right == 0.0 && !left.is_nan() {
        return Err(by_zero());
    }
    let value = left / right;
    if value.is_infinite() && left.is_finite() {
        return Err(SqlError::new(
            SqlState::NumericValueOutOfRange,
            "value out of range: overflow",
        ));
    }
    if value == 0.0 && left != 0.0 && right.is_finite() {
        return Err(SqlError::new(
            SqlState::NumericValueOutOfRange,
            "value out of range: underflow",
        ));
    }
    Ok(value)
}

/// The quotient times ten to `shift`, rounded half away from zero.
fn numeric(left: i128, right: i128, shift: i32) -> SqlResult<i128> {
    if right == 0 {
        return Err(by_zero());
    }
    quotient_of_digits(left, right, shift).ok_or_else(too_many_digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_quotient_is_an_error() {
        assert_eq!(numeric(2, 3, 4).unwrap(), 6667);
        assert_eq!(numeric(1, 0, 4).unwrap_err().code, SqlState::DivisionByZero);
        let error = numeric(10_i128.pow(37), 1, 16).unwrap_err();
        assert_eq!(error.code, SqlState::NumericValueOutOfRange);
    }

    #[test]
    fn floats_are_not_divided_by_zero() {
        assert_eq!(float(1.0, 0.0).unwrap_err().code, SqlState::DivisionByZero);
        assert!(float(f64::NAN, 0.0).unwrap().is_nan());
        assert_eq!(float(f64::INFINITY, 2.0).unwrap(), f64::INFINITY);
        assert_eq!(
            float(1e300, 1e-300).unwrap_err().code,
            SqlState::NumericValueOutOfRange
        );
    }

    #[test]
    fn types_of_quotients() {
        let decimal = |precision, scale| DataType::Decimal128(precision, scale);
        assert_eq!(quotient(&decimal(2, 1), &DataType::Int32), Some(decimal(38, 16)));
        assert_eq!(quotient(&decimal(38, 20), &decimal(2, 1)), Some(decimal(38, 20)));
        assert_eq!(
            quotient(&DataType::Float32, &DataType::Int32),
            Some(DataType::Float64)
        );
        assert_eq!(quotient(&DataType::Int32, &DataType::Int32), None);
    }
}
