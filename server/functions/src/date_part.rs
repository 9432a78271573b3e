//! `date_part(unit, time)` and `EXTRACT(unit FROM time)`, as PostgreSQL has them.
//!
//! The first is a float, the second (`pg_extract` here) a numeric that is exact. DataFusion's has whole seconds only, no
//! century, decade or time zone, and a year of 360 days.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, Float64Array};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Field as ArrowField, FieldRef, Int64Type, IntervalMonthDayNano, TimeUnit,
    TimestampMicrosecondType,
};
use datafusion::common::{Result, exec_datafusion_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature,
    Volatility,
};
use datafusion::scalar::ScalarValue;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::types::interval::intervals;
use millrace_postgres::types::parse::datetime::{MICROS_PER_DAY, civil_from_days, days_from_civil};
use millrace_postgres::types::zone::Zone;
use millrace_postgres::types::{self, timestamptz};

use crate::arguments::on_arrays;
use crate::format::moment::{JULIAN_EPOCH, iso_week};

/// `date_part`, a float.
pub const DATE_PART: &str = "date_part";
/// `EXTRACT`, a numeric.
pub const EXTRACT: &str = "pg_extract";

/// The functions.
pub fn udfs() -> Vec<Arc<ScalarUDF>> {
    [false, true]
        .into_iter()
        .map(|exact| {
            // The third argument is the time zone of the session.
            let arguments = vec![TypeSignature::Any(2), TypeSignature::Any(3)];
            Arc::new(ScalarUDF::from(DatePart {
                exact,
                aliases: if exact { vec![] } else { vec!["datepart".into()] },
                signature: Signature::one_of(arguments, Volatility::Immutable),
            }))
        })
        .collect()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct DatePart {
    exact: bool,
    aliases: Vec<String>,
    signature: Signature,
}

/// What is taken out of a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Microseconds,
    Milliseconds,
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Quarter,
    Year,
    Decade,
    Century,
    Millennium,
    IsoYear,
    Dow,
    IsoDow,
    Doy,
    Julian,
    Epoch,
    Timezone,
    TimezoneHour,
    TimezoneMinute,
}

impl Unit {
    fn named(name: &str) -> Option<Unit> {
        Some(match name.trim_matches(['\'', '"']).to_lowercase().as_str() {
            "microsecond" | "microseconds" | "us" | "usec" | "usecs" | "usecond" | "useconds" => {
                Unit::Microseconds
            }
            "millisecond" | "milliseconds" | "ms" | "msec" | "msecs" | "msecond" | "mseconds" => {
                Unit::Milliseconds
            }
            "second" | "seconds" | "s" | "sec" | "secs" => Unit::Second,
            "minute" | "minutes" | "m" | "min" | "mins" => Unit::Minute,
            "hour" | "hours" | "h" | "hr" | "hrs" => Unit::Hour,
            "day" | "days" | "d" => Unit::Day,
            "week" | "weeks" | "w" => Unit::Week,
            "month" | "months" | "mon" | "mons" => Unit::Month,
            "quarter" | "qtr" => Unit::Quarter,
            "year" | "years" | "y" | "yr" | "yrs" => Unit::Year,
            "decade" | "decades" | "dec" | "decs" => Unit::Decade,
            "century" | "centuries" | "c" | "cent" => Unit::Century,
            "millennium" | "millennia" | "mil" | "mils" => Unit::Millennium,
            "isoyear" => Unit::IsoYear,
            "dow" => Unit::Dow,
            "isodow" => Unit::IsoDow,
            "doy" => Unit::Doy,
            "julian" | "jd" | "j" => Unit::Julian,
            "epoch" => Unit::Epoch,
            "timezone" => Unit::Timezone,
            "timezone_hour" | "timezone_h" => Unit::TimezoneHour,
            "timezone_minute" | "timezone_m" => Unit::TimezoneMinute,
            _ => return None,
        })
    }

