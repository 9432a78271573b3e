//! Functions of numbers whose answers have the type of their arguments, or no answer: `gcd` and `lcm` of integers, and `exp`
//! that is out of range rather than infinite.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Float64Array, Int64Array};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, Float64Type, Int64Type};
use datafusion::common::{Result, exec_datafusion_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::types;

use crate::arguments::on_arrays;
use crate::digits::range;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Function {
    Gcd,
    Lcm,
    Exp,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Number {
    function: Function,
    name: &'static str,
    signature: Signature,
}

/// The functions.
pub fn udfs() -> Vec<Arc<ScalarUDF>> {
    [
        (Function::Gcd, "gcd", 2),
        (Function::Lcm, "lcm", 2),
        (Function::Exp, "exp", 1),
    ]
    .into_iter()
    .map(|(function, name, arguments)| {
        Arc::new(ScalarUDF::from(Number {
            function,
            name,
            signature: Signature::any(arguments, Volatility::Immutable),
        }))
    })
    .collect()
}

fn greatest_common_divisor(left: i64, right: i64) -> u64 {
    let (mut left, mut right) = (left.unsigned_abs(), right.unsigned_abs());
    while right != 0 {
        (left, right) = (right, left % right);
    }
    left
}

impl Number {
    fn missing(&self, given: &[DataType]) -> SqlError {
        let names: Vec<String> = given
            .iter()
            .map(|given| types::plain_name(&Field::new("", given.clone(), true)))
            .collect();
        SqlError::new(
            SqlState::UndefinedFunction,
            format!("function {}({}) does not exist", self.name, names.join(", ")),
        )
        .with_hint("You might need to add explicit type casts.")
    }

    fn of_integers(&self, left: i64, right: i64) -> SqlResult<i64> {
        let divisor = greatest_common_divisor(left, right);
        let value = match self.function {
            Function::Lcm if divisor == 0 => Some(0),
            Function::Lcm => (left.unsigned_abs() / divisor).checked_mul(right.unsigned_abs()),
            _ => Some(divisor),
        };
        let value = value.and_then(|value| i64::try_from(value).ok());
        value.ok_or_else(|| SqlError::new(SqlState::NumericValueOutOfRange, "bigint out of range"))
    }
}

impl ScalarUDFImpl for Number {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        let width = |given: &DataType| match given {
            DataType::Int16 | DataType::Int32 | DataType::Null => Some(32),
            DataType::Int64 => Some(64),
            _ => None,
        };
        match (self.function, given) {
            (Function::Exp, [given]) if given.is_numeric() || given.is_null() => Ok(DataType::Float64),
            (Function::Gcd | Function::Lcm, [left, right]) => match (width(left), width(right)) {
                (Some(32), Some(32)) => Ok(DataType::Int32),
                (Some(_), Some(_)) => Ok(DataType::Int64),
                _ => Err(self.missing(given).into()),
            },
            _ => Err(self.missing(given).into()),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let target = args.return_field.data_type().clone();
        on_arrays(&args, |arrays, _| {
            if self.function == Function::Exp {
                return exponentials(&arrays[0]);
            }
            let [left, right] = arrays else {
                return Err(exec_datafusion_err!("{} takes two arguments", self.name));
            };
            let wide = |values: &ArrayRef| arrow::compute::cast(values, &DataType::Int64);
            let (left, right) = (wide(left)?, wide(right)?);
            let pairs = left.as_primitive::<Int64Type>().iter();
            let out = pairs
                .zip(right.as_primitive::<Int64Type>())
                .map(|(left, right)| {
                    let both = left.zip(right);
                    both.map(|(left, right)| self.of_integers(left, right))
                        .transpose()
                })
                .collect::<SqlResult<Int64Array>>()?;
            let options = CastOptions {
                safe: false,
                ..CastOptions::default()
            };
            let out: ArrayRef = Arc::new(out);
            cast_with_options(&out, &target, &options)
                .map_err(|_| SqlError::new(SqlState::NumericValueOutOfRange, "integer out of range").into())
        })
    }
}

fn exponentials(values: &ArrayRef) -> Result<ArrayRef> {
    let values = arrow::compute::cast(values, &DataType::Float64)?;
    let one = |value: f64| match value.exp() {
        power if power.is_infinite() && value.is_finite() => Err(range("overflow")),
        power if power == 0.0 && value.is_finite() => Err(range("underflow")),
        power => Ok(power),
    };
    let values = values.as_primitive::<Float64Type>().iter();
    let out = values
        .map(|value| value.map(one).transpose())
        .collect::<SqlResult<Float64Array>>()?;
    Ok(Arc::new(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divisors_of_the_least_integer_are_out_of_range() {
        assert_eq!(greatest_common_divisor(-12, 18), 6);
        assert_eq!(greatest_common_divisor(i64::MIN, 0), 1 << 63);
        let functions = [(Function::Gcd, "gcd"), (Function::Lcm, "lcm")].map(|(function, name)| Number {
            function,
            name,
            signature: Signature::any(2, Volatility::Immutable),
        });
        assert!(functions[0].of_integers(i64::MIN, 0).is_err());
        assert!(functions[1].of_integers(i64::MAX, i64::MAX - 1).is_err());
        assert_eq!(functions[1].of_integers(4, -6).unwrap(), 12);
        assert_eq!(functions[1].of_integers(0, 0).unwrap(), 0);
    }
}
