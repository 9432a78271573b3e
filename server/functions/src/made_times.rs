//! Times that are made of numbers, and what is put in order in intervals.
//!
//! | function | what |
//! |---|---|
//! | `make_date(y, m, d)`, `make_time(h, m, s)`, `make_timestamp(y, m, d, h, m, s)` | years before Christ are negative |
//! | `make_timestamptz(y, m, d, h, m, s [, zone])` | without a zone in UTC, or in the session's |
//! | `make_interval(y, m, w, d, h, m, s)` | what is left out is 0 |
//! | `justify_days(i)`, `justify_hours(i)`, `justify_interval(i)` | 30 days are a month, 24 hours a day |
//! | `isfinite(t)` | whether it is not an infinity |

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Date32Array, Float64Array, Int64Array, IntervalMonthDayNanoArray,
    Time64MicrosecondArray, TimestampMicrosecondArray,
};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Date32Type, Float64Type, Int64Type, IntervalMonthDayNano, IntervalUnit, TimeUnit,
    TimestampMicrosecondType,
};
use datafusion::common::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::types::interval::intervals;
use millrace_postgres::types::parse::datetime::{MICROS_PER_DAY, days_from_civil, days_in_month};
use millrace_postgres::types::timestamptz;
use millrace_postgres::types::zone::Zone;

use crate::arguments::on_arrays;

/// What is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Function {
    Date,
    Time,
    Timestamp,
    Instant,
    Interval,
    JustifyDays,
    JustifyHours,
    JustifyInterval,
    IsFinite,
}

/// Each with its name, and the least and greatest number of its arguments.
const ALL: [(Function, &str, usize, usize); 9] = [
    (Function::Date, "make_date", 3, 3),
    (Function::Time, "make_time", 3, 3),
    (Function::Timestamp, "make_timestamp", 6, 6),
    (Function::Instant, "make_timestamptz", 6, 7),
    (Function::Interval, "make_interval", 1, 7),
    (Function::JustifyDays, "justify_days", 1, 1),
    (Function::JustifyHours, "justify_hours", 1, 1),
    (Function::JustifyInterval, "justify_interval", 1, 1),
    (Function::IsFinite, "isfinite", 1, 1),
];

/// What makes a value of numbers, the seconds, and the number of the row.
type Make<'a> = &'a dyn Fn(&[i64], f64, usize) -> SqlResult<i64>;

