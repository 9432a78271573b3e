//! Statements that took long, as lines of the log with the target `millrace::slow`.

use std::time::Duration;

use millrace_session::Session;

/// Writes down a statement that has ended, if it ran for as long as `log_min_duration_statement` says.
pub(crate) fn log(session: &Session, succeeded: bool, duration: Duration) {
    let limit = session.database().tuning().log_min_duration_statement;
    if limit.is_none_or(|limit| duration < limit) {
        return;
    }
    let info = session.info();
    tracing::info!(
        target: "millrace::slow",
        duration_ms = duration.as_secs_f64() * 1000.0,
        succeeded,
        user = info.user,
        database = info.database,
        peer = info.peer,
        session = session.id(),
        statement = session.statement_shown(),
        "a statement took long"
    );
}
