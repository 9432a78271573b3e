//! Numbers that stand for times, and bytes that stand for numbers, as texts of SQL.

use std::fmt::Write as _;

use chrono::{DateTime, NaiveDate, TimeDelta};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};

fn out_of_range(number: i64) -> SqlError {
    SqlError::new(
        SqlState::DatetimeFieldOverflow,
        format!("{number} is out of range"),
    )
}

/// A day by its number, of which 0 is 1970-01-01.
pub(crate) fn date(days: i64) -> SqlResult<String> {
    let date = TimeDelta::try_days(days).and_then(|days| NaiveDate::default().checked_add_signed(days));
    let date = date.ok_or_else(|| out_of_range(days))?;
    Ok(date.format("%Y-%m-%d").to_string())
}

/// A moment by the time since 1970-01-01 00:00 UTC, in so many parts of a second (at most nanoseconds); without a zone.
pub(crate) fn moment(since: i64, parts: i64) -> SqlResult<String> {
    let nanos = (since.rem_euclid(parts) * (1_000_000_000 / parts)) as u32;
    let time = DateTime::from_timestamp(since.div_euclid(parts), nanos).ok_or_else(|| out_of_range(since))?;
    Ok(time.format("%Y-%m-%d %H:%M:%S%.f").to_string())
}

/// A time of day by the time since midnight, in so many parts of a second; what is less than a microsecond is cut.
pub(crate) fn time_of_day(since: i64, parts: i64) -> SqlResult<String> {
    let (seconds, rest) = (since.div_euclid(parts), since.rem_euclid(parts));
    let micros = match parts {
        1_000 => rest * 1_000,
        1_000_000 => rest,
        _ => rest / 1_000,
    };
    if !(0..=86_400).contains(&seconds) {
        return Err(out_of_range(since));
    }
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    Ok(format!("{hour:02}:{minute:02}:{second:02}.{micros:06}"))
}

/// A number of two's complement, the highest byte first, of which so many digits are behind the point.
pub(crate) fn decimal(bytes: &[u8], scale: i64) -> SqlResult<String> {
    let out_of_range = || SqlError::new(SqlState::NumericValueOutOfRange, "a decimal has too many digits");
    let fill = if bytes.first().is_some_and(|first| first & 0x80 != 0) {
        0xff
    } else {
        0
    };
    // Bytes in front that only repeat the sign are none.
    let is_sign = |pair: &[u8]| pair[0] == fill && (pair[1] & 0x80) == (fill & 0x80);
    let signs = bytes.windows(2).take_while(|pair| is_sign(pair)).count();
    let bytes = &bytes[signs..];
    let mut whole = [fill; 16];
    let start = 16_usize.checked_sub(bytes.len()).ok_or_else(out_of_range)?;
    whole[start..].copy_from_slice(bytes);
    let number = i128::from_be_bytes(whole);
    let (sign, digits) = (
        if number < 0 { "-" } else { "" },
        number.unsigned_abs().to_string(),
    );
    let scale = usize::try_from(scale).ok().filter(|scale| *scale <= 1_000);
    let scale = scale.ok_or_else(out_of_range)?;
    let digits = format!("{digits:0>width$}", width = scale + 1);
    let (before, behind) = digits.split_at(digits.len() - scale);
    Ok(match behind {
        "" => format!("{sign}{before}"),
        behind => format!("{sign}{before}.{behind}"),
    })
}

/// Bytes as bytea is written.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 + 2 * bytes.len());
    text.push_str("\\x");
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_texts() {
        assert_eq!(date(-1).unwrap(), "1969-12-31");
        assert_eq!(moment(-1, 1_000).unwrap(), "1969-12-31 23:59:59.999");
        assert_eq!(time_of_day(3_723_000_004, 1_000_000).unwrap(), "01:02:03.000004");
        assert!(time_of_day(-1, 1_000).is_err());
        assert!(date(i64::MAX).is_err());
        assert_eq!(hexadecimal(&[0, 0xff]), "\\x00ff");
        for number in [
            0_i128,
            1,
            -1,
            127,
            128,
            -128,
            -129,
            1 << 80,
            -(1 << 100),
            i128::MAX,
            i128::MIN,
        ] {
            let mut bytes = number.to_be_bytes().to_vec();
            assert_eq!(decimal(&bytes, 0).unwrap(), number.to_string());
            bytes.insert(0, bytes[0] & 0x80);
            if number >= 0 {
                assert_eq!(decimal(&bytes, 0).unwrap(), number.to_string());
            }
        }
        assert_eq!(decimal(&[0xff, 0xff, 0xfe], 2).unwrap(), "-0.02");
        assert_eq!(decimal(&[], 0).unwrap(), "0");
        assert!(decimal(&[1; 17], 0).is_err());
    }
}