    /// Whether the values of the kind have the unit.
    fn is_of(self, kind: Kind) -> bool {
        let of_clock = matches!(
            self,
            Unit::Microseconds | Unit::Milliseconds | Unit::Second | Unit::Minute | Unit::Hour
        );
        let of_zone = matches!(self, Unit::Timezone | Unit::TimezoneHour | Unit::TimezoneMinute);
        match kind {
            Kind::Instant => true,
            Kind::Timestamp => !of_zone,
            Kind::Date => !of_zone && !of_clock,
            Kind::Time => of_clock || self == Unit::Epoch,
            Kind::Interval => {
                !of_zone
                    && !matches!(
                        self,
                        Unit::Week | Unit::IsoYear | Unit::Dow | Unit::IsoDow | Unit::Doy | Unit::Julian
                    )
            }
        }
    }

    /// Whether it only grows with time, so that there is an infinite one.
    fn grows(self) -> bool {
        matches!(
            self,
            Unit::Year
                | Unit::Decade
                | Unit::Century
                | Unit::Millennium
                | Unit::IsoYear
                | Unit::Julian
                | Unit::Epoch
        )
    }

    /// Digits of the numeric, and how many of them are behind the point.
    fn digits(self, kind: Kind) -> (u8, i8) {
        match (self, kind) {
            (Unit::Second, _) => (8, 6),
            (Unit::Milliseconds, _) => (8, 3),
            (Unit::Epoch, Kind::Date) => (18, 0),
            (Unit::Epoch, _) => (24, 6),
            (Unit::Julian, Kind::Instant | Kind::Timestamp) => (38, 20),
            _ => (10, 0),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Instant,
    Timestamp,
    Date,
    Time,
    Interval,
}

impl Kind {
    fn of(data_type: &DataType) -> Option<Kind> {
        Some(match data_type {
            DataType::Timestamp(_, Some(_)) => Kind::Instant,
            DataType::Timestamp(_, None) => Kind::Timestamp,
            DataType::Date32 => Kind::Date,
            DataType::Time64(_) => Kind::Time,
            DataType::Interval(_) | DataType::Duration(_) => Kind::Interval,
            _ => return None,
        })
    }
}

/// A part, exactly: so many units, of which there are so many in one.
struct Part {
    value: i128,
    per_one: i128,
}

fn whole(value: i64) -> Part {
    Part {
        value: value.into(),
        per_one: 1,
    }
}

fn fraction(value: i64, per_one: i64) -> Part {
    Part {
        value: value.into(),
        per_one: per_one.into(),
    }
}

/// The part of a time of day, in microseconds; the sign is that of the time.
fn of_clock(unit: Unit, micros: i64) -> Part {
    let minute = micros % 60_000_000;
    match unit {
        Unit::Microseconds => whole(minute),
        Unit::Milliseconds => fraction(minute, 1_000),
        Unit::Second => fraction(minute, 1_000_000),
        Unit::Minute => whole(micros / 60_000_000 % 60),
        _ => whole(micros / 3_600_000_000),
    }
}

/// The part of a local time that is so many seconds east of UTC; an infinity has no part here.
fn of_moment(unit: Unit, kind: Kind, local: i64, offset: i64) -> Part {
    let days = local.div_euclid(MICROS_PER_DAY);
    let time = local.rem_euclid(MICROS_PER_DAY);
    let (year, month, day) = civil_from_days(days);
    // There is no year 0: 1 BC is -1.
    let shown = |year: i64| if year > 0 { year } else { year - 1 };
    let nth = |length: i64| {
        if year > 0 {
            (year + length - 1) / length
        } else {
            -((length - 1 - (year - 1)) / length)
        }
    };
    match unit {
        Unit::Day => whole(day),
        Unit::Month => whole(month),
        Unit::Quarter => whole((month - 1) / 3 + 1),
        Unit::Year => whole(shown(year)),
        Unit::Decade => whole(year.div_euclid(10)),
        Unit::Century => whole(nth(100)),
        Unit::Millennium => whole(nth(1000)),
        Unit::Week => whole(iso_week(days).1),
        Unit::IsoYear => whole(shown(iso_week(days).0)),
        Unit::Dow => whole((days + 4).rem_euclid(7)),
        Unit::IsoDow => whole((days + 3).rem_euclid(7) + 1),
        Unit::Doy => whole(days - days_from_civil(year, 1, 1) + 1),
        Unit::Julian if kind == Kind::Date => whole(days + JULIAN_EPOCH),
        Unit::Julian => fraction((days + JULIAN_EPOCH) * MICROS_PER_DAY + time, MICROS_PER_DAY),
        Unit::Epoch => fraction(local - offset * 1_000_000, 1_000_000),
        Unit::Timezone => whole(offset),
        Unit::TimezoneHour => whole(offset / 3600),
        Unit::TimezoneMinute => whole(offset % 3600 / 60),
        _ => of_clock(unit, time),
    }
}

fn of_interval(unit: Unit, value: IntervalMonthDayNano) -> Part {
    let (months, days) = (i64::from(value.months), i64::from(value.days));
    let micros = value.nanoseconds / 1000;
    let (year, month) = (months / 12, months % 12);
    match unit {
        Unit::Day => whole(days),
        Unit::Month => whole(month),
        Unit::Quarter => whole(month / 3 + 1),
        Unit::Year => whole(year),
        Unit::Decade => whole(year / 10),
        Unit::Century => whole(year / 100),
        Unit::Millennium => whole(year / 1000),
        Unit::Epoch => {
            // A year is 365.25 days, a month beside it 30.
            let quarter_days = year * 1461 + month * 120 + days * 4;
            Part {
                value: i128::from(quarter_days) * 21_600_000_000 + i128::from(micros),
                per_one: 1_000_000,
            }
        }
        _ => of_clock(unit, micros),
    }
}

impl Part {
    fn float(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "date_part is a float")]
        let (value, per_one) = (self.value as f64, self.per_one as f64);
        value / per_one
    }

