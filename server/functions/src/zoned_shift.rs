//! `timestamptz + interval` in the time zone of the session: days and months keep the time on the wall clock.
//!
//! A bound plan adds in UTC, where a day has 24 hours; [`crate::sql::zoned_cast`] puts these functions in its place. A series of
//! instants adds in the zone, too.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, ListBuilder, TimestampMicrosecondArray, TimestampMicrosecondBuilder,
};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Field, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit, TimeUnit,
    TimestampMicrosecondType,
};
use datafusion::common::{Result, exec_datafusion_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};
use datafusion::scalar::ScalarValue;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::types::parse::datetime::{
    MICROS_PER_DAY, civil_from_days, days_from_civil, days_in_month,
};
use millrace_postgres::types::zone::Zone;
use millrace_postgres::types::{self, is_text, parse, timestamptz};

use crate::arguments::on_arrays;
use crate::datetime;

/// Timestamps without a zone.
const LOCAL: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

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

/// `generate_series(from, to, interval)` of times: `time_series(from, to, interval [, zone])`, in UTC unless a zone is named. Of dates
/// and of instants it has instants, of timestamps without a zone such timestamps.
pub fn series() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(Series {
        signature: Signature::one_of(
            vec![TypeSignature::Any(3), TypeSignature::Any(4)],
            Volatility::Immutable,
        ),
    }))
}

/// What the function of a series of times is called.
pub const SERIES: &str = "time_series";

#[derive(Debug, PartialEq, Eq, Hash)]
struct Series {
    signature: Signature,
}

/// Elements of one series.
const SERIES_MAX: usize = 10_000_000;

impl ScalarUDFImpl for Series {
    fn name(&self) -> &str {
        SERIES
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        let ends = arg_types.get(..2).unwrap_or_default();
        let is_local = |end: &DataType| matches!(end, DataType::Timestamp(_, None));
        let is_instant = |end: &DataType| matches!(end, DataType::Timestamp(_, Some(_)) | DataType::Date32);
        let may_be = |end: &DataType| is_local(end) || is_instant(end) || is_text(end) || end.is_null();
        let no_function = |code: SqlState, what: &str| {
            let names = arg_types.iter().take(3);
            let names: Vec<String> = names
                .map(|given| types::plain_name(&Field::new("", given.clone(), true)))
                .collect();
            let message = format!("function generate_series({}) {what}", names.join(", "));
            SqlError::new(code, message).with_hint("You might need to add explicit type casts.")
        };
        if !ends.iter().all(may_be) {
            return Err(no_function(SqlState::UndefinedFunction, "does not exist").into());
        }
        if ends.iter().any(is_instant) {
            Ok(DataType::new_list(timestamptz(), true))
        } else if ends.iter().any(is_local) {
            Ok(DataType::new_list(LOCAL, true))
        } else {
            Err(no_function(SqlState::AmbiguousFunction, "is not unique").into())
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let zone = match args.args.get(3) {
            Some(ColumnarValue::Scalar(ScalarValue::Utf8(Some(zone)))) => Zone::named_in_sql(zone)?,
            _ => Zone::UTC,
        };
        let element = match args.return_field.data_type() {
            DataType::List(item) => item.data_type().clone(),
            other => other.clone(),
        };
        on_arrays(&args, |arrays, rows| {
            // A date is the midnight of its zone.
            let end = |values: &ArrayRef| -> Result<TimestampMicrosecondArray> {
                let instants = datetime::instants(values)?;
                match values.data_type() {
                    DataType::Date32 => Ok(instants.unary(|local| match local {
                        i64::MAX | i64::MIN => local,
                        local => zone.to_utc(local),
                    })),
                    _ => Ok(instants),
                }
            };
            let (from, to) = (end(&arrays[0])?, end(&arrays[1])?);
            let steps = match arrays[2].data_type() {
                texts if is_text(texts) => {
                    let field = Field::new("interval", DataType::Interval(IntervalUnit::MonthDayNano), true);
                    let texts = cast(&arrays[2], &DataType::Utf8)?;
                    parse::column(&field, texts.as_string::<i32>()).map_err(|cell| *cell.error)?
                }
                _ => Arc::clone(&arrays[2]),
            };
            let steps = cast(&steps, &DataType::Interval(IntervalUnit::MonthDayNano))?;
            let steps = steps.as_primitive::<IntervalMonthDayNanoType>();
            let values = TimestampMicrosecondBuilder::new().with_data_type(element.clone());
            let mut out = ListBuilder::new(values);
            for row in 0..rows {
                if from.is_null(row) || to.is_null(row) || steps.is_null(row) {
                    out.append(false);
                    continue;
                }
                for at in elements(from.value(row), to.value(row), steps.value(row), zone)? {
                    out.values().append_value(at);
                }
                out.append(true);
            }
            Ok(Arc::new(out.finish()))
        })
    }
}

/// The elements of one series.
fn elements(from: i64, to: i64, step: IntervalMonthDayNano, zone: Zone) -> SqlResult<Vec<i64>> {
    let length = i128::from(step.months) * 30 * i128::from(MICROS_PER_DAY)
        + i128::from(step.days) * i128::from(MICROS_PER_DAY)
        + i128::from(step.nanoseconds / 1000);
    if length == 0 {
        return Err(SqlError::new(
            SqlState::InvalidParameterValue,
            "step size cannot equal zero",
        ));
    }
    let mut all = vec![];
    let mut at = from;
    while if length > 0 { at <= to } else { at >= to } {
        all.push(at);
        if all.len() > SERIES_MAX || matches!(at, i64::MAX | i64::MIN) {
            return Err(SqlError::new(
                SqlState::ProgramLimitExceeded,
                format!("a series has more than {SERIES_MAX} elements"),
            ));
        }
        at = shifted(at, step, false, zone)?;
    }
    Ok(all)
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
