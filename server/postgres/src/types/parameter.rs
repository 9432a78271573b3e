//! Parameters of the extended protocol, in text and in binary form, as values.

use arrow::array::ArrayRef;
use datafusion::scalar::ScalarValue;
use millrace_sql::complexity::DIMENSIONS_MAX;
use postgres_types::{Kind, Type};

use crate::error::{SqlError, SqlResult, SqlState};
use crate::forms::datetime;
use crate::from_internal;
use crate::types::composite::put_quoted;
use crate::types::parse::datetime::MICROS_PER_DAY;
use crate::types::{from_pg, parse};

/// Days from 1970-01-01 to 2000-01-01, where PostgreSQL counts from.
const EPOCH_DAYS: i32 = 10_957;
const EPOCH_MICROS: i64 = EPOCH_DAYS as i64 * MICROS_PER_DAY;

/// A parameter in text form; `None` is NULL.
///
/// # Errors
/// The text is not an input of the type, or the type is not known.
pub fn from_text(pg: &Type, text: Option<&str>) -> SqlResult<ScalarValue> {
    let field = known(pg)?.field("parameter", true);
    let array = parse::value(&field, text)?;
    scalar(&array)
}

/// A parameter in binary form; `None` is NULL.
///
/// # Errors
/// The bytes are not a value of the type, or the type is not known.
pub fn from_binary(pg: &Type, bytes: Option<&[u8]>) -> SqlResult<ScalarValue> {
    let field = known(pg)?.field("parameter", true);
    let Some(bytes) = bytes else {
        return ScalarValue::try_from(field.data_type()).map_err(from_internal::datafusion);
    };
    // What has no cheap direct form goes through its text.
    let text = binary_text(pg, bytes)?;
    let array = parse::value(&field, Some(&text))?;
    scalar(&array)
}

/// The text of a value in binary form.
///
/// # Errors
/// The bytes are none of the type.
pub fn binary_text(pg: &Type, bytes: &[u8]) -> SqlResult<String> {
    text_of(pg, bytes).ok_or_else(|| match (std::str::from_utf8(bytes), width(pg)) {
        (Err(error), None) if is_text(pg) => {
            let wrong = bytes.get(error.valid_up_to()).copied().unwrap_or_default();
            SqlError::new(
                SqlState::CharacterNotInRepertoire,
                format!("invalid byte sequence for encoding \"UTF8\": 0x{wrong:02x}"),
            )
        }
        (_, Some(width)) if bytes.len() < width => {
            SqlError::new(SqlState::ProtocolViolation, "insufficient data left in message")
        }
        _ => SqlError::new(
            SqlState::InvalidBinaryRepresentation,
            format!("incorrect binary data format for a value of type {}", pg.name()),
        ),
    })
}

fn is_text(pg: &Type) -> bool {
    matches!(
        *pg,
        Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME | Type::JSON | Type::UNKNOWN | Type::CHAR
    )
}

/// How many bytes a value of the type has, if all have as many.
fn width(pg: &Type) -> Option<usize> {
    Some(match *pg {
        Type::BOOL => 1,
        Type::INT2 => 2,
        Type::INT4 | Type::OID | Type::REGCLASS | Type::FLOAT4 | Type::DATE => 4,
        Type::INT8 | Type::FLOAT8 | Type::TIME | Type::TIMESTAMP | Type::TIMESTAMPTZ => 8,
        Type::INTERVAL | Type::UUID => 16,
        _ => return None,
    })
}

fn known(pg: &Type) -> SqlResult<crate::types::SqlType> {
    from_pg(pg)
        .ok_or_else(|| SqlError::unsupported(format!("parameters of type {} are not supported", pg.name())))
}

fn scalar(array: &ArrayRef) -> SqlResult<ScalarValue> {
    ScalarValue::try_from_array(array, 0).map_err(from_internal::datafusion)
}

fn be<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
    bytes.try_into().ok()
}