    /// With so many digits behind the point.
    fn exact(&self, scale: i8) -> i128 {
        let unit = 10_i128.pow(scale.unsigned_abs().into());
        match unit % self.per_one {
            0 => self.value * (unit / self.per_one),
            _ => {
                let (whole, rest) = (
                    self.value.div_euclid(self.per_one),
                    self.value.rem_euclid(self.per_one),
                );
                whole * unit + (rest * unit + self.per_one / 2) / self.per_one
            }
        }
    }
}

impl DatePart {
    /// The unit and the kind of value that arguments are.
    fn wanted(&self, unit: &str, value: &DataType) -> SqlResult<(Unit, Kind)> {
        let name = types::plain_name(&ArrowField::new("", value.clone(), true));
        let Some(kind) = Kind::of(value) else {
            let function = if self.exact { "extract" } else { DATE_PART };
            return Err(SqlError::new(
                SqlState::UndefinedFunction,
                format!("function {function}(text, {name}) does not exist"),
            )
            .with_hint(
                "Could not choose a best candidate function. You might need to add explicit type casts.",
            ));
        };
        let shown = unit.trim_matches(['\'', '"']).to_lowercase();
        let Some(unit) = Unit::named(unit) else {
            return Err(SqlError::new(
                SqlState::InvalidParameterValue,
                format!("unit \"{shown}\" not recognized for type {name}"),
            ));
        };
        if !unit.is_of(kind) {
            return Err(SqlError::unsupported(format!(
                "unit \"{shown}\" not supported for type {name}"
            )));
        }
        Ok((unit, kind))
    }

