//! Text input of interval: `1 year 2 mons -3 days 04:05:06.7`, `2 hours ago`, `P1Y2M3DT4H5M6S`.

use arrow::datatypes::IntervalMonthDayNano;

use crate::error::input::invalid;
use crate::error::{SqlError, SqlResult, SqlState};

use crate::types::interval_fields::{Fields, Unit};

const MICROS_PER_SECOND: i128 = 1_000_000;
const MICROS_PER_DAY: i128 = 86_400 * MICROS_PER_SECOND;

/// An interval.
///
/// # Errors
/// The text is not an interval, or does not fit.
pub fn interval(text: &str) -> SqlResult<IntervalMonthDayNano> {
    interval_of(text, Fields::ALL)
}

/// An interval of these fields: they say what a number without a unit is, and what is smaller than the last of them is cut.
///
/// # Errors
/// The text is not an interval, or does not fit.
pub fn interval_of(text: &str, fields: Fields) -> SqlResult<IntervalMonthDayNano> {
    let trimmed = text.trim();
    let parts = if trimmed.starts_with(['P', 'p']) {
        iso(trimmed)
    } else {
        verbose(trimmed, fields)
    };
    let parts = parts.ok_or_else(|| invalid("interval", text))?;
    let overflow = || {
        SqlError::new(
            SqlState::IntervalFieldOverflow,
            format!("interval field value out of range: \"{text}\""),
        )
    };
    let value = IntervalMonthDayNano::new(
        i32::try_from(parts.months).map_err(|_| overflow())?,
        i32::try_from(parts.days).map_err(|_| overflow())?,
        // Microseconds are all that PostgreSQL keeps.
        i64::try_from(parts.micros)
            .ok()
            .and_then(|micros| micros.checked_mul(1000))
            .ok_or_else(overflow)?,
    );
    Ok(fields.cut(value))
}

#[derive(Default)]
struct Parts {
    months: i128,
    days: i128,
    micros: i128,
}

/// A number: what is before the point, and what is behind it, both with its sign.
#[derive(Clone, Copy)]
struct Amount {
    whole: i128,
    fraction: f64,
}

impl Amount {
    fn parse(text: &str) -> Option<Amount> {
        let (is_negative, digits) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if whole.len() + fraction.len() == 0
            || !are_digits(whole)
            || !are_digits(fraction)
            || digits.len() > 30
        {
            return None;
        }
        let mut amount = Amount {
            whole: if whole.is_empty() { 0 } else { whole.parse().ok()? },
            fraction: format!("0.{fraction}0").parse().ok()?,
        };
        if is_negative {
            amount.whole = -amount.whole;
            amount.fraction = -amount.fraction;
        }
        Some(amount)
    }

    /// So many microseconds each.
    fn micros(self, each: i128) -> i128 {
        self.whole.saturating_mul(each) + rounded(self.fraction * each as f64)
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "it is less than a year of microseconds"
)]
fn rounded(value: f64) -> i128 {
    value.round_ties_even() as i128
}

/// What is behind the point, of so many days each: days, and time.
#[expect(clippy::cast_possible_truncation, reason = "it is less than a month of days")]
fn of_days(fraction: f64, days: f64) -> (i128, i128) {
    let days = fraction * days;
    let whole = days.trunc();
    (whole as i128, rounded((days - whole) * MICROS_PER_DAY as f64))
}

impl Parts {
    fn add(&mut self, amount: Amount, unit: Unit) {
        let seconds = |count: i128| count * MICROS_PER_SECOND;
        match unit {
            Unit::Year(years) => {
                let months = i128::from(years) * 12;
                self.months += amount.whole.saturating_mul(months) + rounded(amount.fraction * months as f64);
            }
            Unit::Month => {
                let (days, micros) = of_days(amount.fraction, 30.0);
                self.months += amount.whole;
                self.days += days;
                self.micros += micros;
            }
            Unit::Week => {
                let (days, micros) = of_days(amount.fraction, 7.0);
                self.days += amount.whole.saturating_mul(7) + days;
                self.micros += micros;
            }
            Unit::Day => {
                self.days += amount.whole;
                self.micros += of_days(amount.fraction, 1.0).1;
            }
            Unit::Hour => self.micros += amount.micros(seconds(3600)),
            Unit::Minute => self.micros += amount.micros(seconds(60)),
            Unit::Second => self.micros += amount.micros(seconds(1)),
            Unit::Millisecond => self.micros += amount.micros(1000),
            Unit::Microsecond => self.micros += amount.micros(1),
        }
    }
}

