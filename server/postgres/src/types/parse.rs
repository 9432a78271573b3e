//! The text input of every type, a column at a time.
//!
//! COPY, CSV ingest, text parameters and `text -> type` casts all come through here, so that a text means the same
//! wherever it enters. Inputs are those that PostgreSQL's input functions accept.

pub mod array;
pub mod datetime;
pub mod interval;
pub mod number;

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryBuilder, BooleanBuilder, Decimal128Builder, PrimitiveBuilder, StringArray,
    StringBuilder,
};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Field, Float32Type, Float64Type, Int16Type, Int32Type,
    Int64Type, IntervalMonthDayNanoType, IntervalUnit, Time64MicrosecondType, TimeUnit,
    TimestampMicrosecondType,
};

use crate::error::input::invalid;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::types::enumeration::{EnumType, VALUES};
use crate::types::interval_fields::Fields;
use crate::types::{ANNOTATION, composite, digits, element, json, jsonpath, length_limit, type_name};

/// The first value of a column that is not an input of its type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CellError {
    /// The row, the first being 0.
    pub row: usize,
    /// What is wrong with it.
    pub error: Box<SqlError>,
}

impl CellError {
    pub(super) fn new(row: usize, error: SqlError) -> Self {
        CellError {
            row,
            error: Box::new(error),
        }
    }
}

/// Converts a column of texts to the type of `field`. NULL stays NULL.
///
/// # Errors
/// The first row whose text is not an input of the type.
pub fn column(field: &Field, texts: &StringArray) -> Result<ArrayRef, CellError> {
    Ok(digits::rounded(field, with_all_digits(field, texts)?))
}

fn with_all_digits(field: &Field, texts: &StringArray) -> Result<ArrayRef, CellError> {
    let name = || type_name(field);
    match field.data_type() {
        DataType::Boolean => {
            let mut out = BooleanBuilder::with_capacity(texts.len());
            each(texts, |text| {
                out.append_option(match text {
                    Some(text) => Some(boolean(text).ok_or_else(|| invalid("boolean", text))?),
                    None => None,
                });
                Ok(())
            })?;
            Ok(Arc::new(out.finish()))
        }
        DataType::Int16 => primitive::<Int16Type>(texts, |text| number::integer(text, "smallint")),
        DataType::Int32 => primitive::<Int32Type>(texts, |text| number::integer(text, "integer")),
        DataType::Int64 => primitive::<Int64Type>(texts, |text| number::integer(text, "bigint")),
        DataType::Float32 => primitive::<Float32Type>(texts, number::real),
        DataType::Float64 => primitive::<Float64Type>(texts, number::double),
        DataType::Decimal128(precision, scale) => {
            let mut out =
                Decimal128Builder::with_capacity(texts.len()).with_data_type(field.data_type().clone());
            let any = field
                .metadata()
                .get(ANNOTATION)
                .is_some_and(|name| name == "numeric");
            let read = |text: &str| match any {
                true => number::any_numeric(text),
                false => number::decimal(text, *precision, *scale),
            };
            each(texts, |text| {
                out.append_option(text.map(read).transpose()?);
                Ok(())
            })?;
            Ok(Arc::new(out.finish()))
        }
        DataType::Utf8 => text_column(field, texts),
        DataType::Binary => {
            let mut out = BinaryBuilder::with_capacity(texts.len(), texts.value_data().len());
            each(texts, |text| {
                out.append_option(text.map(bytea).transpose()?);
                Ok(())
            })?;
            Ok(Arc::new(out.finish()))
        }
        DataType::Date32 => primitive::<Date32Type>(texts, datetime::date),
        DataType::Time64(TimeUnit::Microsecond) => primitive::<Time64MicrosecondType>(texts, datetime::time),
        DataType::Timestamp(TimeUnit::Microsecond, None) => {
            primitive::<TimestampMicrosecondType>(texts, datetime::timestamp)
        }
        DataType::Timestamp(TimeUnit::Microsecond, Some(_)) => {
            let mut out = PrimitiveBuilder::<TimestampMicrosecondType>::with_capacity(texts.len())
                .with_data_type(field.data_type().clone());
            each(texts, |text| {
                out.append_option(text.map(datetime::timestamptz).transpose()?);
                Ok(())
            })?;
            Ok(Arc::new(out.finish()))
        }
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            let fields = digits::interval_fields(field).unwrap_or(Fields::ALL);
            primitive::<IntervalMonthDayNanoType>(texts, |text| interval::interval_of(text, fields))
        }
        DataType::List(item) => {
            let element = element(field).unwrap_or_else(|| Arc::clone(item));
            array::column(item, &element, texts)
        }
        DataType::Struct(fields) => composite::column(fields, texts),
        _ => Err(CellError::new(
            0,
            SqlError::unsupported(format!("type {} has no text input", name())),
        )),
    }
}

/// Converts one text.
///
/// # Errors
/// The text is not an input of the type.
pub fn value(field: &Field, text: Option<&str>) -> SqlResult<ArrayRef> {
    column(field, &StringArray::from(vec![text])).map_err(|cell| *cell.error)
}