    fn apply(&self, unit: Unit, kind: Kind, values: &ArrayRef, zone: Zone) -> Result<ArrayRef> {
        let rows = values.len();
        // The part of a row; an infinite time has an infinite one or none.
        type Parts<'a> = Box<dyn Fn(usize) -> Option<std::result::Result<Part, f64>> + 'a>;
        let lengths;
        let instants;
        let times;
        let infinite = |is_later: bool| {
            let sign = if is_later { 1.0 } else { -1.0 };
            unit.grows().then_some(Err(f64::INFINITY * sign))
        };
        let part: Parts<'_> = match kind {
            Kind::Interval => {
                lengths = intervals(values)?;
                let lengths = &lengths;
                Box::new(move |row| Some(Ok(of_interval(unit, lengths.value(row)))))
            }
            Kind::Time => {
                times = cast(
                    &cast(values, &DataType::Time64(TimeUnit::Microsecond))?,
                    &DataType::Int64,
                )?;
                let times = times.as_primitive::<Int64Type>();
                Box::new(move |row| {
                    Some(Ok(match unit {
                        Unit::Epoch => fraction(times.value(row), 1_000_000),
                        _ => of_clock(unit, times.value(row)),
                    }))
                })
            }
            Kind::Date => {
                times = cast(&cast(values, &DataType::Int32)?, &DataType::Int64)?;
                let days = times.as_primitive::<Int64Type>();
                Box::new(move |row| match days.value(row) {
                    day if day == i64::from(i32::MAX) => infinite(true),
                    day if day == i64::from(i32::MIN) => infinite(false),
                    day if unit == Unit::Epoch => Some(Ok(whole(day * 86_400))),
                    day => Some(Ok(of_moment(unit, kind, day * MICROS_PER_DAY, 0))),
                })
            }
            Kind::Timestamp | Kind::Instant => {
                let target = match kind {
                    Kind::Instant => timestamptz(),
                    _ => DataType::Timestamp(TimeUnit::Microsecond, None),
                };
                instants = cast(values, &target)?;
                let instants = instants.as_primitive::<TimestampMicrosecondType>();
                Box::new(move |row| match instants.value(row) {
                    i64::MAX => infinite(true),
                    i64::MIN => infinite(false),
                    micros if kind == Kind::Instant => {
                        let offset = zone.offset_at(micros);
                        Some(Ok(of_moment(unit, kind, micros + offset * 1_000_000, offset)))
                    }
                    micros => Some(Ok(of_moment(unit, kind, micros, 0))),
                })
            }
        };
        let of_row = |row: usize| values.is_valid(row).then(|| part(row)).flatten();
        if !self.exact {
            let floats: Float64Array = (0..rows)
                .map(|row| {
                    of_row(row).map(|part| match part {
                        Ok(part) => part.float(),
                        Err(infinite) => infinite,
                    })
                })
                .collect();
            return Ok(Arc::new(floats));
        }
        let (precision, scale) = unit.digits(kind);
        let exact = (0..rows)
            .map(|row| {
                of_row(row)
                    .map(|part| match part {
                        Ok(part) => Ok(part.exact(scale)),
                        Err(_) => Err(SqlError::new(
                            SqlState::NumericValueOutOfRange,
                            "the parts of an infinite time are infinite, which numeric cannot represent",
                        )
                        .with_hint("date_part() returns double precision, which can.")),
                    })
                    .transpose()
            })
            .collect::<SqlResult<Decimal128Array>>()?;
        Ok(Arc::new(exact.with_precision_and_scale(precision, scale)?))
    }
}

