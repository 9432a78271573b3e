//! Dates, times, timestamps and intervals in PostgreSQL's ISO style.

use std::fmt;
use std::io::Write as _;

use bytes::BufMut;

/// Microseconds of a day.
const DAY_MICROS: i64 = 86_400_000_000;

/// Days from 1970-01-01 to 2000-01-01, from where PostgreSQL counts.
const POSTGRES_EPOCH_DAYS: i64 = 10_957;

/// A point in time, in microseconds since 1970-01-01 00:00 (UTC when zoned).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timestamp {
    /// Since 1970-01-01 00:00.
    pub micros: i64,
    /// Of a timestamptz, the seconds east of UTC of the zone in which it is shown.
    pub offset: Option<i64>,
}

/// PostgreSQL's interval: three parts that are kept apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval {
    /// Years and months.
    pub months: i32,
    /// Days.
    pub days: i32,
    /// The rest.
    pub micros: i64,
}

impl Interval {
    /// An interval of whole days and the rest, as PostgreSQL makes it from the difference of two timestamps.
    pub fn from_micros(micros: i64) -> Self {
        // An i64 of microseconds has at most 106,751,991 days.
        Interval {
            months: 0,
            days: (micros / DAY_MICROS) as i32,
            micros: micros % DAY_MICROS,
        }
    }

    /// Writes the binary form.
    pub fn put_binary(self, out: &mut impl BufMut) {
        out.put_i64(self.micros);
        out.put_i32(self.days);
        out.put_i32(self.months);
    }

    /// Writes the text, such as `1 year 2 mons 3 days 04:05:06.7`. A positive part after a negative one has its sign.
    pub fn put_text(self, out: &mut impl BufMut) {
        let mut parts = PartWriter {
            out,
            any: false,
            negative: false,
        };
        parts.put(i64::from(self.months / 12), "year");
        parts.put(i64::from(self.months % 12), "mon");
        parts.put(i64::from(self.days), "day");
        let PartWriter { out, any, negative } = parts;
        if self.micros == 0 && any {
            return;
        }
        if any {
            out.put_u8(b' ');
        }
        if self.micros < 0 {
            out.put_u8(b'-');
        } else if negative {
            out.put_u8(b'+');
        }
        put_clock(self.micros.unsigned_abs(), out);
    }
}

struct PartWriter<'a, B> {
    out: &'a mut B,
    any: bool,
    negative: bool,
}

impl<B: BufMut> PartWriter<'_, B> {
    fn put(&mut self, count: i64, unit: &str) {
        if count == 0 {
            return;
        }
        let space = if self.any { " " } else { "" };
        let plus = if self.negative && count > 0 { "+" } else { "" };
        let plural = if count == 1 { "" } else { "s" };
        put_format(self.out, format_args!("{space}{plus}{count} {unit}{plural}"));
        self.any = true;
        self.negative = count < 0;
    }
}

impl Timestamp {
    /// Writes the text, such as `2013-01-01 05:15:00` or `2013-01-01 05:15:00.5+00`.
    pub fn put_text(self, out: &mut impl BufMut) {
        match self.micros {
            i64::MAX => return out.put_slice(b"infinity"),
            i64::MIN => return out.put_slice(b"-infinity"),
            _ => {}
        }
        let offset = self.offset.unwrap_or(0);
        let local = self.micros.saturating_add(offset * 1_000_000);
        let before_christ = put_year_month_day(local.div_euclid(DAY_MICROS), out);
        out.put_u8(b' ');
        put_clock(local.rem_euclid(DAY_MICROS) as u64, out);
        if self.offset.is_some() {
            put_offset(offset, out);
        }
        if before_christ {
            out.put_slice(b" BC");
        }
    }

    /// Writes the binary form: microseconds since 2000-01-01.
    pub fn put_binary(self, out: &mut impl BufMut) {
        out.put_i64(match self.micros {
            i64::MAX | i64::MIN => self.micros,
            micros => micros.saturating_sub(POSTGRES_EPOCH_DAYS * DAY_MICROS),
        });
    }
}

/// Writes into a buffer that grows.
pub fn put_format(out: &mut impl BufMut, text: fmt::Arguments<'_>) {
    out.writer()
        .write_fmt(text)
        .expect("writing into memory cannot fail");
}

/// Writes an offset from UTC with the parts that it needs: `+02`, `-03:30`, `+00:53:28`.
fn put_offset(seconds: i64, out: &mut impl BufMut) {
    let sign = if seconds < 0 { '-' } else { '+' };
    let seconds = seconds.abs();
    put_format(out, format_args!("{sign}{:02}", seconds / 3_600));
    if seconds % 3_600 != 0 {
        put_format(out, format_args!(":{:02}", seconds / 60 % 60));
    }
    if seconds % 60 != 0 {
        put_format(out, format_args!(":{:02}", seconds % 60));
    }
}

