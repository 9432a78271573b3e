//! How many digits of its seconds a time has: `timestamp(3)`, `interval(0)`. Values are rounded when they become of such a
//! type, as PostgreSQL rounds them: what is half way goes away from zero, of timestamps away from the year 2000.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{
    DataType, Field, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit, Time64MicrosecondType,
    TimeUnit, TimestampMicrosecondType,
};
use datafusion::sql::sqlparser::ast::IntervalFields;

use super::interval_fields::Fields;
use super::{ANNOTATION, SqlType};
use crate::error::{SqlError, SqlResult, SqlState};

/// The digits that are kept anyway.
pub const DIGITS_MAX: u32 = 6;
/// Midnight of 2000, from which PostgreSQL counts.
const YEAR_2000: i64 = 946_684_800_000_000;

/// The type with so many digits; `None`: all that there are.
///
/// # Errors
/// There are no such types.
pub(super) fn annotated(data_type: DataType, digits: Option<u64>) -> SqlResult<SqlType> {
    let Some(digits) = checked(digits)? else {
        return Ok(SqlType::plain(data_type));
    };
    let (name, zone) = names(&data_type).unwrap_or_default();
    Ok(SqlType::annotated(data_type, format!("{name}({digits}){zone}")))
}

/// An interval of these fields.
///
/// # Errors
/// There are no such types.
pub(super) fn interval(fields: Option<&IntervalFields>, digits: Option<u64>) -> SqlResult<SqlType> {
    let data_type = DataType::Interval(IntervalUnit::MonthDayNano);
    let Some(fields) = fields else {
        return annotated(data_type, digits);
    };
    let name = format!("interval {}", fields.to_string().to_lowercase());
    Ok(SqlType::annotated(
        data_type,
        match checked(digits)? {
            Some(digits) => format!("{name}({digits})"),
            None => name,
        },
    ))
}

fn checked(digits: Option<u64>) -> SqlResult<Option<u64>> {
    match digits {
        Some(digits) if digits > u64::from(DIGITS_MAX) => Err(SqlError::new(
            SqlState::InvalidParameterValue,
            format!("precision {digits} of a time type must be between 0 and {DIGITS_MAX}"),
        )),
        digits => Ok(digits),
    }
}

/// What stands before and behind the digits of a type.
fn names(data_type: &DataType) -> Option<(&'static str, &'static str)> {
    Some(match data_type {
        DataType::Time32(_) | DataType::Time64(_) => ("time", " without time zone"),
        DataType::Timestamp(_, None) => ("timestamp", " without time zone"),
        DataType::Timestamp(_, Some(_)) => ("timestamp", " with time zone"),
        DataType::Interval(_) | DataType::Duration(_) => ("interval", ""),
        _ => return None,
    })
}

/// Whether an annotation is that of a type of this module.
pub fn names_a_time(annotation: &str) -> bool {
    annotation.starts_with("time") || annotation.starts_with("interval")
}

/// The note of a field that is of such a type.
fn note(field: &Field) -> Option<&str> {
    let (name, zone) = names(field.data_type())?;
    let note = field.metadata().get(ANNOTATION)?;
    let rest = note.strip_prefix(name)?.strip_suffix(zone)?;
    rest.starts_with(['(', ' ']).then_some(note.as_str())
}

/// Whether a field is of such a type.
pub fn is_noted(field: &Field) -> bool {
    note(field).is_some()
}

/// The digits of the seconds of a field's values, if they are limited.
pub fn of(field: &Field) -> Option<u32> {
    let (_, rest) = note(field)?.split_once('(')?;
    rest.split_once(')')?.0.parse().ok()
}

/// `information_schema.columns.datetime_precision`.
pub fn told(field: &Field) -> Option<i32> {
    match field.data_type() {
        DataType::Date32 => Some(0),
        data_type => {
            names(data_type)?;
            i32::try_from(of(field).unwrap_or(DIGITS_MAX)).ok()
        }
    }
}

/// `information_schema.columns.interval_type`: the fields of an interval, if it has not all.
pub fn fields_told(field: &Field) -> Option<String> {
    Some(note(field)?.strip_prefix("interval ")?.to_uppercase())
}

