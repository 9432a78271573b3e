//! The values of a Bind message: text or binary, to the types that the statement's parameters have.

use bytes::Bytes;
use datafusion::common::ScalarValue;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::types::parameter;
use postgres_types::Type;

use super::message::Format;

/// The formats that a Bind message gives for `count` values: none means text, one counts for all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Formats(Vec<Format>);

impl Formats {
    /// Reads the format codes for values that the error message calls `what`.
    pub(super) fn new(codes: &[i16], count: usize, what: &str) -> SqlResult<Self> {
        if codes.len() > 1 && codes.len() != count {
            let message = format!(
                "bind message has {} {what} formats but {count} {what}s",
                codes.len()
            );
            return Err(SqlError::new(SqlState::ProtocolViolation, message));
        }
        let format = |code: &i16| match code {
            0 => Ok(Format::Text),
            1 => Ok(Format::Binary),
            code => Err(SqlError::new(
                SqlState::InvalidParameterValue,
                format!("unsupported format code: {code}"),
            )),
        };
        Ok(Formats(codes.iter().map(format).collect::<SqlResult<_>>()?))
    }

    /// The format of a value.
    pub(super) fn of(&self, index: usize) -> Format {
        match self.0.as_slice() {
            [] => Format::Text,
            [all] => *all,
            each => each[index],
        }
    }
}

/// Decodes the values of a Bind message.
pub(super) fn decode(
    values: &[Option<Bytes>],
    codes: &[i16],
    param_types: &[Type],
    statement_name: &str,
) -> SqlResult<Vec<ScalarValue>> {
    if values.len() != param_types.len() {
        return Err(SqlError::new(
            SqlState::ProtocolViolation,
            format!(
                "bind message supplies {} parameters, but prepared statement \"{statement_name}\" requires {}",
                values.len(),
                param_types.len()
            ),
        ));
    }
    let formats = Formats::new(codes, values.len(), "parameter")?;
    let decode = |(index, (value, pg_type)): (usize, (&Option<Bytes>, &Type))| {
        let decoded = match (value, formats.of(index)) {
            (None, _) => parameter::from_text(pg_type, None),
            (Some(bytes), Format::Binary) => parameter::from_binary(pg_type, Some(bytes)),
            (Some(bytes), Format::Text) => match std::str::from_utf8(bytes) {
                Ok(text) => parameter::from_text(pg_type, Some(text)),
                Err(_) => Err(SqlError::new(
                    SqlState::CharacterNotInRepertoire,
                    "invalid byte sequence for encoding \"UTF8\"",
                )),
            },
        };
        decoded.map_err(|error| match error.context {
            Some(_) => error,
            None => error.with_context(format!("parameter ${}", index + 1)),
        })
    };
    values.iter().zip(param_types).enumerate().map(decode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_format_counts_for_all() {
        assert_eq!(Formats::new(&[], 3, "parameter").unwrap().of(2), Format::Text);
        assert_eq!(Formats::new(&[1], 3, "parameter").unwrap().of(2), Format::Binary);
        assert_eq!(Formats::new(&[1, 0], 2, "parameter").unwrap().of(1), Format::Text);
        assert_eq!(
            Formats::new(&[1, 0], 3, "parameter").unwrap_err().code,
            SqlState::ProtocolViolation
        );
        assert_eq!(
            Formats::new(&[7], 3, "parameter").unwrap_err().code,
            SqlState::InvalidParameterValue
        );
    }
}
