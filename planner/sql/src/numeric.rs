//! What is computed with the digits of numerics.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Decimal128Array, Float64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, i256};
use arrow::error::ArrowError;

/// How many digits a numeric has at most.
pub const DIGITS_MAX: u32 = 38;

/// The integers up to this are exact in double precision, and so are the powers of ten up to the other.
const EXACT_MAX: u128 = 1 << 53;
const EXACT_POWER_MAX: usize = 22;

/// A quotient times ten to `shift`, rounded half away from zero; `None`: it has more digits than a numeric, or is none, since it is one by
/// zero.
pub fn quotient(left: i128, right: i128, shift: i32) -> Option<i128> {
    let power = i256::from_i128(10).checked_pow(shift.unsigned_abs())?;
    let (mut left, mut right) = (i256::from_i128(left), i256::from_i128(right));
    if shift >= 0 {
        left = left.checked_mul(power)?;
    } else {
        right = right.checked_mul(power)?;
    }
    let quotient = left.checked_div(right)?;
    let rest = left.checked_rem(right)?;
    // Half of the divisor or more: away from zero. The rest is smaller than the divisor, so that this cannot overflow.
    let magnitude = |value: i256| {
        if value < i256::ZERO {
            value.wrapping_neg()
        } else {
            value
        }
    };
    let away = magnitude(rest) >= magnitude(right).wrapping_sub(magnitude(rest));
    let negative = (left < i256::ZERO) != (right < i256::ZERO);
    let step = if away {
        i256::from_i128(if negative { -1 } else { 1 })
    } else {
        i256::ZERO
    };
    let limit = 10_u128.pow(DIGITS_MAX);
    quotient
        .wrapping_add(step)
        .to_i128()
        .filter(|value| value.unsigned_abs() < limit)
}

/// Numerics in double precision: of each the nearest value, as its text would be read.
pub fn doubles(values: &Decimal128Array) -> Float64Array {
    let scale = values.scale();
    let exact_power = usize::try_from(scale)
        .ok()
        .filter(|scale| *scale <= EXACT_POWER_MAX);
    let power = 10_f64.powi(scale.into());
    values.unary(|digits| match exact_power {
        // Of two exact values the quotient is rounded once.
        #[expect(clippy::cast_precision_loss, reason = "so small an integer is exact")]
        Some(_) if digits.unsigned_abs() <= EXACT_MAX => digits as f64 / power,
        // Of a text of digits and an exponent every reading is one that is finite.
        _ => format!("{digits}e{}", -i32::from(scale))
            .parse()
            .unwrap_or(f64::NAN),
    })
}

/// Numbers in double precision.
///
/// # Errors
/// They are no numbers.
pub fn doubles_of(values: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    match values.data_type() {
        DataType::Decimal128(..) => Ok(Arc::new(doubles(values.as_primitive()))),
        _ => cast(values, &DataType::Float64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotients_are_rounded_half_away_from_zero() {
        assert_eq!(quotient(1, 3, 4), Some(3333));
        assert_eq!(quotient(2, 3, 4), Some(6667));
        assert_eq!(quotient(-1, 2, 0), Some(-1));
        assert_eq!(quotient(1, 2, 0), Some(1));
        assert_eq!(quotient(12345, 10, -2), Some(12));
        assert_eq!(quotient(0, -7, 4), Some(0));
        assert_eq!(quotient(1, 0, 4), None);
        assert_eq!(quotient(10_i128.pow(37), 1, 16), None);
    }

    #[test]
    fn doubles_are_the_nearest() {
        let mut state = 7_u128;
        for scale in [0, 2, 10, 16, 20, 23, 38] {
            let mut digits = vec![0, 1, -1, 23_333_333_333_333_333, 10_i128.pow(38) - 1];
            for bits in 1..126 {
                // A congruential sequence is random enough.
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                digits.push((state >> (128 - bits)) as i128);
            }
            digits.retain(|digits| digits.unsigned_abs() < 10_u128.pow(DIGITS_MAX));
            let numerics = Decimal128Array::from(digits.clone())
                .with_precision_and_scale(38, scale)
                .unwrap();
            for (at, (digits, double)) in digits.iter().zip(doubles(&numerics).values()).enumerate() {
                let read: f64 = numerics.value_as_string(at).parse().unwrap();
                assert_eq!(*double, read, "{digits} {scale}");
            }
        }
    }
}
