//! Functions of numbers as PostgreSQL has them: the types they give, how they round, and their errors.
//!
//! DataFusion has most of these names too, but with other answers: its `ceil` of a numeric keeps the digits after the
//! point, its `round` of a float goes away from zero, and its `ln(0)` is an infinity. Here numerics stay numerics, floats
//! round half to even, and what is not defined is an error with PostgreSQL's SQLSTATE.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, Float64Array, Int32Array};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{
    DataType, Decimal128Type, Field, FieldRef, Float64Type, Int16Type, Int32Type, Int64Type,
};
use datafusion::common::Result;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature,
    Volatility,
};
use datafusion::scalar::ScalarValue;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::types::{self, NUMERIC_PRECISION};

/// The widest numeric's digits, as the arithmetic here counts them.
const DIGITS_MAX: i32 = NUMERIC_PRECISION as i32;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Function {
    Ceil,
    Floor,
    Round,
    Trunc,
    Sign,
    Sqrt,
    Ln,
    Log,
    Power,
    Div,
    WidthBucket,
    BitNot,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Number {
    function: Function,
    name: &'static str,
    aliases: Vec<String>,
    signature: Signature,
}

/// The functions.
pub fn udfs() -> Vec<Arc<ScalarUDF>> {
    let functions: [(Function, &str, &[&str], &[usize]); 12] = [
        (Function::Ceil, "ceil", &["ceiling"], &[1]),
        (Function::Floor, "floor", &[], &[1]),
        (Function::Round, "round", &[], &[1, 2]),
        (Function::Trunc, "trunc", &[], &[1, 2]),
        (Function::Sign, "sign", &["signum"], &[1]),
        (Function::Sqrt, "sqrt", &[], &[1]),
        (Function::Ln, "ln", &[], &[1]),
        (Function::Log, "log", &["log10"], &[1, 2]),
        (Function::Power, "power", &["pow"], &[2]),
        (Function::Div, "div", &[], &[2]),
        (Function::WidthBucket, "width_bucket", &[], &[4]),
        (Function::BitNot, "bit_not", &[], &[1]),
    ];
    functions
        .into_iter()
        .map(|(function, name, aliases, arguments)| {
            let signatures = arguments.iter().map(|count| TypeSignature::Any(*count)).collect();
            Arc::new(ScalarUDF::from(Number {
                function,
                name,
                aliases: aliases.iter().map(ToString::to_string).collect(),
                signature: Signature::one_of(signatures, Volatility::Immutable),
            }))
        })
        .collect()
}

fn is_integer(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Int16 | DataType::Int32 | DataType::Int64)
}

fn is_number(data_type: &DataType) -> bool {
    is_integer(data_type)
        || matches!(
            data_type,
            DataType::Float32
                | DataType::Float64
                | DataType::Decimal128(..)
                | DataType::UInt64
                | DataType::Null
        )
}

/// Digits before and after the point of what a type holds exactly.
fn digits(data_type: &DataType) -> Option<(i32, i32)> {
    match data_type {
        DataType::Int16 => Some((5, 0)),
        DataType::Int32 => Some((10, 0)),
        DataType::Int64 => Some((19, 0)),
        DataType::UInt64 => Some((20, 0)),
        DataType::Decimal128(precision, scale) => {
            Some((i32::from(*precision) - i32::from(*scale), i32::from(*scale)))
        }
        _ => None,
    }
}

/// The numeric with that many digits before and after the point, as far as there are such.
fn numeric(before: i32, after: i32) -> DataType {
    let after = after.clamp(0, DIGITS_MAX);
    let precision = (before.max(0) + after).clamp(1, DIGITS_MAX);
    DataType::Decimal128(
        u8::try_from(precision).unwrap_or(NUMERIC_PRECISION),
        i8::try_from(after.min(precision)).unwrap_or_default(),
    )
}

