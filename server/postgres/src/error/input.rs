//! What is said of a text that is no input of its type, in PostgreSQL's words. Whoever reads texts uses it.

use crate::error::{SqlError, SqlState};

/// "invalid input syntax for type ...", as PostgreSQL says it.
pub fn invalid(type_name: &str, text: &str) -> SqlError {
    let code = match type_name {
        "date" | "interval" => SqlState::InvalidDatetimeFormat,
        name if name.starts_with("time") => SqlState::InvalidDatetimeFormat,
        _ => SqlState::InvalidTextRepresentation,
    };
    SqlError::new(
        code,
        format!(
            "invalid input syntax for type {type_name}: \"{}\"",
            shortened(text)
        ),
    )
}

/// "value ... is out of range for type ...".
pub fn out_of_range(type_name: &str, text: &str) -> SqlError {
    SqlError::new(
        SqlState::NumericValueOutOfRange,
        format!(
            "value \"{}\" is out of range for type {type_name}",
            shortened(text)
        ),
    )
}

/// A text that is short enough for a message.
pub fn shortened(text: &str) -> String {
    const LENGTH_MAX: usize = 200;
    if text.chars().count() <= LENGTH_MAX {
        return text.to_string();
    }
    text.chars().take(LENGTH_MAX).chain("...".chars()).collect()
}