/// The text of a binary value; `None`: the bytes are wrong.
fn text_of(pg: &Type, bytes: &[u8]) -> Option<String> {
    let mut out = vec![];
    match pg.kind() {
        Kind::Array(element) => return array_text(element, bytes),
        Kind::Composite(attributes) => return record_text(attributes, bytes),
        _ => {}
    }
    match *pg {
        Type::BOOL => return Some((be::<1>(bytes)? != [0]).to_string()),
        Type::INT2 => return Some(i16::from_be_bytes(be(bytes)?).to_string()),
        Type::INT4 => return Some(i32::from_be_bytes(be(bytes)?).to_string()),
        Type::OID | Type::REGCLASS => return Some(u32::from_be_bytes(be(bytes)?).to_string()),
        Type::INT8 => return Some(i64::from_be_bytes(be(bytes)?).to_string()),
        Type::FLOAT4 => return Some(f32::from_be_bytes(be(bytes)?).to_string()),
        Type::FLOAT8 => return Some(f64::from_be_bytes(be(bytes)?).to_string()),
        Type::NUMERIC => return numeric_text(bytes),
        // The empty one is a zero, which no text can have.
        Type::CHAR if bytes == [0] => return Some(String::new()),
        Type::BYTEA => {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            return Some(format!("\\x{hex}"));
        }
        Type::DATE => {
            let days = match i32::from_be_bytes(be(bytes)?) {
                infinite @ (i32::MAX | i32::MIN) => infinite,
                days => days.checked_add(EPOCH_DAYS)?,
            };
            datetime::put_date(days.into(), &mut out);
        }
        Type::TIME => {
            let micros = i64::from_be_bytes(be(bytes)?);
            if !(0..=MICROS_PER_DAY).contains(&micros) {
                return None;
            }
            datetime::put_time(micros, &mut out);
        }
        Type::TIMESTAMP | Type::TIMESTAMPTZ => {
            let micros = match i64::from_be_bytes(be(bytes)?) {
                infinite @ (i64::MAX | i64::MIN) => infinite,
                micros => micros.checked_add(EPOCH_MICROS)?,
            };
            // The zone is written out, so that the text means the same in every session.
            let offset = (*pg == Type::TIMESTAMPTZ).then_some(0);
            datetime::Timestamp { micros, offset }.put_text(&mut out);
        }
        Type::INTERVAL => {
            let micros = i64::from_be_bytes(be(bytes.get(..8)?)?);
            let days = i32::from_be_bytes(be(bytes.get(8..12)?)?);
            let months = i32::from_be_bytes(be(bytes.get(12..)?)?);
            return Some(format!("{months} months {days} days {micros} us"));
        }
        Type::UUID => {
            return Some(
                be::<16>(bytes)?
                    .iter()
                    .map(|byte| format!("{byte:02x}"))
                    .collect(),
            );
        }
        Type::JSONB => {
            let (version, text) = bytes.split_first()?;
            return (*version == 1)
                .then(|| String::from_utf8(text.to_vec()).ok())
                .flatten();
        }
        _ => return String::from_utf8(bytes.to_vec()).ok(),
    }
    String::from_utf8(out).ok()
}

/// A numeric: digits in base 10,000, the weight of the first, the sign, the scale.
fn numeric_text(bytes: &[u8]) -> Option<String> {
    let word =
        |index: usize| -> Option<u16> { Some(u16::from_be_bytes(be(bytes.get(index * 2..index * 2 + 2)?)?)) };
    let count = usize::from(word(0)?);
    let weight = i32::from(i16::from_be_bytes(word(1)?.to_be_bytes()));
    let sign = match word(2)? {
        0x0000 => "",
        0x4000 => "-",
        0xC000 => return Some("NaN".to_string()),
        0xD000 => return Some("Infinity".to_string()),
        0xF000 => return Some("-Infinity".to_string()),
        _ => return None,
    };
    if bytes.len() != 8 + count * 2 {
        return None;
    }
    let mut digits = String::new();
    for index in 0..count {
        let digit = word(4 + index)?;
        if digit > 9999 {
            return None;
        }
        digits.push_str(&format!("{digit:04}"));
    }
    if digits.is_empty() {
        return Some("0".to_string());
    }
    let exponent = (weight + 1 - i32::try_from(count).ok()?) * 4;
    Some(format!("{sign}{digits}e{exponent}"))
}

/// An array: how many dimensions it has, a flag for NULLs, the element's type, each dimension's length and lower bound, the elements.
fn array_text(element: &Type, bytes: &[u8]) -> Option<String> {
    let dimensions = usize::try_from(int(bytes, 0)?).ok()?;
    if dimensions == 0 {
        return Some("{}".to_string());
    }
    if dimensions > DIMENSIONS_MAX {
        return None;
    }
    let lengths: Vec<usize> = (0..dimensions)
        .map(|dimension| usize::try_from(int(bytes, 12 + 8 * dimension)?).ok())
        .collect::<Option<_>>()?;
    let mut at = 12 + 8 * dimensions;
    // Each element takes four bytes at least; the lengths alone could ask for any number of empty arrays.
    let elements = lengths
        .iter()
        .try_fold(1_usize, |product, length| product.checked_mul(*length))?;
    match elements {
        0 => return (at == bytes.len()).then(|| "{}".to_string()),
        _ if elements > bytes.len() / 4 => return None,
        _ => {}
    }
    let mut out = String::new();
    put_dimension(element, bytes, &lengths, &mut at, &mut out)?;
    (at == bytes.len()).then_some(out)
}

/// A value of a composite type: how many attributes it has, and of each the type, the length and the value.
fn record_text(attributes: &[postgres_types::Field], bytes: &[u8]) -> Option<String> {
    if usize::try_from(int(bytes, 0)?).ok()? != attributes.len() {
        return None;
    }
    let mut out = String::from("(");
    let mut at = 4;
    for (index, attribute) in attributes.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        let length = int(bytes, at + 4)?;
        at += 8;
        let Ok(length) = usize::try_from(length) else {
            continue;
        };
        let text = text_of(attribute.type_(), bytes.get(at..at.checked_add(length)?)?)?;
        at += length;
        put_quoted(&text, &mut out);
    }
    out.push(')');
    (at == bytes.len()).then_some(out)
}

