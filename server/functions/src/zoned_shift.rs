//! `timestamptz + interval` in the time zone of the session: days and months keep the time on the wall clock.
//!
//! A bound plan adds in UTC, where a day has 24 hours; [`crate::sql::zoned_cast`] puts these functions in its place. A series of
//! instants adds in the zone, too.

use std::sync::Arc;

use arrow::array::{Array, AsArray, ListBuilder, TimestampMicrosecondArray, TimestampMicrosecondBuilder};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit, TimestampMicrosecondType,
};
use datafusion::common::{Result, exec_datafusion_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::scalar::ScalarValue;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::types::parse::datetime::{
    MICROS_PER_DAY, civil_from_days, days_from_civil, days_in_month,
};
use millrace_postgres::types::timestamptz;
use millrace_postgres::types::zone::Zone;

use crate::arguments::on_arrays;

/// `shift(instant, interval, zone)`, or back by the interval.
pub fn udf(back: bool) -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(Shift {
        back,
        signature: Signature::any(3, Volatility::Immutable),
    }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Shift {
    back: bool,
    signature: Signature,
}

impl ScalarUDFImpl for Shift {
    fn name(&self) -> &str {
        if self.back {
            "timestamptz_minus"
        } else {
            "timestamptz_plus"
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(timestamptz())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let Some(ColumnarValue::Scalar(ScalarValue::Utf8(Some(zone)))) = args.args.get(2) else {
            return Err(exec_datafusion_err!(
                "{} takes an instant, a length and a zone",
                self.name()
            ));
        };
        let zone = Zone::named_in_sql(zone)?;
        on_arrays(&args, |arrays, rows| {
            let instants = cast(&arrays[0], &timestamptz())?;
            let instants = instants.as_primitive::<TimestampMicrosecondType>();
            let lengths = cast(&arrays[1], &DataType::Interval(IntervalUnit::MonthDayNano))?;
            let lengths = lengths.as_primitive::<IntervalMonthDayNanoType>();
            let out = (0..rows)
                .map(|row| {
                    if instants.is_null(row) || lengths.is_null(row) {
                        return Ok(None);
                    }
                    shifted(instants.value(row), lengths.value(row), self.back, zone).map(Some)
                })
                .collect::<SqlResult<TimestampMicrosecondArray>>()?;
            Ok(Arc::new(out.with_timezone("UTC")))
        })
    }
}

/// `generate_series(from, to, interval)` of instants, in a zone.
pub fn series() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(Series {
        signature: Signature::any(4, Volatility::Immutable),
    }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Series {
    signature: Signature,
}

/// Elements of one series.
const SERIES_MAX: usize = 10_000_000;

impl ScalarUDFImpl for Series {
    fn name(&self) -> &str {
        "timestamptz_series"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(DataType::new_list(timestamptz(), true))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let Some(ColumnarValue::Scalar(ScalarValue::Utf8(Some(zone)))) = args.args.get(3) else {
            return Err(exec_datafusion_err!(
                "{} takes two instants, a length and a zone",
                self.name()
            ));
        };
        let zone = Zone::named_in_sql(zone)?;
        on_arrays(&args, |arrays, rows| {
            let ends = [
                cast(&arrays[0], &timestamptz())?,
                cast(&arrays[1], &timestamptz())?,
            ];
            let [from, to] = ends
                .each_ref()
                .map(|end| end.as_primitive::<TimestampMicrosecondType>());
            let steps = cast(&arrays[2], &DataType::Interval(IntervalUnit::MonthDayNano))?;
            let steps = steps.as_primitive::<IntervalMonthDayNanoType>();
            let values = TimestampMicrosecondBuilder::new().with_timezone("UTC");
            let mut out = ListBuilder::new(values);
            for row in 0..rows {
                if from.is_null(row) || to.is_null(row) || steps.is_null(row) {
                    out.append(false);
                    continue;
                }
                let step = steps.value(row);
                let length = i128::from(step.months) * 30 * i128::from(MICROS_PER_DAY)
                    + i128::from(step.days) * i128::from(MICROS_PER_DAY)
                    + i128::from(step.nanoseconds / 1000);
                if length == 0 {
                    return Err(SqlError::new(
                        SqlState::InvalidParameterValue,
                        "step size cannot equal zero",
                    )
                    .into());
                }
                let mut at = from.value(row);
                let mut count = 0;
                while if length > 0 {
                    at <= to.value(row)
                } else {
                    at >= to.value(row)
                } {
                    out.values().append_value(at);
                    at = shifted(at, step, false, zone)?;
                    count += 1;
                    if count > SERIES_MAX {
                        return Err(SqlError::new(
                            SqlState::ProgramLimitExceeded,
                            format!("a series has more than {SERIES_MAX} elements"),
                        )
                        .into());
                    }
                }
                out.append(true);
            }
            Ok(Arc::new(out.finish()))
        })
    }
}

fn shifted(micros: i64, by: IntervalMonthDayNano, back: bool, zone: Zone) -> SqlResult<i64> {
    if matches!(micros, i64::MAX | i64::MIN) {
        return Ok(micros);
    }
    let sign = if back { -1 } else { 1 };
    let out_of_range = || SqlError::new(SqlState::DatetimeFieldOverflow, "timestamp out of range");
    let mut micros = micros;
    if by.months != 0 {
        let local = zone.to_local(micros);
        let (year, month, day) = civil_from_days(local.div_euclid(MICROS_PER_DAY));
        let months = year * 12 + month - 1 + sign * i64::from(by.months);
        let (year, month) = (months.div_euclid(12), months.rem_euclid(12) + 1);
        let days = days_from_civil(year, month, day.min(days_in_month(year, month)));
        let moved = days
            .checked_mul(MICROS_PER_DAY)
            .and_then(|begin| begin.checked_add(local.rem_euclid(MICROS_PER_DAY)));
        micros = zone.to_utc(moved.ok_or_else(out_of_range)?);
    }
    if by.days != 0 {
        let moved = (sign * i64::from(by.days))
            .checked_mul(MICROS_PER_DAY)
            .and_then(|days| zone.to_local(micros).checked_add(days));
        micros = zone.to_utc(moved.ok_or_else(out_of_range)?);
    }
    micros
        .checked_add(sign * (by.nanoseconds / 1000))
        .ok_or_else(out_of_range)
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_postgres::types::parse::datetime::timestamptz as instant;
    use millrace_postgres::types::parse::interval::interval;

    #[test]
    fn days_keep_the_clock_and_hours_do_not() {
        let zone = Zone::Named(chrono_tz::America::New_York);
        for (from, by, back, to) in [
            ("2013-03-09 12:00-05", "1 day", false, "2013-03-10 12:00-04"),
            ("2013-03-09 12:00-05", "24 hours", false, "2013-03-10 13:00-04"),
            ("2013-03-11 12:00-04", "1 day", true, "2013-03-10 12:00-04"),
            ("2013-02-10 02:30-05", "1 mon", false, "2013-03-10 03:30-04"),
            ("2013-11-02 12:00-04", "1 day", false, "2013-11-03 12:00-05"),
            ("2013-01-31 12:00-05", "1 mon", false, "2013-02-28 12:00-05"),
        ] {
            let moved = shifted(instant(from).unwrap(), interval(by).unwrap(), back, zone).unwrap();
            assert_eq!(moved, instant(to).unwrap(), "{from} and {by}");
        }
    }
}
