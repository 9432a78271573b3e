//! Text input of interval: `1 year 2 mons -3 days 04:05:06.7`, `2 hours ago`, `P1Y2M3DT4H5M6S`.

use arrow::datatypes::IntervalMonthDayNano;

use crate::error::input::invalid;
use crate::error::{SqlError, SqlResult, SqlState};

const NANOS_PER_SECOND: f64 = 1e9;

/// An interval.
///
/// # Errors
/// The text is not an interval, or does not fit.
pub fn interval(text: &str) -> SqlResult<IntervalMonthDayNano> {
    let trimmed = text.trim();
    let parts = if trimmed.starts_with(['P', 'p']) {
        iso(trimmed)
    } else {
        verbose(trimmed)
    };
    let Parts {
        months,
        days,
        seconds,
    } = parts.ok_or_else(|| invalid("interval", text))?;
    let overflow = || {
        SqlError::new(
            SqlState::DatetimeFieldOverflow,
            format!("interval field value out of range: \"{text}\""),
        )
    };
    // A fraction of a month is days of thirty to the month, a fraction of a day is time.
    let whole_months = months.trunc();
    let days = days + (months - whole_months) * 30.0;
    let whole_days = days.trunc();
    let nanos = ((days - whole_days) * 86_400.0 + seconds) * NANOS_PER_SECOND;
    Ok(IntervalMonthDayNano::new(
        to_i32(whole_months).ok_or_else(overflow)?,
        to_i32(whole_days).ok_or_else(overflow)?,
        // Microseconds are all that PostgreSQL keeps.
        to_i64((nanos / 1000.0).round())
            .and_then(|micros| micros.checked_mul(1000))
            .ok_or_else(overflow)?,
    ))
}

#[derive(Default)]
struct Parts {
    months: f64,
    days: f64,
    seconds: f64,
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the range is checked in the line before"
)]
fn to_i32(value: f64) -> Option<i32> {
    (value.abs() <= f64::from(i32::MAX)).then_some(value as i32)
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the range is checked in the line before"
)]
fn to_i64(value: f64) -> Option<i64> {
    (value.abs() < 9.2e18).then_some(value as i64)
}

impl Parts {
    fn add(&mut self, amount: f64, unit: &str) -> Option<()> {
        let unit = unit.to_ascii_lowercase();
        match unit.as_str() {
            "millennium" | "millennia" | "millenniums" => self.months += amount * 12_000.0,
            "century" | "centuries" | "c" => self.months += amount * 1200.0,
            "decade" | "decades" | "dec" | "decs" => self.months += amount * 120.0,
            "year" | "years" | "yr" | "yrs" | "y" => self.months += amount * 12.0,
            "month" | "months" | "mon" | "mons" => self.months += amount,
            "week" | "weeks" | "w" => self.days += amount * 7.0,
            "day" | "days" | "d" => self.days += amount,
            "hour" | "hours" | "hr" | "hrs" | "h" => self.seconds += amount * 3600.0,
            "minute" | "minutes" | "min" | "mins" | "m" => self.seconds += amount * 60.0,
            "second" | "seconds" | "sec" | "secs" | "s" => self.seconds += amount,
            "millisecond" | "milliseconds" | "ms" | "msec" | "msecs" => self.seconds += amount / 1e3,
            "microsecond" | "microseconds" | "us" | "usec" | "usecs" => self.seconds += amount / 1e6,
            _ => return None,
        }
        Some(())
    }
}

fn number(text: &str) -> Option<f64> {
    let plain = text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'-' | b'+'));
    if plain && text.bytes().any(|byte| byte.is_ascii_digit()) {
        text.parse().ok()
    } else {
        None
    }
}