/// The functions.
pub fn udfs() -> Vec<Arc<ScalarUDF>> {
    ALL.into_iter()
        .map(|(function, name, least, most)| {
            let counts = (least..=most).map(TypeSignature::Any).collect();
            Arc::new(ScalarUDF::from(Made {
                function,
                name,
                signature: Signature::one_of(counts, Volatility::Immutable),
            }))
        })
        .collect()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Made {
    function: Function,
    name: &'static str,
    signature: Signature,
}

fn out_of_range(what: String) -> SqlError {
    SqlError::new(SqlState::DatetimeFieldOverflow, what)
}

impl ScalarUDFImpl for Made {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        let is_time = |given: &DataType| {
            matches!(
                given,
                DataType::Date32 | DataType::Timestamp(..) | DataType::Interval(_) | DataType::Null
            )
        };
        let fits = match self.function {
            Function::IsFinite => arg_types.iter().all(is_time),
            Function::JustifyDays | Function::JustifyHours | Function::JustifyInterval => arg_types
                .iter()
                .all(|given| matches!(given, DataType::Interval(_) | DataType::Null)),
            _ => arg_types
                .iter()
                .take(6)
                .all(|given| given.is_numeric() || given.is_null()),
        };
        if !fits {
            let message = format!("function {} does not exist for arguments of this type", self.name);
            return Err(SqlError::new(SqlState::UndefinedFunction, message)
                .with_hint("You might need to add explicit type casts.")
                .into());
        }
        Ok(match self.function {
            Function::Date => DataType::Date32,
            Function::Time => DataType::Time64(TimeUnit::Microsecond),
            Function::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
            Function::Instant => timestamptz(),
            Function::Interval
            | Function::JustifyDays
            | Function::JustifyHours
            | Function::JustifyInterval => DataType::Interval(IntervalUnit::MonthDayNano),
            Function::IsFinite => DataType::Boolean,
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        on_arrays(&args, |arrays, rows| match self.function {
            Function::IsFinite => is_finite(&arrays[0]),
            Function::JustifyDays | Function::JustifyHours | Function::JustifyInterval => {
                let justified = intervals(&arrays[0])?
                    .iter()
                    .map(|value| value.map(|value| self.justified(value)).transpose())
                    .collect::<SqlResult<IntervalMonthDayNanoArray>>()?;
                Ok(Arc::new(justified))
            }
            _ => self.made(arrays, rows),
        })
    }
}

impl Made {
    fn justified(&self, value: IntervalMonthDayNano) -> SqlResult<IntervalMonthDayNano> {
        let (mut months, mut days) = (i64::from(value.months), i64::from(value.days));
        let mut micros = value.nanoseconds / 1000;
        if self.function != Function::JustifyDays {
            days += micros / MICROS_PER_DAY;
            micros %= MICROS_PER_DAY;
        }
        if self.function != Function::JustifyHours {
            months += days / 30;
            days %= 30;
        }
        if self.function == Function::JustifyInterval {
            if months > 0 && (days < 0 || days == 0 && micros < 0) {
                (months, days) = (months - 1, days + 30);
            } else if months < 0 && (days > 0 || days == 0 && micros > 0) {
                (months, days) = (months + 1, days - 30);
            }
        }
        if self.function != Function::JustifyDays {
            if days > 0 && micros < 0 {
                (days, micros) = (days - 1, micros + MICROS_PER_DAY);
            } else if days < 0 && micros > 0 {
                (days, micros) = (days + 1, micros - MICROS_PER_DAY);
            }
        }
        interval(months, days, micros)
    }

    fn made(&self, arrays: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        // The seconds are the last number, and the only ones with a fraction.
        let seconds_at = match self.function {
            Function::Date => usize::MAX,
            Function::Time => 2,
            Function::Interval => 6,
            _ => 5,
        };
        let mut numbers: Vec<Int64Array> = vec![];
        let mut seconds: Option<Float64Array> = None;
        for (index, array) in arrays.iter().enumerate().take(7) {
            if index == seconds_at {
                seconds = Some(
                    cast(array, &DataType::Float64)?
                        .as_primitive::<Float64Type>()
                        .clone(),
                );
            } else if index < seconds_at {
                numbers.push(cast(array, &DataType::Int64)?.as_primitive::<Int64Type>().clone());
            }
        }
        let zones = match (self.function, arrays.get(6)) {
            (Function::Instant, Some(zones)) => Some(cast(zones, &DataType::Utf8)?),
            _ => None,
        };
        let fields = |row: usize| -> Option<(Vec<i64>, f64)> {
            let numbers = numbers
                .iter()
                .map(|number| number.is_valid(row).then(|| number.value(row)));
            let seconds = match &seconds {
                Some(seconds) => seconds.is_valid(row).then(|| seconds.value(row))?,
                None => 0.0,
            };
            Some((numbers.collect::<Option<Vec<i64>>>()?, seconds))
        };
        let each = |made: Make<'_>| {
            let of_row = |row: usize| {
                fields(row)
                    .map(|(numbers, seconds)| made(&numbers, seconds, row))
                    .transpose()
            };
            (0..rows).map(of_row).collect::<SqlResult<Vec<Option<i64>>>>()
        };
        Ok(match self.function {
            Function::Date => {
                let days = each(&|numbers, _, _| day(numbers))?;
                let days = days
                    .into_iter()
                    .map(|day| day.and_then(|day| i32::try_from(day).ok()));
                Arc::new(days.collect::<Date32Array>())
            }
            Function::Time => Arc::new(Time64MicrosecondArray::from(each(&|numbers, seconds, _| {
                time(numbers, seconds)
            })?)),
            Function::Timestamp => {
                Arc::new(TimestampMicrosecondArray::from(each(&|numbers, seconds, _| {
                    instant(numbers, seconds)
                })?))
            }
            Function::Instant => {
                let instants = each(&|numbers, seconds, row| {
                    let local = instant(numbers, seconds)?;
                    let zone = match &zones {
                        Some(zones) => Zone::named_in_sql(zones.as_string::<i32>().value(row))?,
                        None => Zone::UTC,
                    };
                    Ok(zone.to_utc(local))
                })?;
                Arc::new(TimestampMicrosecondArray::from(instants).with_timezone("UTC"))
            }
            _ => {
                let of_row = |row: usize| {
                    fields(row)
                        .map(|(numbers, seconds)| length(&numbers, seconds))
                        .transpose()
                };
                Arc::new(
                    (0..rows)
                        .map(of_row)
                        .collect::<SqlResult<IntervalMonthDayNanoArray>>()?,
                )
            }
        })
    }
}

fn day(numbers: &[i64]) -> SqlResult<i64> {
    let [year, month, day, ..] = *numbers else {
        return Err(SqlError::internal("a date is made of three numbers"));
    };
    let wrong = || {
        out_of_range(format!(
            "date field value out of range: {year}-{month:02}-{day:02}"
        ))
    };
    // There is no year 0; the one before the year 1 is -1.
    let counted = if year < 0 { year + 1 } else { year };
    let exists = year != 0
        && (-4713..=5_874_897).contains(&year)
        && (1..=12).contains(&month)
        && day >= 1
        && day <= days_in_month(counted, month);
    if exists {
        Ok(days_from_civil(counted, month, day))
    } else {
        Err(wrong())
    }
}

fn time(numbers: &[i64], seconds: f64) -> SqlResult<i64> {
    let [.., hour, minute] = *numbers else {
        return Err(SqlError::internal("a time is made of three numbers"));
    };
    let wrong = || {
        out_of_range(format!(
            "time field value out of range: {hour}:{minute:02}:{seconds:02}"
        ))
    };
    let fits = (0..=24).contains(&hour) && (0..60).contains(&minute) && (0.0..=60.0).contains(&seconds);
    if !fits || hour == 24 && (minute > 0 || seconds > 0.0) {
        return Err(wrong());
    }
    #[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
    Ok((hour * 60 + minute) * 60_000_000 + (seconds * 1e6).round() as i64)
}

fn instant(numbers: &[i64], seconds: f64) -> SqlResult<i64> {
    let local = day(numbers)?.checked_mul(MICROS_PER_DAY);
    let local = local.and_then(|midnight| midnight.checked_add(time(numbers, seconds).ok()?));
    time(numbers, seconds)?;
    local.ok_or_else(|| out_of_range("timestamp out of range".to_owned()))
}

/// Years, months, weeks, days, hours, minutes, and seconds.
fn length(numbers: &[i64], seconds: f64) -> SqlResult<IntervalMonthDayNano> {
    let number = |index: usize| numbers.get(index).copied().unwrap_or_default();
    let whole = |product: Option<i64>, more: i64| product.and_then(|product| product.checked_add(more));
    let wrong = || out_of_range("interval out of range".to_owned());
    let months = whole(number(0).checked_mul(12), number(1)).ok_or_else(wrong)?;
    let days = whole(number(2).checked_mul(7), number(3)).ok_or_else(wrong)?;
    let minutes = whole(number(4).checked_mul(60), number(5)).ok_or_else(wrong)?;
    let seconds = (seconds * 1e6).round();
    if !(-9e15..9e15).contains(&seconds) {
        return Err(wrong());
    }
    #[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
    let micros = whole(minutes.checked_mul(60_000_000), seconds as i64).ok_or_else(wrong)?;
    interval(months, days, micros)
}

fn interval(months: i64, days: i64, micros: i64) -> SqlResult<IntervalMonthDayNano> {
    let parts = (
        i32::try_from(months),
        i32::try_from(days),
        micros.checked_mul(1000),
    );
    match parts {
        (Ok(months), Ok(days), Some(nanos)) => Ok(IntervalMonthDayNano::new(months, days, nanos)),
        _ => Err(out_of_range("interval out of range".to_owned())),
    }
}

fn is_finite(values: &ArrayRef) -> Result<ArrayRef> {
    let finite: BooleanArray = match values.data_type() {
        DataType::Date32 => {
            let is_finite = |day: i32| day != i32::MAX && day != i32::MIN;
            values
                .as_primitive::<Date32Type>()
                .iter()
                .map(|day| day.map(is_finite))
                .collect()
        }
        DataType::Timestamp(..) => {
            let is_finite = |instant: i64| instant != i64::MAX && instant != i64::MIN;
            let instants = values.as_primitive::<TimestampMicrosecondType>();
            instants.iter().map(|instant| instant.map(is_finite)).collect()
        }
        _ => (0..values.len())
            .map(|row| values.is_valid(row).then_some(true))
            .collect(),
    };
    Ok(Arc::new(finite))
}
