//! Functions of angles as PostgreSQL has them: what they are not defined for is an error, not NaN, and in degrees the well-known angles have
//! exact values.

use std::sync::Arc;

use arrow::array::{AsArray, Float64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type};
use datafusion::common::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};

use crate::arguments::{no_such, on_arrays};

/// A function of one number; `None`: it is not defined there.
type OfOne = fn(f64) -> Option<f64>;

static FUNCTIONS: [(&str, OfOne); 20] = [
    ("acos", |x| within_one(x).map(f64::acos)),
    ("asin", |x| within_one(x).map(f64::asin)),
    ("atan", |x| Some(x.atan())),
    ("cos", |x| finite(x).map(f64::cos)),
    ("sin", |x| finite(x).map(f64::sin)),
    ("tan", |x| finite(x).map(f64::tan)),
    ("cot", |x| finite(x).map(|x| 1.0 / x.tan())),
    ("sinh", |x| Some(x.sinh())),
    ("cosh", |x| Some(x.cosh())),
    ("tanh", |x| Some(x.tanh())),
    ("asinh", |x| Some(x.asinh())),
    ("acosh", |x| (x.is_nan() || x >= 1.0).then(|| x.acosh())),
    ("atanh", |x| within_one(x).map(f64::atanh)),
    ("acosd", |x| within_one(x).map(acosd)),
    ("asind", |x| within_one(x).map(|x| 90.0 - acosd(x))),
    ("atand", |x| Some(x.atan() / 1_f64.atan() * 45.0)),
    ("sind", |x| finite(x).map(sind)),
    ("cosd", |x| {
        finite(x).map(|x| no_negative_zero(sind(90.0 - x.abs() % 360.0)))
    }),
    ("tand", |x| finite(x).map(tand)),
    ("cotd", |x| finite(x).map(cotd)),
];

fn within_one(x: f64) -> Option<f64> {
    Some(x).filter(|x| x.is_nan() || (-1.0..=1.0).contains(x))
}

fn finite(x: f64) -> Option<f64> {
    Some(x).filter(|x| !x.is_infinite())
}

/// The angle in degrees; that of a half is 60.
fn acosd(x: f64) -> f64 {
    if x < 0.0 {
        return 90.0 + asind_of_positive(-x);
    }
    90.0 - asind_of_positive(x)
}

fn asind_of_positive(x: f64) -> f64 {
    if x <= 0.5 {
        return x.asin() / 0.5_f64.asin() * 30.0;
    }
    90.0 - x.acos() / 0.5_f64.acos() * 60.0
}

fn sind(x: f64) -> f64 {
    let mut x = x % 360.0;
    let mut sign = 1.0;
    if x < 0.0 {
        (x, sign) = (-x, -sign);
    }
    if x > 180.0 {
        (x, sign) = (360.0 - x, -sign);
    }
    if x > 90.0 {
        x = 180.0 - x;
    }
    sign * if x <= 30.0 {
        x.to_radians().sin() / 30_f64.to_radians().sin() / 2.0
    } else {
        let left = (90.0 - x).to_radians();
        1.0 - (1.0 - left.cos()) / (1.0 - 60_f64.to_radians().cos()) / 2.0
    }
}

/// As PostgreSQL, whose cosine and tangent in degrees have no negative zero.
fn no_negative_zero(x: f64) -> f64 {
    x + 0.0
}

/// The angle of the first quarter whose tangent has the same size, and its sign.
fn first_quarter(x: f64) -> (f64, f64) {
    let mut x = x % 360.0;
    let mut sign = 1.0;
    if x < 0.0 {
        (x, sign) = (-x, -sign);
    }
    if x > 180.0 {
        (x, sign) = (360.0 - x, -sign);
    }
    if x > 90.0 {
        (x, sign) = (180.0 - x, -sign);
    }
    (x, sign)
}

fn tand(x: f64) -> f64 {
    let (x, sign) = first_quarter(x);
    no_negative_zero(if x == 45.0 {
        sign
    } else {
        sign * (sind(x) / sind(90.0 - x))
    })
}

fn cotd(x: f64) -> f64 {
    let (x, sign) = first_quarter(x);
    no_negative_zero(if x == 45.0 {
        sign
    } else {
        sign * (sind(90.0 - x) / sind(x))
    })
}

/// The functions.
pub fn udfs() -> Vec<Arc<ScalarUDF>> {
    (0..FUNCTIONS.len())
        .map(|index| {
            Arc::new(ScalarUDF::from(OfAngle {
                index,
                signature: Signature::any(1, Volatility::Immutable),
            }))
        })
        .collect()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OfAngle {
    index: usize,
    signature: Signature,
}

impl ScalarUDFImpl for OfAngle {
    fn name(&self) -> &str {
        FUNCTIONS[self.index].0
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        match arg_types
            .iter()
            .find(|given| !given.is_numeric() && !given.is_null())
        {
            None => Ok(DataType::Float64),
            Some(other) => Err(no_such(self.name(), std::slice::from_ref(other)).into()),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let (_, function) = FUNCTIONS[self.index];
        on_arrays(&args, |arrays, _| {
            let values = cast(&arrays[0], &DataType::Float64)?;
            let of_row = |value: f64| {
                function(value)
                    .ok_or_else(|| SqlError::new(SqlState::NumericValueOutOfRange, "input is out of range"))
            };
            let results = values
                .as_primitive::<Float64Type>()
                .iter()
                .map(|value| value.map(of_row).transpose())
                .collect::<SqlResult<Float64Array>>()?;
            Ok(Arc::new(results))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, x: f64) -> Option<f64> {
        let (_, function) = FUNCTIONS.iter().find(|(known, _)| *known == name).unwrap();
        function(x)
    }

    #[test]
    fn known_angles_are_exact() {
        for (name, x, result) in [
            ("sind", 30.0, 0.5),
            ("sind", 90.0, 1.0),
            ("sind", -150.0, -0.5),
            ("sind", 180.0, 0.0),
            ("cosd", 60.0, 0.5),
            ("cosd", 90.0, 0.0),
            ("cosd", 180.0, -1.0),
            ("tand", 45.0, 1.0),
            ("tand", 135.0, -1.0),
            ("cotd", 45.0, 1.0),
            ("cotd", 90.0, 0.0),
            ("cotd", 180.0, f64::NEG_INFINITY),
            ("acosd", 0.5, 60.0),
            ("asind", 0.5, 30.0),
            ("asind", -1.0, -90.0),
            ("atand", 1.0, 45.0),
        ] {
            assert_eq!(of(name, x), Some(result), "{name}({x})");
        }
    }

    #[test]
    fn what_is_not_defined_is_no_number() {
        for (name, x) in [
            ("acos", 1.5),
            ("asin", -2.0),
            ("acosh", 0.5),
            ("atanh", 2.0),
            ("cos", f64::INFINITY),
        ] {
            assert_eq!(of(name, x), None, "{name}({x})");
        }
        assert!(of("acos", f64::NAN).unwrap().is_nan());
        assert_eq!(of("cot", 0.0), Some(f64::INFINITY));
    }
}
