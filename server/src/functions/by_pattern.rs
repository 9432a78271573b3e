//! `to_date(text, pattern)` and `to_timestamp(text, pattern)`, for the patterns that [`super::format`] writes.
//!
//! As in PostgreSQL, a separator in the pattern takes any separator in the text, names are read in any case, and what
//! the text has after the end of the pattern does not matter.

use std::sync::Arc;

use arrow::array::{Array, AsArray, Date32Array, TimestampMicrosecondArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::error::{SqlError, SqlResult, SqlState};
use crate::functions::on_arrays;
use crate::types::parse::datetime::{MICROS_PER_DAY, days_from_civil, days_in_month};
use crate::types::timestamptz;

/// What `to_timestamp(text, pattern)` is called, beside DataFusion's `to_timestamp` of numbers.
pub const TO_TIMESTAMP: &str = "to_timestamp_by_pattern";

/// The functions.
pub fn udfs() -> Vec<Arc<ScalarUDF>> {
    [true, false]
        .into_iter()
        .map(|to_date| {
            let signature = Signature::any(2, Volatility::Immutable);
            Arc::new(ScalarUDF::from(ByPattern { to_date, signature }))
        })
        .collect()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ByPattern {
    to_date: bool,
    signature: Signature,
}

impl ScalarUDFImpl for ByPattern {
    fn name(&self) -> &str {
        if self.to_date { "to_date" } else { TO_TIMESTAMP }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(if self.to_date {
            DataType::Date32
        } else {
            timestamptz()
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        on_arrays(&args, |arrays, rows| {
            let texts = |index: usize| cast(&arrays[index], &DataType::Utf8);
            let (values, patterns) = (texts(0)?, texts(1)?);
            let (values, patterns) = (values.as_string::<i32>(), patterns.as_string::<i32>());
            let instants = (0..rows)
                .map(|row| {
                    (values.is_valid(row) && patterns.is_valid(row))
                        .then(|| read(values.value(row), patterns.value(row)))
                        .transpose()
                })
                .collect::<SqlResult<Vec<Option<i64>>>>()?;
            Ok(if self.to_date {
                let days = |micros: i64| i32::try_from(micros.div_euclid(MICROS_PER_DAY)).unwrap_or(i32::MAX);
                Arc::new(
                    instants
                        .into_iter()
                        .map(|micros| micros.map(days))
                        .collect::<Date32Array>(),
                )
            } else {
                Arc::new(TimestampMicrosecondArray::from(instants).with_timezone("UTC"))
            })
        })
    }
}

/// A part of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Year,
    ShortYear,
    Month,
    MonthName,
    Day,
    DayOfYear,
    DayName,
    Hour,
    Hour12,
    Minute,
    Second,
    Millis,
    Micros,
    Half,
}

/// The parts with their spelling in the pattern, in any case, and the most digits that they take. Longer spellings
/// stand before their prefixes.
const PARTS: &[(&str, Part, usize)] = &[
    ("YYYY", Part::Year, 4),
    ("YY", Part::ShortYear, 2),
    ("MONTH", Part::MonthName, 0),
    ("MON", Part::MonthName, 0),
    ("MM", Part::Month, 2),
    ("MI", Part::Minute, 2),
    ("MS", Part::Millis, 3),
    ("DDD", Part::DayOfYear, 3),
    ("DD", Part::Day, 2),
    ("DAY", Part::DayName, 0),
    ("DY", Part::DayName, 0),
    ("HH24", Part::Hour, 2),
    ("HH12", Part::Hour12, 2),
    ("HH", Part::Hour12, 2),
    ("SS", Part::Second, 2),
    ("US", Part::Micros, 6),
    ("AM", Part::Half, 0),
    ("PM", Part::Half, 0),
];

const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];

fn invalid(value: &str, part: &str) -> SqlError {
    SqlError::new(
        SqlState::InvalidDatetimeFormat,
        format!("invalid value \"{value}\" for \"{part}\""),
    )
}

fn out_of_range(text: &str) -> SqlError {
    SqlError::new(
        SqlState::DatetimeFieldOverflow,
        format!("date/time field value out of range: \"{text}\""),
    )
}

/// Microseconds since 1970-01-01 of what a text says by a pattern. What it does not say is the beginning of year 1.
fn read(text: &str, pattern: &str) -> SqlResult<i64> {
    let (mut year, mut month, mut day) = (1_i64, 1_i64, 1_i64);
    let (mut hour, mut minute, mut second, mut micros) = (0_i64, 0_i64, 0_i64, 0_i64);
    let mut day_of_year = None;
    let mut afternoon = None;
    let mut rest = text.trim_start();
    let mut template = pattern;
    while let Some(first) = template.chars().next() {
        let body = template
            .get(..2)
            .filter(|prefix| prefix.eq_ignore_ascii_case("FM"))
            .map_or(template, |_| &template[2..]);
        let part = PARTS.iter().find(|(name, _, _)| {
            body.get(..name.len())
                .is_some_and(|word| word.eq_ignore_ascii_case(name))
        });
        let Some((name, part, digits)) = part else {
            // A separator takes a separator, other characters take themselves.
            let next = rest.chars().next();
            if next.is_some_and(|next| !next.is_alphanumeric() || next == first) {
                rest = &rest[next.map_or(0, char::len_utf8)..];
            }
            template = &template[first.len_utf8()..];
            continue;
        };
        template = &body[name.len()..];
        rest = rest.trim_start();
        if rest.is_empty() {
            break;
        }
        let letters = rest
            .find(|character: char| !character.is_ascii_alphabetic())
            .unwrap_or(rest.len());
        match part {
            Part::MonthName => {
                let word = rest[..letters].to_ascii_lowercase();
                let known = MONTHS
                    .iter()
                    .position(|known| word.starts_with(&known[..3]) && (word.len() == 3 || word == **known));
                let at = known.ok_or_else(|| invalid(&rest[..letters], name))?;
                month = i64::try_from(at).expect("there are twelve months") + 1;
                rest = &rest[letters..];
                continue;
            }
            Part::DayName => {
                rest = &rest[letters..];
                continue;
            }
            Part::Half => {
                let word = rest[..letters].to_ascii_lowercase();
                if !matches!(word.as_str(), "am" | "pm") {
                    return Err(invalid(&rest[..letters], name));
                }
                afternoon = Some(word == "pm");
                rest = &rest[letters..];
                continue;
            }
            _ => {}
        }
        let length = rest.bytes().take(*digits).take_while(u8::is_ascii_digit).count();
        let value: i64 = rest[..length]
            .parse()
            .map_err(|_| invalid(&rest.chars().take(*digits).collect::<String>(), name))?;
        rest = &rest[length..];
        match part {
            Part::Year => year = value,
            Part::ShortYear => year = if value < 70 { 2000 + value } else { 1900 + value },
            Part::Month => month = value,
            Part::Day => day = value,
            Part::DayOfYear => day_of_year = Some(value),
            Part::Hour | Part::Hour12 => hour = value,
            Part::Minute => minute = value,
            Part::Second => second = value,
            // The digits are those of a fraction: `5` is half a second.
            Part::Millis | Part::Micros => micros = (length..6).fold(value, |value, _| value * 10),
            Part::MonthName | Part::DayName | Part::Half => {}
        }
    }
    if let Some(afternoon) = afternoon {
        if !(1..=12).contains(&hour) {
            return Err(SqlError::new(
                SqlState::InvalidDatetimeFormat,
                format!("hour \"{hour}\" is invalid for the 12-hour clock"),
            ));
        }
        hour = hour % 12 + if afternoon { 12 } else { 0 };
    }
    let exists = (1..=12).contains(&month)
        && (1..=days_in_month(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    if !exists || year < 1 {
        return Err(out_of_range(text));
    }
    let days = match day_of_year {
        Some(number) => days_from_civil(year, 1, 1) + number - 1,
        None => days_from_civil(year, month, day),
    };
    Ok(days * MICROS_PER_DAY + (hour * 3600 + minute * 60 + second) * 1_000_000 + micros)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::parse::datetime::timestamp;

    #[test]
    fn texts_are_read_by_their_pattern() {
        for (text, pattern, expected) in [
            ("05 Jan 2013", "DD Mon YYYY", "2013-01-05 00:00"),
            ("January 5, 2013", "FMMonth FMDD, YYYY", "2013-01-05 00:00"),
            ("20130105", "YYYYMMDD", "2013-01-05 00:00"),
            ("2013/1/5", "YYYY-MM-DD", "2013-01-05 00:00"),
            (
                "2013-01-05 10:20:30.5",
                "YYYY-MM-DD HH24:MI:SS.MS",
                "2013-01-05 10:20:30.5",
            ),
            ("05.01.13 12:30 am", "DD.MM.YY HH12:MI am", "2013-01-05 00:30"),
            ("2013 036", "YYYY DDD", "2013-02-05 00:00"),
        ] {
            assert_eq!(
                read(text, pattern).unwrap(),
                timestamp(expected).unwrap(),
                "{text}"
            );
        }
        assert_eq!(
            read("2013-02-30", "YYYY-MM-DD").unwrap_err().code,
            SqlState::DatetimeFieldOverflow
        );
        assert_eq!(
            read("05 Jax", "DD Mon").unwrap_err().code,
            SqlState::InvalidDatetimeFormat
        );
    }
}