fn each(
    texts: &StringArray,
    mut convert: impl FnMut(Option<&str>) -> SqlResult<()>,
) -> Result<(), CellError> {
    for (row, text) in texts.iter().enumerate() {
        convert(text).map_err(|error| CellError::new(row, error))?;
    }
    Ok(())
}

fn primitive<T: ArrowPrimitiveType>(
    texts: &StringArray,
    parse: impl Fn(&str) -> SqlResult<T::Native>,
) -> Result<ArrayRef, CellError> {
    let mut out = PrimitiveBuilder::<T>::with_capacity(texts.len());
    each(texts, |text| {
        out.append_option(text.map(&parse).transpose()?);
        Ok(())
    })?;
    Ok(Arc::new(out.finish()))
}

/// What a text becomes; `None`: it stays.
type Convert = dyn Fn(&str) -> SqlResult<Option<String>>;

fn text_column(field: &Field, texts: &StringArray) -> Result<ArrayRef, CellError> {
    let Some(annotation) = field.metadata().get(ANNOTATION) else {
        return Ok(Arc::new(texts.clone()));
    };
    let convert: Box<Convert> = match annotation.as_str() {
        "uuid" => Box::new(|text| uuid(text).map(Some)),
        "jsonpath" => Box::new(|text| jsonpath::parse(text).map(|path| Some(path.to_string()))),
        "jsonb" => Box::new(|text| json_normalized(text, "jsonb").map(Some)),
        "json" => Box::new(|text| {
            json_normalized(text, "json")?;
            Ok(None)
        }),
        _ => match (length_limit(field), EnumType::of(field)) {
            (_, Some(known)) if !field.metadata().contains_key(VALUES) => {
                return Err(CellError::new(
                    0,
                    SqlError::unsupported(format!("a value of type {} cannot be read here", known.shown()))
                        .with_hint("Cast it to the type."),
                ));
            }
            (_, Some(known)) => Box::new(move |text| known.read(text).map(|held| Some(held.to_owned()))),
            (Some((name, limit)), None) => Box::new(move |text| fitted(text, name, limit)),
            (None, None) => return Ok(Arc::new(texts.clone())),
        },
    };
    let mut out = StringBuilder::with_capacity(texts.len(), texts.value_data().len());
    each(texts, |text| {
        match text {
            None => out.append_null(),
            Some(text) => match convert(text)? {
                Some(converted) => out.append_value(converted),
                None => out.append_value(text),
            },
        }
        Ok(())
    })?;
    Ok(Arc::new(out.finish()))
}

/// A text in a column of limited length. Spaces that do not fit are cut off, other characters are an error, and
/// char(n) is held without trailing spaces. `None`: it is held as it is.
fn fitted(text: &str, type_name: &str, limit: usize) -> SqlResult<Option<String>> {
    let text = if type_name == "character" {
        text.trim_end_matches(' ')
    } else {
        text
    };
    let Some((end, _)) = text.char_indices().nth(limit) else {
        return Ok(Some(text.to_string()));
    };
    if text[end..].chars().all(|character| character == ' ') {
        return Ok(Some(text[..end].to_string()));
    }
    Err(SqlError::new(
        SqlState::StringDataRightTruncation,
        format!("value too long for type {type_name}({limit})"),
    ))
}

/// Checks that values that did not come as text fit the length of their column.
///
/// # Errors
/// The first value that is too long.
pub fn check_lengths(field: &Field, values: &StringArray) -> Result<ArrayRef, CellError> {
    text_column(field, values)
}

/// A boolean: any prefix of true, false, yes, no, on, off that is not ambiguous, and 1 and 0.
pub fn boolean(text: &str) -> Option<bool> {
    let text = text.trim();
    if text.is_empty() {
        return None;
    }
    let lower = text.to_ascii_lowercase();
    match lower.as_str() {
        "1" | "on" => Some(true),
        "0" | "of" | "off" => Some(false),
        word if "true".starts_with(word) || "yes".starts_with(word) => Some(true),
        word if "false".starts_with(word) || "no".starts_with(word) => Some(false),
        _ => None,
    }
}

/// A uuid in any of the spellings that PostgreSQL reads, in its normal form.
///
/// # Errors
/// The text is not a uuid.
pub fn uuid(text: &str) -> SqlResult<String> {
    let bare = text.trim();
    let bare = bare
        .strip_prefix('{')
        .and_then(|rest| rest.strip_suffix('}'))
        .unwrap_or(bare);
    let mut digits = String::with_capacity(36);
    let mut count = 0_usize;
    for (index, character) in bare.char_indices() {
        match character {
            '0'..='9' | 'a'..='f' | 'A'..='F' => {
                if matches!(count, 8 | 12 | 16 | 20) {
                    digits.push('-');
                }
                digits.push(character.to_ascii_lowercase());
                count += 1;
            }
            '-' if index > 0 && count > 0 && count.is_multiple_of(4) && !bare[..index].ends_with('-') => {}
            _ => return Err(invalid("uuid", text)),
        }
    }
    if count == 32 && !bare.ends_with('-') {
        Ok(digits)
    } else {
        Err(invalid("uuid", text))
    }
}

