//! Sizes as people write them: `pg_size_bytes`.

use millrace_postgres::error::{SqlError, SqlResult, SqlState};

const UNITS: [(&str, i128); 6] = [
    ("bytes", 1),
    ("kb", 1 << 10),
    ("mb", 1 << 20),
    ("gb", 1 << 30),
    ("tb", 1 << 40),
    ("pb", 1 << 50),
];

/// How many digits behind the point count.
const DIGITS_MAX: usize = 15;

/// How far a power of ten moves the point at most.
const POWER_MAX: i32 = 60;

/// The bytes of a size such as `1.5 kB`, rounded.
///
/// # Errors
/// 22023: it is no number with a unit; 22003: it is beyond a bigint.
pub(super) fn bytes(text: &str) -> SqlResult<i64> {
    let invalid = || {
        SqlError::new(
            SqlState::InvalidParameterValue,
            format!("invalid size: \"{text}\""),
        )
    };
    let trimmed = text.trim();
    let (is_negative, rest) = match trimmed.strip_prefix(['-', '+']) {
        Some(rest) => (trimmed.starts_with('-'), rest),
        None => (false, trimmed),
    };
    let end = rest
        .find(|character: char| !character.is_ascii_digit() && character != '.')
        .unwrap_or(rest.len());
    let (number, rest) = rest.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return Err(invalid());
    }
    let (power, rest) = power_of_ten(rest);
    let (whole, fraction) = moved(whole, fraction, power);
    let (whole, fraction, unit) = (whole.as_str(), fraction.as_str(), rest);
    let unit = unit.trim().to_ascii_lowercase();
    let factor = match UNITS.iter().find(|(name, _)| *name == unit) {
        Some((_, factor)) => *factor,
        None if unit.is_empty() => 1,
        None => {
            return Err(invalid()
                .with_detail(format!("Invalid size unit: \"{}\".", rest.trim()))
                .with_hint("Valid units are \"bytes\", \"kB\", \"MB\", \"GB\", \"TB\", and \"PB\"."));
        }
    };
    let beyond = || SqlError::new(SqlState::NumericValueOutOfRange, "bigint out of range");
    let digits = &fraction[..fraction.len().min(DIGITS_MAX)];
    let scale = 10_i128.pow(u32::try_from(digits.len()).unwrap_or_default());
    let parsed = |digits: &str| match digits {
        "" => Some(0),
        digits => digits.parse::<i128>().ok(),
    };
    let whole = parsed(whole)
        .and_then(|whole| whole.checked_mul(factor))
        .ok_or_else(beyond)?;
    let fraction = parsed(digits).ok_or_else(invalid)? * factor;
    let rounded = (fraction * 2 + scale) / (scale * 2);
    let size = whole.checked_add(rounded).ok_or_else(beyond)?;
    i64::try_from(if is_negative { -size } else { size }).map_err(|_| beyond())
}

/// The power of ten that a number ends with (`e3`), and what stands behind it.
fn power_of_ten(text: &str) -> (i32, &str) {
    let none = (0, text);
    let Some(rest) = text.strip_prefix(['e', 'E']) else {
        return none;
    };
    let (is_negative, rest) = match rest.strip_prefix(['-', '+']) {
        Some(digits) => (rest.starts_with('-'), digits),
        None => (false, rest),
    };
    let end = rest.find(|character: char| !character.is_ascii_digit());
    let (digits, rest) = rest.split_at(end.unwrap_or(rest.len()));
    match digits.parse::<i32>() {
        // Further away nothing is left of a size, or it is beyond all of them.
        Ok(power) => (power.min(POWER_MAX) * if is_negative { -1 } else { 1 }, rest),
        Err(_) => none,
    }
}

/// A number whose point is moved to the right; to the left if `power` is negative.
fn moved(whole: &str, fraction: &str, power: i32) -> (String, String) {
    let zeros = "0".repeat(power.unsigned_abs() as usize);
    match power {
        0.. => {
            let digits = format!("{fraction}{zeros}");
            let (more, rest) = digits.split_at(zeros.len());
            (format!("{whole}{more}"), rest.to_owned())
        }
        _ => {
            let digits = format!("{zeros}{whole}");
            let (rest, less) = digits.split_at(digits.len() - zeros.len());
            (rest.to_owned(), format!("{less}{fraction}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_postgresql_reads_them() {
        for (text, size) in [
            ("1", 1),
            (" 123bytes ", 123),
            ("1kB", 1_024),
            ("1.5 MB", 1_572_864),
            (".0009765625 kb", 1),
            ("-2 GB", -2_147_483_648),
            ("1.", 1),
            ("1e3", 1_000),
            ("1.5e1 kB", 15_360),
            ("25E-1 bytes", 3),
            ("12345e-2", 123),
            ("1e-60 PB", 0),
            ("8191 PB", 9_222_246_136_947_933_184),
        ] {
            assert_eq!(bytes(text).unwrap(), size, "{text}");
        }
        for text in ["", "x", "1 AB", "1.2.3", "--1", "1 kB x", "."] {
            assert_eq!(
                bytes(text).unwrap_err().code,
                SqlState::InvalidParameterValue,
                "{text}"
            );
        }
        for text in ["8192 PB", "9223372036854775808"] {
            assert_eq!(
                bytes(text).unwrap_err().code,
                SqlState::NumericValueOutOfRange,
                "{text}"
            );
        }
    }
}
