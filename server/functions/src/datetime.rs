//! Functions over dates, times and intervals that DataFusion has not, or has otherwise than PostgreSQL.
//!
//! | function | what |
//! |---|---|
//! | `interval_sort_key(i)` | a number that compares as intervals do: a month is 30 days, a day 24 hours |
//! | `interval_multiply(i, x)`, `interval_divide(i, x)` | `i * x`, `i / x` |
//! | `age(t, t)` | the difference in years, months, days and time |
//! | `timezone(zone, t)` | `t AT TIME ZONE zone` |
//! | `timestamp_difference(t, t)`, `date_difference(d, d)` | `t - t` in days and time, `d - d` in days |
//! | `date_pli(d, n)`, `date_mii(d, n)` | `d + n`, `d - n` in days |
//! | `timestamp_of_epoch(x)` | `to_timestamp(x)` |
//! | `overlaps(t, t, t, t)` | `(t, t) OVERLAPS (t, t)` |

mod overlaps;

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Date32Array, Decimal128Array, Float64Array, Int32Array,
    IntervalMonthDayNanoArray, TimestampMicrosecondArray,
};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Date32Type, Float64Type, Int64Type, IntervalMonthDayNano, IntervalUnit, TimeUnit,
    TimestampMicrosecondType,
};
use datafusion::common::{Result, exec_datafusion_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::types::interval::intervals;
use millrace_postgres::types::parse::datetime::{MICROS_PER_DAY, civil_from_days, days_in_month};
use millrace_postgres::types::zone::Zone;
use millrace_postgres::types::{is_text, timestamptz};

use crate::arguments::on_arrays;
use crate::names;

pub(crate) const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);
const TIMESTAMP: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);
const DAYS_PER_MONTH: i128 = 30;

/// A function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Function {
    /// `interval_sort_key`
    SortKey,
    /// `interval_multiply`
    Multiply,
    /// `interval_divide`
    Divide,
    /// `age`
    Age,
    /// `timezone`
    TimeZone,
    /// `overlaps`
    Overlaps,
    /// `timestamp_difference`
    Difference,
    /// `date_difference`
    Days,
    /// `date_pli`
    DaysLater,
    /// `date_mii`
    DaysEarlier,
    /// `timestamp_of_epoch`
    OfEpoch,
}

const ALL: [Function; 11] = [
    Function::SortKey,
    Function::Multiply,
    Function::Divide,
    Function::Age,
    Function::TimeZone,
    Function::Overlaps,
    Function::Difference,
    Function::Days,
    Function::DaysLater,
    Function::DaysEarlier,
    Function::OfEpoch,
];

/// The functions.
pub fn udfs() -> Vec<Arc<ScalarUDF>> {
    ALL.into_iter().map(udf).collect()
}