fn power_of_ten(exponent: i32) -> i128 {
    10_i128.pow(u32::try_from(exponent.clamp(0, DIGITS_MAX)).unwrap_or_default())
}

impl Number {
    fn output(&self, inputs: &[DataType], places: Option<i64>) -> Result<DataType> {
        if let Some(bad) = inputs.iter().find(|data_type| !is_number(data_type)) {
            let names: Vec<String> = inputs
                .iter()
                .map(|data_type| types::plain_name(&Field::new("", data_type.clone(), true)))
                .collect();
            let _ = bad;
            return Err(SqlError::new(
                SqlState::UndefinedFunction,
                format!("function {}({}) does not exist", self.name, names.join(", ")),
            )
            .with_hint("You might need to add explicit type casts.")
            .into());
        }
        let first = &inputs[0];
        Ok(match self.function {
            Function::Ceil | Function::Floor => match first {
                DataType::Decimal128(..) => whole(first),
                _ => DataType::Float64,
            },
            Function::Round | Function::Trunc => match (first, inputs.len()) {
                (DataType::Decimal128(..), 1) => whole(first),
                (DataType::Decimal128(..) | DataType::Int16 | DataType::Int32 | DataType::Int64, 2) => {
                    let (before, after) = digits(first).expect("these types have exact digits");
                    let after = places.map_or(after, |places| {
                        i32::try_from(places.clamp(0, DIGITS_MAX.into())).unwrap_or_default()
                    });
                    numeric((before + 1).min(DIGITS_MAX - after), after)
                }
                _ => DataType::Float64,
            },
            Function::Sign => match first {
                DataType::Decimal128(..) => DataType::Decimal128(1, 0),
                _ => DataType::Float64,
            },
            Function::Sqrt | Function::Ln | Function::Log | Function::Power => DataType::Float64,
            Function::Div => DataType::Decimal128(NUMERIC_PRECISION, 0),
            Function::WidthBucket => DataType::Int32,
            Function::BitNot if is_integer(first) => first.clone(),
            Function::BitNot => {
                return Err(SqlError::new(
                    SqlState::UndefinedFunction,
                    format!(
                        "operator does not exist: ~ {}",
                        types::plain_name(&Field::new("", first.clone(), true))
                    ),
                )
                .into());
            }
        })
    }
}

/// The type of a numeric without its digits after the point; rounding may bring one more before it.
fn whole(data_type: &DataType) -> DataType {
    let (before, _) = digits(data_type).unwrap_or((DIGITS_MAX, 0));
    numeric((before + 1).min(DIGITS_MAX), 0)
}

impl ScalarUDFImpl for Number {
    fn name(&self) -> &str {
        self.name
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.output(arg_types, None)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let inputs: Vec<DataType> = args
            .arg_fields
            .iter()
            .map(|field| field.data_type().clone())
            .collect();
        let places = args.scalar_arguments.get(1).copied().flatten().and_then(integer);
        let nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(
            self.name,
            self.output(&inputs, places)?,
            nullable,
        )))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let scalar = args
            .args
            .iter()
            .all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let out = self.apply(&arrays, args.return_field.data_type())?;
        if scalar {
            Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&out, 0)?))
        } else {
            Ok(ColumnarValue::Array(out))
        }
    }
}

fn integer(value: &ScalarValue) -> Option<i64> {
    match value {
        ScalarValue::Int16(Some(value)) => Some(i64::from(*value)),
        ScalarValue::Int32(Some(value)) => Some(i64::from(*value)),
        ScalarValue::Int64(Some(value)) => Some(*value),
        _ => None,
    }
}

fn floats(values: &ArrayRef) -> Result<Float64Array> {
    let wide = arrow::compute::cast(values, &DataType::Float64)?;
    Ok(wide.as_primitive::<Float64Type>().clone())
}