/// `04:05:06.7`, `04:05`, with an optional sign; `05:06.7`, and `05:06` of minutes to seconds.
fn clock(text: &str, fields: Fields) -> Option<i128> {
    let (sign, body) = match text.as_bytes().first()? {
        b'-' => (-1, &text[1..]),
        b'+' => (1, &text[1..]),
        _ => (1, text),
    };
    let parts: Vec<&str> = body.split(':').collect();
    let whole = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number
            .then(|| text.parse::<i64>().ok().map(i128::from))
            .flatten()
    };
    let seconds = |text: &str| {
        let is_number = text.bytes().next().is_some_and(|byte| byte.is_ascii_digit());
        let amount = Amount::parse(text).filter(|_| is_number)?;
        (amount.whole <= 60).then(|| amount.micros(MICROS_PER_SECOND))
    };
    let (hours, minutes, micros) = match parts.as_slice() {
        [hours, minutes, rest] => (whole(hours)?, whole(minutes)?, seconds(rest)?),
        [minutes, rest] if rest.contains('.') || fields == Fields::MINUTE_TO_SECOND => {
            (0, whole(minutes)?, seconds(rest)?)
        }
        [hours, minutes] => (whole(hours)?, whole(minutes)?, 0),
        _ => return None,
    };
    if minutes > 59 || micros > 60 * MICROS_PER_SECOND {
        return None;
    }
    Some(sign * ((hours * 3600 + minutes * 60) * MICROS_PER_SECOND + micros))
}

/// Numbers, clocks and words: `1h30m` is four of them.
fn words(text: &str) -> Option<Vec<String>> {
    let mut words: Vec<String> = vec![];
    let mut goes_on = false;
    for character in text.chars() {
        let is_letter = character.is_ascii_alphabetic();
        let is_number = character.is_ascii_digit() || matches!(character, ':' | '.' | '-' | '+');
        if !is_letter && !is_number {
            if !(character.is_ascii_whitespace() || character.is_ascii_punctuation()) {
                return None;
            }
            goes_on = false;
            continue;
        }
        match words.last_mut() {
            Some(word)
                if goes_on
                    && character != '+'
                    && word.ends_with(|last: char| last.is_ascii_alphabetic()) == is_letter =>
            {
                word.push(character);
            }
            _ => words.push(character.into()),
        }
        goes_on = true;
    }
    Some(words)
}

/// From the last word to the first, as a unit stands behind its number.
fn verbose(text: &str, fields: Fields) -> Option<Parts> {
    let mut parts = Parts::default();
    let (mut seen, mut ago, mut unit) = (0_u32, false, None);
    let mut take = |mask: u32| {
        let is_new = seen & mask == 0;
        seen |= mask;
        is_new.then_some(())
    };
    let words = words(text)?;
    for word in words.iter().rev() {
        if word.starts_with(|first: char| first.is_ascii_alphabetic()) {
            match word.to_ascii_lowercase().as_str() {
                "ago" => (ago, unit) = (true, None),
                word => unit = Some(Unit::named(word)?),
            }
        } else if word.contains(':') {
            take(Unit::Hour.mask() | Unit::Minute.mask() | Unit::Second.mask())?;
            parts.micros += clock(word, fields)?;
            unit = Some(Unit::Day);
        } else if let Some((years, months)) = word.get(1..).and_then(|rest| rest.split_once('-')) {
            // `1-2` is one year and two months.
            let years = Amount::parse(&format!("{}{years}", &word[..1]))?;
            let months: i128 = months.parse::<u8>().ok().filter(|months| *months < 12)?.into();
            let is_month = matches!(unit, None | Some(Unit::Month | Unit::Day));
            if years.fraction != 0.0 || !is_month {
                return None;
            }
            take(Unit::Month.mask())?;
            parts.months +=
                years.whole.saturating_mul(12) + if word.starts_with('-') { -months } else { months };
            unit = Some(Unit::Month);
        } else {
            let of = unit.unwrap_or(fields.last());
            take(of.mask())?;
            parts.add(Amount::parse(word)?, of);
            // Before hours stand days.
            unit = Some(if of == Unit::Hour { Unit::Day } else { of });
        }
    }
    if seen == 0 {
        return None;
    }
    if ago {
        parts = Parts {
            months: -parts.months,
            days: -parts.days,
            micros: -parts.micros,
        };
    }
    Some(parts)
}

