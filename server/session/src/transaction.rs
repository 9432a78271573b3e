//! Transactions: what DML has changed and not yet committed.
//!
//! * DML is evaluated when its statement runs, and its changes wait in the session. COMMIT hands all of them to the
//!   runtime as one atomic append: they become visible as one epoch, or not at all.
//! * The tables that a transaction changes stay locked from the first change until its end. Reading takes no locks. A
//!   transaction that changes a further table may fail with 40001 when another session was waiting to write.
//! * Inside, tables show the transaction's own changes; streams and views show them after COMMIT.
//! * A statement that fails makes the transaction fail: its changes and locks go at once, and only its end is accepted. Where there is
//!   a savepoint they are kept for ROLLBACK TO.
//! * A savepoint knows how much the transaction had changed by then ([`OwnChanges`]). Locks are kept over ROLLBACK TO.
//! * Several statements in one simple query are one transaction, unless they say BEGIN themselves.
//! * What DDL defines is a catalog of the transaction's own until COMMIT ([`Definitions`]). Some commands do more than to define
//!   something (`CREATE SINK`, `CREATE DATABASE`): inside BEGIN they are refused (25001); inside the implicit transaction of a simple
//!   query they first commit what came before them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use millrace_catalog::settings::Settings;
use millrace_database::database::definitions::{Definitions, Draft};
use millrace_database::sessions::TransactionStatus;
use millrace_database::sessions::advisory::TransactionLock;
use millrace_database::sessions::news::Message;
use millrace_engine::TableLocks;
use millrace_planner::RelationId;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_storage::ChangeBatch;

use crate::own_changes::{Net, OwnChanges};

/// The state of a session's transaction.
#[derive(Default)]
pub enum Transaction {
    /// There is none: each statement commits by itself.
    #[default]
    Idle,
    /// One is open.
    Active(Box<Active>),
    /// One is open and has failed.
    Failed {
        /// Whether it is that of a simple query.
        implicit: bool,
        /// What it had done, if there is a savepoint to go back to.
        kept: Option<Box<Active>>,
    },
}

/// A point in a transaction to which ROLLBACK TO goes back.
pub struct Savepoint {
    /// Its name. There may be several of one name: the newest is meant.
    pub name: String,
    read_only: bool,
    /// How many changes there were, by relation.
    changes: BTreeMap<RelationId, usize>,
    draft: Option<Draft>,
    settings_before: Option<Settings>,
    settings_after: Option<Settings>,
    /// The settings as they were.
    settings: Settings,
    /// The cursors that there were.
    pub cursors: BTreeSet<String>,
    /// How many advisory locks there were.
    advisory: usize,
    told: Told,
}

/// An open transaction.
pub struct Active {
    /// Whether it is that of a simple query.
    pub implicit: bool,
    /// Whether it was begun READ ONLY.
    pub read_only: bool,
    /// Whether a statement has read or changed anything.
    pub has_read: bool,
    /// What was changed, by relation.
    pub changes: BTreeMap<RelationId, OwnChanges>,
    /// The right to change the tables in `locked`.
    pub locks: Option<TableLocks>,
    /// The tables that are locked.
    pub locked: BTreeSet<RelationId>,
    /// The settings from before the first SET: they come back if it fails or is rolled back.
    pub settings_before: Option<Settings>,
    /// What SET without LOCAL made of them, once there was a SET LOCAL: they are the session's after COMMIT.
    pub settings_after: Option<Settings>,
    /// What it has defined, from its first statement that defines something.
    pub definitions: Option<Arc<Definitions>>,
    /// The savepoints, the oldest first.
    pub savepoints: Vec<Savepoint>,
    /// The advisory locks that are given back at its end.
    pub advisory: Vec<TransactionLock>,
    /// What it tells when it is committed.
    pub told: Told,
}

/// What a transaction tells to sessions that listen.
#[derive(Debug, Clone, Default)]
pub struct Told {
    /// To others.
    pub messages: Vec<Message>,
    /// What the session itself listens to.
    pub listening: Vec<Listening>,
}

/// What LISTEN and UNLISTEN change.
#[derive(Debug, Clone)]
pub enum Listening {
    /// It listens on the channel.
    On(String),
    /// It no longer listens on the channel, or on none.
    Off(Option<String>),
}

impl Active {
    /// Whether the transaction has made this table.
    pub fn is_new_table(&self, id: RelationId) -> bool {
        let definitions = self.definitions.as_ref();
        definitions.is_some_and(|definitions| definitions.is_new_table(id))
    }

    /// What it has changed in a relation.
    ///
    /// # Errors
    /// As [`OwnChanges::net`].
    pub fn net(&mut self, id: RelationId) -> SqlResult<Arc<Net>> {
        match self.changes.get_mut(&id) {
            Some(changes) => changes.net(),
            None => Ok(Arc::default()),
        }
    }

    /// Sets a savepoint.
    pub fn save(&mut self, name: String, settings: Settings, cursors: BTreeSet<String>) {
        self.savepoints.push(Savepoint {
            name,
            read_only: self.read_only,
            changes: (self.changes.iter())
                .map(|(relation, changes)| (*relation, changes.len()))
                .collect(),
            draft: self.definitions.as_ref().map(|definitions| definitions.mark()),
            settings_before: self.settings_before.clone(),
            settings_after: self.settings_after.clone(),
            settings,
            cursors,
            advisory: self.advisory.len(),
            told: self.told.clone(),
        });
    }

