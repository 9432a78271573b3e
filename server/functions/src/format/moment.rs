//! `to_char` of timestamps, dates, times and intervals.

use arrow::datatypes::IntervalMonthDayNano;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::types::parse::datetime::{MICROS_PER_DAY, civil_from_days, days_from_civil};

use super::pattern::{Case, Field, Item};

/// The names of the months.
pub const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
/// The names of the days of the week.
pub const DAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];
/// The months in Roman numbers.
pub const ROMAN_MONTHS: [&str; 12] = [
    "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII",
];
/// Days from the beginning of the Julian day count to 1970-01-01.
pub const JULIAN_EPOCH: i64 = 2_440_588;

/// What is written: a moment, or a length of time.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    is_interval: bool,
    year: i64,
    month: i64,
    day: i64,
    /// Days since 1970; of an interval none.
    days: i64,
    day_of_year: i64,
    hour: i64,
    minute: i64,
    second: i64,
    micros: i64,
    /// Seconds east of UTC.
    offset: i64,
}

/// The ISO year and week of a day since 1970.
pub fn iso_week(days: i64) -> (i64, i64) {
    // The week belongs to the year of its Thursday.
    let thursday = days - (days + 3).rem_euclid(7) + 3;
    let (year, _, _) = civil_from_days(thursday);
    (year, (thursday - days_from_civil(year, 1, 1)) / 7 + 1)
}

/// The Monday of the first ISO week of a year, in days since 1970.
pub fn iso_year_begin(year: i64) -> i64 {
    let fourth = days_from_civil(year, 1, 4);
    fourth - (fourth + 3).rem_euclid(7)
}

impl Moment {
    /// A local time in microseconds since 1970, and how far it is east of UTC.
    pub fn of_timestamp(micros: i64, offset: i64) -> Self {
        let days = micros.div_euclid(MICROS_PER_DAY);
        let (year, month, day) = civil_from_days(days);
        let time = micros.rem_euclid(MICROS_PER_DAY);
        Moment {
            is_interval: false,
            year,
            month,
            day,
            days,
            day_of_year: days - days_from_civil(year, 1, 1) + 1,
            hour: time / 3_600_000_000,
            minute: time / 60_000_000 % 60,
            second: time / 1_000_000 % 60,
            micros: time % 1_000_000,
            offset,
        }
    }

    /// A length of time.
    pub fn of_interval(value: IntervalMonthDayNano) -> Self {
        let (year, month, day) = (
            i64::from(value.months / 12),
            i64::from(value.months % 12),
            i64::from(value.days),
        );
        let time = value.nanoseconds / 1000;
        Moment {
            is_interval: true,
            year,
            month,
            day,
            days: 0,
            day_of_year: year * 360 + month * 30 + day,
            hour: time / 3_600_000_000,
            minute: time / 60_000_000 % 60,
            second: time / 1_000_000 % 60,
            micros: time % 1_000_000,
            offset: 0,
        }
    }

    fn weekday(&self) -> usize {
        usize::try_from((self.days + 4).rem_euclid(7)).unwrap_or_default()
    }

    /// Writes it by a pattern. `zone` is the name of the zone.
    ///
    /// # Errors
    /// A length of time has no such part.
    pub fn write(&self, items: &[Item], zone: &str) -> SqlResult<String> {
        let mut out = String::new();
        for item in items {
            match item {
                Item::Space => out.push(' '),
                Item::Separator(character) | Item::Character(character) => out.push(*character),
                Item::Field {
                    field,
                    case,
                    fill,
                    ordinal,
                    ..
                } => {
                    if self.is_interval && !of_intervals(*field) {
                        return Err(SqlError::new(
                            SqlState::InvalidDatetimeFormat,
                            "invalid format specification for an interval value",
                        )
                        .with_hint("Intervals are not tied to specific calendar dates."));
                    }
                    let (text, is_number) = self.text(*field, *case, !*fill, zone);
                    out.push_str(&text);
                    if is_number && let Some(case) = ordinal {
                        out.push_str(&ordinal_suffix(&text, *case));
                    }
                }
            }
        }
        Ok(out)
    }

