//! `date_trunc(unit, time)`, as PostgreSQL has it.
//!
//! DataFusion's goes through nanoseconds, so it has no month or year outside of 1677 to 2262, knows no unit above a year,
//! and subtracts under NULLs too, where an aggregate without rows may have left the smallest of all times.

use std::sync::Arc;

use arrow::array::{Array, AsArray, IntervalMonthDayNanoArray, TimestampMicrosecondArray};
use arrow::datatypes::{
    DataType, FieldRef, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit, TimeUnit,
    TimestampMicrosecondType,
};
use datafusion::common::{Result, plan_datafusion_err};
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::scalar::ScalarValue;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::types::parse::datetime::{MICROS_PER_DAY, civil_from_days, days_from_civil};
use millrace_postgres::types::timestamptz;

use crate::arguments::on_arrays;

/// The function.
pub fn udf() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(DateTrunc {
        signature: Signature::user_defined(Volatility::Immutable),
    }))
}

/// What a time is cut to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    /// So many microseconds, counted from the epoch.
    Micros(i64),
    Week,
    Month,
    Quarter,
    /// So many years. Decades begin with years that end in 0, centuries and millennia with those that end in 1.
    Years {
        count: i64,
        first: i64,
    },
}

impl Unit {
    /// The unit of a name; PostgreSQL's abbreviations among them.
    fn named(name: &str) -> SqlResult<Self> {
        Ok(match name.to_lowercase().as_str() {
            "microsecond" | "microseconds" | "us" | "usec" | "usecs" => Unit::Micros(1),
            "millisecond" | "milliseconds" | "ms" | "msec" | "msecs" => Unit::Micros(1_000),
            "second" | "seconds" | "s" | "sec" | "secs" => Unit::Micros(1_000_000),
            "minute" | "minutes" | "m" | "min" | "mins" => Unit::Micros(60_000_000),
            "hour" | "hours" | "h" | "hr" | "hrs" => Unit::Micros(3_600_000_000),
            "day" | "days" | "d" => Unit::Micros(MICROS_PER_DAY),
            "week" | "weeks" | "w" => Unit::Week,
            "month" | "months" | "mon" | "mons" => Unit::Month,
            "quarter" | "qtr" => Unit::Quarter,
            "year" | "years" | "y" | "yr" | "yrs" => Unit::Years { count: 1, first: 0 },
            "decade" | "decades" | "dec" | "decs" => Unit::Years { count: 10, first: 0 },
            "century" | "centuries" | "c" | "cent" => Unit::Years { count: 100, first: 1 },
            "millennium" | "millennia" | "mil" | "mils" => Unit::Years {
                count: 1_000,
                first: 1,
            },
            _ => {
                return Err(SqlError::new(
                    SqlState::InvalidParameterValue,
                    format!("unit \"{name}\" not recognized for type timestamp"),
                )
                .with_hint(
                    "Units are microseconds, milliseconds, second, minute, hour, day, week, month, quarter, year, \
                     decade, century and millennium.",
                ));
            }
        })
    }

    /// The begin of the unit that a time is in, both in microseconds since 1970; `None` if that is no time.
    fn begin(self, time: i64) -> Option<i64> {
        // Infinity has no units.
        if matches!(time, i64::MAX | i64::MIN) {
            return Some(time);
        }
        if let Unit::Micros(unit) = self {
            return time.checked_sub(time.rem_euclid(unit));
        }
        let days = time.div_euclid(MICROS_PER_DAY);
        let (year, month, _) = civil_from_days(days);
        let begin = match self {
            // The epoch was a Thursday; weeks begin on Mondays.
            Unit::Week => days - (days + 3).rem_euclid(7),
            Unit::Month => days_from_civil(year, month, 1),
            Unit::Quarter => days_from_civil(year, (month - 1) / 3 * 3 + 1, 1),
            Unit::Years { count, first } => {
                days_from_civil((year - first).div_euclid(count) * count + first, 1, 1)
            }
            Unit::Micros(_) => days,
        };
        begin.checked_mul(MICROS_PER_DAY)
    }
}

