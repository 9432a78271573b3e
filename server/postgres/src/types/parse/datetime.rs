//! Text input of date, time, timestamp and timestamptz.
//!
//! ISO 8601 as PostgreSQL reads it: `2013-01-31`, `2013/1/31`, `20130131`; `T` or white space before the time; seconds
//! and their fraction optional; zones as `Z`, `+02`, `+0230`, `-02:30`, `UTC`, or a name such as `Europe/Berlin`.
//! Other spellings are those of `spelled`. `epoch` and the infinities are accepted; the words that need a clock (`now`, `today`) are not.

mod spelled;

use crate::error::input::invalid;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::types::zone::Zone;

const MICROS_PER_SECOND: i64 = 1_000_000;
const SECONDS_PER_DAY: i64 = 86_400;
/// Microseconds of a day.
pub const MICROS_PER_DAY: i64 = SECONDS_PER_DAY * MICROS_PER_SECOND;

/// Days since 1970-01-01.
///
/// # Errors
/// The text is not a date, or the date does not exist.
pub fn date(text: &str) -> SqlResult<i32> {
    let trimmed = text.trim();
    match word(trimmed) {
        Some(Word::Epoch) => return Ok(0),
        Some(Word::Infinity) => return Ok(i32::MAX),
        Some(Word::MinusInfinity) => return Ok(i32::MIN),
        None => {}
    }
    let mut reader = Reader::new(trimmed);
    let Some(days) = reader.date() else {
        let spelled = spelled::iso(trimmed).ok_or_else(|| invalid("date", text))?;
        return date(&spelled);
    };
    let days = days.map_err(|()| no_such_date(text))?;
    // A time after the date is read and dropped, as PostgreSQL does.
    if !reader.done() {
        reader.separator();
        // So is a zone.
        if Zone::parse(reader.rest()).is_none() {
            reader.time().ok_or_else(|| reader.bad_time("date", text))?;
            reader.space();
            if !reader.done() {
                Zone::parse(reader.rest()).ok_or_else(|| invalid("date", text))?;
            }
        }
    }
    i32::try_from(days).map_err(|_| no_such_date(text))
}

/// Microseconds since midnight.
///
/// # Errors
/// The text is not a time of day.
pub fn time(text: &str) -> SqlResult<i64> {
    if text.trim().eq_ignore_ascii_case("allballs") {
        return Ok(0);
    }
    let mut reader = Reader::new(text.trim());
    let micros = reader.time().ok_or_else(|| reader.bad_time("time", text))?;
    reader.space();
    // A zone is read and dropped, as PostgreSQL does.
    if !reader.done() {
        Zone::parse(reader.rest()).ok_or_else(|| invalid("time", text))?;
    }
    if !(0..=MICROS_PER_DAY).contains(&micros) {
        Err(no_such_date(text))
    } else {
        Ok(micros)
    }
}

/// Microseconds since 1970-01-01 00:00, without a zone; a zone in the text is read and dropped.
///
/// # Errors
/// The text is not a timestamp, or the instant does not exist.
pub fn timestamp(text: &str) -> SqlResult<i64> {
    instant(text, "timestamp").map(|(local, _)| local)
}

/// Microseconds since 1970-01-01 00:00 UTC. Without a zone the text is in UTC.
///
/// # Errors
/// The text is not a timestamp, the instant does not exist, or the zone is not known.
pub fn timestamptz(text: &str) -> SqlResult<i64> {
    timestamptz_in(text, Zone::UTC)
}

/// As [`timestamptz`]; without a zone the text is in this one.
///
/// # Errors
/// As [`timestamptz`].
pub fn timestamptz_in(text: &str, default: Zone) -> SqlResult<i64> {
    let (local, zone_text) = instant(text, "timestamp with time zone")?;
    let Some(name) = zone_text else {
        return Ok(default.to_utc(local));
    };
    if name == "Z" {
        return Ok(local);
    }
    let zone = Zone::parse(name).ok_or_else(|| {
        SqlError::new(
            SqlState::InvalidParameterValue,
            format!("time zone \"{name}\" not recognized"),
        )
    })?;
    Ok(zone.to_utc(local))
}