    /// The text of a field, and whether it is a number that may be an ordinal.
    fn text(&self, field: Field, case: Case, padded: bool, zone: &str) -> (String, bool) {
        // A sign takes a place of its own.
        let signed = |value: i64, width: usize, is_negative: bool| {
            let width = if padded {
                width + usize::from(is_negative)
            } else {
                0
            };
            (format!("{value:0width$}"), true)
        };
        let number = |value: i64, width: usize| signed(value, width, value < 0);
        let plain = |value: i64| (value.to_string(), true);
        let word = |text: &str, width: usize| {
            let text = cased(text, case);
            let width = if padded { width } else { 0 };
            (format!("{text:width$}"), false)
        };
        let shown_year = |year: i64| {
            if self.is_interval || year > 0 {
                year
            } else {
                1 - year
            }
        };
        match field {
            Field::Half { points } => {
                let afternoon = self.hour % 24 >= 12;
                word(
                    match (afternoon, points) {
                        (false, false) => "AM",
                        (true, false) => "PM",
                        (false, true) => "A.M.",
                        (true, true) => "P.M.",
                    },
                    0,
                )
            }
            Field::Era { points } => word(
                match (self.year > 0, points) {
                    (true, false) => "AD",
                    (false, false) => "BC",
                    (true, true) => "A.D.",
                    (false, true) => "B.C.",
                },
                0,
            ),
            Field::Century => {
                let century = if self.is_interval {
                    self.year / 100
                } else if self.year > 0 {
                    (self.year - 1) / 100 + 1
                } else {
                    self.year / 100 - 1
                };
                number(century, 2)
            }
            Field::MonthName { short } => {
                let name = usize::try_from(self.month - 1)
                    .ok()
                    .and_then(|index| MONTHS.get(index))
                    .copied()
                    .unwrap_or_default();
                if short {
                    word(&name[..3.min(name.len())], 0)
                } else {
                    word(name, 9)
                }
            }
            Field::DayName { short } => {
                let name = DAYS[self.weekday()];
                if short { word(&name[..3], 0) } else { word(name, 9) }
            }
            Field::RomanMonth => match self.roman_month() {
                Some(month) => word(month, 4),
                None => (String::new(), false),
            },
            Field::Month => number(self.month, 2),
            Field::Day => (
                if padded {
                    format!("{:02}", self.day)
                } else {
                    self.day.to_string()
                },
                true,
            ),
            Field::DayOfYear { iso } => {
                let day = if iso {
                    self.days - iso_year_begin(iso_week(self.days).0) + 1
                } else {
                    self.day_of_year
                };
                (
                    if padded {
                        format!("{day:03}")
                    } else {
                        day.to_string()
                    },
                    true,
                )
            }
            Field::DayOfWeek { iso: false } => plain(self.weekday() as i64 + 1),
            Field::DayOfWeek { iso: true } => plain((self.days + 3).rem_euclid(7) + 1),
            Field::WeekOfYear { iso } => {
                let week = if iso {
                    iso_week(self.days).1
                } else {
                    (self.day_of_year - 1) / 7 + 1
                };
                (
                    if padded {
                        format!("{week:02}")
                    } else {
                        week.to_string()
                    },
                    true,
                )
            }
            Field::WeekOfMonth => plain((self.day - 1) / 7 + 1),
            Field::Quarter if self.month == 0 => (String::new(), false),
            Field::Quarter => plain((self.month - 1) / 3 + 1),
            Field::Julian => plain(self.days + JULIAN_EPOCH),
            Field::Year { digits, iso } => {
                let year = shown_year(if iso { iso_week(self.days).0 } else { self.year });
                match digits {
                    4 => number(year, 4),
                    1 => plain(year % 10),
                    _ => signed(year % 10_i64.pow(digits), digits as usize, year < 0),
                }
            }
            Field::YearWithComma => {
                let year = shown_year(self.year);
                let thousands = year / 1000;
                (format!("{thousands},{:03}", year - thousands * 1000), true)
            }
            Field::Hour => number(self.hour, 2),
            Field::Hour12 => {
                let hour = if self.hour % 12 == 0 { 12 } else { self.hour % 12 };
                signed(hour, 2, self.hour < 0)
            }
            Field::Minute => number(self.minute, 2),
            Field::Second => number(self.second, 2),
            Field::Fraction { digits, .. } => {
                let width = digits as usize;
                let value = self.micros / 10_i64.pow(6 - digits);
                (format!("{value:0width$}"), true)
            }
            Field::SecondsOfDay => plain(self.hour * 3600 + self.minute * 60 + self.second),
            Field::ZoneName => (
                if case == Case::Lower {
                    zone.to_lowercase()
                } else {
                    zone.to_string()
                },
                false,
            ),
            Field::ZoneHour => {
                let sign = if self.offset < 0 { '-' } else { '+' };
                (format!("{sign}{:02}", self.offset.abs() / 3600), false)
            }
            Field::ZoneMinute => (format!("{:02}", self.offset.abs() % 3600 / 60), false),
            Field::ZoneOffset => {
                let sign = if self.offset < 0 { '-' } else { '+' };
                let hours = self.offset.abs() / 3600;
                let minutes = self.offset.abs() % 3600 / 60;
                let mut text = if padded {
                    format!("{sign}{hours:02}")
                } else {
                    format!("{sign}{hours}")
                };
                if minutes != 0 {
                    text.push_str(&format!(":{minutes:02}"));
                }
                (text, false)
            }
            Field::Exact => (String::new(), false),
        }
    }

