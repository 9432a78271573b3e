//! The transaction of several statements without BEGIN: those of one simple query, and those of one pipeline, up to its Sync.

use std::sync::Arc;

use millrace_parser::ast::Statement;
use millrace_postgres::error::SqlResult;
use millrace_schedule::cpu::QueryClass;

use crate::prepared::Prepared;
use crate::session::Session;
use crate::statement;
use crate::transaction::{Active, Transaction};
use crate::withheld::withheld;

impl Session {
    /// Begins an implicit transaction for a prepared statement that others may follow, unless one is open or the statement begins one
    /// itself. COPY is one by itself: its client waits before it sends anything else.
    pub fn begin_implicit(&self, prepared: &Prepared) {
        if let Some(parsed) = &prepared.parsed
            && !matches!(parsed.statement, Statement::Copy(_))
        {
            self.begin_implicit_for(&parsed.statement);
        }
    }

    pub(crate) fn begin_implicit_for(&self, statement: &Statement) {
        let mut transaction = self.transaction.lock();
        if matches!(*transaction, Transaction::Idle) && !statement::begins_transaction(statement) {
            *transaction = Transaction::Active(Box::new(Active::new(
                true,
                self.setting("default_transaction_read_only").as_deref() == Some("on"),
            )));
        }
    }

    /// Commits an implicit transaction, or takes it back if it has failed. Nothing happens to any other.
    ///
    /// # Errors
    /// The write failed; nothing of it was kept.
    pub async fn end_implicit(self: &Arc<Self>) -> SqlResult<()> {
        let is_open = matches!(&*self.transaction.lock(), Transaction::Active(active) if active.implicit);
        if !is_open {
            self.take_back_implicit();
            return Ok(());
        }
        let (running, session) = (self.begin_statement(), Arc::clone(self));
        let commit = async move {
            let committed = session.commit().await;
            committed.map_err(|error| withheld(&session, error))
        };
        let committed = self
            .run_statement(&running, QueryClass::Interactive, commit)
            .await;
        if committed.is_err() {
            self.take_back_implicit();
        }
        committed
    }

    /// Whether an implicit transaction has failed.
    pub(crate) fn implicit_failed(&self) -> bool {
        matches!(
            *self.transaction.lock(),
            Transaction::Failed { implicit: true, .. }
        )
    }

    /// Takes an implicit transaction back.
    pub fn take_back_implicit(&self) {
        let mut transaction = self.transaction.lock();
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
                self.put_settings(settings);
            }
        }
    }
}