/// A column as a numeric that holds all of it.
fn exact(values: &ArrayRef) -> Result<(Decimal128Array, i32)> {
    let data_type = match values.data_type() {
        DataType::Decimal128(..) => values.data_type().clone(),
        other => {
            let (before, after) = digits(other).unwrap_or((DIGITS_MAX, 0));
            numeric(before, after)
        }
    };
    let options = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    let exact = cast_with_options(values, &data_type, &options)?;
    let scale = match data_type {
        DataType::Decimal128(_, scale) => i32::from(scale),
        _ => 0,
    };
    Ok((exact.as_primitive::<Decimal128Type>().clone(), scale))
}

/// How a quotient becomes whole.
#[derive(Clone, Copy)]
enum Towards {
    Ceil,
    Floor,
    Nearest,
    Zero,
}

impl Towards {
    /// `value / unit`, whole.
    fn divide(self, value: i128, unit: i128) -> i128 {
        let (quotient, rest) = (value / unit, value % unit);
        match self {
            Towards::Zero => quotient,
            Towards::Ceil => quotient + i128::from(rest > 0),
            Towards::Floor => quotient - i128::from(rest < 0),
            Towards::Nearest if rest.unsigned_abs() >= unit.unsigned_abs().div_ceil(2) => {
                quotient + value.signum()
            }
            Towards::Nearest => quotient,
        }
    }
}

fn out_of_range() -> SqlError {
    SqlError::new(SqlState::NumericValueOutOfRange, "value out of range: overflow")
}

/// Rounds numerics to some places after the point (before it, if negative).
fn to_places(
    values: &Decimal128Array,
    scale: i32,
    places: &dyn Fn(usize) -> Option<i64>,
    target: &DataType,
    towards: Towards,
) -> Result<ArrayRef> {
    let DataType::Decimal128(_, target_scale) = target else {
        return Err(SqlError::internal("numerics are rounded to numerics only").into());
    };
    let target_scale = i32::from(*target_scale);
    let out = (0..values.len())
        .map(|row| {
            let places = match (values.is_valid(row), places(row)) {
                (true, Some(places)) => places,
                _ => return Ok(None),
            };
            let limit = i64::from(DIGITS_MAX);
            let places = i32::try_from(places.clamp(-limit, limit)).unwrap_or_default();
            let kept = if places >= scale {
                values.value(row)
            } else if scale - places > DIGITS_MAX {
                0
            } else {
                let unit = power_of_ten(scale - places);
                towards.divide(values.value(row), unit).saturating_mul(unit)
            };
            // From the scale of the input to that of the output: what is cut are zeros.
            let moved = if target_scale >= scale {
                kept.checked_mul(power_of_ten(target_scale - scale))
            } else {
                Some(kept / power_of_ten(scale - target_scale))
            };
            moved.map(Some).ok_or_else(out_of_range)
        })
        .collect::<SqlResult<Decimal128Array>>()?;
    Ok(Arc::new(out.with_data_type(target.clone())))
}

fn float(values: &ArrayRef, apply: impl Fn(f64) -> SqlResult<f64>) -> Result<ArrayRef> {
    let values = floats(values)?;
    let out = values
        .iter()
        .map(|value| value.map(&apply).transpose())
        .collect::<SqlResult<Float64Array>>()?;
    Ok(Arc::new(out))
}

fn two_floats(
    left: &ArrayRef,
    right: &ArrayRef,
    apply: impl Fn(f64, f64) -> SqlResult<f64>,
) -> Result<ArrayRef> {
    let (left, right) = (floats(left)?, floats(right)?);
    let out = left
        .iter()
        .zip(right.iter())
        .map(|pair| match pair {
            (Some(left), Some(right)) => apply(left, right).map(Some),
            _ => Ok(None),
        })
        .collect::<SqlResult<Float64Array>>()?;
    Ok(Arc::new(out))
}