impl ScalarUDFImpl for DatePart {
    fn name(&self) -> &str {
        if self.exact { EXTRACT } else { DATE_PART }
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Err(exec_datafusion_err!(
            "{} tells its type by return_field_from_args",
            self.name()
        ))
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let value = args.arg_fields[1].data_type();
        let data_type = match args.scalar_arguments[0] {
            Some(ScalarValue::Utf8(Some(unit))) if value != &DataType::Null => {
                let (unit, kind) = self.wanted(unit, value)?;
                let (precision, scale) = unit.digits(kind);
                if self.exact {
                    DataType::Decimal128(precision, scale)
                } else {
                    DataType::Float64
                }
            }
            // The unit of date_part may be any text.
            _ if self.exact => DataType::Decimal128(10, 0),
            _ => DataType::Float64,
        };
        Ok(Arc::new(ArrowField::new(self.name(), data_type, true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let zone = match args.args.get(2) {
            Some(ColumnarValue::Scalar(ScalarValue::Utf8(Some(name)))) => Zone::named_in_sql(name)?,
            _ => Zone::UTC,
        };
        let target = args.return_field.data_type().clone();
        on_arrays(&args, |arrays, rows| {
            if arrays[1].data_type() == &DataType::Null {
                return Ok(arrow::array::new_null_array(&target, rows));
            }
            let units = cast(&arrays[0], &DataType::Utf8)?;
            let units = units.as_string::<i32>();
            let is_one = (1..rows).all(|row| units.is_valid(row) && units.value(row) == units.value(0));
            if rows > 0 && units.is_valid(0) && is_one {
                let (unit, kind) = self.wanted(units.value(0), arrays[1].data_type())?;
                return self.apply(unit, kind, &arrays[1], zone);
            }
            let parts = (0..rows)
                .map(|row| {
                    if units.is_null(row) {
                        return Ok(arrow::array::new_null_array(&target, 1));
                    }
                    let (unit, kind) = self.wanted(units.value(row), arrays[1].data_type())?;
                    self.apply(unit, kind, &arrays[1].slice(row, 1), zone)
                })
                .collect::<Result<Vec<_>>>()?;
            let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
            match parts.is_empty() {
                true => Ok(arrow::array::new_empty_array(&target)),
                false => Ok(arrow::compute::concat(&parts)?),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_postgres::types::parse::datetime::timestamp;
    use millrace_postgres::types::parse::interval::interval;

    fn moment(unit: &str, text: &str) -> String {
        let unit = Unit::named(unit).unwrap();
        let part = of_moment(unit, Kind::Timestamp, timestamp(text).unwrap(), 0);
        part.float().to_string()
    }

    #[test]
    fn parts_of_a_moment() {
        for (unit, text, expected) in [
            ("second", "2013-01-31 10:00:01.5", "1.5"),
            ("milliseconds", "2013-01-31 10:00:01.5", "1500"),
            ("epoch", "2013-01-31 10:00:01.5", "1359626401.5"),
            ("julian", "2013-01-31 12:00", "2456324.5"),
            ("century", "2000-12-31", "20"),
            ("century", "2001-01-01", "21"),
            ("millennium", "2000-12-31", "2"),
            ("decade", "2013-01-01", "201"),
            ("century", "0044-01-01 BC", "-1"),
            ("millennium", "0044-01-01 BC", "-1"),
            ("decade", "0044-01-01 BC", "-5"),
            ("year", "0044-01-01 BC", "-44"),
            ("isoyear", "2012-01-01", "2011"),
            ("week", "2012-01-01", "52"),
            ("isodow", "2012-01-01", "7"),
        ] {
            assert_eq!(moment(unit, text), expected, "{unit} of {text}");
        }
    }

    #[test]
    fn parts_of_a_length() {
        for (unit, text, expected) in [
            ("epoch", "1 year 2 mons 3.5 days", "37044000"),
            ("quarter", "5 months", "2"),
            ("quarter", "-5 months", "0"),
            ("year", "-15 months", "-1"),
            ("hour", "40 days 30:00:01.5", "30"),
            ("second", "-1.5 s", "-1.5"),
            ("century", "250 years", "2"),
        ] {
            let part = of_interval(Unit::named(unit).unwrap(), interval(text).unwrap());
            assert_eq!(part.float().to_string(), expected, "{unit} of {text}");
        }
    }
}
