//! What paths compute with the numbers of jsonb, which have any number of digits.

use std::cmp::Ordering;

use bigdecimal::num_bigint::BigInt;
use bigdecimal::{BigDecimal, RoundingMode, Zero};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::types::jsonpath::Arithmetic;

/// The most digits after the point, as PostgreSQL has them.
const SCALE_MAX: i64 = 1000;
/// Digits of a quotient that mean something, at least.
const QUOTIENT_DIGITS_MIN: i64 = 16;
/// How many digits PostgreSQL keeps together.
const GROUP: i64 = 4;
/// The most digits before the point.
const WHOLE_DIGITS_MAX: u64 = 131_072;

/// A number.
///
/// # Errors
/// The text is none, which no number of jsonb is.
pub(super) fn read(text: &str) -> SqlResult<BigDecimal> {
    text.parse()
        .map_err(|_| SqlError::internal(format!("{text} is not a number")))
}

/// In plain digits, zero without a sign.
pub(super) fn written(number: &BigDecimal) -> String {
    let text = number.to_plain_string();
    match number.is_zero() {
        true => text.trim_start_matches('-').to_owned(),
        false => text,
    }
}

/// The order of two numbers.
///
/// # Errors
/// As [`read`].
pub(super) fn compare(left: &str, right: &str) -> SqlResult<Ordering> {
    Ok(read(left)?.cmp(&read(right)?))
}

/// What an operator gives.
///
/// # Errors
/// It divides by zero (22012), or the number is too large (22003).
pub(super) fn compute(left: &str, operator: Arithmetic, right: &str) -> SqlResult<String> {
    let (left, right) = (read(left)?, read(right)?);
    let division_by_zero = || SqlError::new(SqlState::DivisionByZero, "division by zero");
    let scale = |number: &BigDecimal| number.fractional_digit_count().max(0);
    let widest = scale(&left).max(scale(&right));
    let number = match operator {
        Arithmetic::Add => left + right,
        Arithmetic::Subtract => left - right,
        Arithmetic::Multiply => rounded(&(left * right), SCALE_MAX),
        Arithmetic::Divide if right.is_zero() => return Err(division_by_zero()),
        Arithmetic::Divide => quotient(&left, &right),
        Arithmetic::Modulo if right.is_zero() => return Err(division_by_zero()),
        Arithmetic::Modulo => (left % right).with_scale(widest),
    };
    let digits = number.digits();
    let behind = u64::try_from(scale(&number)).unwrap_or_default();
    if digits.saturating_sub(behind) > WHOLE_DIGITS_MAX {
        return Err(SqlError::new(
            SqlState::NumericValueOutOfRange,
            "value overflows numeric format",
        ));
    }
    Ok(written(&number))
}

/// A number with at most so many digits after the point, halves away from zero.
fn rounded(number: &BigDecimal, scale: i64) -> BigDecimal {
    match number.fractional_digit_count() > scale {
        true => number.with_scale_round(scale, RoundingMode::HalfUp),
        false => number.clone(),
    }
}

/// The first group of digits that is not zero, and its weight.
fn first_group(number: &BigDecimal) -> (i64, i64) {
    let (unscaled, scale) = number.abs().into_bigint_and_exponent();
    let digits = unscaled.to_string();
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return (0, 0);
    }
    // How many digits stand before the point; negative: zeros behind it.
    let before = i64::try_from(digits.len()).unwrap_or(i64::MAX) - scale;
    let weight = (before - 1).div_euclid(GROUP);
    let of_first = usize::try_from(before - weight * GROUP).unwrap_or(1);
    let mut first: String = digits.chars().take(of_first).collect();
    while first.len() < of_first {
        first.push('0');
    }
    (first.parse().unwrap_or_default(), weight)
}

/// A quotient with as many digits as PostgreSQL gives it.
fn quotient(left: &BigDecimal, right: &BigDecimal) -> BigDecimal {
    let ((first, weight), (other, other_weight)) = (first_group(left), first_group(right));
    let weight = weight - other_weight - i64::from(first <= other);
    let scale = (QUOTIENT_DIGITS_MIN - weight * GROUP)
        .max(left.fractional_digit_count())
        .max(right.fractional_digit_count())
        .clamp(0, SCALE_MAX);
    let (dividend, dividend_scale) = left.clone().into_bigint_and_exponent();
    let (divisor, divisor_scale) = right.clone().into_bigint_and_exponent();
    // One digit more, by which it is rounded.
    let shift = scale + 1 - dividend_scale + divisor_scale;
    let ten = |power: i64| BigInt::from(10).pow(u32::try_from(power).unwrap_or_default());
    let exact = match shift >= 0 {
        true => dividend * ten(shift) / divisor,
        false => dividend / (divisor * ten(-shift)),
    };
    BigDecimal::new(exact, scale + 1).with_scale_round(scale, RoundingMode::HalfUp)
}

/// The number without what is after its point: down, or up.
///
/// # Errors
/// As [`read`].
pub(super) fn whole(text: &str, up: bool) -> SqlResult<String> {
    let mode = if up {
        RoundingMode::Ceiling
    } else {
        RoundingMode::Floor
    };
    Ok(written(&read(text)?.with_scale_round(0, mode)))
}

/// The subscript that a number is; `None`: it is out of the range of an integer.
pub(super) fn subscript(text: &str) -> SqlResult<Option<i64>> {
    let whole = read(text)?.with_scale_round(0, RoundingMode::Down);
    let whole = written(&whole).parse::<i32>().ok();
    Ok(whole.map(i64::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_of_postgresql() {
        for (left, operator, right, out) in [
            ("1", Arithmetic::Divide, "3", "0.33333333333333333333"),
            ("2", Arithmetic::Divide, "3", "0.66666666666666666667"),
            ("10", Arithmetic::Divide, "2", "5.0000000000000000"),
            ("1", Arithmetic::Divide, "7000", "0.00014285714285714286"),
            ("123456789", Arithmetic::Divide, "7", "17636684.142857142857"),
            ("0", Arithmetic::Divide, "7", "0.00000000000000000000"),
            ("1.50", Arithmetic::Add, "0.5", "2.00"),
            ("1.5", Arithmetic::Multiply, "-0.5", "-0.75"),
            ("7.5", Arithmetic::Modulo, "2", "1.5"),
            ("-7", Arithmetic::Modulo, "4", "-3"),
            ("1", Arithmetic::Subtract, "1", "0"),
        ] {
            assert_eq!(
                compute(left, operator, right).unwrap(),
                out,
                "{left} {} {right}",
                operator.symbol()
            );
        }
        assert!(compute("1", Arithmetic::Divide, "0.0").is_err());
        assert_eq!(
            (whole("-1.5", true).unwrap(), whole("-1.5", false).unwrap()),
            ("-1".into(), "-2".into())
        );
        assert_eq!(subscript("-1.9").unwrap(), Some(-1));
        assert_eq!(subscript("99999999999").unwrap(), None);
    }
}