/// `P1Y2M3DT4H5M6S`, and `P0001-02-03T04:05:06`.
fn iso(text: &str) -> Option<Parts> {
    let body = text.get(1..)?;
    if body
        .get(1..)
        .is_some_and(|rest| rest.contains('-') || rest.contains(':'))
        && !body.contains(|c: char| c.is_ascii_alphabetic() && c != 'T')
    {
        return iso_alternative(body);
    }
    let mut parts = Parts::default();
    let mut in_time = false;
    let mut number = String::new();
    let mut any = false;
    for character in body.chars() {
        match character.to_ascii_uppercase() {
            'T' if number.is_empty() && !in_time => in_time = true,
            digit @ ('0'..='9' | '.' | '-' | '+') => number.push(digit),
            letter => {
                let amount = Amount::parse(&number)?;
                number.clear();
                any = true;
                let unit = match (letter, in_time) {
                    ('Y', false) => Unit::Year(1),
                    ('M', false) => Unit::Month,
                    ('W', false) => Unit::Week,
                    ('D', false) => Unit::Day,
                    ('H', true) => Unit::Hour,
                    ('M', true) => Unit::Minute,
                    ('S', true) => Unit::Second,
                    _ => return None,
                };
                parts.add(amount, unit);
            }
        }
    }
    (any && number.is_empty()).then_some(parts)
}

fn iso_alternative(body: &str) -> Option<Parts> {
    let (date, time) = match body.split_once('T') {
        Some((date, time)) => (date, Some(time)),
        None => (body, None),
    };
    let mut parts = Parts::default();
    let units = [Unit::Year(1), Unit::Month, Unit::Day];
    let mut numbers = date.split('-');
    for (number, unit) in numbers.by_ref().zip(units) {
        parts.add(Amount::parse(number)?, unit);
    }
    if numbers.next().is_some() {
        return None;
    }
    if let Some(time) = time {
        parts.micros += clock(time, Fields::ALL)?;
    }
    Some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> (i32, i32, i64) {
        let value = interval(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        (value.months, value.days, value.nanoseconds / 1000)
    }

    #[test]
    fn intervals_of_every_spelling() {
        assert_eq!(
            parts("1 year 2 mons -3 days 04:05:06.7"),
            (14, -3, 14_706_700_000)
        );
        assert_eq!(parts("2 hours ago"), (0, 0, -7_200_000_000));
        assert_eq!(parts("P1Y2M3DT4H5M6S"), (14, 3, 14_706_000_000));
        assert_eq!(parts("1h30m"), (0, 0, 5_400_000_000));
        assert_eq!(parts("10"), (0, 0, 10_000_000));
        assert_eq!(parts("5s"), (0, 0, 5_000_000));
        assert_eq!(parts("1-2"), (14, 0, 0));
        assert_eq!(parts("3 04:00"), (0, 3, 14_400_000_000));
        assert_eq!(parts("1.5 days"), (0, 1, 43_200_000_000));
        assert_eq!(parts("1 week"), (0, 7, 0));
        assert_eq!(parts("-00:00:01"), (0, 0, -1_000_000));
        assert_eq!(parts("1.3 years"), (16, 0, 0));
        assert_eq!(parts("P0001-02-03T04:05:06"), (14, 3, 14_706_000_000));
        assert_eq!(parts("2:03.5"), (0, 0, 123_500_000));
        assert_eq!(parts("@ 1 day, 2 hours"), (0, 1, 7_200_000_000));
        assert_eq!(parts("1 12:59:10.5"), (0, 1, 46_750_500_000));
    }

    #[test]
    fn fields_say_what_numbers_are() {
        for (fields, text, expected) in [
            ("day to hour", "1 2", (0, 1, 7_200_000_000)),
            ("minute to second", "2:03", (0, 0, 123_000_000)),
            ("hour to minute", "2:03", (0, 0, 7_380_000_000)),
            ("year", "3", (36, 0, 0)),
            ("year", "1 year 11 months", (12, 0, 0)),
            ("year to month", "1-2", (14, 0, 0)),
            ("day", "1 day 23:59", (0, 1, 0)),
            ("hour", "1 day 01:59", (0, 1, 3_600_000_000)),
            ("minute", "-90 seconds", (0, 0, -60_000_000)),
        ] {
            let fields = Fields::named(fields).unwrap();
            let value = interval_of(text, fields).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(
                (value.months, value.days, value.nanoseconds / 1000),
                expected,
                "{text}"
            );
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "abc",
            "1 parsec",
            "P",
            "PT",
            "P1H",
            "1:2:3:4",
            "ago",
            "1 day 1 day",
            "1 hour 04:05",
            "1 mon 1 month",
            "1 2",
            "1e2 seconds",
        ] {
            assert_eq!(
                interval(text).unwrap_err().code,
                SqlState::InvalidDatetimeFormat,
                "{text}"
            );
        }
        assert_eq!(parts("1 day 2"), (0, 1, 2_000_000));
        assert_eq!(
            interval("99999999999 years").unwrap_err().code,
            SqlState::IntervalFieldOverflow
        );
    }
}
