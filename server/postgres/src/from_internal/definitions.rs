//! What the parser refuses that is well-formed SQL, by its words: the SQLSTATE is not that of syntax.

use crate::error::SqlState;

/// What is well-formed SQL, but defines something that cannot be.
pub(super) fn invalid_definition(message: &str) -> Option<SqlState> {
    if message.starts_with("there is no parameter ") {
        return Some(SqlState::UndefinedParameter);
    }
    if message == "no language specified" {
        return Some(SqlState::InvalidFunctionDefinition);
    }
    if message.starts_with("window functions are not allowed in ") {
        return Some(SqlState::WindowingError);
    }
    if message == "invalid Unicode escape" {
        return Some(SqlState::InvalidEscapeSequence);
    }
    if message.starts_with("COPY format ") {
        return Some(SqlState::InvalidParameterValue);
    }
    if !message.starts_with("column \"") && !message.starts_with("more than one primary key") {
        return None;
    }
    [
        ("specified more than once", SqlState::DuplicateColumn),
        ("does not exist", SqlState::UndefinedColumn),
        (
            "more than one primary key is defined",
            SqlState::InvalidTableDefinition,
        ),
    ]
    .into_iter()
    .find(|(end, _)| message.ends_with(end))
    .map(|(_, code)| code)
}
