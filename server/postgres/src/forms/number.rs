//! Numbers: floats in the fewest digits that read back the same, decimals with their scale, PostgreSQL's binary
//! `numeric`.

use std::fmt::LowerExp;

use bytes::{BufMut, BytesMut};

/// Writes a float4 as PostgreSQL does: `1e+06` from a million on.
pub fn put_float32(value: f32, out: &mut impl BufMut) {
    if !put_special(f64::from(value), out) {
        put_shortest(value, 6, out);
    }
}

/// Writes a float8 as PostgreSQL does: `1e+15` from there on.
pub fn put_float64(value: f64, out: &mut impl BufMut) {
    if !put_special(value, out) {
        put_shortest(value, 15, out);
    }
}

fn put_special(value: f64, out: &mut impl BufMut) -> bool {
    let name: &[u8] = if value.is_nan() {
        b"NaN"
    } else if value == f64::INFINITY {
        b"Infinity"
    } else if value == f64::NEG_INFINITY {
        b"-Infinity"
    } else {
        return false;
    };
    out.put_slice(name);
    true
}

/// Rust's `{:e}` has the shortest digits that read back the same; this lays them out as PostgreSQL does: plainly for
/// exponents from -4 up to `plain_below`, else with an exponent of at least two digits.
fn put_shortest(value: impl LowerExp, plain_below: i32, out: &mut impl BufMut) {
    let scientific = format!("{value:e}");
    let (mantissa, exponent) = scientific.split_once('e').expect("{:e} prints an exponent");
    let exponent: i32 = exponent.parse().expect("{:e} prints a decimal exponent");
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(mantissa) => ("-", mantissa),
        None => ("", mantissa),
    };
    let (first, rest) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    out.put_slice(sign.as_bytes());
    if !(-4..plain_below).contains(&exponent) {
        out.put_slice(first.as_bytes());
        if !rest.is_empty() {
            out.put_u8(b'.');
            out.put_slice(rest.as_bytes());
        }
        let exponent_sign = if exponent < 0 { '-' } else { '+' };
        super::datetime::put_format(out, format_args!("e{exponent_sign}{:02}", exponent.abs()));
    } else if exponent < 0 {
        out.put_slice(b"0.");
        out.put_bytes(b'0', (-exponent - 1) as usize);
        out.put_slice(first.as_bytes());
        out.put_slice(rest.as_bytes());
    } else {
        let whole = exponent as usize;
        out.put_slice(first.as_bytes());
        if rest.len() <= whole {
            out.put_slice(rest.as_bytes());
            out.put_bytes(b'0', whole - rest.len());
        } else {
            out.put_slice(&rest.as_bytes()[..whole]);
            out.put_u8(b'.');
            out.put_slice(&rest.as_bytes()[whole..]);
        }
    }
}

/// The digits and the scale of a decimal without the zeros at its end.
pub fn trimmed(mut digits: String, mut scale: i8) -> (String, i8) {
    while scale > 0 && digits.len() > 1 && digits.ends_with('0') {
        digits.pop();
        scale -= 1;
    }
    if digits == "0" {
        scale = scale.min(0);
    }
    (digits, scale)
}

/// Writes a decimal: `digits` (with a sign when negative) divided by ten to the `scale`.
pub fn put_decimal(digits: &str, scale: i8, out: &mut impl BufMut) {
    let (sign, digits) = split_sign(digits);
    out.put_slice(sign.as_bytes());
    let digits = digits.as_bytes();
    if scale <= 0 {
        out.put_slice(digits);
        if digits != b"0" {
            out.put_bytes(b'0', scale.unsigned_abs().into());
        }
        return;
    }
    let scale = scale as usize;
    if digits.len() > scale {
        out.put_slice(&digits[..digits.len() - scale]);
    } else {
        out.put_u8(b'0');
    }
    out.put_u8(b'.');
    out.put_bytes(b'0', scale.saturating_sub(digits.len()));
    out.put_slice(&digits[digits.len().saturating_sub(scale)..]);
}