impl Unit {
    /// An interval without what is smaller than the unit.
    fn cut(self, interval: IntervalMonthDayNano, name: &str) -> SqlResult<IntervalMonthDayNano> {
        let months = |count: i64| {
            let count = i32::try_from(count).unwrap_or(i32::MAX);
            IntervalMonthDayNano::new(interval.months / count * count, 0, 0)
        };
        Ok(match self {
            Unit::Micros(MICROS_PER_DAY) => IntervalMonthDayNano::new(interval.months, interval.days, 0),
            Unit::Micros(unit) => {
                let nanos = unit * 1_000;
                let rest = interval.nanoseconds / nanos * nanos;
                IntervalMonthDayNano::new(interval.months, interval.days, rest)
            }
            Unit::Week => {
                return Err(SqlError::unsupported(format!(
                    "unit \"{name}\" not supported for type interval"
                ))
                .with_detail("Months usually have fractional weeks."));
            }
            Unit::Month => months(1),
            Unit::Quarter => months(3),
            Unit::Years { count, .. } => months(12 * count),
        })
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct DateTrunc {
    signature: Signature,
}

impl ScalarUDFImpl for DateTrunc {
    fn name(&self) -> &str {
        "date_trunc"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        let [unit, time] = arg_types else {
            return Err(plan_datafusion_err!("date_trunc takes a unit and a time"));
        };
        if !(unit.is_string() || unit.is_null()) {
            return Err(plan_datafusion_err!("the unit of date_trunc is text, not {unit}"));
        }
        let time = match time {
            DataType::Timestamp(_, zone) => DataType::Timestamp(TimeUnit::Microsecond, zone.clone()),
            DataType::Interval(_) => DataType::Interval(IntervalUnit::MonthDayNano),
            // A date is the instant at which it begins.
            DataType::Date32 => timestamptz(),
            other if other.is_string() || other.is_null() => DataType::Timestamp(TimeUnit::Microsecond, None),
            other => {
                return Err(plan_datafusion_err!(
                    "date_trunc takes a timestamp, a timestamptz, a date or an interval, not {other}"
                ));
            }
        };
        Ok(vec![DataType::Utf8, time])
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.coerce_types(arg_types).map(|types| types[1].clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        if let Some(Some(ScalarValue::Utf8(Some(unit)))) = args.scalar_arguments.first() {
            Unit::named(unit)?;
        }
        let nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        let time = args.arg_fields[1].data_type().clone();
        Ok(Arc::new(arrow::datatypes::Field::new(
            self.name(),
            time,
            nullable,
        )))
    }

    fn output_ordering(&self, input: &[ExprProperties]) -> Result<SortProperties> {
        Ok(match input {
            [unit, time] if unit.sort_properties == SortProperties::Singleton => time.sort_properties,
            _ => SortProperties::Unordered,
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let out_of_range = || SqlError::new(SqlState::DatetimeFieldOverflow, "timestamp out of range");
        on_arrays(&args, |arrays, rows| {
            if let DataType::Interval(_) = arrays[1].data_type() {
                let units = arrays[0].as_string::<i32>();
                let intervals = arrays[1].as_primitive::<IntervalMonthDayNanoType>();
                let cut = units.iter().zip(intervals).map(|pair| match pair {
                    (Some(unit), Some(interval)) => Unit::named(unit)?.cut(interval, unit).map(Some),
                    _ => Ok(None),
                });
                let cut: IntervalMonthDayNanoArray = cut.collect::<SqlResult<_>>()?;
                return Ok(Arc::new(cut));
            }
            let times = arrays[1].as_primitive::<TimestampMicrosecondType>();
            let begins: TimestampMicrosecondArray = match &args.args[0] {
                ColumnarValue::Scalar(unit) => match unit.try_as_str().flatten() {
                    Some(unit) => {
                        let unit = Unit::named(unit)?;
                        times.try_unary(|time| unit.begin(time).ok_or_else(out_of_range))?
                    }
                    None => TimestampMicrosecondArray::new_null(rows),
                },
                ColumnarValue::Array(units) => times
                    .iter()
                    .zip(units.as_string::<i32>())
                    .map(|pair| match pair {
                        (Some(time), Some(unit)) => {
                            Unit::named(unit)?.begin(time).map(Some).ok_or_else(out_of_range)
                        }
                        _ => Ok(None),
                    })
                    .collect::<SqlResult<_>>()?,
            };
            Ok(Arc::new(begins.with_data_type(times.data_type().clone())))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_begin_where_postgresql_says() {
        let day = |year, month, day| days_from_civil(year, month, day) * MICROS_PER_DAY;
        let begin = |unit: &str, time| Unit::named(unit).unwrap().begin(time);
        let time = day(2026, 11, 22) + 47_103_123_456;
        assert_eq!(begin("us", time), Some(time));
        assert_eq!(begin("Hour", time), Some(day(2026, 11, 22) + 46_800_000_000));
        assert_eq!(begin("day", time), Some(day(2026, 11, 22)));
        assert_eq!(begin("week", time), Some(day(2026, 11, 16)));
        assert_eq!(begin("quarter", time), Some(day(2026, 10, 1)));
        assert_eq!(begin("decade", time), Some(day(2020, 1, 1)));
        assert_eq!(begin("century", day(2000, 5, 1)), Some(day(1901, 1, 1)));
        assert_eq!(begin("millennium", time), Some(day(2001, 1, 1)));
        assert_eq!(begin("year", day(9999, 12, 31)), Some(day(9999, 1, 1)));
        // The fifth year before Christ is year -4.
        assert_eq!(begin("decade", day(-4, 7, 1)), Some(day(-10, 1, 1)));
        assert_eq!(begin("week", -1), Some(day(1969, 12, 29)));
        assert_eq!(begin("day", i64::MIN), Some(i64::MIN));
        assert_eq!(begin("day", i64::MIN + 1), None);
        assert!(Unit::named("fortnight").is_err());
    }
}
