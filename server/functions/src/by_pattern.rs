//! `to_date(text, pattern)` and `to_timestamp(text, pattern)`, by the patterns of [`super::format::pattern`].
//!
//! As in PostgreSQL, a separator in the pattern takes any separator in the text, names are read in any case, and what
//! the text has after the end of the pattern does not matter. What the text does not say is the beginning of 1 BC.

use std::sync::Arc;

use arrow::array::{Array, AsArray, Date32Array, TimestampMicrosecondArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};
use datafusion::scalar::ScalarValue;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::types::parse::datetime::{
    MICROS_PER_DAY, civil_from_days, days_from_civil, days_in_month,
};
use millrace_postgres::types::timestamptz;
use millrace_postgres::types::zone::Zone;

use crate::arguments::on_arrays;
use crate::format::moment::{DAYS, JULIAN_EPOCH, MONTHS, ROMAN_MONTHS, iso_year_begin};
use crate::format::pattern::{self, Field, Fraction, Item};

/// What `to_timestamp(text, pattern)` is called, beside DataFusion's `to_timestamp` of numbers.
pub const TO_TIMESTAMP: &str = "to_timestamp_by_pattern";

/// The functions.
pub fn udfs() -> Vec<Arc<ScalarUDF>> {
    [true, false]
        .into_iter()
        .map(|to_date| {
            // The third argument is the time zone of the session.
            let arguments = vec![TypeSignature::Any(2), TypeSignature::Any(3)];
            let signature = Signature::one_of(arguments, Volatility::Immutable);
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

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        if !arg_types
            .iter()
            .all(|given| given.is_string() || given == &DataType::Null)
        {
            let name = if self.to_date { "to_date" } else { "to_timestamp" };
            return Err(SqlError::new(
                SqlState::UndefinedFunction,
                format!("function {name} takes a text and a pattern"),
            )
            .with_hint("You might need to add explicit type casts.")
            .into());
        }
        Ok(if self.to_date {
            DataType::Date32
        } else {
            timestamptz()
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let zone = match args.args.get(2) {
            Some(ColumnarValue::Scalar(ScalarValue::Utf8(Some(name)))) => Zone::named_in_sql(name)?,
            _ => Zone::UTC,
        };
        on_arrays(&args, |arrays, rows| {
            let texts = |index: usize| cast(&arrays[index], &DataType::Utf8);
            let (values, patterns) = (texts(0)?, texts(1)?);
            let (values, patterns) = (values.as_string::<i32>(), patterns.as_string::<i32>());
            let mut kept: Option<(&str, Vec<Item>)> = None;
            let mut instants = Vec::with_capacity(rows);
            for row in 0..rows {
                if values.is_null(row) || patterns.is_null(row) {
                    instants.push(None);
                    continue;
                }
                let text = patterns.value(row);
                let items = match kept.take() {
                    Some((known, items)) if known == text => items,
                    _ => pattern::parse(text)?,
                };
                let (local, offset) = read(values.value(row), &items)?;
                instants.push(Some(match offset {
                    _ if self.to_date => local,
                    Some(seconds) => local - seconds * 1_000_000,
                    None => zone.to_utc(local),
                }));
                kept = Some((text, items));
            }
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

fn invalid(value: &str, part: &str) -> SqlError {
    let value = value.split_ascii_whitespace().next().unwrap_or_default();
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

/// The years of which a date is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Calendar {
    Gregorian,
    Iso,
}

/// The calendar that a field belongs to.
fn calendar(field: Field) -> Option<Calendar> {
    match field {
        Field::DayOfYear { iso }
        | Field::DayOfWeek { iso }
        | Field::WeekOfYear { iso }
        | Field::Year { iso, .. } => Some(if iso { Calendar::Iso } else { Calendar::Gregorian }),
        Field::Month
        | Field::MonthName { .. }
        | Field::RomanMonth
        | Field::Day
        | Field::WeekOfMonth
        | Field::YearWithComma => Some(Calendar::Gregorian),
        _ => None,
    }
}

/// What a text says. As in PostgreSQL a zero counts as nothing said.
#[derive(Debug, Default)]
struct Said {
    calendar: Option<Calendar>,
    afternoon: i64,
    is_half_day: bool,
    hour: i64,
    minute: i64,
    second: i64,
    second_of_day: i64,
    millis: i64,
    micros: i64,
    /// From Sunday, which is 1.
    weekday: i64,
    day: i64,
    day_of_year: i64,
    month: i64,
    year: i64,
    /// Digits of the year in the pattern.
    year_digits: u32,
    before_christ: i64,
    century: i64,
    week: i64,
    week_of_month: i64,
    julian: i64,
    /// 1, or -1 for a zone to the west; 0: no zone.
    zone_sign: i64,
    zone_hours: i64,
    zone_minutes: i64,
}

/// The text that is read, and what is left of it.
struct Reader<'a> {
    rest: &'a str,
    /// White space, and separators beyond those of the pattern, that were passed before the next field.
    skipped: i64,
    /// The character before the rest.
    before: Option<char>,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Option<char> {
        let next = self.rest.chars().next()?;
        self.rest = &self.rest[next.len_utf8()..];
        self.before = Some(next);
        Some(next)
    }

    fn skip_space(&mut self) {
        while self.rest.starts_with(|next: char| next.is_ascii_whitespace()) {
            self.next();
            self.skipped += 1;
        }
    }

    /// A whole number of a field that has so many characters; `open`: it may have more, as nothing follows that would
    /// begin with a digit.
    fn number(&mut self, name: &str, length: usize, open: bool) -> SqlResult<(i64, usize)> {
        self.rest = self
            .rest
            .trim_start_matches(|next: char| next.is_ascii_whitespace());
        let field: String = self.rest.chars().take(length).collect();
        let signed = |text: &str| {
            let sign = usize::from(text.starts_with(['-', '+']));
            sign + text[sign..].bytes().take_while(u8::is_ascii_digit).count()
        };
        let fixed_width = "If your source string is not fixed-width, try using the \"FM\" modifier.";
        let used = if open {
            signed(self.rest)
        } else {
            let there = field.chars().count();
            if there < length {
                return Err(SqlError::new(
                    SqlState::InvalidDatetimeFormat,
                    format!("source string too short for \"{name}\" formatting field"),
                )
                .with_detail(format!(
                    "Field requires {length} characters, but only {there} remain."
                ))
                .with_hint(fixed_width));
            }
            let used = signed(&field);
            if used > 0 && used < length {
                return Err(invalid(&field, name)
                    .with_detail(format!(
                        "Field requires {length} characters, but only {used} could be parsed."
                    ))
                    .with_hint(fixed_width));
            }
            used
        };
        let digits = &self.rest[..used];
        if !digits.bytes().any(|byte| byte.is_ascii_digit()) {
            return Err(invalid(&field, name).with_detail("Value must be an integer."));
        }
        let value = digits
            .parse::<i32>()
            .map_err(|_| {
                SqlError::new(
                    SqlState::DatetimeFieldOverflow,
                    format!("value for \"{name}\" in source string is out of range"),
                )
                .with_detail("Value must be in the range -2147483648 to 2147483647.")
            })?
            .into();
        self.before = digits.chars().next_back();
        self.rest = &self.rest[used..];
        Ok((value, used))
    }

    /// The index of the name that the rest begins with.
    fn name(&mut self, field: &str, names: &[&str]) -> SqlResult<i64> {
        let found = names.iter().position(|name| {
            self.rest
                .get(..name.len())
                .is_some_and(|word| word.eq_ignore_ascii_case(name))
        });
        let Some(index) = found else {
            return Err(invalid(self.rest, field)
                .with_detail("The given value did not match any of the allowed values for this field."));
        };
        self.rest = &self.rest[names[index].len()..];
        Ok(i64::try_from(index).unwrap_or_default())
    }
}

/// Says a thing, which may not have been said otherwise.
fn say(said: &mut i64, value: i64, name: &str) -> SqlResult<()> {
    if *said != 0 && *said != value {
        return Err(SqlError::new(
            SqlState::InvalidDatetimeFormat,
            format!("conflicting values for \"{name}\" field in formatting string"),
        )
        .with_detail("This value contradicts a previous setting for the same field type."));
    }
    *said = value;
    Ok(())
}

/// The characters that a field has in a text of fixed width.
fn width(field: Field, name: &str) -> usize {
    match field {
        Field::Hour | Field::Hour12 => 2,
        Field::Fraction { digits, .. } => digits as usize,
        Field::DayOfYear { .. } => 3,
        Field::DayOfWeek { .. } => 1,
        Field::ZoneHour | Field::ZoneMinute => 2,
        _ => name.len(),
    }
}

/// A year of fewer than four digits is one near 2020.
fn near_2020(year: i64) -> i64 {
    match year {
        0..=69 => year + 2000,
        70..=99 => year + 1900,
        100..=519 => year + 2000,
        520..=999 => year + 1000,
        _ => year,
    }
}

/// Whether the field may go on beyond its characters: what follows begins with no digit.
fn may_be_longer(items: &[Item], at: usize) -> bool {
    if let Item::Field { ordinal: Some(_), .. } = &items[at] {
        return true;
    }
    match items.get(at + 1) {
        None | Some(Item::Space | Item::Separator(_)) => true,
        Some(Item::Field { field, .. }) => !field.is_number(),
        Some(Item::Character(character)) => !character.is_ascii_digit(),
    }
}

/// The local time that a text says by a pattern, in microseconds since 1970, and the offset of its zone in seconds.
fn read(text: &str, items: &[Item]) -> SqlResult<(i64, Option<i64>)> {
    let mut said = Said::default();
    let mut reader = Reader {
        rest: text,
        skipped: 0,
        before: None,
    };
    let mut exact = false;
    for (index, item) in items.iter().enumerate() {
        if reader.rest.is_empty() {
            break;
        }
        let begins_exact = matches!(
            item,
            Item::Field {
                field: Field::Exact,
                ..
            }
        );
        if !exact && !begins_exact && (index == 0 || matches!(item, Item::Field { .. })) {
            reader.skip_space();
        }
        match item {
            Item::Space | Item::Separator(_) if exact => {
                reader.next();
            }
            Item::Space | Item::Separator(_) => {
                reader.skipped -= 1;
                let is_separator = |next: char| next.is_ascii_whitespace() || next.is_ascii_punctuation();
                if reader.rest.starts_with(is_separator) {
                    reader.next();
                    reader.skipped += 1;
                }
            }
            Item::Character(_) if !exact && reader.skipped > 0 => reader.skipped -= 1,
            Item::Character(_) => {
                reader.next();
            }
            Item::Field {
                field: Field::Exact, ..
            } => exact = true,
            Item::Field {
                field,
                name,
                fill,
                ordinal,
                ..
            } => {
                if let Some(calendar) = calendar(*field) {
                    if said.calendar.is_some_and(|before| before != calendar) {
                        return Err(SqlError::new(
                            SqlState::InvalidDatetimeFormat,
                            "invalid combination of date conventions",
                        )
                        .with_hint(
                            "Do not mix Gregorian and ISO week date conventions in a formatting template.",
                        ));
                    }
                    said.calendar = Some(calendar);
                }
                let open = *fill || may_be_longer(items, index);
                said.field(*field, name, open, &mut reader)?;
                if ordinal.is_some() && field.is_number() {
                    reader.next();
                    reader.next();
                }
                if !exact {
                    reader.skipped = 0;
                    reader.skip_space();
                }
            }
        }
    }
    said.moment(text)
}

impl Said {
    /// Reads a field.
    fn field(&mut self, field: Field, name: &str, open: bool, reader: &mut Reader<'_>) -> SqlResult<()> {
        let names = |all: &[&'static str], short: bool| -> Vec<&'static str> {
            all.iter()
                .map(|name| if short { &name[..3] } else { name })
                .collect()
        };
        match field {
            Field::Half { points } => {
                let known = if points { ["A.M.", "P.M."] } else { ["AM", "PM"] };
                say(&mut self.afternoon, reader.name(name, &known)?, name)?;
                self.is_half_day = true;
                return Ok(());
            }
            Field::Era { points } => {
                let known = if points { ["A.D.", "B.C."] } else { ["AD", "BC"] };
                return say(&mut self.before_christ, reader.name(name, &known)?, name);
            }
            Field::MonthName { short } => {
                let month = reader.name(name, &names(&MONTHS, short))? + 1;
                return say(&mut self.month, month, name);
            }
            Field::DayName { short } => {
                let day = reader.name(name, &names(&DAYS, short))? + 1;
                return say(&mut self.weekday, day, name);
            }
            Field::RomanMonth => {
                // The longer names before those that they begin with.
                let mut known = ROMAN_MONTHS.to_vec();
                known.sort_by_key(|name| std::cmp::Reverse(name.len()));
                let found = known[usize::try_from(reader.name(name, &known)?).unwrap_or_default()];
                let month = ROMAN_MONTHS
                    .iter()
                    .position(|name| *name == found)
                    .unwrap_or_default();
                return say(
                    &mut self.month,
                    i64::try_from(month).unwrap_or_default() + 1,
                    name,
                );
            }
            Field::ZoneName | Field::ZoneOffset => {
                return Err(SqlError::unsupported(format!(
                    "formatting field \"{name}\" is only supported in to_char"
                )));
            }
            Field::ZoneHour => {
                let sign = match reader.rest.chars().next() {
                    Some(sign @ ('+' | '-' | ' ')) => {
                        reader.next();
                        if sign == '-' { -1 } else { 1 }
                    }
                    // The sign was taken for a separator.
                    _ if reader.skipped > 0 && reader.before == Some('-') => -1,
                    _ => 1,
                };
                self.zone_sign = sign;
            }
            Field::ZoneMinute if self.zone_sign == 0 => self.zone_sign = 1,
            Field::YearWithComma => return self.year_with_comma(name, reader),
            _ => {}
        }
        let (value, used) = reader.number(name, width(field, name), open)?;
        match field {
            Field::Hour => say(&mut self.hour, value, name)?,
            Field::Hour12 => {
                say(&mut self.hour, value, name)?;
                self.is_half_day = true;
            }
            Field::Minute => say(&mut self.minute, value, name)?,
            Field::Second => say(&mut self.second, value, name)?,
            // The digits are those of a fraction: 5 is half a second.
            Field::Fraction {
                name: Fraction::Millis,
                ..
            } => {
                say(&mut self.millis, value, name)?;
                self.millis *= match used {
                    1 => 100,
                    2 => 10,
                    _ => 1,
                };
            }
            Field::Fraction { .. } => {
                say(&mut self.micros, value, name)?;
                self.micros = (used..6).fold(self.micros, |micros, _| micros * 10);
            }
            Field::SecondsOfDay => say(&mut self.second_of_day, value, name)?,
            Field::Month => say(&mut self.month, value, name)?,
            Field::Day => say(&mut self.day, value, name)?,
            Field::DayOfYear { .. } => say(&mut self.day_of_year, value, name)?,
            Field::DayOfWeek { iso: false } => say(&mut self.weekday, value, name)?,
            Field::DayOfWeek { iso: true } => {
                say(&mut self.weekday, if value + 1 > 7 { 1 } else { value + 1 }, name)?;
            }
            Field::WeekOfYear { .. } => say(&mut self.week, value, name)?,
            Field::WeekOfMonth => say(&mut self.week_of_month, value, name)?,
            Field::Century => say(&mut self.century, value, name)?,
            Field::Julian => say(&mut self.julian, value, name)?,
            Field::Year { digits, .. } => {
                let year = if digits < 4 && used < 4 {
                    near_2020(value)
                } else {
                    value
                };
                say(&mut self.year, year, name)?;
                self.year_digits = digits;
            }
            Field::ZoneHour => say(&mut self.zone_hours, value, name)?,
            Field::ZoneMinute => say(&mut self.zone_minutes, value, name)?,
            // A quarter says no date.
            _ => {}
        }
        Ok(())
    }

    fn year_with_comma(&mut self, name: &str, reader: &mut Reader<'_>) -> SqlResult<()> {
        let wrong = || {
            SqlError::new(
                SqlState::InvalidDatetimeFormat,
                "invalid input string for \"Y,YYY\"",
            )
        };
        let (thousands, behind) = reader.rest.split_once(',').ok_or_else(wrong)?;
        let length = behind.bytes().take(3).take_while(u8::is_ascii_digit).count();
        let (Ok(thousands), Ok(years)) = (thousands.parse::<i32>(), behind[..length].parse::<i32>()) else {
            return Err(wrong());
        };
        reader.rest = &behind[length..];
        self.year_digits = 4;
        say(
            &mut self.year,
            i64::from(thousands) * 1000 + i64::from(years),
            name,
        )
    }

    /// The astronomical year: 0 is 1 BC. None: none was said.
    fn astronomical_year(&self) -> Option<i64> {
        let before_christ = self.before_christ != 0;
        let century = if before_christ {
            -self.century
        } else {
            self.century
        };
        if self.year == 0 {
            // The first year of the century.
            return match self.century {
                0 => None,
                _ if century >= 0 => Some((century - 1) * 100 + 1),
                _ => Some(century * 100 + 1),
            };
        }
        if self.century != 0 && self.year_digits <= 2 {
            let of_century = self.year % 100;
            return Some(match (of_century, century >= 0) {
                (0, true) => century * 100,
                (0, false) => century * 100 + 1,
                (_, true) => of_century + (century - 1) * 100,
                (_, false) => (century + 1) * 100 - of_century + 1,
            });
        }
        let year = if before_christ { -self.year } else { self.year };
        Some(if year < 0 { year + 1 } else { year })
    }

    fn moment(&self, text: &str) -> SqlResult<(i64, Option<i64>)> {
        let time = |said: i64, of_day: i64| if said != 0 { said } else { of_day };
        let mut hour = time(self.hour, self.second_of_day / 3600);
        let minute = time(self.minute, self.second_of_day / 60 % 60);
        let second = time(self.second, self.second_of_day % 60);
        if self.is_half_day {
            if !(1..=12).contains(&hour) {
                return Err(SqlError::new(
                    SqlState::InvalidDatetimeFormat,
                    format!("hour \"{hour}\" is invalid for the 12-hour clock"),
                )
                .with_hint("Use the 24-hour clock, or give an hour between 1 and 12."));
            }
            hour = hour % 12 + if self.afternoon != 0 { 12 } else { 0 };
        }
        let year = self.astronomical_year();
        let mut date = (year.unwrap_or(0), 1, 1);
        if self.julian != 0 {
            date = civil_from_days(self.julian - JULIAN_EPOCH);
        }
        let is_iso = self.calendar == Some(Calendar::Iso);
        let mut day_of_year = self.day_of_year;
        if self.week != 0 {
            if is_iso {
                // Without a day the week's Monday.
                let day = match self.weekday {
                    0 => 0,
                    1 => 6,
                    day => day - 2,
                };
                date = civil_from_days(iso_year_begin(date.0) + (self.week - 1) * 7 + day);
            } else {
                day_of_year = (self.week - 1) * 7 + 1;
            }
        }
        let day = if self.week_of_month != 0 {
            (self.week_of_month - 1) * 7 + 1
        } else {
            self.day
        };
        if day != 0 {
            date.2 = day;
        }
        if self.month != 0 {
            date.1 = self.month;
        }
        if day_of_year != 0 && (date.1 <= 1 || date.2 <= 1) {
            if date.0 == 0 && self.before_christ == 0 {
                return Err(SqlError::new(
                    SqlState::InvalidDatetimeFormat,
                    "cannot calculate day of year without year information",
                ));
            }
            if is_iso {
                date = civil_from_days(iso_year_begin(date.0) + day_of_year - 1);
            } else {
                let length = days_from_civil(date.0 + 1, 1, 1) - days_from_civil(date.0, 1, 1);
                if !(1..=length).contains(&day_of_year) {
                    return Err(out_of_range(text));
                }
                let (_, month, of_month) = civil_from_days(days_from_civil(date.0, 1, 1) + day_of_year - 1);
                if date.1 <= 1 {
                    date.1 = month;
                }
                if date.2 <= 1 {
                    date.2 = of_month;
                }
            }
        }
        let (year, month, day) = date;
        let exists = (1..=12).contains(&month)
            && (1..=days_in_month(year, month)).contains(&day)
            && (0..24).contains(&hour)
            && (0..60).contains(&minute)
            && (0..60).contains(&second)
            && (0..1_000_000).contains(&(self.millis * 1000 + self.micros))
            && (-4712..294_277).contains(&year);
        if !exists {
            return Err(out_of_range(text));
        }
        let offset = match self.zone_sign {
            0 => None,
            sign => {
                if !(0..=15).contains(&self.zone_hours) || !(0..60).contains(&self.zone_minutes) {
                    return Err(SqlError::new(
                        SqlState::InvalidTimeZone,
                        format!("time zone displacement out of range: \"{text}\""),
                    ));
                }
                Some(sign * (self.zone_hours * 3600 + self.zone_minutes * 60))
            }
        };
        let seconds = hour * 3600 + minute * 60 + second;
        let micros = seconds * 1_000_000 + self.millis * 1000 + self.micros;
        Ok((
            days_from_civil(year, month, day) * MICROS_PER_DAY + micros,
            offset,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_postgres::types::parse::datetime::timestamp;

    fn run(text: &str, pattern: &str) -> SqlResult<i64> {
        read(text, &pattern::parse(pattern)?).map(|(local, offset)| local - offset.unwrap_or(0) * 1_000_000)
    }

    #[test]
    fn texts_are_read_by_their_pattern() {
        for (text, pattern, expected) in [
            ("05 Jan 2013", "DD Mon YYYY", "2013-01-05 00:00"),
            ("January 5, 2013", "FMMonth FMDD, YYYY", "2013-01-05 00:00"),
            ("20130105", "YYYYMMDD", "2013-01-05 00:00"),
            ("2013/1/5", "YYYY-MM-DD", "2013-01-05 00:00"),
            ("2013-01-05", "yyyy-mm-dd", "2013-01-05 00:00"),
            (
                "2013-01-05 10:20:30.5",
                "YYYY-MM-DD HH24:MI:SS.MS",
                "2013-01-05 10:20:30.5",
            ),
            ("05.01.13 12:30 am", "DD.MM.YY HH12:MI am", "2013-01-05 00:30"),
            ("2013 036", "YYYY DDD", "2013-02-05 00:00"),
            ("2013 05 2", "IYYY IW ID", "2013-01-29 00:00"),
            ("2456298", "J", "2013-01-05 00:00"),
            (
                "2013-01-05 10:00 -05:30",
                "YYYY-MM-DD HH24:MI TZH:TZM",
                "2013-01-05 15:30",
            ),
            ("5th 2013", "DDth YYYY", "2013-01-05 00:00"),
            ("2013 XII", "YYYY RM", "2013-12-01 00:00"),
            ("44 BC", "YY BC", "0044-01-01 00:00"),
        ] {
            if pattern == "YY BC" {
                assert!(run(text, pattern).unwrap() < 0);
                continue;
            }
            assert_eq!(
                run(text, pattern).unwrap(),
                timestamp(expected).unwrap(),
                "{text}"
            );
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for (text, pattern, code) in [
            ("2013-02-30", "YYYY-MM-DD", "22008"),
            ("05 Jax", "DD Mon", "22007"),
            ("13:00", "HH:MI", "22007"),
            ("2013 1", "YYYY IW", "22007"),
            ("1 2", "MM MM", "22007"),
            ("2013x", "YYYYMM", "22007"),
            ("99999999999", "YYYY", "22008"),
            ("2013 UTC", "YYYY TZ", "0A000"),
        ] {
            assert_eq!(
                run(text, pattern).unwrap_err().code.code(),
                code,
                "{text} {pattern}"
            );
        }
    }
}