/// One of them.
pub fn udf(function: Function) -> Arc<ScalarUDF> {
    let arguments = match function {
        Function::SortKey | Function::OfEpoch => 1,
        Function::Overlaps => 4,
        _ => 2,
    };
    Arc::new(ScalarUDF::from(DateTimeFunction {
        function,
        signature: Signature::any(arguments, Volatility::Immutable),
    }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct DateTimeFunction {
    function: Function,
    signature: Signature,
}

impl ScalarUDFImpl for DateTimeFunction {
    fn name(&self) -> &str {
        match self.function {
            Function::SortKey => "interval_sort_key",
            Function::Multiply => "interval_multiply",
            Function::Divide => "interval_divide",
            Function::Age => "age",
            Function::TimeZone => "timezone",
            Function::Overlaps => "overlaps",
            Function::Difference => "timestamp_difference",
            Function::Days => "date_difference",
            Function::DaysLater => "date_pli",
            Function::DaysEarlier => "date_mii",
            Function::OfEpoch => "timestamp_of_epoch",
        }
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        names::called(self.name(), args)
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        Ok(match self.function {
            Function::SortKey => DataType::Decimal128(38, 0),
            Function::Multiply | Function::Divide | Function::Age | Function::Difference => INTERVAL,
            Function::Days => DataType::Int32,
            Function::DaysLater | Function::DaysEarlier => DataType::Date32,
            Function::OfEpoch => timestamptz(),
            Function::Overlaps => {
                overlaps::check(arg_types)?;
                DataType::Boolean
            }
            Function::TimeZone => match arg_types.get(1) {
                Some(DataType::Timestamp(_, None)) => timestamptz(),
                _ => TIMESTAMP,
            },
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        on_arrays(&args, |arrays, _| self.apply(arrays))
    }
}

impl DateTimeFunction {
    fn apply(&self, arrays: &[ArrayRef]) -> Result<ArrayRef> {
        Ok(match (self.function, arrays) {
            (Function::SortKey, [values]) => sort_keys(values)?,
            (Function::Multiply, [values, factors]) => scaled(values, factors, |part, factor| part * factor)?,
            (Function::Divide, [values, factors]) => {
                let factors = floats(factors)?;
                if factors.iter().flatten().any(|factor| factor == 0.0) {
                    return Err(SqlError::new(SqlState::DivisionByZero, "division by zero").into());
                }
                let factors: ArrayRef = Arc::new(factors);
                scaled(values, &factors, |part, factor| part / factor)?
            }
            (Function::Age, [to, from]) => {
                let (to, from) = (instants(to)?, instants(from)?);
                let ages = to
                    .iter()
                    .zip(from.iter())
                    .map(|(to, from)| match (to, from) {
                        (Some(to), Some(from)) => age(to, from).map(Some),
                        _ => Ok(None),
                    })
                    .collect::<SqlResult<IntervalMonthDayNanoArray>>()?;
                Arc::new(ages)
            }
            (Function::Difference, [to, from]) => {
                let (to, from) = (instants(to)?, instants(from)?);
                let differences = to
                    .iter()
                    .zip(from.iter())
                    .map(|(to, from)| match (to, from) {
                        (Some(to), Some(from)) => difference(to, from).map(Some),
                        _ => Ok(None),
                    })
                    .collect::<SqlResult<IntervalMonthDayNanoArray>>()?;
                Arc::new(differences)
            }
            (Function::Days, [to, from]) => {
                let (to, from) = (cast(to, &DataType::Date32)?, cast(from, &DataType::Date32)?);
                let is_infinite = |day: i32| day == i32::MAX || day == i32::MIN;
                let infinite =
                    || SqlError::new(SqlState::DatetimeFieldOverflow, "cannot subtract infinite dates");
                let days = to
                    .as_primitive::<Date32Type>()
                    .iter()
                    .zip(from.as_primitive::<Date32Type>())
                    .map(|(to, from)| match (to, from) {
                        (Some(to), Some(from)) if is_infinite(to) || is_infinite(from) => Err(infinite()),
                        (Some(to), Some(from)) => Ok(Some(to.wrapping_sub(from))),
                        _ => Ok(None),
                    })
                    .collect::<SqlResult<Int32Array>>()?;
                Arc::new(days)
            }
            (Function::DaysLater, [dates, days]) => days_later(dates, days, 1)?,
            (Function::DaysEarlier, [dates, days]) => days_later(dates, days, -1)?,
            (Function::OfEpoch, [seconds]) => {
                let instants = floats(seconds)?
                    .iter()
                    .map(|seconds| seconds.map(of_epoch).transpose())
                    .collect::<SqlResult<TimestampMicrosecondArray>>()?;
                Arc::new(instants.with_timezone("UTC"))
            }
            (Function::TimeZone, [zones, values]) => in_zone(zones, values)?,
            (Function::Overlaps, [start, end, other_start, other_end]) => {
                let periods = [start, end, other_start, other_end];
                overlaps::overlap(&periods.map(Arc::clone))?
            }
            _ => return Err(exec_datafusion_err!("{} has other arguments", self.name())),
        })
    }
}

/// The first date there is, 4714-11-24 BC, in days since 1970.
const FIRST_DATE: i64 = -2_440_588;
/// The last one, 5874897-12-31.
const LAST_DATE: i64 = 2_145_042_905;

/// The dates so many days later, or earlier; an infinite date stays what it is.
fn days_later(dates: &ArrayRef, days: &ArrayRef, sign: i64) -> Result<ArrayRef> {
    let later = |date: i32, days: i64| -> SqlResult<i32> {
        if date == i32::MAX || date == i32::MIN {
            return Ok(date);
        }
        days.checked_mul(sign)
            .and_then(|days| i64::from(date).checked_add(days))
            .filter(|date| (FIRST_DATE..=LAST_DATE).contains(date))
            .and_then(|date| i32::try_from(date).ok())
            .ok_or_else(|| SqlError::new(SqlState::DatetimeFieldOverflow, "date out of range"))
    };
    let (dates, days) = (cast(dates, &DataType::Date32)?, cast(days, &DataType::Int64)?);
    let out = dates
        .as_primitive::<Date32Type>()
        .iter()
        .zip(days.as_primitive::<Int64Type>())
        .map(|(date, days)| match (date, days) {
            (Some(date), Some(days)) => later(date, days).map(Some),
            _ => Ok(None),
        })
        .collect::<SqlResult<Date32Array>>()?;
    Ok(Arc::new(out))
}

/// Instants in microseconds; texts are read.
pub(crate) fn instants(values: &ArrayRef) -> Result<TimestampMicrosecondArray> {
    let values = match values.data_type() {
        texts if is_text(texts) => {
            let field = arrow::datatypes::Field::new("timestamp", TIMESTAMP, true);
            let texts = cast(values, &DataType::Utf8)?;
            millrace_postgres::types::parse::column(&field, texts.as_string::<i32>())
                .map_err(|cell| *cell.error)?
        }
        // The instants of a zone are compared and subtracted by their time in UTC.
        DataType::Timestamp(_, Some(_)) => {
            let utc = cast(values, &timestamptz())?;
            return Ok(utc
                .as_primitive::<TimestampMicrosecondType>()
                .clone()
                .with_timezone_opt::<Arc<str>>(None));
        }
        _ => cast(values, &TIMESTAMP)?,
    };
    Ok(values.as_primitive::<TimestampMicrosecondType>().clone())
}

fn floats(values: &ArrayRef) -> Result<Float64Array> {
    Ok(cast(values, &DataType::Float64)?
        .as_primitive::<Float64Type>()
        .clone())
}

/// Numbers that compare as intervals do.
///
/// # Errors
/// The values are no lengths of time.
pub fn sort_keys(values: &ArrayRef) -> Result<ArrayRef> {
    let keys: Decimal128Array = intervals(values)?
        .iter()
        .map(|value| value.map(sort_key))
        .collect();
    Ok(Arc::new(keys.with_precision_and_scale(38, 0)?))
}

fn sort_key(value: IntervalMonthDayNano) -> i128 {
    let days = i128::from(value.months) * DAYS_PER_MONTH + i128::from(value.days);
    days * i128::from(MICROS_PER_DAY) + i128::from(value.nanoseconds / 1000)
}

fn scaled(values: &ArrayRef, factors: &ArrayRef, scale: fn(f64, f64) -> f64) -> Result<ArrayRef> {
    let (values, factors) = (intervals(values)?, floats(factors)?);
    let out = values
        .iter()
        .zip(factors.iter())
        .map(|(value, factor)| match (value, factor) {
            (Some(value), Some(factor)) => scale_one(value, |part| scale(part, factor)).map(Some),
            _ => Ok(None),
        })
        .collect::<SqlResult<IntervalMonthDayNanoArray>>()?;
    Ok(Arc::new(out))
}

/// Scales each part; the fraction of a month becomes days, the fraction of a day time.
pub(crate) fn scale_one(
    value: IntervalMonthDayNano,
    scale: impl Fn(f64) -> f64,
) -> SqlResult<IntervalMonthDayNano> {
    const SECONDS_PER_DAY: f64 = 86_400.0;
    // What a float makes of a fraction is rounded to microseconds.
    let rounded = |part: f64| (part * 1e6).round() / 1e6;
    let whole = |part: f64| -> SqlResult<i32> {
        #[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
        (part.is_finite() && part.abs() <= f64::from(i32::MAX))
            .then_some(part as i32)
            .ok_or_else(interval_out_of_range)
    };
    let (months, days) = (scale(value.months.into()), scale(value.days.into()));
    let days_of_month = rounded(months.fract() * 30.0);
    let mut seconds = rounded((days.fract() + days_of_month.fract()) * SECONDS_PER_DAY);
    let mut all_days = days.trunc() + days_of_month.trunc();
    if seconds.abs() >= SECONDS_PER_DAY {
        all_days += (seconds / SECONDS_PER_DAY).trunc();
        seconds %= SECONDS_PER_DAY;
    }
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "intervals are scaled in floats, and the range is checked"
    )]
    let micros = {
        let micros = (scale((value.nanoseconds / 1000) as f64) + seconds * 1e6).round();
        (micros.is_finite() && micros.abs() < 9.2e15)
            .then_some(micros as i64)
            .ok_or_else(interval_out_of_range)?
    };
    Ok(IntervalMonthDayNano::new(
        whole(months.trunc())?,
        whole(all_days)?,
        micros * 1000,
    ))
}

pub(crate) fn interval_out_of_range() -> SqlError {
    SqlError::new(SqlState::DatetimeFieldOverflow, "interval out of range")
}

/// The difference of two instants in days of 24 hours, and time.
fn difference(to: i64, from: i64) -> SqlResult<IntervalMonthDayNano> {
    if is_infinite(to) || is_infinite(from) {
        let message = "cannot subtract infinite timestamps";
        return Err(SqlError::new(SqlState::DatetimeFieldOverflow, message));
    }
    let micros = to.checked_sub(from).ok_or_else(out_of_range)?;
    let days = i32::try_from(micros / MICROS_PER_DAY).map_err(|_| out_of_range())?;
    Ok(IntervalMonthDayNano::new(0, days, micros % MICROS_PER_DAY * 1000))
}

/// The instant that is so many seconds behind 1970-01-01 UTC.
fn of_epoch(seconds: f64) -> SqlResult<i64> {
    /// The end of the year 294276.
    const MICROS_MAX: f64 = 9_224_318_016_000_000_000.0;
    let refused = |message: String| Err(SqlError::new(SqlState::DatetimeFieldOverflow, message));
    if seconds.is_nan() {
        return refused("timestamp cannot be NaN".to_owned());
    }
    if seconds.is_infinite() {
        return Ok(if seconds > 0.0 { i64::MAX } else { i64::MIN });
    }
    let micros = (seconds * 1e6).round();
    // Before the year 4713 BC there are none.
    if !(-210_866_803_200_000_000.0..MICROS_MAX).contains(&micros) {
        return refused(format!("timestamp out of range: \"{seconds:e}\""));
    }
    #[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
    Ok(micros as i64)
}

fn is_infinite(instant: i64) -> bool {
    instant == i64::MAX || instant == i64::MIN
}

fn out_of_range() -> SqlError {
    SqlError::new(SqlState::DatetimeFieldOverflow, "timestamp out of range")
}

/// The difference of two instants by the calendar: what is missing of a month is filled up with the days of the month
/// of the earlier one.
fn age(to: i64, from: i64) -> SqlResult<IntervalMonthDayNano> {
    if is_infinite(to) || is_infinite(from) {
        return Err(out_of_range());
    }
    if to < from {
        let value = age(from, to)?;
        return Ok(IntervalMonthDayNano::new(
            -value.months,
            -value.days,
            -value.nanoseconds,
        ));
    }
    let parts = |micros: i64| {
        let (year, month, day) = civil_from_days(micros.div_euclid(MICROS_PER_DAY));
        (year, month, day, micros.rem_euclid(MICROS_PER_DAY))
    };
    let (to_year, to_month, to_day, to_time) = parts(to);
    let (from_year, from_month, from_day, from_time) = parts(from);
    let mut months = (to_year - from_year) * 12 + to_month - from_month;
    let mut days = to_day - from_day;
    let mut time = to_time - from_time;
    if time < 0 {
        time += MICROS_PER_DAY;
        days -= 1;
    }
    while days < 0 {
        days += days_in_month(from_year, from_month);
        months -= 1;
    }
    let narrow = |part: i64| i32::try_from(part).map_err(|_| out_of_range());
    Ok(IntervalMonthDayNano::new(
        narrow(months)?,
        narrow(days)?,
        time * 1000,
    ))
}

/// Zones that are given as a length of time to the east of UTC, by their names.
fn offsets(zones: &ArrayRef) -> Result<ArrayRef> {
    let names = intervals(zones)?
        .iter()
        .map(|zone| {
            let Some(zone) = zone else { return Ok(None) };
            if zone.months != 0 || zone.days != 0 {
                return Err(SqlError::new(
                    SqlState::InvalidParameterValue,
                    "interval time zone must not include months or days",
                ));
            }
            let seconds = i32::try_from(zone.nanoseconds / 1_000_000_000).unwrap_or(i32::MAX);
            Ok(Some(Zone::Fixed(seconds).sql_name()))
        })
        .collect::<SqlResult<arrow::array::StringArray>>()?;
    Ok(Arc::new(names))
}

/// A timestamp becomes the instant of that local time, an instant the local time there.
fn in_zone(zones: &ArrayRef, values: &ArrayRef) -> Result<ArrayRef> {
    let zones = match zones.data_type() {
        DataType::Interval(_) | DataType::Duration(_) => offsets(zones)?,
        _ => cast(zones, &DataType::Utf8)?,
    };
    let zones = zones.as_string::<i32>();
    let zoned = !matches!(values.data_type(), DataType::Timestamp(_, None));
    let values = match values.data_type() {
        texts if is_text(texts) => {
            let field = arrow::datatypes::Field::new("timestamptz", timestamptz(), true);
            let texts = cast(values, &DataType::Utf8)?;
            millrace_postgres::types::parse::column(&field, texts.as_string::<i32>())
                .map_err(|cell| *cell.error)?
        }
        DataType::Timestamp(_, Some(_)) => cast(values, &timestamptz())?,
        _ => cast(values, &TIMESTAMP)?,
    };
    let values = values.as_primitive::<TimestampMicrosecondType>();
    let mut known: Option<(&str, Zone)> = None;
    let mut out = Vec::with_capacity(values.len());
    for row in 0..values.len() {
        if values.is_null(row) || zones.is_null(row) {
            out.push(None);
            continue;
        }
        let name = zones.value(row);
        let zone = match known {
            Some((before, zone)) if before == name => zone,
            _ => Zone::named_in_sql(name)?,
        };
        known = Some((name, zone));
        let value = values.value(row);
        out.push(Some(if zoned {
            zone.to_local(value)
        } else {
            zone.to_utc(value)
        }));
    }
    let out = TimestampMicrosecondArray::from(out);
    Ok(if zoned {
        Arc::new(out)
    } else {
        Arc::new(out.with_timezone("UTC"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_postgres::types::parse::datetime::timestamp;
    use millrace_postgres::types::parse::interval::interval;

    fn shown(value: IntervalMonthDayNano) -> String {
        let array: ArrayRef = Arc::new(IntervalMonthDayNanoArray::from(vec![value]));
        millrace_postgres::types::output::text(&arrow::datatypes::Field::new("i", INTERVAL, true), &array, 0)
    }

    #[test]
    fn intervals_compare_by_their_length() {
        let key = |text: &str| sort_key(interval(text).unwrap());
        assert_eq!(key("1 day"), key("24 hours"));
        assert_eq!(key("1 month"), key("30 days"));
        assert!(key("1 month") < key("31 days"));
        assert!(key("-1 second") < key("0"));
    }

    #[test]
    fn intervals_are_scaled_part_by_part() {
        let times = |text: &str, factor: f64| {
            shown(scale_one(interval(text).unwrap(), |part| part * factor).unwrap())
        };
        assert_eq!(times("1 hour", 3.0), "03:00:00");
        assert_eq!(times("1 day", 0.5), "12:00:00");
        assert_eq!(times("1 month", 0.5), "15 days");
        assert_eq!(times("1 year 1 day", 1.5), "1 year 6 mons 1 day 12:00:00");
        assert!(scale_one(interval("1 day").unwrap(), |part| part * 1e12).is_err());
    }

    #[test]
    fn ages_are_counted_by_the_calendar() {
        let between =
            |to: &str, from: &str| shown(age(timestamp(to).unwrap(), timestamp(from).unwrap()).unwrap());
        assert_eq!(between("2013-03-01", "2013-01-31"), "1 mon 1 day");
        assert_eq!(between("2013-01-31", "2013-03-01"), "-1 mons -1 days");
        assert_eq!(between("2001-04-10", "1957-06-13"), "43 years 9 mons 27 days");
        assert_eq!(between("2013-01-02 01:00", "2013-01-01 02:30"), "22:30:00");
    }
}