impl Number {
    fn apply(&self, args: &[ArrayRef], target: &DataType) -> Result<ArrayRef> {
        let first = &args[0];
        match self.function {
            Function::Ceil => self.rounded(args, target, Towards::Ceil, f64::ceil),
            Function::Floor => self.rounded(args, target, Towards::Floor, f64::floor),
            Function::Round => self.rounded(args, target, Towards::Nearest, f64::round_ties_even),
            Function::Trunc => self.rounded(args, target, Towards::Zero, f64::trunc),
            Function::Sign if matches!(target, DataType::Decimal128(..)) => {
                let (values, _) = exact(first)?;
                let signs: Decimal128Array = values.unary(i128::signum);
                Ok(Arc::new(signs.with_data_type(target.clone())))
            }
            Function::Sign => float(first, |value| {
                Ok(if value == 0.0 || value.is_nan() {
                    value
                } else {
                    value.signum()
                })
            }),
            Function::Sqrt => float(first, square_root),
            Function::Ln => float(first, |value| logarithm(value).map(f64::ln)),
            Function::Log if args.len() == 1 => float(first, |value| logarithm(value).map(f64::log10)),
            Function::Log => two_floats(first, &args[1], |base, value| {
                let (base, value) = (logarithm(base)?, logarithm(value)?);
                let divisor = base.ln();
                if divisor == 0.0 {
                    return Err(SqlError::new(SqlState::DivisionByZero, "division by zero"));
                }
                // The logarithms to 2 and 10 are exact where that of another base would not be.
                Ok(if base == 10.0 {
                    value.log10()
                } else if base == 2.0 {
                    value.log2()
                } else {
                    value.ln() / divisor
                })
            }),
            Function::Power => two_floats(first, &args[1], power),
            Function::Div => quotients(first, &args[1]),
            Function::WidthBucket => buckets(args),
            Function::BitNot => Ok(match first.data_type() {
                DataType::Int16 => Arc::new(first.as_primitive::<Int16Type>().unary::<_, Int16Type>(|v| !v)),
                DataType::Int32 => Arc::new(first.as_primitive::<Int32Type>().unary::<_, Int32Type>(|v| !v)),
                _ => {
                    let wide = arrow::compute::cast(first, &DataType::Int64)?;
                    Arc::new(wide.as_primitive::<Int64Type>().unary::<_, Int64Type>(|v| !v))
                }
            }),
        }
    }

    fn rounded(
        &self,
        args: &[ArrayRef],
        target: &DataType,
        towards: Towards,
        whole: impl Fn(f64) -> f64,
    ) -> Result<ArrayRef> {
        let places = match args.get(1) {
            Some(places) => Some(arrow::compute::cast(places, &DataType::Int64)?),
            None => None,
        };
        let places = places.as_ref().map(|places| places.as_primitive::<Int64Type>());
        if matches!(target, DataType::Decimal128(..)) {
            let (values, scale) = exact(&args[0])?;
            let at = |row: usize| match places {
                Some(places) => places.is_valid(row).then(|| places.value(row)),
                None => Some(0),
            };
            return to_places(&values, scale, &at, target, towards);
        }
        let values = floats(&args[0])?;
        let out: Float64Array = (0..values.len())
            .map(|row| {
                if values.is_null(row) {
                    return None;
                }
                match places {
                    None => Some(whole(values.value(row))),
                    Some(places) if places.is_null(row) => None,
                    Some(places) => {
                        let places = i32::try_from(places.value(row).clamp(-300, 300)).unwrap_or_default();
                        let unit = 10_f64.powi(places);
                        let moved = values.value(row) * unit;
                        // With places, which only numerics have in PostgreSQL, halves go away from zero as theirs do.
                        let cut = match towards {
                            Towards::Nearest => moved.round(),
                            _ => whole(moved),
                        };
                        Some(if moved.is_finite() {
                            cut / unit
                        } else {
                            values.value(row)
                        })
                    }
                }
            })
            .collect();
        Ok(Arc::new(out))
    }
}

fn square_root(value: f64) -> SqlResult<f64> {
    if value < 0.0 {
        return Err(SqlError::new(
            SqlState::InvalidArgumentForPowerFunction,
            "cannot take square root of a negative number",
        ));
    }
    Ok(value.sqrt())
}

