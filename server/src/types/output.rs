//! The text output of every type: what COPY writes, and what a text cast gives.
//!
//! A [`TextColumn`] is made once a batch and column, and then writes values into a buffer without allocating.

use std::io::Write;

use arrow::array::{Array, ArrayRef, AsArray, types as arrow_types};
use arrow::datatypes::{DataType, Field, FieldRef, IntervalMonthDayNano, IntervalUnit, TimeUnit};
use arrow::util::display::{ArrayFormatter, FormatOptions};

use crate::error::{SqlResult, from_internal};
use crate::types::parse::datetime::{MICROS_PER_DAY, civil_from_days};
use crate::types::stored;

/// One column of a batch, ready to be written as text.
pub struct TextColumn {
    array: ArrayRef,
    item: Option<FieldRef>,
}

impl TextColumn {
    /// Takes a column; its type becomes the one that tables hold (see [`stored`]), if it is another.
    ///
    /// # Errors
    /// The column is of a type that cannot be converted.
    pub fn new(field: &Field, array: &ArrayRef) -> SqlResult<Self> {
        let stored = stored(field);
        let array = if stored.data_type() == array.data_type() {
            ArrayRef::clone(array)
        } else {
            arrow::compute::cast(array, stored.data_type()).map_err(from_internal::arrow)?
        };
        let item = match stored.data_type() {
            DataType::List(item) => Some(FieldRef::clone(item)),
            _ => None,
        };
        Ok(TextColumn { array, item })
    }

    /// Whether the value of a row is NULL.
    pub fn is_null(&self, row: usize) -> bool {
        self.array.is_null(row)
    }

    /// Appends the text of a value that is not NULL.
    ///
    /// # Errors
    /// The column's type has no text form.
    pub fn write(&self, row: usize, out: &mut Vec<u8>) -> SqlResult<()> {
        let array = self.array.as_ref();
        match array.data_type() {
            DataType::Boolean => out.push(if array.as_boolean().value(row) { b't' } else { b'f' }),
            DataType::Int16 => print(out, array.as_primitive::<arrow_types::Int16Type>().value(row)),
            DataType::Int32 => print(out, array.as_primitive::<arrow_types::Int32Type>().value(row)),
            DataType::Int64 => print(out, array.as_primitive::<arrow_types::Int64Type>().value(row)),
            DataType::Float32 => float(out, array.as_primitive::<arrow_types::Float32Type>().value(row)),
            DataType::Float64 => float(out, array.as_primitive::<arrow_types::Float64Type>().value(row)),
            DataType::Decimal128(_, scale) => {
                decimal(
                    out,
                    array.as_primitive::<arrow_types::Decimal128Type>().value(row),
                    *scale,
                );
            }
            DataType::Utf8 => out.extend_from_slice(array.as_string::<i32>().value(row).as_bytes()),
            DataType::Binary => {
                out.extend_from_slice(b"\\x");
                for byte in array.as_binary::<i32>().value(row) {
                    print(out, format_args!("{byte:02x}"));
                }
            }
            DataType::Date32 => {
                date(
                    out,
                    i64::from(array.as_primitive::<arrow_types::Date32Type>().value(row)),
                );
            }
            DataType::Time64(TimeUnit::Microsecond) => {
                time(
                    out,
                    array
                        .as_primitive::<arrow_types::Time64MicrosecondType>()
                        .value(row),
                );
            }
            DataType::Timestamp(TimeUnit::Microsecond, zone) => {
                timestamp(
                    out,
                    array
                        .as_primitive::<arrow_types::TimestampMicrosecondType>()
                        .value(row),
                );
                if zone.is_some() {
                    out.extend_from_slice(b"+00");
                }
            }
            DataType::Interval(IntervalUnit::MonthDayNano) => {
                interval(
                    out,
                    array
                        .as_primitive::<arrow_types::IntervalMonthDayNanoType>()
                        .value(row),
                );
            }
            DataType::List(_) => self.list(row, out)?,
            _ => {
                let options = FormatOptions::default();
                let formatter = ArrayFormatter::try_new(array, &options).map_err(from_internal::arrow)?;
                print(out, formatter.value(row));
            }
        }
        Ok(())
    }