/// A word that stands for a date or an instant. The infinities are the ends of what an integer holds.
enum Word {
    Epoch,
    Infinity,
    MinusInfinity,
}

fn word(text: &str) -> Option<Word> {
    match text.to_ascii_lowercase().as_str() {
        "epoch" => Some(Word::Epoch),
        "infinity" | "+infinity" => Some(Word::Infinity),
        "-infinity" => Some(Word::MinusInfinity),
        _ => None,
    }
}

/// `2013-01-31T05:15:00.123Z` and its like, which most timestamps that programs write are; the zone `Z` or none.
fn usual(text: &str) -> Option<(i64, Option<&str>)> {
    let (body, zone) = match text.strip_suffix('Z') {
        Some(body) => (body, Some(&text[text.len() - 1..])),
        None => (text, None),
    };
    let bytes = body.as_bytes();
    let (fixed, fraction) = bytes.split_at_checked(19)?;
    let number = |from: usize, to: usize| -> Option<i64> {
        fixed[from..to].iter().try_fold(0, |value, byte| {
            byte.is_ascii_digit().then(|| value * 10 + i64::from(byte - b'0'))
        })
    };
    let separators = [fixed[4], fixed[7], fixed[10], fixed[13], fixed[16]];
    if !matches!(separators, [b'-', b'-', b'T' | b' ', b':', b':']) {
        return None;
    }
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    // The 29th and later are for the calendar to judge.
    if year == 0 || !(1..=12).contains(&month) || !(1..=28).contains(&day) {
        return None;
    }
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let mut micros = ((hour * 60 + minute) * 60 + second) * MICROS_PER_SECOND;
    if let [b'.', digits @ ..] = fraction {
        if digits.is_empty() || digits.len() > 6 {
            return None;
        }
        let mut unit = MICROS_PER_SECOND;
        for digit in digits {
            unit /= 10;
            micros += unit * digit.is_ascii_digit().then(|| i64::from(digit - b'0'))?;
        }
    } else if !fraction.is_empty() {
        return None;
    }
    let days = days_from_civil(year, month, day);
    Some((days * MICROS_PER_DAY + micros, zone))
}

fn instant<'a>(text: &'a str, type_name: &str) -> SqlResult<(i64, Option<&'a str>)> {
    if let Some(instant) = usual(text) {
        return Ok(instant);
    }
    any_instant(text, type_name)
}

fn any_instant<'a>(text: &'a str, type_name: &str) -> SqlResult<(i64, Option<&'a str>)> {
    let trimmed = text.trim();
    match word(trimmed) {
        Some(Word::Epoch) => return Ok((0, Some("UTC"))),
        Some(Word::Infinity) => return Ok((i64::MAX, Some("UTC"))),
        Some(Word::MinusInfinity) => return Ok((i64::MIN, Some("UTC"))),
        None => {}
    }
    let mut reader = Reader::new(trimmed);
    let Some(days) = reader.date() else {
        let spelled = spelled::iso(trimmed).ok_or_else(|| invalid(type_name, text))?;
        let (local, zone) = any_instant(&spelled, type_name)?;
        let in_text = |zone: &str| text.find(zone).map(|at| &text[at..at + zone.len()]);
        return Ok((local, zone.and_then(in_text)));
    };
    let days = days.map_err(|()| no_such_date(text))?;
    let mut micros = 0;
    if !reader.done() {
        reader.separator();
        if reader.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            micros = reader.time().ok_or_else(|| reader.bad_time(type_name, text))?;
            reader.space();
        }
    }
    let zone_text = if reader.done() { None } else { Some(reader.rest()) };
    if let Some(name) = zone_text
        && !name.starts_with(['+', '-'])
        && !name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'_' | b'-' | b'+'))
    {
        return Err(invalid(type_name, text));
    }
    let local = days
        .checked_mul(MICROS_PER_DAY)
        .and_then(|micros_of_days| micros_of_days.checked_add(micros));
    local
        .map(|local| (local, zone_text))
        .ok_or_else(|| no_such_date(text))
}

