//! What is told of a statement that has ended: it is counted, a line of the log (target `millrace::slow`) if it took long, and a span.

use std::sync::Arc;
use std::time::Duration;

use millrace_session::Session;

use crate::metrics::{Metrics, StatementKind};
use crate::traces::Traces;

/// Who is told.
#[derive(Clone)]
pub struct Told {
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// Where spans go, if they go somewhere.
    pub traces: Option<Arc<Traces>>,
}

impl Told {
    /// Tells of a statement of a session, which is the last that it executed.
    pub(crate) fn ended(&self, session: &Session, kind: StatementKind, succeeded: bool, duration: Duration) {
        self.metrics.statement(kind, succeeded, duration);
        log_slow(session, succeeded, duration);
        if let Some(traces) = &self.traces {
            traces.statement(session, succeeded, duration);
        }
    }
}

/// Writes it down if it ran for as long as `log_min_duration_statement` says.
fn log_slow(session: &Session, succeeded: bool, duration: Duration) {
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
