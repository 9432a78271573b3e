//! What stands in parentheses behind a type: the precision and scale of numerics, the length of texts.

use arrow::datatypes::{DataType, Field};
use datafusion::sql::sqlparser::ast::{self, ExactNumberInfo};

use super::{ANNOTATION, NUMERIC_PRECISION, NUMERIC_SCALE, SqlType};
use crate::error::{SqlError, SqlResult, SqlState};

/// `numeric`, with its precision and scale.
///
/// # Errors
/// They are out of range (22023).
pub(super) fn numeric(info: &ExactNumberInfo) -> SqlResult<SqlType> {
    let (precision, scale) = match info {
        ExactNumberInfo::None => {
            let data_type = DataType::Decimal128(NUMERIC_PRECISION, NUMERIC_SCALE);
            return Ok(SqlType::annotated(data_type, "numeric"));
        }
        ExactNumberInfo::Precision(precision) => (*precision, 0),
        ExactNumberInfo::PrecisionAndScale(precision, scale) => (*precision, *scale),
    };
    let widest = u64::from(NUMERIC_PRECISION);
    if precision == 0 || precision > widest {
        return Err(SqlError::new(
            SqlState::InvalidParameterValue,
            format!("NUMERIC precision {precision} must be between 1 and {widest}"),
        ));
    }
    if scale < 0 || scale > i64::try_from(precision).unwrap_or(i64::MAX) {
        return Err(SqlError::new(
            SqlState::InvalidParameterValue,
            format!("NUMERIC scale {scale} must be between 0 and precision {precision}"),
        ));
    }
    let precision = u8::try_from(precision).expect("checked to be at most 38");
    let scale = i8::try_from(scale).expect("checked to be at most 38");
    Ok(SqlType::plain(DataType::Decimal128(precision, scale)))
}

/// The length of a character type; `None`: any.
///
/// # Errors
/// It is 0 (22023).
pub(super) fn of_characters(length: Option<&ast::CharacterLength>) -> SqlResult<Option<u64>> {
    match length {
        None | Some(ast::CharacterLength::Max) => Ok(None),
        Some(ast::CharacterLength::IntegerLength { length: 0, .. }) => Err(SqlError::new(
            SqlState::InvalidParameterValue,
            "length of a character type must be at least 1",
        )),
        Some(ast::CharacterLength::IntegerLength { length, .. }) => Ok(Some(*length)),
    }
}

/// How long a value of the column may be, in characters.
pub fn length_limit(field: &Field) -> Option<(&'static str, usize)> {
    let annotation = field.metadata().get(ANNOTATION)?;
    let (name, rest) = if let Some(rest) = annotation.strip_prefix("varchar(") {
        ("character varying", rest)
    } else {
        ("character", annotation.strip_prefix("char(")?)
    };
    rest.strip_suffix(')')?.parse().ok().map(|length| (name, length))
}