    fn roman_month(&self) -> Option<&'static str> {
        // The months of a negative length count back from the twelfth.
        let index = match (self.month, self.year) {
            (0, 0) => return None,
            (0, 1..) => 11,
            (0, _) => 0,
            (month @ 1.., _) => month - 1,
            (month, _) => 12 + month,
        };
        ROMAN_MONTHS.get(usize::try_from(index).ok()?).copied()
    }
}

/// Whether a length of time has the field.
fn of_intervals(field: Field) -> bool {
    !matches!(
        field,
        Field::Era { .. }
            | Field::MonthName { .. }
            | Field::DayName { .. }
            | Field::DayOfWeek { .. }
            | Field::ZoneName
            | Field::ZoneOffset
            | Field::ZoneHour
            | Field::ZoneMinute
            // PostgreSQL takes the parts for those of a date here.
            | Field::Julian
            | Field::DayOfYear { iso: true }
            | Field::WeekOfYear { iso: true }
            | Field::Year { iso: true, .. }
    )
}

fn cased(text: &str, case: Case) -> String {
    match case {
        Case::Upper => text.to_uppercase(),
        Case::Lower => text.to_lowercase(),
        Case::Capital => text.to_string(),
    }
}

/// What makes a number an ordinal: `st`, `nd`, `rd`, `th`.
pub fn ordinal_suffix(number: &str, case: Case) -> String {
    let digits = number.trim_end().as_bytes();
    let last = digits.last().copied();
    let tens = digits.len().checked_sub(2).map(|at| digits[at]);
    let suffix = match (tens, last) {
        (Some(b'1'), _) => "th",
        (_, Some(b'1')) => "st",
        (_, Some(b'2')) => "nd",
        (_, Some(b'3')) => "rd",
        _ => "th",
    };
    match case {
        Case::Upper => suffix.to_uppercase(),
        _ => suffix.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::pattern;
    use millrace_postgres::types::parse::datetime::timestamp;
    use millrace_postgres::types::parse::interval::interval;

    #[test]
    fn moments_are_written_as_postgresql_writes_them() {
        let at = Moment::of_timestamp(timestamp("2013-01-05 15:04:06.789").unwrap(), 3600 + 1800);
        for (pattern, text) in [
            ("YYYY-MM-DD HH24:MI:SS", "2013-01-05 15:04:06"),
            ("yyyy-mm-dd hh24:mi:ss", "2013-01-05 15:04:06"),
            ("HH24:mm", "15:01"),
            ("HH12:MI AM p.m.", "03:04 PM p.m."),
            ("FMMonth FMDDth, YYYY", "January 5th, 2013"),
            ("Dy DDD Q J W WW", "Sat 005 1 2456298 1 01"),
            ("IYYY IW ID IDDD", "2013 01 6 006"),
            ("\"at\" MS.US FF2", "at 789.789000 78"),
            ("Day|RM|rm|", "Saturday |I   |i   |"),
            ("TZH:TZM OF TZ", "+01:30 +01:30 CET"),
            ("SSSS CC Y,YYY YYY YY Y AD", "54246 21 2,013 013 13 3 AD"),
            ("Yyyy é", "3013 é"),
            ("MITHss DDTH", "04TH06 05TH"),
        ] {
            let items = pattern::parse(pattern).unwrap();
            assert_eq!(at.write(&items, "CET").unwrap(), text, "{pattern}");
        }
    }

    #[test]
    fn lengths_of_time_have_no_calendar() {
        let long = Moment::of_interval(interval("1 year 2 mons 45 days 27:04:06.789").unwrap());
        let back = Moment::of_interval(interval("-1 year -2 mons -3 days -15:04:06").unwrap());
        let write = |moment: &Moment, pattern: &str| moment.write(&pattern::parse(pattern).unwrap(), "");
        assert_eq!(
            write(&long, "YYYY MM DD HH24:MI:SS.MS DDD").unwrap(),
            "0001 02 45 27:04:06.789 465"
        );
        assert_eq!(
            write(&back, "YYYY MM DD HH24 RM WW Q").unwrap(),
            "-0001 -02 -3 -15 XI   -59 0"
        );
        assert_eq!(write(&long, "Day").unwrap_err().code.code(), "22007");
        assert!(pattern::parse("DDSP").is_err());
    }
}
