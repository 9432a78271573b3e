//! The statements of a simple query: one at a time, in one transaction.

use std::collections::VecDeque;
use std::sync::Arc;

use millrace_parser::Parsed;
use millrace_postgres::error::SqlResult;
use millrace_resource::memory::Charge;

use crate::outcome::Outcome;
use crate::session::Session;

/// A simple query under way. Rows of one outcome are to be read to their end, and a COPY finished, before the next is
/// asked for. Dropping it takes back what its implicit transaction has not committed.
pub struct SimpleQuery {
    session: Arc<Session>,
    statements: VecDeque<Parsed>,
    /// What is answered already.
    first: Option<Outcome>,
    /// Several statements without BEGIN are one transaction.
    several: bool,
    /// Whether anything was answered: a query of nothing answers with nothing, once.
    answered: bool,
    done: bool,
    /// For the statements.
    _charge: Option<Charge>,
}

impl SimpleQuery {
    pub fn new(session: Arc<Session>, statements: Vec<Parsed>, charge: Charge) -> Self {
        let several = statements.len() > 1;
        SimpleQuery {
            session,
            statements: statements.into(),
            first: None,
            several,
            answered: false,
            done: false,
            _charge: Some(charge),
        }
    }

    /// One that is answered already.
    pub fn answered(session: Arc<Session>, outcome: Outcome) -> Self {
        SimpleQuery {
            session,
            statements: VecDeque::new(),
            first: Some(outcome),
            several: false,
            answered: true,
            done: false,
            _charge: None,
        }
    }

    /// Executes the next statement. `None`: all are done. After an error there is nothing more.
    pub async fn next(&mut self) -> Option<SqlResult<Outcome>> {
        if self.done {
            return None;
        }
        if let Some(first) = self.first.take() {
            return Some(Ok(first));
        }
        let Some(parsed) = self.statements.pop_front() else {
            self.done = true;
            if !self.answered {
                return Some(Ok(Outcome::Empty));
            }
            return match self.session.end_implicit().await {
                Ok(()) => None,
                Err(error) => Some(Err(error)),
            };
        };
        self.answered = true;
        // The rows of the statement before have been read by now: did they fail?
        if self.session.implicit_failed() {
            self.end();
            return None;
        }
        if self.several {
            self.session.begin_implicit_for(&parsed.statement);
        }
        let mut outcome = self.session.execute_parsed(&Arc::new(parsed), &[], vec![]).await;
        // What is said to be done is committed first, when nothing follows.
        if self.statements.is_empty()
            && matches!(outcome, Ok(Outcome::Done { .. }))
            && let Err(error) = self.session.end_implicit().await
        {
            outcome = Err(error);
        }
        if outcome.is_err() {
            self.end();
        }
        Some(outcome)
    }

    /// Nothing more is executed; an implicit transaction is taken back.
    fn end(&mut self) {
        self.done = true;
        self.statements.clear();
        self.session.take_back_implicit();
    }
}

impl Drop for SimpleQuery {
    fn drop(&mut self) {
        self.end();
    }
}