/// What has a logarithm.
fn logarithm(value: f64) -> SqlResult<f64> {
    let wrong = |what: &str| {
        Err(SqlError::new(
            SqlState::InvalidArgumentForLogarithm,
            format!("cannot take logarithm of {what}"),
        ))
    };
    if value == 0.0 {
        wrong("zero")
    } else if value < 0.0 {
        wrong("a negative number")
    } else {
        Ok(value)
    }
}

fn power(base: f64, exponent: f64) -> SqlResult<f64> {
    let wrong = |message: &str| Err(SqlError::new(SqlState::InvalidArgumentForPowerFunction, message));
    if base == 0.0 && exponent < 0.0 {
        return wrong("zero raised to a negative power is undefined");
    }
    if base < 0.0 && exponent.is_finite() && exponent.fract() != 0.0 {
        return wrong("a negative number raised to a non-integer power yields a complex result");
    }
    let value = base.powf(exponent);
    if value.is_infinite() && base.is_finite() && exponent.is_finite() {
        return Err(out_of_range());
    }
    Ok(value)
}

/// The whole quotients of numerics, cut towards zero.
fn quotients(left: &ArrayRef, right: &ArrayRef) -> Result<ArrayRef> {
    let ((left, left_scale), (right, right_scale)) = (exact(left)?, exact(right)?);
    let scale = left_scale.max(right_scale);
    let out = left
        .iter()
        .zip(right.iter())
        .map(|pair| match pair {
            (Some(left), Some(right)) => {
                let left = left
                    .checked_mul(power_of_ten(scale - left_scale))
                    .ok_or_else(out_of_range)?;
                let right = right
                    .checked_mul(power_of_ten(scale - right_scale))
                    .ok_or_else(out_of_range)?;
                match left.checked_div(right) {
                    Some(quotient) => Ok(Some(quotient)),
                    None => Err(SqlError::new(SqlState::DivisionByZero, "division by zero")),
                }
            }
            _ => Ok(None),
        })
        .collect::<SqlResult<Decimal128Array>>()?;
    Ok(Arc::new(
        out.with_data_type(DataType::Decimal128(NUMERIC_PRECISION, 0)),
    ))
}

/// In which of `count` equal buckets between two bounds the values are; 0 and `count + 1` are outside.
fn buckets(args: &[ArrayRef]) -> Result<ArrayRef> {
    let (values, low, high) = (floats(&args[0])?, floats(&args[1])?, floats(&args[2])?);
    let counts = arrow::compute::cast(&args[3], &DataType::Int32)?;
    let counts = counts.as_primitive::<Int32Type>();
    let out = (0..values.len())
        .map(|row| {
            if values.is_null(row) || low.is_null(row) || high.is_null(row) || counts.is_null(row) {
                return Ok(None);
            }
            bucket(
                values.value(row),
                low.value(row),
                high.value(row),
                counts.value(row),
            )
            .map(Some)
        })
        .collect::<SqlResult<Int32Array>>()?;
    Ok(Arc::new(out))
}