    /// Goes back to the savepoint at this place, which stays. Returns the settings to put back, and the cursors that there were.
    pub fn back_to(&mut self, place: usize) -> Option<(Settings, BTreeSet<String>)> {
        self.savepoints.truncate(place + 1);
        let savepoint = self.savepoints.last()?;
        self.read_only = savepoint.read_only;
        self.changes.retain(|relation, changes| {
            let length = savepoint.changes.get(relation).copied().unwrap_or(0);
            changes.back_to(length);
            length > 0
        });
        self.settings_before.clone_from(&savepoint.settings_before);
        self.settings_after.clone_from(&savepoint.settings_after);
        self.advisory.truncate(savepoint.advisory);
        self.told.clone_from(&savepoint.told);
        match (&self.definitions, &savepoint.draft) {
            (Some(definitions), Some(draft)) => definitions.back_to(draft),
            _ => self.definitions = None,
        }
        Some((savepoint.settings.clone(), savepoint.cursors.clone()))
    }

    /// A transaction that has done nothing.
    pub fn new(implicit: bool, read_only: bool) -> Self {
        Active {
            implicit,
            read_only,
            has_read: false,
            changes: BTreeMap::new(),
            locks: None,
            locked: BTreeSet::new(),
            settings_before: None,
            settings_after: None,
            definitions: None,
            savepoints: vec![],
            advisory: vec![],
            told: Told::default(),
        }
    }

    /// Takes the changes as one write.
    ///
    /// # Errors
    /// As [`OwnChanges::net`].
    pub fn take_changes(&mut self) -> SqlResult<Vec<(RelationId, ChangeBatch)>> {
        let mut all = vec![];
        for (relation, changes) in std::mem::take(&mut self.changes) {
            all.extend(changes.into_batches()?.into_iter().map(|batch| (relation, batch)));
        }
        Ok(all)
    }
}

impl Transaction {
    /// As the wire shows it. The transaction of a simple query does not show.
    pub fn status(&self) -> TransactionStatus {
        match self {
            Transaction::Idle => TransactionStatus::Idle,
            Transaction::Active(active) if active.implicit => TransactionStatus::Idle,
            Transaction::Active(_) => TransactionStatus::Active,
            Transaction::Failed { implicit: true, .. } => TransactionStatus::Idle,
            Transaction::Failed { implicit: false, .. } => TransactionStatus::Failed,
        }
    }

    /// The open transaction.
    pub fn active(&mut self) -> Option<&mut Active> {
        match self {
            Transaction::Active(active) => Some(active),
            _ => None,
        }
    }

    /// What is done or may be gone back to, also where it has failed.
    pub fn known(&mut self) -> Option<&mut Active> {
        match self {
            Transaction::Active(active)
            | Transaction::Failed {
                kept: Some(active), ..
            } => Some(active),
            _ => None,
        }
    }

    /// Marks it as failed; what it held is let go, unless there is a savepoint. Returns the settings to put back.
    pub fn fail(&mut self) -> Option<Settings> {
        match std::mem::take(self) {
            Transaction::Active(active) => {
                let settings = active.settings_before.clone();
                *self = Transaction::Failed {
                    implicit: active.implicit,
                    kept: Some(active).filter(|active| !active.savepoints.is_empty()),
                };
                settings
            }
            other => {
                *self = other;
                None
            }
        }
    }
}

/// What every statement but the end of the transaction gets after a failure.
pub fn failed() -> SqlError {
    SqlError::new(
        SqlState::InFailedSqlTransaction,
        "current transaction is aborted, commands ignored until end of transaction block",
    )
}

/// A statement that changes something, where nothing may be changed.
pub(crate) fn read_only(command: &str) -> SqlError {
    SqlError::new(
        SqlState::ReadOnlySqlTransaction,
        format!("cannot execute {command} in a read-only transaction"),
    )
}

/// DDL inside BEGIN.
pub fn ddl_in_transaction(command: &str) -> SqlError {
    SqlError::new(
        SqlState::ActiveSqlTransaction,
        format!("{command} cannot run inside a transaction block"),
    )
    .with_hint("What it does cannot be rolled back: run it before BEGIN or after COMMIT.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_kept_until_the_end() {
        let mut transaction = Transaction::Active(Box::new(Active::new(false, false)));
        assert_eq!(transaction.status(), TransactionStatus::Active);
        transaction.fail();
        assert_eq!(transaction.status(), TransactionStatus::Failed);
        transaction.fail();
        assert_eq!(transaction.status(), TransactionStatus::Failed);
    }

    #[test]
    fn the_transaction_of_a_simple_query_does_not_show() {
        let mut transaction = Transaction::Active(Box::new(Active::new(true, false)));
        assert_eq!(transaction.status(), TransactionStatus::Idle);
        transaction.fail();
        assert_eq!(transaction.status(), TransactionStatus::Idle);
    }
}
