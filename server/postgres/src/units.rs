//! Sizes and durations as people write them: `600MB`, `5ms`, `2 hours`.

use std::time::Duration;

use crate::types::parse::interval::interval;

/// Reads a size. The units are PostgreSQL's, powers of 1024; a bare number is bytes.
///
/// # Errors
/// The text is not a size; the error says what is.
pub fn size(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text);
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        "t" | "tb" | "tib" => 1 << 40,
        _ => return Err("a size is a number with B, kB, MB, GB or TB, such as 600MB".to_owned()),
    };
    let bytes = number
        .parse::<f64>()
        .map_err(|_| "a size is a number with B, kB, MB, GB or TB, such as 600MB".to_owned())?
        * factor as f64;
    // Up to 2^53 every byte count is exact.
    if !(0.0..=(1u64 << 53) as f64).contains(&bytes) {
        return Err("the size is out of range".to_owned());
    }
    Ok(bytes as u64)
}

/// A size in the largest unit in which it is whole.
pub fn size_text(bytes: u64) -> String {
    let units = [("TB", 1 << 40), ("GB", 1 << 30), ("MB", 1 << 20), ("kB", 1 << 10)];
    let unit = units
        .iter()
        .find(|(_, unit)| bytes > 0 && bytes.is_multiple_of(*unit));
    match unit {
        Some((name, unit)) => format!("{}{name}", bytes / unit),
        None => format!("{bytes}B"),
    }
}

/// Reads a duration, as intervals are written. The unit is required.
///
/// # Errors
/// The text is not a duration; the error says what is.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || "a duration is a number with us, ms, s, min, h or d, such as 5ms or 2 hours".to_owned();
    // Of an interval, a number alone is seconds.
    let has_unit = text.contains(':') || text.trim_end().ends_with(|last: char| last.is_alphabetic());
    let length = match has_unit {
        true => interval(&text.replace('µ', "u")).map_err(|_| wrong())?,
        false => return Err(wrong()),
    };
    if length.months != 0 {
        return Err("months vary in length: days are the largest unit of a duration".to_owned());
    }
    let micros = i64::from(length.days) * 86_400_000_000 + length.nanoseconds / 1_000;
    match u64::try_from(micros) {
        Ok(micros) => Ok(Duration::from_micros(micros)),
        Err(_) => Err("a duration cannot be negative".to_owned()),
    }
}

fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    (&text[..end], text[end..].trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_of_1024() {
        assert_eq!(size("600MB"), Ok(600 << 20));
        assert_eq!(size("1.5 GB"), Ok(3 << 29));
        assert_eq!(size("64kB"), Ok(65_536));
        assert_eq!(size("17"), Ok(17));
        for text in ["600MB", "3GB", "17B", "1025kB"] {
            assert_eq!(size(text).map(size_text).as_deref(), Ok(text));
        }
        for wrong in ["", "MB", "5 parsecs", "-1MB", "1.2.3MB", "99999TB"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(duration("5ms"), Ok(Duration::from_millis(5)));
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1_500)));
        assert_eq!(duration("2 min"), Ok(Duration::from_secs(120)));
        assert_eq!(duration("250 µs"), Ok(Duration::from_micros(250)));
        assert_eq!(duration("1 day"), Ok(Duration::from_secs(86_400)));
        assert_eq!(duration("2 Hours"), Ok(Duration::from_secs(7_200)));
        assert_eq!(duration("1h 30m"), Ok(Duration::from_secs(5_400)));
        assert_eq!(duration("00:01:30"), Ok(Duration::from_secs(90)));
        for wrong in ["", "5", "1h 5", "s", "5 fortnights", "-1s", "1 month", "2 years"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