/// Writes a date, given in days since 1970-01-01.
pub fn put_date(days: i64, out: &mut impl BufMut) {
    match days {
        days if days == i64::from(i32::MAX) => out.put_slice(b"infinity"),
        days if days == i64::from(i32::MIN) => out.put_slice(b"-infinity"),
        _ => {
            if put_year_month_day(days, out) {
                out.put_slice(b" BC");
            }
        }
    }
}

/// Writes a date's binary form: days since 2000-01-01.
pub fn put_date_binary(days: i64, out: &mut impl BufMut) {
    let infinite = days == i64::from(i32::MAX) || days == i64::from(i32::MIN);
    let days = if infinite {
        days
    } else {
        days - POSTGRES_EPOCH_DAYS
    };
    out.put_i32(days.clamp(i32::MIN.into(), i32::MAX.into()) as i32);
}

/// Writes a time of day, given in microseconds since midnight.
pub fn put_time(micros: i64, out: &mut impl BufMut) {
    put_clock(micros.unsigned_abs(), out);
}

/// `hours:minutes:seconds`, with as many digits of a second as are needed. Hours may exceed a day (intervals).
fn put_clock(micros: u64, out: &mut impl BufMut) {
    let seconds = micros / 1_000_000;
    let (hours, minutes) = (seconds / 3_600, seconds / 60 % 60);
    put_format(out, format_args!("{hours:02}:{minutes:02}:{:02}", seconds % 60));
    let mut fraction = micros % 1_000_000;
    if fraction != 0 {
        let mut width = 6;
        while fraction.is_multiple_of(10) {
            fraction /= 10;
            width -= 1;
        }
        put_format(out, format_args!(".{fraction:0width$}"));
    }
}

/// Writes `year-month-day`; true if the year is before Christ, which the caller notes at the end.
fn put_year_month_day(days: i64, out: &mut impl BufMut) -> bool {
    let (year, month, day) = civil_from_days(days);
    let before_christ = year <= 0;
    let year = if before_christ { 1 - year } else { year };
    put_format(out, format_args!("{year:04}-{month:02}-{day:02}"));
    before_christ
}

/// The proleptic Gregorian date of a day number (0 is 1970-01-01).
///
/// Works in eras of 400 years (146,097 days) that begin on a first of March, so that the leap day is a year's last.
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::*;

    fn text(write: impl FnOnce(&mut BytesMut)) -> String {
        let mut out = BytesMut::new();
        write(&mut out);
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn dates_follow_the_calendar() {
        for (days, expected) in [
            (0, "1970-01-01"),
            (-1, "1969-12-31"),
            (11_016, "2000-02-29"),
            (15_706, "2013-01-01"),
            (-719_528, "0001-01-01 BC"),
            (2_932_897, "10000-01-01"),
            (i64::from(i32::MAX), "infinity"),
        ] {
            assert_eq!(text(|out| put_date(days, out)), expected);
        }
    }

    #[test]
    fn dates_agree_with_chrono() {
        let epoch = chrono::NaiveDate::from_ymd_opt(1970, 1, 1).unwrap();
        for days in (-700_000..700_000).step_by(317) {
            let date = epoch + chrono::TimeDelta::days(days);
            assert_eq!(
                text(|out| put_date(days, out)),
                date.format("%Y-%m-%d").to_string()
            );
        }
    }

    #[test]
    fn timestamps_have_only_the_digits_they_need() {
        let stamp = |micros, offset| text(|out| Timestamp { micros, offset }.put_text(out));
        assert_eq!(stamp(1_357_017_300_000_000, None), "2013-01-01 05:15:00");
        assert_eq!(stamp(1_357_017_300_500_000, Some(0)), "2013-01-01 05:15:00.5+00");
        assert_eq!(stamp(-1, None), "1969-12-31 23:59:59.999999");
        assert_eq!(stamp(i64::MAX, Some(0)), "infinity");
        assert_eq!(
            stamp(1_357_017_300_000_000, Some(-5 * 3600)),
            "2013-01-01 00:15:00-05"
        );
        assert_eq!(stamp(0, Some(19_800)), "1970-01-01 05:30:00+05:30");
    }

    #[test]
    fn intervals_are_in_postgres_style() {
        let interval = |months, days, micros| text(|out| Interval { months, days, micros }.put_text(out));
        assert_eq!(interval(0, 0, 0), "00:00:00");
        assert_eq!(interval(14, 3, 14_706_700_000), "1 year 2 mons 3 days 04:05:06.7");
        assert_eq!(
            interval(-14, 3, -14_706_000_000),
            "-1 years -2 mons +3 days -04:05:06"
        );
        assert_eq!(interval(0, -1, 3_600_000_000), "-1 days +01:00:00");
        assert_eq!(interval(1, 0, 0), "1 mon");
        assert_eq!(interval(0, 0, 360_000_000_000), "100:00:00");
        assert_eq!(
            text(|out| Interval::from_micros(90_000_000_000).put_text(out)),
            "1 day 01:00:00"
        );
    }
}