/// Writes PostgreSQL's binary `numeric`: groups of four decimal digits, the weight of the first, the sign, the scale.
pub fn put_numeric_binary(digits: &str, scale: i8, out: &mut BytesMut) {
    let (sign, digits) = split_sign(digits);
    let mut digits = digits.to_owned();
    let display_scale = scale.max(0) as usize;
    if scale < 0 {
        digits.extend(std::iter::repeat_n('0', scale.unsigned_abs().into()));
    }
    // Pad on both sides so that the point lies between two groups and every group is full.
    let whole_digits = digits.len().saturating_sub(display_scale);
    let padded_fraction = display_scale.next_multiple_of(4);
    let padded_whole = whole_digits.next_multiple_of(4);
    let mut padded = "0".repeat(padded_whole - whole_digits);
    padded.push_str(&"0".repeat(display_scale.saturating_sub(digits.len())));
    padded.push_str(&digits);
    padded.push_str(&"0".repeat(padded_fraction - display_scale));

    let groups: Vec<u16> = padded
        .as_bytes()
        .chunks(4)
        .map(|chunk| {
            chunk
                .iter()
                .fold(0, |group, digit| group * 10 + u16::from(digit - b'0'))
        })
        .collect();
    let leading = groups.iter().take_while(|group| **group == 0).count();
    let significant = match groups.iter().rposition(|group| *group != 0) {
        Some(last) => &groups[leading..=last],
        None => &[],
    };
    let weight = if significant.is_empty() {
        0
    } else {
        (padded_whole / 4) as i16 - leading as i16 - 1
    };
    out.put_i16(significant.len() as i16);
    out.put_i16(weight);
    out.put_u16(if sign.is_empty() || significant.is_empty() {
        0x0000
    } else {
        0x4000
    });
    out.put_i16(display_scale as i16);
    for group in significant {
        out.put_u16(*group);
    }
}

fn split_sign(digits: &str) -> (&str, &str) {
    match digits.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", digits),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn float64(value: f64) -> String {
        let mut out = BytesMut::new();
        put_float64(value, &mut out);
        String::from_utf8(out.to_vec()).unwrap()
    }

    fn float32(value: f32) -> String {
        let mut out = BytesMut::new();
        put_float32(value, &mut out);
        String::from_utf8(out.to_vec()).unwrap()
    }

    fn decimal(digits: &str, scale: i8) -> String {
        let mut out = BytesMut::new();
        put_decimal(digits, scale, &mut out);
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn floats_look_as_in_postgresql() {
        for (value, text) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (0.1, "0.1"),
            (-1.5, "-1.5"),
            (1e14, "100000000000000"),
            (1e15, "1e+15"),
            (1e20, "1e+20"),
            (123456789012345680.0, "1.2345678901234568e+17"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1.5e-7, "1.5e-07"),
            (1e300, "1e+300"),
            (123.456, "123.456"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "Infinity"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            assert_eq!(float64(value), text);
        }
        assert_eq!(float32(1_000_000.0), "1e+06");
        assert_eq!(float32(123_456.0), "123456");
        assert_eq!(float32(0.1), "0.1");
    }

    #[test]
    fn decimals_keep_their_scale() {
        assert_eq!(decimal("12345", 2), "123.45");
        assert_eq!(decimal("-5", 2), "-0.05");
        assert_eq!(decimal("0", 3), "0.000");
        assert_eq!(decimal("42", 0), "42");
        assert_eq!(decimal("42", -2), "4200");
        assert_eq!(decimal("0", -2), "0");
    }

    #[test]
    fn numeric_binary_has_groups_of_four_digits() {
        let encode = |digits: &str, scale: i8| {
            let mut out = BytesMut::new();
            put_numeric_binary(digits, scale, &mut out);
            out.to_vec()
        };
        // 123.45: groups 123 and 4500, the first of weight 0.
        assert_eq!(encode("12345", 2), [0, 2, 0, 0, 0, 0, 0, 2, 0, 123, 0x11, 0x94]);
        // 0: no groups.
        assert_eq!(encode("0", 2), [0, 0, 0, 0, 0, 0, 0, 2]);
        // -0.0001: one group of weight -1.
        assert_eq!(encode("-1", 4), [0, 1, 0xff, 0xff, 0x40, 0, 0, 4, 0, 1]);
        // 0.00001: the group 1000 of weight -2.
        assert_eq!(encode("1", 5), [0, 1, 0xff, 0xfe, 0, 0, 0, 5, 0x03, 0xe8]);
        // 120000: trailing groups of zeros are left out.
        assert_eq!(encode("120000", 0), [0, 1, 0, 1, 0, 0, 0, 0, 0, 12]);
        assert_eq!(encode("12", -4), [0, 1, 0, 1, 0, 0, 0, 0, 0, 12]);
    }
}
