//! `to_char` of timestamps and dates, for the patterns that people use.

use std::sync::Arc;

use arrow::array::{Array, AsArray, StringArray};
use arrow::datatypes::{DataType, TimeUnit, TimestampMicrosecondType};
use datafusion::common::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::error::{SqlError, SqlState};
use crate::types::parse::datetime::{MICROS_PER_DAY, civil_from_days, days_from_civil};

/// The functions.
pub fn udfs() -> Vec<Arc<ScalarUDF>> {
    vec![Arc::new(ScalarUDF::from(ToChar {
        signature: Signature::any(2, Volatility::Stable),
    }))]
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ToChar {
    signature: Signature,
}

impl ScalarUDFImpl for ToChar {
    fn name(&self) -> &str {
        "to_char"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        match arg_types.first() {
            Some(DataType::Date32 | DataType::Timestamp(..) | DataType::Null) => Ok(DataType::Utf8),
            _ => Err(SqlError::new(
                SqlState::UndefinedFunction,
                "to_char is there for dates and timestamps only",
            )
            .into()),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let instants = arrow::compute::cast(&arrays[0], &DataType::Timestamp(TimeUnit::Microsecond, None))?;
        let instants = instants.as_primitive::<TimestampMicrosecondType>();
        let patterns = arrow::compute::cast(&arrays[1], &DataType::Utf8)?;
        let patterns = patterns.as_string::<i32>();
        let out: StringArray = (0..instants.len())
            .map(|row| {
                (instants.is_valid(row) && patterns.is_valid(row))
                    .then(|| format(instants.value(row), patterns.value(row)))
            })
            .collect();
        Ok(ColumnarValue::Array(Arc::new(out)))
    }
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];

/// Writes an instant by a pattern. What is no part of a pattern is copied; text in double quotes always is.
fn format(micros: i64, pattern: &str) -> String {
    let days = micros.div_euclid(MICROS_PER_DAY);
    let of_day = micros.rem_euclid(MICROS_PER_DAY);
    let (year, month, day) = civil_from_days(days);
    let (hour, minute, second) = (
        of_day / 3_600_000_000,
        of_day / 60_000_000 % 60,
        of_day / 1_000_000 % 60,
    );
    let weekday = usize::try_from((days + 4).rem_euclid(7)).expect("a remainder of seven");
    let month_name = MONTHS[usize::try_from(month - 1).expect("months are 1 to 12")];
    let hour12 = if hour % 12 == 0 { 12 } else { hour % 12 };
    let half = if hour < 12 { "am" } else { "pm" };
    let mut out = String::new();
    let mut rest = pattern;
    while let Some(first) = rest.chars().next() {
        if first == '"' {
            let (text, after) = rest[1..].split_once('"').unwrap_or((&rest[1..], ""));
            out.push_str(text);
            rest = after;
            continue;
        }
        // Fill mode drops the padding of the one part that follows.
        let (fill, body) = match rest.strip_prefix("FM") {
            Some(body) => (false, body),
            None => (true, rest),
        };
        let number = |value: i64, width: usize| {
            if fill {
                format!("{value:0width$}")
            } else {
                value.to_string()
            }
        };
        let word = |name: &str, width: usize| {
            if fill {
                format!("{name:width$}")
            } else {
                name.to_string()
            }
        };
        let parts: [(&str, String); 29] = [
            ("YYYY", number(year, 4)),
            ("YY", number(year.rem_euclid(100), 2)),
            ("MM", number(month, 2)),
            ("DDD", number(days - days_from_civil(year, 1, 1) + 1, 3)),
            ("DD", number(day, 2)),
            ("HH24", number(hour, 2)),
            ("HH12", number(hour12, 2)),
            ("HH", number(hour12, 2)),
            ("MI", number(minute, 2)),
            ("SS", number(second, 2)),
            ("MS", number(of_day / 1000 % 1000, 3)),
            ("US", number(of_day % 1_000_000, 6)),
            ("AM", half.to_uppercase()),
            ("PM", half.to_uppercase()),
            ("am", half.to_string()),
            ("pm", half.to_string()),
            ("MONTH", word(&month_name.to_uppercase(), 9)),
            ("Month", word(month_name, 9)),
            ("month", word(&month_name.to_lowercase(), 9)),
            ("MON", month_name[..3].to_uppercase()),
            ("Mon", month_name[..3].to_string()),
            ("mon", month_name[..3].to_lowercase()),
            ("DAY", word(&DAYS[weekday].to_uppercase(), 9)),
            ("Day", word(DAYS[weekday], 9)),
            ("day", word(&DAYS[weekday].to_lowercase(), 9)),
            ("DY", DAYS[weekday][..3].to_uppercase()),
            ("Dy", DAYS[weekday][..3].to_string()),
            ("Q", ((month - 1) / 3 + 1).to_string()),
            ("D", (weekday + 1).to_string()),
        ];
        match parts
            .iter()
            .filter(|(name, _)| body.starts_with(name))
            .max_by_key(|(name, _)| name.len())
        {
            Some((name, value)) => {
                out.push_str(value);
                rest = &body[name.len()..];
            }
            None => {
                out.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::parse::datetime::timestamp;

    #[test]
    fn patterns_are_postgresqls() {
        let at = timestamp("2013-01-05 15:04:06.789").unwrap();
        for (pattern, text) in [
            ("YYYY-MM-DD HH24:MI:SS", "2013-01-05 15:04:06"),
            ("HH12:MI AM", "03:04 PM"),
            ("FMMonth FMDD, YYYY", "January 5, 2013"),
            ("Dy DDD Q", "Sat 005 1"),
            ("\"at\" MS.US", "at 789.789000"),
            ("Day|", "Saturday |"),
            ("ä", "ä"),
        ] {
            assert_eq!(format(at, pattern), text, "{pattern}");
        }
    }
}
