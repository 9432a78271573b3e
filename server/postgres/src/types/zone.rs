//! Time zones: named ones with their daylight saving, and fixed offsets.
//!
//! An instant has one local time in a zone, but a local time may stand for no instant or for two, an hour around the
//! changes of the clock: it is then read as PostgreSQL reads it, see [`Zone::offset_at_local`].

use std::fmt;

use chrono::{DateTime, Offset, TimeDelta, TimeZone};
use chrono_tz::OffsetName;

use crate::error::{SqlError, SqlState};
use crate::types::parse::datetime;

/// A time zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Zone {
    /// Seconds east of UTC.
    Fixed(i32),
    /// A zone of the time zone database.
    Named(chrono_tz::Tz),
}

impl Zone {
    /// UTC.
    pub const UTC: Zone = Zone::Fixed(0);

    /// The zone that a name or an offset (`+02:30`) means in an SQL text: east is positive.
    pub fn parse(text: &str) -> Option<Zone> {
        let text = text.trim();
        if matches!(text.to_ascii_lowercase().as_str(), "utc" | "z" | "gmt" | "zulu") {
            return Some(Zone::UTC);
        }
        if text.starts_with(['+', '-']) {
            let seconds = datetime::offset(text)?;
            return i32::try_from(seconds).ok().map(Zone::Fixed);
        }
        abbreviated(text).or_else(|| named(text).map(Zone::Named))
    }

    /// The zone that the setting `TimeZone` means: a name, a number of hours to the east, or an offset in the style of
    /// POSIX, whose sign is the other way round (`UTC-2`, `<+02>-2`, `-02:00`).
    pub fn parse_setting(text: &str) -> Option<Zone> {
        let text = text.trim();
        if let Some(zone) = named(text) {
            return Some(if text.eq_ignore_ascii_case("utc") {
                Zone::UTC
            } else {
                Zone::Named(zone)
            });
        }
        if let Ok(hours) = text.parse::<f64>() {
            // Not a POSIX offset, but the number of SET TIME ZONE.
            #[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
            return (hours.abs() <= 15.0).then_some(Zone::Fixed((hours * 3600.0).round() as i32));
        }
        let digits = text.rfind(['+', '-'])?;
        let (name, offset) = text.split_at(digits);
        let plain = name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'<' | b'>' | b'+' | b'-' | b':'));
        let seconds = datetime::offset(offset).filter(|_| plain)?;
        i32::try_from(-seconds).ok().map(Zone::Fixed)
    }

    /// How [`Self::named_in_sql`] names it.
    pub fn sql_name(self) -> String {
        match self {
            Zone::Fixed(0) => "UTC".into(),
            Zone::Fixed(seconds) => Zone::Fixed(-seconds).to_string(),
            // CET by itself is an abbreviation, without daylight saving.
            Zone::Named(zone) => format!(":{}", zone.name()),
        }
    }

    /// The zone of `AT TIME ZONE`: a name, an abbreviation, or an offset in the style of POSIX, whose sign is the other
    /// way round: `+02` is two hours to the west.
    ///
    /// # Errors
    /// The zone is not known.
    pub fn named_in_sql(text: &str) -> Result<Zone, SqlError> {
        let is_number = text.trim().parse::<f64>().is_ok() && !text.trim().starts_with(['+', '-']);
        let zone = match text.trim() {
            offset if offset.starts_with(['+', '-']) => {
                datetime::offset(offset).and_then(|seconds| i32::try_from(-seconds).ok().map(Zone::Fixed))
            }
            _ if is_number => None,
            name if name.starts_with(':') => named(&name[1..]).map(Zone::Named),
            name => Zone::parse(name).or_else(|| Zone::parse_setting(name)),
        };
        zone.ok_or_else(|| {
            SqlError::new(
                SqlState::InvalidParameterValue,
                format!("time zone \"{text}\" not recognized"),
            )
        })
    }

    /// Seconds east of UTC at an instant.
    pub fn offset_at(self, micros: i64) -> i64 {
        match self {
            Zone::Fixed(seconds) => seconds.into(),
            Zone::Named(zone) => DateTime::from_timestamp_micros(micros).map_or(0, |instant| {
                let offset = zone.offset_from_utc_datetime(&instant.naive_utc());
                offset.fix().local_minus_utc().into()
            }),
        }
    }

    /// What the time is called there at an instant: `CET`, or the offset as `+02`.
    pub fn abbreviation_at(self, micros: i64) -> String {
        let offset_text = |seconds: i64| {
            let sign = if seconds < 0 { '-' } else { '+' };
            let minutes = seconds.abs() / 60;
            match minutes % 60 {
                0 => format!("{sign}{:02}", minutes / 60),
                rest => format!("{sign}{:02}:{rest:02}", minutes / 60),
            }
        };
        match self {
            Zone::Fixed(0) => "UTC".into(),
            Zone::Fixed(seconds) => offset_text(seconds.into()),
            Zone::Named(zone) => DateTime::from_timestamp_micros(micros)
                .and_then(|instant| {
                    let offset = zone.offset_from_utc_datetime(&instant.naive_utc());
                    offset.abbreviation().map(str::to_string)
                })
                .unwrap_or_else(|| offset_text(self.offset_at(micros))),
        }
    }

    /// Seconds east of UTC at a local time. Of two instants it is the later one; where the clock skipped the time, the
    /// offset from before goes on.
    pub fn offset_at_local(self, micros: i64) -> i64 {
        match self {
            Zone::Fixed(seconds) => seconds.into(),
            Zone::Named(zone) => {
                let Some(local) = DateTime::from_timestamp_micros(micros).map(|local| local.naive_utc())
                else {
                    return 0;
                };
                let offset = match zone.offset_from_local_datetime(&local) {
                    chrono::LocalResult::Single(offset) | chrono::LocalResult::Ambiguous(_, offset) => {
                        Some(offset)
                    }
                    chrono::LocalResult::None => zone
                        .offset_from_local_datetime(&(local - TimeDelta::hours(1)))
                        .latest(),
                };
                offset.map_or(0, |offset| offset.fix().local_minus_utc().into())
            }
        }
    }

    /// The local time of an instant; the infinities stay.
    pub fn to_local(self, micros: i64) -> i64 {
        match micros {
            i64::MAX | i64::MIN => micros,
            _ => micros.saturating_add(self.offset_at(micros) * 1_000_000),
        }
    }

    /// The instant of a local time; the infinities stay.
    pub fn to_utc(self, micros: i64) -> i64 {
        match micros {
            i64::MAX | i64::MIN => micros,
            _ => micros.saturating_sub(self.offset_at_local(micros) * 1_000_000),
        }
    }
}