    fn list(&self, row: usize, out: &mut Vec<u8>) -> SqlResult<()> {
        let values = self.array.as_list::<i32>().value(row);
        let item = self.item.as_ref().expect("a list column was made with its item");
        let nested = matches!(item.data_type(), DataType::List(_));
        let column = TextColumn::new(item, &values)?;
        let mut text = vec![];
        out.push(b'{');
        for index in 0..values.len() {
            if index > 0 {
                out.push(b',');
            }
            if column.is_null(index) {
                out.extend_from_slice(b"NULL");
                continue;
            }
            text.clear();
            column.write(index, &mut text)?;
            let plain = !text.is_empty()
                && !text.eq_ignore_ascii_case(b"null")
                && !text.iter().any(|byte| {
                    matches!(byte, b'{' | b'}' | b',' | b'"' | b'\\') || byte.is_ascii_whitespace()
                });
            if nested || plain {
                out.extend_from_slice(&text);
            } else {
                out.push(b'"');
                for byte in &text {
                    if matches!(byte, b'"' | b'\\') {
                        out.push(b'\\');
                    }
                    out.push(*byte);
                }
                out.push(b'"');
            }
        }
        out.push(b'}');
        Ok(())
    }
}

fn print(out: &mut Vec<u8>, value: impl std::fmt::Display) {
    write!(out, "{value}").expect("writing into memory cannot fail");
}

/// A float in the shortest form that reads back the same.
pub fn float<T: Into<f64> + std::fmt::Display + std::fmt::LowerExp + Copy>(out: &mut Vec<u8>, value: T) {
    let wide: f64 = value.into();
    if wide.is_nan() {
        out.extend_from_slice(b"NaN");
    } else if wide.is_infinite() {
        out.extend_from_slice(if wide > 0.0 { b"Infinity" } else { b"-Infinity" });
    } else if wide != 0.0 && !(1e-4..1e15).contains(&wide.abs()) {
        let text = format!("{value:e}");
        let (mantissa, exponent) = text.split_once('e').expect("the format has an exponent");
        let (sign, digits) = exponent
            .strip_prefix('-')
            .map_or(('+', exponent), |digits| ('-', digits));
        print(out, format_args!("{mantissa}e{sign}{digits:0>2}"));
    } else {
        print(out, value);
    }
}

/// A numeric with all the digits of its scale.
fn decimal(out: &mut Vec<u8>, value: i128, scale: i8) {
    if value < 0 {
        out.push(b'-');
    }
    let digits = value.unsigned_abs();
    match u32::try_from(scale) {
        Ok(0) => print(out, digits),
        Ok(scale) => {
            let unit = 10_u128.pow(scale);
            let width = usize::try_from(scale).unwrap_or_default();
            print(out, format_args!("{}.{:0width$}", digits / unit, digits % unit));
        }
        Err(_) => print(
            out,
            digits.saturating_mul(10_u128.pow(u32::from(scale.unsigned_abs()))),
        ),
    }
}

/// A date.
pub fn date(out: &mut Vec<u8>, days: i64) {
    let (year, month, day) = civil_from_days(days);
    if year > 0 {
        print(out, format_args!("{year:04}-{month:02}-{day:02}"));
    } else {
        print(out, format_args!("{:04}-{month:02}-{day:02} BC", 1 - year));
    }
}

/// A time of day.
pub fn time(out: &mut Vec<u8>, micros: i64) {
    let seconds = micros / 1_000_000;
    print(
        out,
        format_args!(
            "{:02}:{:02}:{:02}",
            seconds / 3600,
            seconds / 60 % 60,
            seconds % 60
        ),
    );
    fraction(out, micros % 1_000_000);
}

fn fraction(out: &mut Vec<u8>, micros: i64) {
    if micros != 0 {
        let text = format!("{micros:06}");
        print(out, format_args!(".{}", text.trim_end_matches('0')));
    }
}

/// A timestamp without its zone.
pub fn timestamp(out: &mut Vec<u8>, micros: i64) {
    date(out, micros.div_euclid(MICROS_PER_DAY));
    out.push(b' ');
    time(out, micros.rem_euclid(MICROS_PER_DAY));
}

