//! What DataFusion's planner says of windows, in PostgreSQL's words.

use crate::error::{SqlError, SqlState};

/// An error about windows and their frames; none: it is about something else.
pub(super) fn of_window(text: &str) -> Option<SqlError> {
    let windowing = |message: &str| Some(SqlError::new(SqlState::WindowingError, message));
    if let Some(name) = text
        .strip_prefix("The window ")
        .and_then(|rest| rest.strip_suffix(" is not defined!"))
    {
        let message = format!("window \"{name}\" does not exist");
        return Some(SqlError::new(SqlState::UndefinedObject, message));
    }
    if text.starts_with("Window function calls cannot be nested") {
        return windowing("window function calls cannot be nested");
    }
    let frame = text.strip_prefix("Invalid window frame: ")?;
    if frame.starts_with("frame offsets for ROWS") {
        return Some(SqlError::new(
            SqlState::InvalidPrecedingOrFollowingSize,
            "frame offsets of ROWS and GROUPS must be integers that are not negative",
        ));
    }
    if frame.starts_with("start bound cannot be UNBOUNDED FOLLOWING") {
        return windowing("frame start cannot be UNBOUNDED FOLLOWING");
    }
    if frame.starts_with("end bound cannot be UNBOUNDED PRECEDING") {
        return windowing("frame end cannot be UNBOUNDED PRECEDING");
    }
    let bounds = frame.strip_prefix("start bound (")?;
    let (start, end) = bounds.split_once(") cannot be larger than end bound (")?;
    let end = end.trim_end_matches(')');
    if start == "CURRENT ROW" && end.ends_with("PRECEDING") {
        return windowing("frame starting from current row cannot have preceding rows");
    }
    if start.ends_with("FOLLOWING") && !end.ends_with("FOLLOWING") {
        return windowing("frame starting from following row cannot have preceding rows");
    }
    Some(SqlError::unsupported(format!(
        "a frame from {start} to {end}, which has no rows, is not supported"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_that_cannot_be() {
        for (text, code) in [
            ("The window w is not defined!", SqlState::UndefinedObject),
            (
                "Invalid window frame: start bound cannot be UNBOUNDED FOLLOWING",
                SqlState::WindowingError,
            ),
            (
                "Invalid window frame: start bound (CURRENT ROW) cannot be larger than end bound (1 PRECEDING)",
                SqlState::WindowingError,
            ),
            (
                "Invalid window frame: start bound (1 PRECEDING) cannot be larger than end bound (2 PRECEDING)",
                SqlState::FeatureNotSupported,
            ),
        ] {
            assert_eq!(of_window(text).map(|error| error.code), Some(code), "{text}");
        }
        assert!(of_window("something else").is_none());
    }
}