fn int(bytes: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_be_bytes(be(bytes.get(at..at.checked_add(4)?)?)?))
}

/// Writes the elements of the first of these dimensions, which begin at `at`.
fn put_dimension(
    element: &Type,
    bytes: &[u8],
    lengths: &[usize],
    at: &mut usize,
    out: &mut String,
) -> Option<()> {
    let (count, inner) = lengths.split_first()?;
    out.push('{');
    for index in 0..*count {
        if index > 0 {
            out.push(',');
        }
        if !inner.is_empty() {
            put_dimension(element, bytes, inner, at, out)?;
            continue;
        }
        let length = int(bytes, *at)?;
        *at += 4;
        match usize::try_from(length) {
            Err(_) => out.push_str("NULL"),
            Ok(length) => {
                let text = text_of(element, bytes.get(*at..at.checked_add(length)?)?)?;
                *at += length;
                put_quoted(&text, out);
            }
        }
    }
    out.push('}');
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::timestamptz;
    use arrow::datatypes::{DataType, Date32Type, Int32Type};
    use datafusion::common::cast::as_list_array;

    #[test]
    fn binary_values_are_read() {
        assert_eq!(
            from_binary(&Type::INT4, Some(&7_i32.to_be_bytes())).unwrap(),
            ScalarValue::Int32(Some(7))
        );
        assert_eq!(from_binary(&Type::INT4, None).unwrap(), ScalarValue::Int32(None));
        assert_eq!(
            from_binary(&Type::DATE, Some(&0_i32.to_be_bytes())).unwrap(),
            ScalarValue::new_primitive::<Date32Type>(Some(EPOCH_DAYS), &DataType::Date32).unwrap()
        );
        let zero = from_binary(&Type::TIMESTAMPTZ, Some(&0_i64.to_be_bytes())).unwrap();
        assert_eq!(
            zero,
            ScalarValue::TimestampMicrosecond(Some(EPOCH_MICROS), Some("UTC".into()))
        );
        assert_eq!(zero.data_type(), timestamptz());
        // 12345.67: digits 1, 2345, 6700; weight 1; scale 2.
        let numeric: Vec<u8> = [3_u16, 1, 0, 2, 1, 2345, 6700]
            .iter()
            .flat_map(|word| word.to_be_bytes())
            .collect();
        assert_eq!(
            from_binary(&Type::NUMERIC, Some(&numeric)).unwrap(),
            ScalarValue::Decimal128(Some(123_456_700_000_000), 38, 10)
        );
    }

    #[test]
    fn arrays_are_read() {
        let mut bytes = vec![];
        for word in [1_i32, 1, 23, 2, 1, 4, 5, -1] {
            bytes.extend_from_slice(&word.to_be_bytes());
        }
        let value = from_binary(&Type::INT4_ARRAY, Some(&bytes))
            .unwrap()
            .to_array()
            .unwrap();
        let list = as_list_array(&value).unwrap().value(0);
        let list = arrow::array::AsArray::as_primitive::<Int32Type>(list.as_ref()).clone();
        assert_eq!(list.iter().collect::<Vec<_>>(), vec![Some(5), None]);
    }

    /// A few bytes can say that they are two billion arrays of nothing, or of something that is not there.
    #[test]
    fn lengths_of_arrays_are_not_believed() {
        let read = |words: &[i32]| {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
            from_binary(&Type::INT4_ARRAY, Some(&bytes))
        };
        let empty = read(&[2, 0, 23, i32::MAX, 1, 0, 1]).unwrap().to_array().unwrap();
        assert_eq!(as_list_array(&empty).unwrap().value(0).len(), 0);
        for lengths in [[i32::MAX, i32::MAX, i32::MAX], [i32::MAX, 1, 1], [1, 1, i32::MAX]] {
            let [a, b, c] = lengths;
            assert!(read(&[3, 0, 23, a, 1, b, 1, c, 1, 4, 5]).is_err(), "{lengths:?}");
        }
    }

    #[test]
    fn wrong_bytes_are_refused_and_never_panic() {
        let all = [
            Type::BOOL,
            Type::INT2,
            Type::INT4,
            Type::INT8,
            Type::FLOAT8,
            Type::NUMERIC,
            Type::DATE,
            Type::TIME,
            Type::TIMESTAMP,
            Type::INTERVAL,
            Type::UUID,
            Type::JSONB,
            Type::INT4_ARRAY,
            Type::TEXT,
        ];
        for pg in all {
            for length in 0..40 {
                for fill in [0x00, 0x01, 0x7f, 0x80, 0xff] {
                    let _ = from_binary(&pg, Some(&vec![fill; length]));
                }
            }
        }
        let code = |bytes: &[u8]| from_binary(&Type::INT4, Some(bytes)).unwrap_err().code;
        assert_eq!(code(&[1]), SqlState::ProtocolViolation);
        assert_eq!(code(&[0; 5]), SqlState::InvalidBinaryRepresentation);
    }
}