/// `04:05:06.7`, `04:05`, with an optional sign.
fn clock(text: &str) -> Option<f64> {
    let (sign, body) = match text.as_bytes().first()? {
        b'-' => (-1.0, &text[1..]),
        b'+' => (1.0, &text[1..]),
        _ => (1.0, text),
    };
    let mut parts = body.split(':');
    let hours = number(parts.next()?)?;
    let minutes = number(parts.next()?)?;
    let seconds = parts.next().map_or(Some(0.0), number)?;
    if parts.next().is_some() || body.contains(['-', '+']) || minutes >= 60.0 || seconds > 60.0 {
        return None;
    }
    Some(sign * (hours * 3600.0 + minutes * 60.0 + seconds))
}

fn verbose(text: &str) -> Option<Parts> {
    let mut parts = Parts::default();
    let mut words: Vec<String> = vec![];
    // `1h30m` and `@ 1 day` are words, too.
    for word in text.trim_start_matches('@').split_whitespace() {
        let mut current = String::new();
        for character in word.chars() {
            let is_letter = character.is_ascii_alphabetic();
            let previous_is_letter = current
                .chars()
                .last()
                .is_some_and(|last| last.is_ascii_alphabetic());
            if !current.is_empty() && is_letter != previous_is_letter {
                words.push(std::mem::take(&mut current));
            }
            current.push(character);
        }
        if !current.is_empty() {
            words.push(current);
        }
    }
    let ago = words.last().is_some_and(|word| word.eq_ignore_ascii_case("ago"));
    if ago {
        words.pop();
    }
    if words.is_empty() {
        return None;
    }
    let mut index = 0;
    while let Some(word) = words.get(index) {
        if word.contains(':') {
            parts.seconds += clock(word)?;
            index += 1;
            continue;
        }
        // `1-2` is one year and two months.
        if let Some((years, months)) = word.get(1..).and_then(|rest| rest.split_once('-'))
            && words
                .get(index + 1)
                .is_none_or(|next| next.contains(':') || number(next).is_some())
        {
            let years = number(&format!("{}{years}", &word[..1]))?;
            parts.months += years * 12.0 + number(months)? * if years < 0.0 { -1.0 } else { 1.0 };
            index += 1;
            continue;
        }
        let amount = number(word)?;
        match words.get(index + 1) {
            // A bare number at the end is seconds; before a clock it is days.
            None => parts.seconds += amount,
            Some(next) if next.contains(':') => {
                parts.days += amount;
                index += 1;
                continue;
            }
            Some(unit) => parts.add(amount, unit)?,
        }
        index += 2;
    }
    if ago {
        parts = Parts {
            months: -parts.months,
            days: -parts.days,
            seconds: -parts.seconds,
        };
    }
    Some(parts)
}

fn iso(text: &str) -> Option<Parts> {
    let mut parts = Parts::default();
    let mut in_time = false;
    let mut amount = String::new();
    let mut any = false;
    for character in text.chars().skip(1) {
        match character.to_ascii_uppercase() {
            'T' if amount.is_empty() && !in_time => in_time = true,
            digit @ ('0'..='9' | '.' | '-' | '+') => amount.push(digit),
            letter => {
                let value = number(&amount)?;
                amount.clear();
                any = true;
                match (letter, in_time) {
                    ('Y', false) => parts.months += value * 12.0,
                    ('M', false) => parts.months += value,
                    ('W', false) => parts.days += value * 7.0,
                    ('D', false) => parts.days += value,
                    ('H', true) => parts.seconds += value * 3600.0,
                    ('M', true) => parts.seconds += value * 60.0,
                    ('S', true) => parts.seconds += value,
                    _ => return None,
                }
            }
        }
    }
    (any && amount.is_empty()).then_some(parts)
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
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "", "abc", "1 parsec", "P", "PT", "1 day 2", "P1H", "1:2:3:4", "ago",
        ] {
            if text == "1 day 2" {
                assert_eq!(parts(text), (0, 1, 2_000_000));
            } else {
                assert_eq!(
                    interval(text).unwrap_err().code,
                    SqlState::InvalidDatetimeFormat,
                    "{text}"
                );
            }
        }
        assert_eq!(
            interval("99999999999 years").unwrap_err().code,
            SqlState::DatetimeFieldOverflow
        );
    }
}
