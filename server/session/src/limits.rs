//! How much a session keeps for its client between two statements.

use millrace_postgres::error::{SqlError, SqlResult, SqlState};

/// Prepared statements, cursors and portals: so many of each.
pub const SESSION_OBJECTS_MAX: usize = 1_024;

/// Refuses one more of `what` where there are so many.
///
/// # Errors
/// There are [`SESSION_OBJECTS_MAX`].
pub fn check_limit(kept: usize, what: &str) -> SqlResult<()> {
    if kept < SESSION_OBJECTS_MAX {
        return Ok(());
    }
    Err(SqlError::new(
        SqlState::ProgramLimitExceeded,
        format!("a session can have at most {SESSION_OBJECTS_MAX} {what}"),
    )
    .with_hint("Close the ones that are no longer needed."))
}
