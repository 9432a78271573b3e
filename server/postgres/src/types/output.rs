//! The text output of every type: what COPY writes, and what a text cast gives.
//!
//! A [`TextColumn`] is made once a batch and column, and then writes values into a buffer. The forms are written by the
//! encoders of the wire, so that a text looks the same whichever way it leaves.

use std::io::Write;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, types as arrow_types};
use arrow::datatypes::{DataType, Field, FieldRef, Fields, IntervalUnit, TimeUnit};
use arrow::util::display::{ArrayFormatter, FormatOptions};

use crate::error::SqlResult;
use crate::forms::{datetime, number};
use crate::from_internal;
use crate::types::enumeration::{as_texts, is_enum};
use crate::types::interval::intervals;
use crate::types::zone::Zone;
use crate::types::{is_any_numeric, stored};

/// One column of a batch, ready to be written as text.
pub struct TextColumn {
    array: ArrayRef,
    item: Option<FieldRef>,
    /// A `numeric` without a declared scale has only the digits that it needs.
    any_scale: bool,
}

impl TextColumn {
    /// Takes a column; its type becomes the one that tables hold (see [`stored`]), if it is another.
    ///
    /// # Errors
    /// The column is of a type that cannot be converted.
    pub fn new(field: &Field, array: &ArrayRef) -> SqlResult<Self> {
        let array = &match is_enum(field) {
            true => as_texts(field, array),
            false => ArrayRef::clone(array),
        };
        let mut stored = stored(field);
        // An instant keeps the zone in which it is to be shown.
        if let (DataType::Timestamp(_, Some(_)), DataType::Timestamp(TimeUnit::Microsecond, Some(_))) =
            (stored.data_type(), array.data_type())
        {
            stored = Arc::new(stored.as_ref().clone().with_data_type(array.data_type().clone()));
        }
        let array: ArrayRef = if stored.data_type() == array.data_type() {
            ArrayRef::clone(array)
        } else if matches!(array.data_type(), DataType::Duration(_)) {
            Arc::new(intervals(array).map_err(from_internal::datafusion)?)
        } else {
            arrow::compute::cast(array, stored.data_type()).map_err(from_internal::arrow)?
        };
        let item = match stored.data_type() {
            DataType::List(item) => Some(FieldRef::clone(item)),
            _ => None,
        };
        let any_scale = is_any_numeric(field);
        Ok(TextColumn {
            array,
            item,
            any_scale,
        })
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
            DataType::Float32 => {
                number::put_float32(array.as_primitive::<arrow_types::Float32Type>().value(row), out)
            }
            DataType::Float64 => {
                number::put_float64(array.as_primitive::<arrow_types::Float64Type>().value(row), out)
            }
            DataType::Decimal128(_, scale) => {
                let value = array.as_primitive::<arrow_types::Decimal128Type>().value(row);
                let (digits, scale) = if self.any_scale {
                    number::trimmed(value.to_string(), *scale)
                } else {
                    (value.to_string(), *scale)
                };
                number::put_decimal(&digits, scale, out);
            }
            DataType::Utf8 => out.extend_from_slice(array.as_string::<i32>().value(row).as_bytes()),
            DataType::Binary => {
                out.extend_from_slice(b"\\x");
                for byte in array.as_binary::<i32>().value(row) {
                    print(out, format_args!("{byte:02x}"));
                }
            }
            DataType::Date32 => {
                let days = array.as_primitive::<arrow_types::Date32Type>().value(row);
                datetime::put_date(days.into(), out);
            }
            DataType::Time64(TimeUnit::Microsecond) => {
                let time = array.as_primitive::<arrow_types::Time64MicrosecondType>();
                datetime::put_time(time.value(row), out);
            }
            DataType::Timestamp(TimeUnit::Microsecond, zone) => {
                let micros = array
                    .as_primitive::<arrow_types::TimestampMicrosecondType>()
                    .value(row);
                let zone = zone.as_ref().map(|zone| Zone::parse(zone).unwrap_or(Zone::UTC));
                let offset = zone.map(|zone| zone.offset_at(micros));
                datetime::Timestamp { micros, offset }.put_text(out);
            }
            DataType::Interval(IntervalUnit::MonthDayNano) => {
                let value = array
                    .as_primitive::<arrow_types::IntervalMonthDayNanoType>()
                    .value(row);
                let interval = datetime::Interval {
                    months: value.months,
                    days: value.days,
                    micros: value.nanoseconds / 1000,
                };
                interval.put_text(out);
            }
            DataType::List(_) => self.list(row, out)?,
            DataType::Struct(fields) => self.record(fields, row, out)?,
            _ => {
                let options = FormatOptions::default();
                let formatter = ArrayFormatter::try_new(array, &options).map_err(from_internal::arrow)?;
                print(out, formatter.value(row));
            }
        }
        Ok(())
    }

    fn record(&self, fields: &Fields, row: usize, out: &mut Vec<u8>) -> SqlResult<()> {
        let mut text = vec![];
        out.push(b'(');
        for (index, (field, values)) in fields.iter().zip(self.array.as_struct().columns()).enumerate() {
            if index > 0 {
                out.push(b',');
            }
            let column = TextColumn::new(field, &values.slice(row, 1))?;
            if column.is_null(0) {
                continue;
            }
            text.clear();
            column.write(0, &mut text)?;
            let special =
                |byte: &u8| matches!(byte, b'(' | b')' | b',' | b'"' | b'\\') || byte.is_ascii_whitespace();
            if !text.is_empty() && !text.iter().any(special) {
                out.extend_from_slice(&text);
                continue;
            }
            out.push(b'"');
            for byte in &text {
                if matches!(byte, b'"' | b'\\') {
                    out.push(*byte);
                }
                out.push(*byte);
            }
            out.push(b'"');
        }
        out.push(b')');
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
