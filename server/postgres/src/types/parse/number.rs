//! Text input of integers, floats and numerics.

use crate::error::input::{invalid, out_of_range};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::types::{NUMERIC_PRECISION, NUMERIC_SCALE};

/// An integer of any width, with an optional sign and white space around it.
///
/// # Errors
/// The text is not an integer, or does not fit.
pub fn integer<T: TryFrom<i64>>(text: &str, type_name: &str) -> SqlResult<T> {
    let trimmed = text.trim_matches(|character: char| character.is_ascii_whitespace());
    let (negative, digits) = match trimmed.as_bytes() {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    if digits.is_empty() {
        return Err(invalid(type_name, text));
    }
    // Negative all the way: the lowest i64 has no positive counterpart.
    let mut value: i64 = 0;
    let mut fits = true;
    for byte in digits {
        if !byte.is_ascii_digit() {
            return Err(invalid(type_name, text));
        }
        match value
            .checked_mul(10)
            .and_then(|value| value.checked_sub(i64::from(byte - b'0')))
        {
            Some(next) => value = next,
            None => fits = false,
        }
    }
    let value = if negative {
        Some(value)
    } else {
        value.checked_neg()
    };
    value
        .filter(|_| fits)
        .and_then(|value| T::try_from(value).ok())
        .ok_or_else(|| out_of_range(type_name, text))
}

/// A `double precision`, `NaN` and the infinities included.
///
/// # Errors
/// The text is not a number, or is too large.
pub fn double(text: &str) -> SqlResult<f64> {
    let trimmed = text.trim();
    if !looks_like_float(trimmed) {
        return Err(invalid("double precision", text));
    }
    let value: f64 = trimmed.parse().map_err(|_| invalid("double precision", text))?;
    if value.is_infinite() && !trimmed.to_ascii_lowercase().contains("inf")
        || value == 0.0 && !is_zero(trimmed)
    {
        return Err(out_of_range("double precision", text));
    }
    Ok(value)
}

/// Whether the digits of a number are those of zero.
fn is_zero(text: &str) -> bool {
    let digits = text.bytes().take_while(|byte| !matches!(byte, b'e' | b'E'));
    digits.filter(u8::is_ascii_digit).all(|digit| digit == b'0')
}

/// A `real`.
///
/// # Errors
/// The text is not a number, or is too large.
pub fn real(text: &str) -> SqlResult<f32> {
    let trimmed = text.trim();
    if !looks_like_float(trimmed) {
        return Err(invalid("real", text));
    }
    let value: f32 = trimmed.parse().map_err(|_| invalid("real", text))?;
    if value.is_infinite() && !trimmed.to_ascii_lowercase().contains("inf")
        || value == 0.0 && !is_zero(trimmed)
    {
        return Err(out_of_range("real", text));
    }
    Ok(value)
}

/// Rust reads all that PostgreSQL reads; what is empty or ends in a bare sign or exponent it refuses by itself.
fn looks_like_float(text: &str) -> bool {
    !text.is_empty()
}

/// A numeric of this precision and scale, as the integer that holds it; rounded half away from zero.
///
/// # Errors
/// The text is not a number, or has too many digits in front of the point.
pub fn decimal(text: &str, precision: u8, scale: i8) -> SqlResult<i128> {
    read_decimal(text, precision, scale).map(|(value, _)| value)
}

/// A `numeric` without a precision, which is held with ten digits after the point.
///
/// # Errors
/// As [`decimal`], and the text has more digits than are held: none is dropped that nobody asked to drop.
pub fn any_numeric(text: &str) -> SqlResult<i128> {
    let (value, is_exact) = read_decimal(text, NUMERIC_PRECISION, NUMERIC_SCALE)?;
    if is_exact {
        return Ok(value);
    }
    Err(out_of_range("numeric", text)
        .with_detail(format!(
            "A numeric without a precision has {NUMERIC_SCALE} digits after the point."
        ))
        .with_hint("Give it a precision and a scale, as in numeric(38,20)."))
}

/// A numeric, and whether it is what the text says to the last digit.
fn read_decimal(text: &str, precision: u8, scale: i8) -> SqlResult<(i128, bool)> {
    let trimmed = text.trim();
    let (negative, body) = match trimmed.as_bytes() {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let (mantissa, exponent) = match body.iter().position(|byte| matches!(byte, b'e' | b'E')) {
        Some(at) => {
            let digits = std::str::from_utf8(&body[at + 1..]).map_err(|_| invalid("numeric", text))?;
            let (sign, number) = match digits.strip_prefix('-') {
                Some(number) => (-1, number),
                None => (1, digits.strip_prefix('+').unwrap_or(digits)),
            };
            if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(invalid("numeric", text));
            }
            (&body[..at], sign * number.parse::<i64>().unwrap_or(i64::MAX))
        }
        None => (body, 0),
    };
    let mut digits: Vec<u8> = Vec::with_capacity(mantissa.len());
    let mut point = None;
    for byte in mantissa {
        match byte {
            b'0'..=b'9' => digits.push(byte - b'0'),
            b'.' if point.is_none() => point = Some(digits.len()),
            _ if matches!(
                trimmed.to_ascii_lowercase().trim_start_matches(['-', '+']),
                "nan" | "infinity" | "inf"
            ) =>
            {
                return Err(out_of_range("numeric", text)
                    .with_detail("NaN and infinity are not supported for numeric."));
            }
            _ => return Err(invalid("numeric", text)),
        }
    }
    if digits.is_empty() {
        return Err(invalid("numeric", text));
    }
    let overflow = || {
        out_of_range("numeric", text).with_detail(format!(
            "A field with precision {precision}, scale {scale} must round to an absolute value less than 10^{}.",
            i32::from(precision) - i32::from(scale)
        ))
    };
    // As in PostgreSQL, no numeric has so many digits behind its point, even if a field of fewer would round them away.
    if exponent < -16_383 {
        return Err(SqlError::new(
            SqlState::NumericValueOutOfRange,
            "value overflows numeric format",
        ));
    }
    // The value is 0.d1d2d3... * 10^whole, and wanted are the digits down to 10^-scale.
    let whole = i64::try_from(point.unwrap_or(digits.len()))
        .unwrap_or(i64::MAX)
        .saturating_add(exponent);
    let wanted = whole.saturating_add(i64::from(scale));
    let mut value: i128 = 0;
    for index in 0..wanted.max(0) {
        let digit = usize::try_from(index)
            .ok()
            .and_then(|index| digits.get(index))
            .copied()
            .unwrap_or(0);
        value = value
            .checked_mul(10)
            .and_then(|value| value.checked_add(i128::from(digit)))
            .ok_or_else(overflow)?;
        // A long run of zeros after nothing, as in 0e1000000, need not be walked to its end.
        if value == 0 && usize::try_from(index).is_ok_and(|index| index >= digits.len()) {
            break;
        }
    }
    if wanted >= 0
        && usize::try_from(wanted)
            .ok()
            .and_then(|at| digits.get(at))
            .is_some_and(|digit| *digit >= 5)
    {
        value += 1;
    }
    let limit = 10_i128.checked_pow(u32::from(precision)).ok_or_else(overflow)?;
    if value >= limit {
        return Err(overflow());
    }
    let cut = usize::try_from(wanted.max(0)).unwrap_or(usize::MAX);
    let is_exact = digits.iter().skip(cut).all(|digit| *digit == 0);
    Ok((if negative { -value } else { value }, is_exact))
}

/// Precision and scale of a number as it is written; `None`: it is no number, or a numeric does not hold it.
pub fn exact_digits(text: &str) -> Option<(u8, i8)> {
    let body = text.trim().trim_start_matches(['-', '+']);
    let (mantissa, exponent) = match body.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (body, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if !(whole.bytes().chain(fraction.bytes())).all(|byte| byte.is_ascii_digit())
        || (whole.is_empty() && fraction.is_empty())
    {
        return None;
    }
    let before = i32::try_from(whole.trim_start_matches('0').len()).ok()? + exponent.clamp(-1000, 1000);
    let after = (i32::try_from(fraction.len()).ok()? - exponent.clamp(-1000, 1000)).max(0);
    let precision = (before.max(0) + after).max(1);
    let precision = u8::try_from(precision)
        .ok()
        .filter(|digits| *digits <= NUMERIC_PRECISION)?;
    Some((precision, i8::try_from(after).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_keep_to_their_range() {
        assert_eq!(
            integer::<i64>("-9223372036854775808", "bigint").unwrap(),
            i64::MIN
        );
        assert_eq!(integer::<i16>(" +7 ", "smallint").unwrap(), 7);
        let error = integer::<i32>("2147483648", "integer").unwrap_err();
        assert_eq!(error.code, SqlState::NumericValueOutOfRange);
        assert_eq!(
            error.message,
            "value \"2147483648\" is out of range for type integer"
        );
        assert!(integer::<i64>("9223372036854775808", "bigint").is_err());
        for text in ["", "-", "1.5", "0x1", "1 2", "１"] {
            assert_eq!(
                integer::<i32>(text, "integer").unwrap_err().code,
                SqlState::InvalidTextRepresentation
            );
        }
    }

    #[test]
    fn floats_know_nan_and_infinity() {
        assert!(double("NaN").unwrap().is_nan());
        assert_eq!(double("-Infinity").unwrap(), f64::NEG_INFINITY);
        assert_eq!(double("1e3").unwrap(), 1000.0);
        assert_eq!(
            double("1e999").unwrap_err().code,
            SqlState::NumericValueOutOfRange
        );
        assert_eq!(real("1e39").unwrap_err().code, SqlState::NumericValueOutOfRange);
        assert_eq!(double("").unwrap_err().code, SqlState::InvalidTextRepresentation);
        assert_eq!(
            double("1,5").unwrap_err().code,
            SqlState::InvalidTextRepresentation
        );
    }

    #[test]
    fn no_digit_is_dropped_unasked() {
        assert_eq!(any_numeric("0.1234567891").unwrap(), 1_234_567_891);
        assert_eq!(any_numeric("1.50000000000000").unwrap(), 15_000_000_000);
        for text in ["4e-11", "0.00000000001", "3.14159265358979"] {
            assert_eq!(
                any_numeric(text).unwrap_err().code,
                SqlState::NumericValueOutOfRange,
                "{text}"
            );
        }
    }

    #[test]
    fn numerics_round_and_overflow() {
        assert_eq!(decimal("12.345", 10, 2).unwrap(), 1235);
        assert_eq!(decimal("-12.344", 10, 2).unwrap(), -1234);
        assert_eq!(decimal("1.5e2", 10, 0).unwrap(), 150);
        assert_eq!(decimal("15e-1", 10, 0).unwrap(), 2);
        assert_eq!(decimal("0.004", 10, 2).unwrap(), 0);
        assert_eq!(decimal("0.005", 10, 2).unwrap(), 1);
        assert_eq!(decimal(".5", 3, 1).unwrap(), 5);
        assert_eq!(decimal("5.", 3, 1).unwrap(), 50);
        assert_eq!(decimal("0e2000000000", 10, 2).unwrap(), 0);
        assert_eq!(
            decimal("1e2000000000", 38, 10).unwrap_err().code,
            SqlState::NumericValueOutOfRange
        );
        assert_eq!(
            decimal("1e99999999999999999999", 38, 10).unwrap_err().code,
            SqlState::NumericValueOutOfRange
        );
        assert_eq!(
            decimal("1e-99999999999999999999", 38, 10).unwrap_err().code,
            SqlState::NumericValueOutOfRange
        );
        assert_eq!(
            decimal("99.995", 4, 2).unwrap_err().code,
            SqlState::NumericValueOutOfRange
        );
        assert_eq!(
            decimal("NaN", 4, 2).unwrap_err().code,
            SqlState::NumericValueOutOfRange
        );
        for text in ["", ".", "1.2.3", "--1", "1e", "abc"] {
            assert_eq!(
                decimal(text, 10, 2).unwrap_err().code,
                SqlState::InvalidTextRepresentation,
                "{text}"
            );
        }
    }
}
