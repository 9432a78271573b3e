//! `to_char` and `to_number`, as PostgreSQL has them.
//!
//! [`pattern`] knows the patterns of times, [`moment`] writes times by them; [`number`] has both for numbers, and
//! [`number_input`] reads numbers. Reading times is in [`super::by_pattern`].

pub mod moment;
pub mod number;
pub mod number_input;
pub mod pattern;

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Decimal128Type, Field, FieldRef, Float32Type, Float64Type, Int64Type, IntervalMonthDayNano,
    TimeUnit, TimestampMicrosecondType,
};
use datafusion::common::{Result, exec_datafusion_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature,
    Volatility,
};
use datafusion::scalar::ScalarValue;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::types::interval::intervals;
use millrace_postgres::types::parse::number::decimal;
use millrace_postgres::types::zone::Zone;
use millrace_postgres::types::{self, NUMERIC_PRECISION, NUMERIC_SCALE, SqlType};

use self::moment::Moment;
use self::number::Number;
use crate::arguments::on_arrays;

const TIMESTAMP: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

/// The functions.
pub fn udfs() -> Vec<Arc<ScalarUDF>> {
    let to_char = Signature::one_of(
        // The third argument is the time zone of the session.
        vec![TypeSignature::Any(2), TypeSignature::Any(3)],
        Volatility::Immutable,
    );
    vec![
        Arc::new(ScalarUDF::from(ToChar { signature: to_char })),
        Arc::new(ScalarUDF::from(ToNumber {
            signature: Signature::any(2, Volatility::Immutable),
        })),
    ]
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ToChar {
    signature: Signature,
}

fn no_such_function(name: &str, types: &[DataType]) -> SqlError {
    let names: Vec<String> = types
        .iter()
        .map(|data_type| types::plain_name(&Field::new("", data_type.clone(), true)))
        .collect();
    SqlError::new(
        SqlState::UndefinedFunction,
        format!("function {name}({}) does not exist", names.join(", ")),
    )
    .with_hint(
        "No function matches the given name and argument types. You might need to add explicit type casts.",
    )
}

fn is_text(data_type: &DataType) -> bool {
    data_type.is_string() || data_type == &DataType::Null
}

impl ScalarUDFImpl for ToChar {
    fn name(&self) -> &str {
        "to_char"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        match arg_types {
            [value, pattern, ..] if is_text(pattern) => match value {
                DataType::Date32
                | DataType::Timestamp(..)
                | DataType::Time64(_)
                | DataType::Interval(_)
                | DataType::Duration(_)
                | DataType::Null => Ok(DataType::Utf8),
                number if number.is_numeric() => Ok(DataType::Utf8),
                _ => Err(no_such_function("to_char", &arg_types[..2]).into()),
            },
            _ => Err(no_such_function("to_char", arg_types).into()),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let zone = match args.args.get(2) {
            Some(ColumnarValue::Scalar(ScalarValue::Utf8(Some(name)))) => Zone::named_in_sql(name)?,
            _ => Zone::UTC,
        };
        on_arrays(&args, |arrays, rows| {
            let patterns = cast(&arrays[1], &DataType::Utf8)?;
            let patterns = patterns.as_string::<i32>();
            let texts = if arrays[0].data_type() == &DataType::Null {
                StringArray::new_null(rows)
            } else if arrays[0].data_type().is_numeric() {
                numbers(&arrays[0], patterns)?
            } else {
                moments(&arrays[0], patterns, zone)?
            };
            Ok(Arc::new(texts))
        })
    }
}

/// What a pattern becomes, and is kept for the rows that follow.
struct Kept<T> {
    last: Option<(String, T)>,
    read: fn(&str) -> SqlResult<T>,
}

impl<T> Kept<T> {
    fn of(read: fn(&str) -> SqlResult<T>) -> Self {
        Kept { last: None, read }
    }

    fn get(&mut self, pattern: &str) -> SqlResult<&T> {
        let is_known = self.last.as_ref().is_some_and(|(known, _)| known == pattern);
        if !is_known {
            self.last = Some((pattern.to_string(), (self.read)(pattern)?));
        }
        match &self.last {
            Some((_, read)) => Ok(read),
            None => Err(SqlError::internal("a pattern was not kept")),
        }
    }
}

/// Applies a pattern to each row; none to NULL.
fn each(
    patterns: &StringArray,
    rows: usize,
    mut write: impl FnMut(usize, &str) -> SqlResult<Option<String>>,
) -> SqlResult<StringArray> {
    (0..rows)
        .map(|row| {
            if patterns.is_null(row) {
                return Ok(None);
            }
            write(row, patterns.value(row))
        })
        .collect()
}

fn moments(values: &ArrayRef, patterns: &StringArray, zone: Zone) -> Result<StringArray> {
    let mut kept = Kept::of(pattern::parse);
    let rows = values.len();
    match values.data_type() {
        DataType::Interval(_) | DataType::Duration(_) | DataType::Time64(_) => {
            let lengths = match values.data_type() {
                DataType::Time64(_) => {
                    let micros = cast(values, &DataType::Int64)?;
                    let micros = micros.as_primitive::<Int64Type>();
                    let length = |micros: i64| IntervalMonthDayNano::new(0, 0, micros * 1000);
                    micros.iter().map(|micros| micros.map(length)).collect()
                }
                _ => intervals(values)?,
            };
            Ok(each(patterns, rows, |row, pattern| {
                if lengths.is_null(row) || pattern.is_empty() {
                    return Ok(None);
                }
                Moment::of_interval(lengths.value(row))
                    .write(kept.get(pattern)?, "")
                    .map(Some)
            })?)
        }
        data_type => {
            let is_zoned = matches!(data_type, DataType::Timestamp(_, Some(_)));
            let instants = if is_zoned {
                cast(values, &types::timestamptz())?
            } else {
                cast(values, &TIMESTAMP)?
            };
            let instants = instants.as_primitive::<TimestampMicrosecondType>();
            Ok(each(patterns, rows, |row, pattern| {
                let micros = instants.value(row);
                // The infinities have no parts.
                if instants.is_null(row) || pattern.is_empty() || matches!(micros, i64::MAX | i64::MIN) {
                    return Ok(None);
                }
                let items = kept.get(pattern)?;
                if !is_zoned {
                    return Moment::of_timestamp(micros, 0).write(items, "").map(Some);
                }
                Moment::of_timestamp(zone.to_local(micros), zone.offset_at(micros))
                    .write(items, &zone.abbreviation_at(micros))
                    .map(Some)
            })?)
        }
    }
}

fn numbers(values: &ArrayRef, patterns: &StringArray) -> Result<StringArray> {
    let mut kept = Kept::of(number::Pattern::parse);
    let rows = values.len();
    let mut write = |is_null: bool, row: usize, number: &dyn Fn(usize) -> Box<dyn Number>, pattern: &str| {
        if is_null {
            return Ok(None);
        }
        Ok(Some(kept.get(pattern)?.write(number(row).as_ref())))
    };
    Ok(match values.data_type() {
        DataType::Float16 | DataType::Float32 => {
            let floats = cast(values, &DataType::Float32)?;
            let floats = floats.as_primitive::<Float32Type>();
            let number = |row: usize| -> Box<dyn Number> {
                Box::new(Float {
                    value: f64::from(floats.value(row)),
                    precision: 6,
                })
            };
            each(patterns, rows, |row, pattern| {
                write(floats.is_null(row), row, &number, pattern)
            })?
        }
        DataType::Float64 => {
            let floats = values.as_primitive::<Float64Type>();
            let number = |row: usize| -> Box<dyn Number> {
                Box::new(Float {
                    value: floats.value(row),
                    precision: 15,
                })
            };
            each(patterns, rows, |row, pattern| {
                write(floats.is_null(row), row, &number, pattern)
            })?
        }
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => {
            let is_wide = values.data_type() == &DataType::Int64;
            let integers = cast(values, &DataType::Int64)?;
            let integers = integers.as_primitive::<Int64Type>();
            let number = |row: usize| -> Box<dyn Number> {
                Box::new(Exact {
                    digits: integers.value(row).into(),
                    scale: 0,
                    is_small: !is_wide,
                })
            };
            each(patterns, rows, |row, pattern| {
                write(integers.is_null(row), row, &number, pattern)
            })?
        }
        other => {
            // 1e10 is a literal of a negative scale.
            let (scale, exact) = match other {
                DataType::Decimal128(_, scale) if *scale >= 0 => {
                    (usize::from(scale.unsigned_abs()), Arc::clone(values))
                }
                _ => (0, cast(values, &DataType::Decimal128(NUMERIC_PRECISION, 0))?),
            };
            let exact = exact.as_primitive::<Decimal128Type>();
            let number = |row: usize| -> Box<dyn Number> {
                Box::new(Exact {
                    digits: exact.value(row),
                    scale,
                    is_small: false,
                })
            };
            each(patterns, rows, |row, pattern| {
                write(exact.is_null(row), row, &number, pattern)
            })?
        }
    })
}

/// An integer or a numeric: digits, and how many of them are behind the point.
struct Exact {
    digits: i128,
    scale: usize,
    /// An `integer`, which is written in scientific form as a float is.
    is_small: bool,
}

/// Digits with so many behind the point, of which so many are kept; halves go away from zero.
fn rounded(digits: &str, scale: usize, after: usize) -> String {
    // One digit before the point at least.
    let mut all = format!("{digits:0>width$}", width = scale + 1).into_bytes();
    let kept = all.len() - scale + after;
    if kept >= all.len() {
        all.resize(kept, b'0');
    } else {
        let up = all[kept] >= b'5';
        all.truncate(kept);
        if up {
            let mut carried = true;
            for digit in all.iter_mut().rev() {
                if *digit == b'9' {
                    *digit = b'0';
                } else {
                    *digit += 1;
                    carried = false;
                    break;
                }
            }
            if carried {
                all.insert(0, b'1');
            }
        }
    }
    let mut text = String::from_utf8_lossy(&all).into_owned();
    if after > 0 {
        text.insert(text.len() - after, '.');
    }
    text
}

impl Exact {
    fn is_negative_text(&self, text: &str) -> bool {
        self.digits < 0 && text.bytes().any(|digit| matches!(digit, b'1'..=b'9'))
    }
}

impl Number for Exact {
    fn whole(&self) -> Option<i64> {
        let text = rounded(&self.digits.unsigned_abs().to_string(), self.scale, 0);
        let value: i64 = text.parse().ok()?;
        Some(if self.digits < 0 { -value } else { value })
    }

    fn scientific(&self, after: usize) -> Option<String> {
        if self.is_small {
            #[expect(clippy::cast_precision_loss, reason = "an integer of 32 bits fits")]
            let value = self.digits as f64;
            return Float { value, precision: 15 }.scientific(after);
        }
        let digits = self.digits.unsigned_abs().to_string();
        let mut exponent = digits.len() as i64 - 1 - self.scale as i64;
        let mut text = rounded(&digits, digits.len() - 1, after);
        // 9.99 becomes 10.0.
        if text.find('.').unwrap_or(text.len()) > 1 {
            exponent += 1;
            let plain: String = text.chars().filter(|character| *character != '.').collect();
            text = rounded(&plain, plain.len() - 1, after);
        }
        if self.digits == 0 {
            exponent = 0;
        }
        let sign = if self.digits < 0 { "-" } else { "" };
        Some(format!("{sign}{text}e{}", exponent_text(exponent)))
    }

    fn fixed(&self, shift: usize, after: usize) -> (String, usize) {
        let digits = self.digits.unsigned_abs().to_string();
        let text = match shift.checked_sub(self.scale) {
            Some(more) => rounded(&format!("{digits}{}", "0".repeat(more)), 0, after),
            None => rounded(&digits, self.scale - shift, after),
        };
        let sign = if self.is_negative_text(&text) { "-" } else { "" };
        (format!("{sign}{text}"), after)
    }
}

fn exponent_text(exponent: i64) -> String {
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{sign}{:02}", exponent.abs())
}

/// A float: it has so many digits that mean something.
struct Float {
    value: f64,
    precision: usize,
}

impl Number for Float {
    fn whole(&self) -> Option<i64> {
        let value = self.value.round_ties_even();
        #[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
        (value.abs() < 1e9).then_some(value as i64)
    }

    fn scientific(&self, after: usize) -> Option<String> {
        if !self.value.is_finite() {
            return None;
        }
        let text = format!("{:.after$e}", self.value);
        let (mantissa, exponent) = text.split_once('e')?;
        Some(format!("{mantissa}e{}", exponent_text(exponent.parse().ok()?)))
    }

    fn fixed(&self, shift: usize, after: usize) -> (String, usize) {
        let value = self.value * 10_f64.powi(i32::try_from(shift).unwrap_or(i32::MAX));
        if value.is_nan() {
            return ("NaN".into(), after);
        }
        if value.is_infinite() {
            let sign = if value < 0.0 { "-" } else { "" };
            return (format!("{sign}Infinity"), after);
        }
        let length = format!("{:.0}", value.abs()).len();
        let after = if length >= self.precision {
            0
        } else {
            after.min(self.precision - length)
        };
        let text = format!("{value:.after$}");
        (text, after)
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ToNumber {
    signature: Signature,
}

impl ScalarUDFImpl for ToNumber {
    fn name(&self) -> &str {
        "to_number"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Err(exec_datafusion_err!(
            "to_number tells its type by return_field_from_args"
        ))
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let types: Vec<DataType> = args
            .arg_fields
            .iter()
            .map(|field| field.data_type().clone())
            .collect();
        if !types.iter().all(is_text) {
            return Err(no_such_function("to_number", &types).into());
        }
        let scale = match args.scalar_arguments.get(1).copied().flatten() {
            Some(ScalarValue::Utf8(Some(pattern))) => {
                let pattern = number::Pattern::parse(pattern)?;
                i8::try_from(pattern.after + pattern.shift.unwrap_or(0)).unwrap_or(i8::MAX)
            }
            _ => 0,
        };
        // As many digits behind the point as the pattern has, if a plain numeric has fewer.
        let result =
            if scale > NUMERIC_SCALE && u8::try_from(scale).is_ok_and(|scale| scale <= NUMERIC_PRECISION) {
                SqlType::plain(DataType::Decimal128(NUMERIC_PRECISION, scale))
            } else {
                SqlType::annotated(DataType::Decimal128(NUMERIC_PRECISION, NUMERIC_SCALE), "numeric")
            };
        Ok(Arc::new(result.field("to_number", true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let target = args.return_field.data_type().clone();
        let DataType::Decimal128(precision, scale) = target else {
            return Err(exec_datafusion_err!("to_number makes numerics"));
        };
        on_arrays(&args, |arrays, rows| {
            let (texts, patterns) = (
                cast(&arrays[0], &DataType::Utf8)?,
                cast(&arrays[1], &DataType::Utf8)?,
            );
            let (texts, patterns) = (texts.as_string::<i32>(), patterns.as_string::<i32>());
            let mut kept = Kept::of(number::Pattern::parse);
            let values = (0..rows)
                .map(|row| {
                    if texts.is_null(row) || patterns.is_null(row) || patterns.value(row).is_empty() {
                        return Ok(None);
                    }
                    read_number(kept.get(patterns.value(row))?, texts.value(row), precision, scale).map(Some)
                })
                .collect::<SqlResult<Decimal128Array>>()?;
            Ok(Arc::new(values.with_data_type(target.clone())))
        })
    }
}

fn read_number(pattern: &number::Pattern, text: &str, precision: u8, scale: i8) -> SqlResult<i128> {
    if pattern
        .items
        .iter()
        .any(|item| matches!(item, number::Item::Roman(_)))
    {
        return Err(SqlError::unsupported("\"RN\" not supported for input"));
    }
    if pattern.items.contains(&number::Item::Exponent) {
        return Err(SqlError::unsupported("\"EEEE\" not supported for input"));
    }
    let digits = number_input::digits(pattern, text);
    let shown = match digits.as_str() {
        "" => " ".to_string(),
        _ => digits,
    };
    let exponent = match pattern.shift {
        Some(shift) if shift > 0 => format!("e-{shift}"),
        _ => String::new(),
    };
    if !shown.bytes().any(|byte| byte.is_ascii_digit()) {
        return Err(millrace_postgres::error::input::invalid("numeric", &shown));
    }
    decimal(&format!("{shown}{exponent}"), precision, scale)
}

#[cfg(test)]
mod tests {
    use super::number::Pattern;
    use super::*;

    fn exact(digits: i128, scale: usize, pattern: &str) -> String {
        let number = Exact {
            digits,
            scale,
            is_small: false,
        };
        Pattern::parse(pattern).unwrap().write(&number)
    }

    #[test]
    fn numbers_are_written_as_postgresql_writes_them() {
        for (digits, scale, pattern, text) in [
            (-12, 0, "999", " -12"),
            (12, 0, "999", "  12"),
            (-1, 1, "99.99", "  -.10"),
            (-1, 1, "FM9.99", "-.1"),
            (1, 1, "0.9", " 0.1"),
            (12, 0, "9990999.9", "    0012.0"),
            (12, 0, "FM9990999.9", "0012."),
            (485, 0, "9 9 9", " 4 8 5"),
            (1485, 0, "9,999", " 1,485"),
            (1485, 0, "9G999", " 1,485"),
            (1485, 1, "999.999", " 148.500"),
            (1485, 1, "FM999.999", "148.5"),
            (1485, 1, "FM999.990", "148.500"),
            (-485, 0, "999S", "485-"),
            (485, 0, "999S", "485+"),
            (485, 0, "999MI", "485 "),
            (-485, 0, "999MI", "485-"),
            (485, 0, "FM999MI", "485"),
            (485, 0, "PL999", "+ 485"),
            (485, 0, "SG999", "+485"),
            (-485, 0, "SG999", "-485"),
            (-485, 0, "9SG99", "4-85"),
            (-485, 0, "999PR", "<485>"),
            (485, 0, "L999", "  485"),
            (485, 0, "RN", "        CDLXXXV"),
            (485, 0, "FMRN", "CDLXXXV"),
            (482, 0, "999th", " 482nd"),
            (485, 0, "\"Good number:\"999", "Good number: 485"),
            (12, 0, "99V999", " 12000"),
            (124, 1, "99V9", " 124"),
            (4850, 1, "9.99EEEE", " 4.85e+02"),
            (1234567, 0, "9.99EEEE", " 1.23e+06"),
            (1234, 0, "99", " ##"),
            (1234, 0, "99.9", " ##.#"),
        ] {
            assert_eq!(exact(digits, scale, pattern), text, "{digits} {scale} {pattern}");
        }
    }

    #[test]
    fn numbers_are_read_by_their_pattern() {
        let read = |text: &str, pattern: &str| {
            read_number(&Pattern::parse(pattern).unwrap(), text, 38, 2).map(|digits| digits.to_string())
        };
        for (text, pattern, digits) in [
            ("1,234.5", "9G999D99", "123450"),
            ("-1,234.5", "S9,999.9", "-123450"),
            ("12.345", "99.9", "1230"),
            ("<12>", "99PR", "-1200"),
            ("12-", "99MI", "-1200"),
            ("12th", "99th", "1200"),
            ("$12", "L99", "1200"),
            ("1234", "99V99", "1234"),
            ("12 34", "99 99", "123400"),
        ] {
            assert_eq!(read(text, pattern).unwrap(), digits, "{text} {pattern}");
        }
        assert_eq!(read("abc", "9").unwrap_err().code.code(), "22P02");
        assert_eq!(read("IV", "RN").unwrap_err().code.code(), "0A000");
        for pattern in ["9S9S", "9.9.9", "9PR9", "S9MI", "9EEEE9"] {
            assert_eq!(
                Pattern::parse(pattern).unwrap_err().code.code(),
                "42601",
                "{pattern}"
            );
        }
    }
}