/// What PostgreSQL keeps of it: `pg_attribute.atttypmod`.
pub fn modifier(field: &Field) -> Option<i32> {
    /// All fields, and all digits, of an interval.
    const ALL_FIELDS: i32 = 0x7fff;
    const ALL_DIGITS: i32 = 0xffff;
    note(field)?;
    let digits = of(field).and_then(|digits| i32::try_from(digits).ok());
    if !matches!(field.data_type(), DataType::Interval(_)) {
        return digits;
    }
    let fields = interval_fields(field).map_or(ALL_FIELDS, |fields| fields.bits);
    Some((fields << 16) | digits.unwrap_or(ALL_DIGITS))
}

/// The fields of a field's intervals, if it has not all of them.
pub fn interval_fields(field: &Field) -> Option<Fields> {
    let name = note(field)?.strip_prefix("interval ")?;
    Fields::named(name.split('(').next()?)
}

/// The name of a type of intervals with a modifier.
pub fn interval_name(modifier: i32) -> String {
    let name = match Fields::of_bits(modifier >> 16) {
        Some(fields) => format!("interval {}", fields.name),
        None => "interval".to_owned(),
    };
    match modifier & 0xffff {
        digits @ 0..=6 if modifier >= 0 => format!("{name}({digits})"),
        _ => name,
    }
}

/// The values of a column with the digits, and the fields of an interval, that its field has.
pub fn rounded(field: &Field, values: ArrayRef) -> ArrayRef {
    let values = match interval_fields(field) {
        Some(fields) if matches!(values.data_type(), DataType::Interval(IntervalUnit::MonthDayNano)) => {
            let intervals = values.as_primitive::<IntervalMonthDayNanoType>();
            Arc::new(intervals.unary::<_, IntervalMonthDayNanoType>(|value| fields.cut(value))) as ArrayRef
        }
        _ => values,
    };
    let Some(digits) = of(field).filter(|digits| *digits < DIGITS_MAX) else {
        return values;
    };
    let step = 10_i64.pow(DIGITS_MAX - digits);
    match values.data_type() {
        DataType::Time64(TimeUnit::Microsecond) => {
            let times = values.as_primitive::<Time64MicrosecondType>();
            Arc::new(times.unary::<_, Time64MicrosecondType>(|micros| nearest(micros, step)))
        }
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            let times = values.as_primitive::<TimestampMicrosecondType>();
            let rounded = times.unary::<_, TimestampMicrosecondType>(|micros| match micros {
                // Infinity.
                i64::MAX | i64::MIN => micros,
                _ => match micros.checked_sub(YEAR_2000) {
                    Some(since) => nearest(since, step).saturating_add(YEAR_2000),
                    None => micros,
                },
            });
            Arc::new(rounded.with_timezone_opt(zone.clone()))
        }
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            let intervals = values.as_primitive::<IntervalMonthDayNanoType>();
            let step = step.saturating_mul(1000);
            Arc::new(intervals.unary::<_, IntervalMonthDayNanoType>(|value| {
                IntervalMonthDayNano::new(value.months, value.days, nearest(value.nanoseconds, step))
            }))
        }
        _ => values,
    }
}

/// The nearest multiple of a step, away from zero if two are as near.
fn nearest(value: i64, step: i64) -> i64 {
    let rest = value % step;
    let down = value - rest;
    if rest.abs() * 2 < step {
        return down;
    }
    down.saturating_add(step * rest.signum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_go_away_from_zero() {
        for (value, rounded) in [(1499, 1000), (1500, 2000), (-1499, -1000), (-1500, -2000), (0, 0)] {
            assert_eq!(nearest(value, 1000), rounded, "{value}");
        }
        assert_eq!(nearest(i64::MAX, 1000), i64::MAX);
    }

    #[test]
    fn an_interval_says_its_fields_and_digits() {
        for (name, modifier) in [
            ("interval(1)", 2_147_418_113),
            ("interval second(2)", 268_435_458),
            ("interval day to second(3)", 470_286_339),
            ("interval year to month", 458_751),
            ("interval day", 589_823),
        ] {
            let field =
                SqlType::annotated(DataType::Interval(IntervalUnit::MonthDayNano), name).field("i", true);
            assert_eq!(super::modifier(&field), Some(modifier), "{name}");
            assert_eq!(interval_name(modifier), name);
        }
        assert_eq!(interval_name(-1), "interval");
    }
}