/// The abbreviations that PostgreSQL knows by default and that mean one thing everywhere it matters.
const ABBREVIATIONS: [(&str, i32); 31] = [
    ("acst", 34_200),
    ("aest", 36_000),
    ("aedt", 39_600),
    ("akst", -32_400),
    ("akdt", -28_800),
    ("art", -10_800),
    ("awst", 28_800),
    ("brt", -10_800),
    ("bst", 3_600),
    ("cdt", -18_000),
    ("cest", 7_200),
    ("cet", 3_600),
    ("cst", -21_600),
    ("edt", -14_400),
    ("eest", 10_800),
    ("eet", 7_200),
    ("est", -18_000),
    ("hst", -36_000),
    ("idt", 10_800),
    ("ist", 7_200),
    ("jst", 32_400),
    ("kst", 32_400),
    ("mdt", -21_600),
    ("msk", 10_800),
    ("mst", -25_200),
    ("nzdt", 46_800),
    ("nzst", 43_200),
    ("pdt", -25_200),
    ("pst", -28_800),
    ("sgt", 28_800),
    ("wet", 0),
];

fn abbreviated(text: &str) -> Option<Zone> {
    ABBREVIATIONS
        .iter()
        .find(|(name, _)| text.eq_ignore_ascii_case(name))
        .map(|(_, seconds)| Zone::Fixed(*seconds))
}

fn named(text: &str) -> Option<chrono_tz::Tz> {
    text.parse().ok().or_else(|| {
        chrono_tz::TZ_VARIANTS
            .iter()
            .find(|known| known.name().eq_ignore_ascii_case(text))
            .copied()
    })
}

/// The name, or the offset as `+02:30`, as Arrow's types want it.
impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Zone::Fixed(0) => f.write_str("UTC"),
            Zone::Fixed(seconds) => {
                let sign = if *seconds < 0 { '-' } else { '+' };
                let minutes = seconds.abs() / 60;
                write!(f, "{sign}{:02}:{:02}", minutes / 60, minutes % 60)
            }
            Zone::Named(zone) => f.write_str(zone.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_found_by_name_and_offset() {
        assert_eq!(Zone::parse("utc"), Some(Zone::UTC));
        assert_eq!(Zone::parse("+02:30"), Some(Zone::Fixed(9000)));
        assert_eq!(
            Zone::parse("america/new_york"),
            Some(Zone::Named(chrono_tz::America::New_York))
        );
        assert_eq!(Zone::parse("Nowhere/Special"), None);
        assert_eq!(Zone::parse("pst"), Some(Zone::Fixed(-28_800)));
        assert_eq!(Zone::parse("CET"), Some(Zone::Fixed(3600)));
        let cet = Zone::Named(chrono_tz::CET);
        assert_eq!(Zone::named_in_sql(&cet.sql_name()), Ok(cet));
        for (text, seconds) in [("+02", -7200), ("-02:30", 9000), ("UTC+3", -10_800)] {
            let zone = Zone::named_in_sql(text).unwrap();
            assert_eq!(zone, Zone::Fixed(seconds), "{text}");
            assert_eq!(Zone::named_in_sql(&zone.sql_name()), Ok(zone));
        }
        assert_eq!(Zone::parse_setting("UTC-2"), Some(Zone::Fixed(7200)));
        assert_eq!(Zone::parse_setting("-5"), Some(Zone::Fixed(-18_000)));
        assert_eq!(Zone::parse_setting("Nowhere/Special"), None);
        assert_eq!(Zone::parse_setting(""), None);
    }

    #[test]
    fn offsets_follow_daylight_saving() {
        let zone = Zone::Named(chrono_tz::America::New_York);
        let winter = datetime::timestamp("2013-01-31 10:00").unwrap();
        let summer = datetime::timestamp("2013-07-31 10:00").unwrap();
        assert_eq!(zone.offset_at(winter), -5 * 3600);
        assert_eq!(zone.offset_at(summer), -4 * 3600);
        assert_eq!(zone.to_local(zone.to_utc(summer)), summer);
        // 02:30 does not exist on that day: it is 03:30 by the new clock.
        let skipped = datetime::timestamp("2013-03-10 02:30").unwrap();
        let shown = zone.to_local(zone.to_utc(skipped));
        assert_eq!(shown, datetime::timestamp("2013-03-10 03:30").unwrap());
        assert_eq!(zone.to_utc(i64::MAX), i64::MAX);
    }
}