fn bucket(value: f64, low: f64, high: f64, count: i32) -> SqlResult<i32> {
    let wrong = |message: &str| Err(SqlError::new(SqlState::InvalidArgumentForWidthBucket, message));
    if count <= 0 {
        return wrong("count must be greater than zero");
    }
    if value.is_nan() || low.is_nan() || high.is_nan() {
        return wrong("operand, lower bound, and upper bound cannot be NaN");
    }
    if low == high {
        return wrong("lower bound cannot equal upper bound");
    }
    let share = (value - low) / (high - low);
    if share < 0.0 {
        Ok(0)
    } else if share >= 1.0 {
        count.checked_add(1).ok_or_else(out_of_range)
    } else {
        // Below the count, which is an i32.
        #[expect(clippy::cast_possible_truncation, reason = "the product is below the count")]
        let index = (share * f64::from(count)) as i32;
        Ok(index + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decimals(values: Vec<i128>, precision: u8, scale: i8) -> ArrayRef {
        Arc::new(Decimal128Array::from(values).with_data_type(DataType::Decimal128(precision, scale)))
    }

    fn run(function: Function, args: &[ArrayRef], places: Option<i64>) -> Result<ArrayRef> {
        let number = Number {
            function,
            name: "f",
            aliases: vec![],
            signature: Signature::variadic_any(Volatility::Immutable),
        };
        let inputs: Vec<DataType> = args.iter().map(|array| array.data_type().clone()).collect();
        let target = number.output(&inputs, places)?;
        number.apply(args, &target)
    }

    #[test]
    fn numerics_stay_numerics() {
        let values = decimals(vec![12, -12, 15, -15], 3, 1);
        for (function, expected) in [
            (Function::Ceil, [2, -1, 2, -1]),
            (Function::Floor, [1, -2, 1, -2]),
            (Function::Round, [1, -1, 2, -2]),
            (Function::Trunc, [1, -1, 1, -1]),
        ] {
            let out = run(function, &[ArrayRef::clone(&values)], None).unwrap();
            assert_eq!(out.data_type(), &DataType::Decimal128(3, 0));
            assert_eq!(
                out.as_primitive::<Decimal128Type>().values(),
                &expected,
                "{function:?}"
            );
        }
    }

    #[test]
    fn places_may_be_before_and_after_the_point() {
        let values = decimals(vec![12345], 7, 2);
        let places = |places: i64| -> ArrayRef { Arc::new(arrow::array::Int64Array::from(vec![places])) };
        let round =
            |at: i64| run(Function::Round, &[ArrayRef::clone(&values), places(at)], Some(at)).unwrap();
        assert_eq!(round(1).as_primitive::<Decimal128Type>().value(0), 1235);
        assert_eq!(round(4).as_primitive::<Decimal128Type>().value(0), 1_234_500);
        assert_eq!(round(-2).as_primitive::<Decimal128Type>().value(0), 100);
        assert_eq!(round(-30).as_primitive::<Decimal128Type>().value(0), 0);
    }

    #[test]
    fn halves_of_floats_go_to_the_even_neighbour() {
        let values: ArrayRef = Arc::new(Float64Array::from(vec![2.5, 3.5, -0.5]));
        let out = run(Function::Round, &[values], None).unwrap();
        assert_eq!(out.as_primitive::<Float64Type>().values(), &[2.0, 4.0, -0.0]);
    }

    #[test]
    fn what_is_not_defined_is_an_error() {
        assert_eq!(logarithm(0.0).unwrap_err().code.code(), "2201E");
        assert_eq!(square_root(-1.0).unwrap_err().code.code(), "2201F");
        assert_eq!(power(0.0, -1.0).unwrap_err().code.code(), "2201F");
        assert_eq!(power(-8.0, 0.5).unwrap_err().code.code(), "2201F");
        assert_eq!(power(10.0, 400.0).unwrap_err().code.code(), "22003");
        assert_eq!(bucket(1.0, 0.0, 1.0, 0).unwrap_err().code.code(), "2201G");
        let one: ArrayRef = Arc::new(Int32Array::from(vec![7]));
        let zero: ArrayRef = Arc::new(Int32Array::from(vec![0]));
        assert!(quotients(&one, &zero).is_err());
    }

    #[test]
    fn buckets_are_counted_from_either_side() {
        assert_eq!(bucket(5.0, 0.0, 10.0, 5).unwrap(), 3);
        assert_eq!(bucket(-1.0, 0.0, 10.0, 5).unwrap(), 0);
        assert_eq!(bucket(10.0, 0.0, 10.0, 5).unwrap(), 6);
        assert_eq!(bucket(3.5, 10.0, 0.0, 5).unwrap(), 4);
    }
}
