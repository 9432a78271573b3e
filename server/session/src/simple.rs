//! The statements of a simple query: one at a time, in one transaction.

use std::collections::VecDeque;
use std::sync::Arc;

use millrace_parser::Parsed;
use millrace_postgres::error::SqlResult;
use millrace_schedule::cpu::QueryClass;

use crate::outcome::Outcome;
use crate::session::Session;
use crate::statement;
use crate::transaction::{Active, Transaction};

/// A simple query under way. Rows of one outcome are to be read to their end, and a COPY finished, before the next is
/// asked for. Dropping it takes back what its implicit transaction has not committed.
pub struct SimpleQuery {
    session: Arc<Session>,
    statements: VecDeque<Parsed>,
    /// Several statements without BEGIN are one transaction.
    several: bool,
    /// Whether anything was answered: a query of nothing answers with nothing, once.
    answered: bool,
    done: bool,
}

impl SimpleQuery {
    pub fn new(session: Arc<Session>, statements: Vec<Parsed>) -> Self {
        let several = statements.len() > 1;
        SimpleQuery {
            session,
            statements: statements.into(),
            several,
            answered: false,
            done: false,
        }
    }

    /// Executes the next statement. `None`: all are done. After an error there is nothing more.
    pub async fn next(&mut self) -> Option<SqlResult<Outcome>> {
        if self.done {
            return None;
        }
        let Some(parsed) = self.statements.pop_front() else {
            self.done = true;
            if !self.answered {
                return Some(Ok(Outcome::Empty));
            }
            return match self.commit().await {
                Ok(()) => None,
                Err(error) => Some(Err(error)),
            };
        };
        self.answered = true;
        // The rows of the statement before have been read by now: did they fail?
        if self.implicit_failed() {
            self.end();
            return None;
        }
        self.begin(&parsed);
        let mut outcome = self.session.execute_parsed(&Arc::new(parsed), &[], vec![]).await;
        // What is said to be done is committed first, when nothing follows.
        if self.statements.is_empty()
            && matches!(outcome, Ok(Outcome::Done { .. }))
            && let Err(error) = self.commit().await
        {
            outcome = Err(error);
        }
        if outcome.is_err() {
            self.end();
        }
        Some(outcome)
    }

    fn begin(&self, parsed: &Parsed) {
        let mut transaction = self.session.transaction.lock();
        if self.several
            && matches!(*transaction, Transaction::Idle)
            && !statement::begins_transaction(&parsed.statement)
        {
            *transaction = Transaction::Active(Box::new(Active::new(
                true,
                self.session.setting("default_transaction_read_only").as_deref() == Some("on"),
            )));
        }
    }

    fn implicit_failed(&self) -> bool {
        matches!(
            *self.session.transaction.lock(),
            Transaction::Failed { implicit: true, .. }
        )
    }

    async fn commit(&mut self) -> SqlResult<()> {
        let implicit = match &*self.session.transaction.lock() {
            Transaction::Active(active) => active.implicit,
            _ => false,
        };
        if !implicit {
            return Ok(());
        }
        let running = self.session.begin_statement();
        let session = Arc::clone(&self.session);
        self.session
            .run_statement(&running, QueryClass::Interactive, async move {
                session.commit().await
            })
            .await
    }

    /// Nothing more is executed; an implicit transaction is taken back.
    fn end(&mut self) {
        self.done = true;
        self.statements.clear();
        let mut transaction = self.session.transaction.lock();
        let implicit = match &*transaction {
            Transaction::Active(active) => active.implicit,
            Transaction::Failed { implicit, .. } => *implicit,
            Transaction::Idle => false,
        };
        if implicit {
            let settings = transaction.fail();
            *transaction = Transaction::Idle;
            drop(transaction);
            if let Some(settings) = settings {
                self.session.put_settings(settings);
            }
        }
    }
}

impl Drop for SimpleQuery {
    fn drop(&mut self) {
        self.end();
    }
}