/// A JSON text in normal form.
///
/// # Errors
/// The text is not JSON.
pub fn json_normalized(text: &str, type_name: &str) -> SqlResult<String> {
    json::normalize(text).map_err(|error| error.of(type_name, text))
}

/// Bytes: `\x` and hexadecimal digits, or text with `\\` and octal escapes.
///
/// # Errors
/// A digit or an escape is wrong.
pub fn bytea(text: &str) -> SqlResult<Vec<u8>> {
    let hex_digit = |byte: u8| {
        char::from(byte)
            .to_digit(16)
            .and_then(|digit| u8::try_from(digit).ok())
    };
    if let Some(hex) = text.strip_prefix("\\x") {
        let digits: Vec<u8> = hex.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
        if !digits.len().is_multiple_of(2) {
            return Err(SqlError::new(
                SqlState::InvalidParameterValue,
                "invalid hexadecimal data: odd number of digits",
            ));
        }
        return digits
            .chunks_exact(2)
            .map(|pair| match (hex_digit(pair[0]), hex_digit(pair[1])) {
                (Some(high), Some(low)) => Ok(high << 4 | low),
                (None, _) => Err(bad_hex(pair[0])),
                (_, None) => Err(bad_hex(pair[1])),
            })
            .collect();
    }
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        match bytes.next() {
            Some(b'\\') => out.push(b'\\'),
            Some(first @ b'0'..=b'3') => {
                let (Some(second @ b'0'..=b'7'), Some(third @ b'0'..=b'7')) = (bytes.next(), bytes.next())
                else {
                    return Err(invalid("bytea", text));
                };
                out.push((first - b'0') << 6 | (second - b'0') << 3 | (third - b'0'));
            }
            _ => return Err(invalid("bytea", text)),
        }
    }
    Ok(out)
}

fn bad_hex(digit: u8) -> SqlError {
    SqlError::new(
        SqlState::InvalidParameterValue,
        format!("invalid hexadecimal digit: \"{}\"", char::from(digit)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::SqlType;

    #[test]
    fn booleans_are_what_postgresql_takes() {
        for text in ["t", "tr", "true", "TRUE", "y", "yes", "on", "1", " true "] {
            assert_eq!(boolean(text), Some(true), "{text}");
        }
        for text in ["f", "false", "n", "no", "of", "off", "0"] {
            assert_eq!(boolean(text), Some(false), "{text}");
        }
        for text in ["", "o", "2", "truee", "ja"] {
            assert_eq!(boolean(text), None, "{text}");
        }
    }

    #[test]
    fn uuids_have_one_form() {
        let normal = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11";
        for text in [
            normal,
            "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11",
            "{a0eebc99-9c0b4ef8-bb6d6bb9-bd380a11}",
            "a0eebc999c0b4ef8bb6d6bb9bd380a11",
        ] {
            assert_eq!(uuid(text).unwrap(), normal, "{text}");
        }
        for text in [
            "",
            "a0eebc99",
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a1g",
            "-a0eebc999c0b4ef8bb6d6bb9bd380a11",
        ] {
            assert_eq!(
                uuid(text).unwrap_err().code,
                SqlState::InvalidTextRepresentation,
                "{text}"
            );
        }
    }

    #[test]
    fn bytes_are_read_in_both_forms() {
        assert_eq!(bytea("\\xDEadbe ef").unwrap(), [0xde, 0xad, 0xbe, 0xef]);
        assert_eq!(bytea("a\\\\b\\001").unwrap(), [b'a', b'\\', b'b', 1]);
        for (text, code) in [
            ("\\x123", SqlState::InvalidParameterValue),
            ("\\xzz", SqlState::InvalidParameterValue),
            ("\\9", SqlState::InvalidTextRepresentation),
            ("\\12", SqlState::InvalidTextRepresentation),
        ] {
            assert_eq!(bytea(text).unwrap_err().code, code, "{text}");
        }
    }

    #[test]
    fn the_first_bad_row_is_named() {
        let field = Field::new("v", DataType::Int32, true);
        let texts = StringArray::from(vec![Some("1"), None, Some("abc"), Some("x")]);
        let error = column(&field, &texts).unwrap_err();
        assert_eq!(error.row, 2);
        assert_eq!(
            error.error.message,
            "invalid input syntax for type integer: \"abc\""
        );
    }

    #[test]
    fn lengths_are_enforced_and_spaces_forgiven() {
        let field = SqlType::annotated(DataType::Utf8, "varchar(3)").field("v", true);
        assert!(value(&field, Some("abc  ")).is_ok());
        assert_eq!(
            value(&field, Some("abcd")).unwrap_err().code,
            SqlState::StringDataRightTruncation
        );
        assert!(value(&field, Some("äöü")).is_ok());
    }
}
