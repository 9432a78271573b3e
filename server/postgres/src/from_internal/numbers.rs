//! Arrow's overflow and invalid-number messages in PostgreSQL's words.

use arrow::datatypes::DECIMAL128_MAX_PRECISION;

use super::plain;
use crate::error::{SqlError, SqlState};

pub(super) fn overflow(message: &str) -> SqlError {
    let lower = message.to_lowercase();
    let type_name = [
        ("int16", "smallint"),
        ("i16", "smallint"),
        ("int32", "integer"),
        ("i32", "integer"),
        ("int64", "bigint"),
        ("i64", "bigint"),
    ]
    .into_iter()
    .find(|(arrow, _)| lower.contains(arrow))
    .map(|(_, sql)| sql);
    let text = match type_name {
        Some(type_name) => format!("{type_name} out of range"),
        // Only numerics have so many digits.
        None if (lower.split(|c: char| !c.is_ascii_digit())).any(|digits| digits.len() > 19) => {
            return numeric_overflow();
        }
        None => "value out of range".to_string(),
    };
    SqlError::new(SqlState::NumericValueOutOfRange, text).with_detail(plain(message))
}

/// A number that has more digits than a numeric can have.
pub(super) fn numeric_overflow() -> SqlError {
    SqlError::new(SqlState::NumericValueOutOfRange, "value overflows numeric format").with_detail(format!(
        "A numeric has at most {} digits.",
        DECIMAL128_MAX_PRECISION
    ))
}

/// `decimal128(38, 10)`, lower case, in which a value has no room.
fn numeric_field_overflow(message: &str) -> Option<SqlError> {
    let rest = message.split("decimal128(").nth(1)?;
    let (precision, rest) = rest.split_once(", ")?;
    let (scale, _) = rest.split_once(')')?;
    let (precision, scale): (i32, i32) = (precision.parse().ok()?, scale.parse().ok()?);
    Some(
        SqlError::new(SqlState::NumericValueOutOfRange, "numeric field overflow").with_detail(format!(
            "A field with precision {precision}, scale {scale} must round to an absolute value less than 10^{}.",
            precision - scale
        )),
    )
}

pub(super) fn cast(message: &str) -> SqlError {
    let text = plain(message);
    let lower = text.to_lowercase();
    // "Cannot cast string 'abc' to value of Int32 type"
    let quoted = text.split('\'').nth(1);
    let to = lower.rsplit(" to ").next().unwrap_or_default();
    let types = [
        ("int16", "smallint"),
        ("int32", "integer"),
        ("int64", "bigint"),
        ("float32", "real"),
        ("float64", "double precision"),
        ("decimal", "numeric"),
        ("boolean", "boolean"),
        ("date", "date"),
        ("timestamp", "timestamp"),
        ("interval", "interval"),
        ("time", "time"),
    ];
    let type_name = types
        .into_iter()
        .find(|(arrow, _)| to.contains(arrow))
        .map(|(_, sql)| sql);
    if lower.contains("overflowing on")
        || lower.contains("overflows for output scale")
        || lower.contains("is too large to store in a decimal")
    {
        return numeric_field_overflow(&lower).unwrap_or_else(numeric_overflow);
    }
    if lower.contains("can't cast value") || lower.contains("cannot be cast") || lower.contains("too large") {
        let type_name = type_name.unwrap_or("the target type");
        return SqlError::new(
            SqlState::NumericValueOutOfRange,
            format!("{type_name} out of range"),
        )
        .with_detail(text);
    }
    match (quoted, type_name) {
        (Some(value), Some(type_name)) => crate::error::input::invalid(type_name, value),
        _ => SqlError::new(SqlState::InvalidTextRepresentation, text),
    }
}