fn no_such_date(text: &str) -> SqlError {
    SqlError::new(
        SqlState::DatetimeFieldOverflow,
        format!(
            "date/time field value out of range: \"{}\"",
            crate::error::input::shortened(text)
        ),
    )
}

/// Seconds east of UTC that an offset such as `+02`, `-0230`, `+02:30:15` means.
pub fn offset(text: &str) -> Option<i64> {
    let sign = match text.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let mut fields = [0_i64; 3];
    let body = &text[1..];
    if body.contains(':') {
        let mut parts = body.split(':');
        for field in &mut fields {
            match parts.next() {
                Some(part) if part.len() <= 2 && part.bytes().all(|byte| byte.is_ascii_digit()) => {
                    *field = part.parse().ok()?;
                }
                Some(_) => return None,
                None => break,
            }
        }
        if parts.next().is_some() {
            return None;
        }
    } else {
        if body.is_empty() || body.len() > 6 || !body.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let padded = if body.len().is_multiple_of(2) {
            body.to_string()
        } else {
            format!("0{body}")
        };
        for (index, field) in fields.iter_mut().enumerate() {
            if let Some(part) = padded.get(index * 2..index * 2 + 2) {
                *field = part.parse().ok()?;
            }
        }
    }
    let [hours, minutes, seconds] = fields;
    if hours > 15 || minutes > 59 || seconds > 59 {
        return None;
    }
    Some(sign * (hours * 3600 + minutes * 60 + seconds))
}

/// Days since 1970-01-01 of a day in the proleptic Gregorian calendar.
pub fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Year, month and day of a number of days since 1970-01-01.
pub fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// The number of days of a month.
pub fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    /// Whether the years are before Christ: the text ended in BC.
    before_christ: bool,
}

impl<'a> Reader<'a> {
    fn new(text: &'a str) -> Self {
        let (body, era) = match text.len().checked_sub(3).and_then(|at| text.split_at_checked(at)) {
            Some((body, era)) => (body, era),
            None => (text, ""),
        };
        let before_christ = era.eq_ignore_ascii_case(" bc");
        Reader {
            text: match before_christ || era.eq_ignore_ascii_case(" ad") {
                true => body.trim_end(),
                false => text,
            },
            at: 0,
            before_christ,
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn done(&self) -> bool {
        self.at >= self.text.len()
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or("")
    }

    fn space(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.at += 1;
        }
    }

    fn separator(&mut self) {
        if matches!(self.peek(), Some(b'T' | b't')) {
            self.at += 1;
        } else {
            self.space();
        }
    }

    /// A run of at most `longest` digits: its value and its length.
    fn digits(&mut self, longest: usize) -> (i64, usize) {
        let mut value = 0;
        let mut length = 0;
        while length < longest
            && let Some(byte @ b'0'..=b'9') = self.peek()
        {
            value = value * 10 + i64::from(byte - b'0');
            self.at += 1;
            length += 1;
        }
        (value, length)
    }

    /// Days since 1970-01-01; `None`: not a date; `Some(Err)`: no such day.
    fn date(&mut self) -> Option<Result<i64, ()>> {
        let (first, length) = self.digits(8);
        let (year, month, day) = match self.peek() {
            Some(separator @ (b'-' | b'/' | b'.')) if (4..=6).contains(&length) => {
                self.at += 1;
                let (month, month_length) = self.digits(2);
                if month_length == 0 || self.peek() != Some(separator) {
                    return None;
                }
                self.at += 1;
                let (day, day_length) = self.digits(2);
                if day_length == 0 {
                    return None;
                }
                (first, month, day)
            }
            _ if length == 8 => (first / 10_000, first / 100 % 100, first % 100),
            _ => return None,
        };
        if self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            return None;
        }
        // 294276 is the last year of PostgreSQL's timestamps, 4714 BC the first.
        let in_range = (1..=if self.before_christ { 4714 } else { 294_276 }).contains(&year);
        let year = if self.before_christ { 1 - year } else { year };
        let exists = (1..=12).contains(&month) && day >= 1 && day <= days_in_month(year, month) && in_range;
        Some(if exists {
            Ok(days_from_civil(year, month, day))
        } else {
            Err(())
        })
    }