/// An interval in PostgreSQL's own style.
pub fn interval(out: &mut Vec<u8>, value: IntervalMonthDayNano) {
    let start = out.len();
    let mut negative_before = false;
    let mut part = |out: &mut Vec<u8>, amount: i32, unit: &str| {
        if amount == 0 {
            return;
        }
        if out.len() > start {
            out.push(b' ');
        }
        // After a negative part a positive one says its sign.
        let sign = if negative_before && amount > 0 { "+" } else { "" };
        negative_before = amount < 0;
        print(
            out,
            format_args!("{sign}{amount} {unit}{}", if amount == 1 { "" } else { "s" }),
        );
    };
    part(out, value.months / 12, "year");
    part(out, value.months % 12, "mon");
    part(out, value.days, "day");
    let micros = value.nanoseconds / 1000;
    if micros != 0 || out.len() == start {
        if out.len() > start {
            out.push(b' ');
        }
        if micros < 0 {
            out.push(b'-');
        } else if negative_before {
            out.push(b'+');
        }
        let micros = micros.abs();
        let seconds = micros / 1_000_000;
        print(
            out,
            format_args!(
                "{:02}:{:02}:{:02}",
                seconds / 3600,
                seconds / 60 % 60,
                seconds % 60
            ),
        );
        fraction(out, micros % 1_000_000);
    }
}

/// The text of one value, for messages; NULL is `null`.
pub fn text(field: &Field, array: &ArrayRef, row: usize) -> String {
    if array.is_null(row) {
        return "null".to_string();
    }
    let mut out = vec![];
    match TextColumn::new(field, array).and_then(|column| column.write(row, &mut out)) {
        Ok(()) => String::from_utf8_lossy(&out).into_owned(),
        Err(_) => "?".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::types::{SqlType, parse, timestamptz};

    fn round_trip(sql_type: &SqlType, input: &str) -> String {
        let field = sql_type.field("v", true);
        let array = parse::value(&field, Some(input)).unwrap_or_else(|error| panic!("{input}: {error}"));
        text(&field, &array, 0)
    }

    #[test]
    fn values_are_written_as_postgresql_writes_them() {
        let list = |data_type| SqlType::plain(DataType::List(Arc::new(Field::new("item", data_type, true))));
        let cases = [
            (SqlType::plain(DataType::Boolean), "yes", "t"),
            (SqlType::plain(DataType::Float64), "1e20", "1e+20"),
            (SqlType::plain(DataType::Float64), "0.1", "0.1"),
            (SqlType::plain(DataType::Float64), "100000", "100000"),
            (SqlType::plain(DataType::Float64), "1.5e-7", "1.5e-07"),
            (SqlType::plain(DataType::Float64), "nan", "NaN"),
            (SqlType::plain(DataType::Float32), "3.4", "3.4"),
            (SqlType::plain(DataType::Decimal128(10, 2)), "-0.5", "-0.50"),
            (SqlType::plain(DataType::Binary), "\\xDEAD", "\\xdead"),
            (SqlType::plain(DataType::Date32), "20130131", "2013-01-31"),
            (
                SqlType::plain(DataType::Time64(TimeUnit::Microsecond)),
                "4:05:06.700",
                "04:05:06.7",
            ),
            (
                SqlType::plain(timestamptz()),
                "2013-01-31 12:00+02",
                "2013-01-31 10:00:00+00",
            ),
            (
                SqlType::plain(DataType::Timestamp(TimeUnit::Microsecond, None)),
                "1969-12-31 23:59:59.5",
                "1969-12-31 23:59:59.5",
            ),
            (
                SqlType::plain(DataType::Interval(IntervalUnit::MonthDayNano)),
                "1 year 2 mons -3 days 4:05:06",
                "1 year 2 mons -3 days +04:05:06",
            ),
            (
                SqlType::plain(DataType::Interval(IntervalUnit::MonthDayNano)),
                "0",
                "00:00:00",
            ),
            (list(DataType::Int32), "{1,NULL,3}", "{1,NULL,3}"),
            (
                list(DataType::Utf8),
                r#"{"a b","","NULL",c}"#,
                r#"{"a b","","NULL",c}"#,
            ),
        ];
        for (sql_type, input, output) in cases {
            assert_eq!(round_trip(&sql_type, input), output, "{input}");
        }
    }
}