    /// Microseconds since midnight.
    fn time(&mut self) -> Option<i64> {
        let (mut hours, length) = self.digits(6);
        let (mut minutes, mut seconds) = (0, 0);
        if self.peek() == Some(b':') {
            if length > 2 {
                return None;
            }
            self.at += 1;
            let (value, length) = self.digits(2);
            if length == 0 {
                return None;
            }
            minutes = value;
            if self.peek() == Some(b':') {
                self.at += 1;
                let (value, length) = self.digits(2);
                if length == 0 {
                    return None;
                }
                seconds = value;
            }
        } else {
            match length {
                2 => {}
                4 => (hours, minutes) = (hours / 100, hours % 100),
                6 => (hours, minutes, seconds) = (hours / 10_000, hours / 100 % 100, hours % 100),
                _ => return None,
            }
        }
        let mut micros = 0;
        if self.peek() == Some(b'.') {
            self.at += 1;
            let (value, length) = self.digits(6);
            if length == 0 {
                return None;
            }
            micros = (length..6).fold(value, |value, _| value * 10);
            // The seventh digit rounds; what follows does not matter.
            if let Some(byte @ b'0'..=b'9') = self.peek() {
                micros += i64::from(byte >= b'5');
                while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
                    self.at += 1;
                }
            }
        }
        self.half_of_day(&mut hours)?;
        if hours > 24
            || minutes > 59
            || seconds > 60
            || (hours == 24 && (minutes, seconds, micros) != (0, 0, 0))
        {
            return None;
        }
        Some((hours * 3600 + minutes * 60 + seconds) * MICROS_PER_SECOND + micros)
    }

    /// What is wrong with a time of day that is none: written like one, it does not exist.
    fn bad_time(&self, type_name: &str, text: &str) -> SqlError {
        let clock = text.rsplit([' ', 'T', 't']).next().unwrap_or(text);
        let fields = clock.split(':').count();
        let exists_not = fields > 1
            && clock.split(':').all(|part| {
                part.len() >= 2 && part.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
            });
        if exists_not {
            no_such_date(text)
        } else {
            invalid(type_name, text)
        }
    }

    /// An optional AM or PM; `None`: the hour does not go with it.
    fn half_of_day(&mut self, hours: &mut i64) -> Option<()> {
        let rest = self.rest();
        let word = rest.trim_start();
        let (Some(letters), next) = (word.get(..2), word.as_bytes().get(2)) else {
            return Some(());
        };
        let afternoon = letters.eq_ignore_ascii_case("pm");
        if !(afternoon || letters.eq_ignore_ascii_case("am")) || next.is_some_and(u8::is_ascii_alphanumeric) {
            return Some(());
        }
        if !(1..=12).contains(hours) {
            return None;
        }
        *hours = *hours % 12 + if afternoon { 12 } else { 0 };
        self.at += rest.len() - word.len() + 2;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    #[test]
    fn dates_of_every_spelling() {
        assert_eq!(date("1970-01-01").unwrap(), 0);
        assert_eq!(date(" 2013/1/31 ").unwrap(), 15_736);
        assert_eq!(date("20130131").unwrap(), 15_736);
        assert_eq!(date("2013-01-31 12:00:00").unwrap(), 15_736);
        assert_eq!(date("2024-02-29").unwrap(), 19_782);
        for text in ["2023-02-29", "2023-13-01", "2023-00-10", "0000-01-01"] {
            assert_eq!(
                date(text).unwrap_err().code,
                SqlState::DatetimeFieldOverflow,
                "{text}"
            );
        }
        for text in ["", "abc", "2023-1", "2023-01-011", "2023-01/01", "x2023-01-01"] {
            assert_eq!(
                date(text).unwrap_err().code,
                SqlState::InvalidDatetimeFormat,
                "{text}"
            );
        }
    }

    #[test]
    fn days_and_dates_are_inverse() {
        for days in (-800_000..2_000_000).step_by(137) {
            let (year, month, day) = civil_from_days(days);
            assert_eq!(days_from_civil(year, month, day), days);
        }
    }

    #[test]
    fn times_of_every_spelling() {
        assert_eq!(time("00:00").unwrap(), 0);
        assert_eq!(time("23:59:59.999999").unwrap(), MICROS_PER_DAY - 1);
        assert_eq!(time("040506").unwrap(), time("04:05:06").unwrap());
        assert_eq!(time("04:05 PM").unwrap(), time("16:05").unwrap());
        assert_eq!(time("12:00 am").unwrap(), 0);
        assert_eq!(time("1:2:3").unwrap(), time("01:02:03").unwrap());
        assert_eq!(time("24:00").unwrap(), MICROS_PER_DAY);
        for text in ["", "25:00", "12:60", "24:00:01", "1:", "12:00x", "13:00 pm"] {
            assert!(time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn usual_timestamps_are_what_they_are_by_the_long_way() {
        let mut random = StdRng::seed_from_u64(1);
        let mut read = 0;
        for _ in 0..50_000 {
            let mut text = format!(
                "{:04}-{:02}-{:02}{}{:02}:{:02}:{:02}",
                random.random_range(0..3000),
                random.random_range(0..14),
                random.random_range(0..33),
                if random.random_bool(0.5) { 'T' } else { ' ' },
                random.random_range(0..25),
                random.random_range(0..61),
                random.random_range(0..61),
            );
            text.push_str(["", ".5", ".123456", ".1234567", ".", ".12x"][random.random_range(0..6)]);
            text.push_str(["", "Z", "z", " Z", "+02"][random.random_range(0..5)]);
            if random.random_bool(0.1) {
                let at = random.random_range(0..text.len());
                text.replace_range(at..=at, "7");
            }
            if let Some(instant) = usual(&text) {
                assert_eq!(any_instant(&text, "timestamp").unwrap(), instant, "{text}");
                read += 1;
            }
        }
        assert!(read > 5_000, "{read} of 50000 test little");
    }

    #[test]
    fn zones_move_instants() {
        let utc = timestamptz("2013-06-01 10:00:00Z").unwrap();
        for text in [
            "2013-06-01T10:00:00+00",
            "2013-06-01 12:00:00+02",
            "2013-06-01 12:00:00+0200",
            "2013-06-01 12:30:00 +02:30",
            "2013-06-01 06:00:00 America/New_York",
            "2013-06-01 12:00 europe/berlin",
            "2013-06-01 10:00 UTC",
            "2013-06-01 10:00",
        ] {
            assert_eq!(timestamptz(text).unwrap(), utc, "{text}");
        }
        assert_eq!(timestamp("2013-06-01 10:00:00+02").unwrap(), utc);
        assert_eq!(
            timestamptz("2013-06-01 10:00 Mars/Base").unwrap_err().code,
            SqlState::InvalidParameterValue
        );
        assert_eq!(
            timestamptz("2013-06-01 10:00 +99").unwrap_err().code,
            SqlState::InvalidParameterValue
        );
        assert_eq!(
            timestamp("2013-06-01 10:00:00.1234567").unwrap() % 1_000_000,
            123_457
        );
    }

    #[test]
    fn years_before_christ_and_infinities_are_read() {
        assert_eq!(date("0001-01-01 BC").unwrap(), -719_528);
        assert_eq!(
            timestamp("0044-03-15 12:00:00 BC").unwrap(),
            days_from_civil(-43, 3, 15) * MICROS_PER_DAY + MICROS_PER_DAY / 2
        );
        assert!(date("9999-01-01 BC").is_err());
        assert_eq!(date("-infinity").unwrap(), i32::MIN);
        assert_eq!(timestamptz("infinity").unwrap(), i64::MAX);
    }
}
