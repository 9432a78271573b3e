//! From changes to a commit: locks, the buffer of a transaction, and the atomic append.

mod commit;
pub(crate) mod foreign_keys;
mod rows;

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use millrace_catalog::scope::Scope;
use millrace_catalog::temporary::{OnCommit, is_temporary};
use millrace_catalog::{Object, Relation};
use millrace_database::database::ddl::DdlGuard;
use millrace_database::sessions::Locking;
use millrace_engine::{LateRows, Note, RuntimeError, TableLocks, WriteOptions};
use millrace_planner::{RelationId, RelationKind};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::from_internal;
use millrace_resource::error::ResourceError;
use millrace_storage::{ChangeBatch, ObjectId};

use crate::keys::duplicate_key;
use crate::notice::Severity;
use crate::own_changes::Net;
use crate::session::Session;
use crate::transaction::Transaction;

/// The right of one statement to change one relation. Dropping it without [`WriteScope::finish`] changes nothing.
pub struct WriteScope {
    session: Arc<Session>,
    relation: RelationId,
    /// Its columns as the statement knows them.
    schema: SchemaRef,
    /// Whether it is a table, and so locked.
    table: bool,
    locks: Option<TableLocks>,
    /// Whether a transaction is open that takes the changes.
    in_transaction: bool,
    /// What the transaction has changed in this relation before.
    before: Arc<Net>,
    /// Whether the transaction has made the relation: nobody else knows it.
    is_new: bool,
}

impl Session {
    /// Waits for the right to change definitions, as long as `lock_timeout` says.
    ///
    /// # Errors
    /// 55P03.
    pub(crate) async fn ddl(&self) -> SqlResult<DdlGuard<'_>> {
        if !self.transaction_is_open() {
            let guard = self.within_lock_timeout(self.database().ddl()).await?;
            return Ok(guard.held_by(self.running()));
        }
        let definitions = match self.definitions() {
            Some(definitions) => definitions,
            None => {
                let definitions = self.right_to_define().await?;
                match self.transaction.lock().active() {
                    Some(active) => active.definitions = Some(Arc::clone(&definitions)),
                    None => {
                        return Err(SqlError::internal(
                            "the transaction ended while a statement of it ran",
                        ));
                    }
                }
                definitions
            }
        };
        Ok(self.database().ddl_within(definitions).held_by(self.running()))
    }

    /// Locks of tables, waited for as long as `lock_timeout` says.
    ///
    /// # Errors
    /// 55P03; a table was dropped.
    async fn lock_tables(&self, ids: &[RelationId]) -> SqlResult<TableLocks> {
        let locks = self.db.runtime().lock_tables(ids);
        Ok(self.within_lock_timeout(locks).await??)
    }

    /// Locks one table for a statement that does not write rows.
    ///
    /// # Errors
    /// As [`Session::lock_tables`].
    pub(crate) async fn lock_table(&self, id: RelationId) -> SqlResult<TableLocks> {
        *self.locking.lock() = Some(Locking::awaited(id));
        let locks = self.lock_tables(&[id]).await?;
        *self.locking.lock() = Some(Locking::held(id));
        Ok(locks)
    }

    /// Waits for a lock as long as `lock_timeout` says.
    ///
    /// # Errors
    /// 55P03.
    pub(crate) async fn within_lock_timeout<T>(&self, lock: impl Future<Output = T>) -> SqlResult<T> {
        let wait_max = self.settings.lock().lock_timeout();
        match wait_max {
            None => Ok(lock.await),
            Some(wait_max) => tokio::time::timeout(wait_max, lock).await.map_err(|_| {
                SqlError::new(
                    SqlState::LockNotAvailable,
                    "canceling statement due to lock timeout",
                )
            }),
        }
    }

    /// Begins a change of one relation: waits for its lock if it is a table.
    ///
    /// # Errors
    /// The transaction is read-only, or the lock is not to be had.
    pub(crate) async fn begin_write(self: &Arc<Self>, relation: &Relation) -> SqlResult<WriteScope> {
        self.begin_write_beside(relation, &BTreeSet::new()).await
    }

    /// Locks tables until the end of the open transaction, all of them at once.
    ///
    /// # Errors
    /// As [`Session::begin_write`].
    pub(crate) async fn hold_tables(self: &Arc<Self>, relations: &[&Relation]) -> SqlResult<()> {
        let Some((first, others)) = relations.split_first() else {
            return Ok(());
        };
        let tables = others
            .iter()
            .filter(|other| other.info.kind == RelationKind::Table);
        let ids = tables.flat_map(|other| {
            let connected = self.connected(other.info.id);
            connected.into_iter().chain([other.info.id])
        });
        let beside: BTreeSet<RelationId> = ids.collect();
        self.begin_write_beside(first, &beside)
            .await?
            .finish(vec![])
            .await
    }

    /// As [`Session::begin_write`], and locks other tables with it.
    async fn begin_write_beside(
        self: &Arc<Self>,
        relation: &Relation,
        beside: &BTreeSet<RelationId>,
    ) -> SqlResult<WriteScope> {
        let id = relation.info.id;
        let table = relation.info.kind == RelationKind::Table;
        let object = self.catalog().object(ObjectId(id.0)).cloned();
        let is_own = object.is_some_and(|object| is_temporary(&object.schema));
        if self.is_read_only() && !is_own {
            return Err(SqlError::new(
                SqlState::ReadOnlySqlTransaction,
                "cannot change data in a read-only transaction",
            ));
        }
        let definitions = self.definitions();
        let is_new = |id: RelationId| {
            definitions
                .as_ref()
                .is_some_and(|definitions| definitions.is_new(id))
        };
        let connected = self.connected(id);
        for id in connected.iter().chain([&id]) {
            let definitions = definitions.as_ref();
            if definitions.is_some_and(|definitions| definitions.widening(*id).is_some()) {
                return Err(SqlError::unsupported(format!(
                    "\"{}\" cannot be changed in the transaction that added a column to it",
                    relation.info.name
                ))
                .with_hint("Commit the new column first."));
            }
        }
        let wanted = connected.iter().chain(beside).copied().chain(table.then_some(id));
        let wanted: BTreeSet<RelationId> = wanted.collect();
        let mut wanted: Vec<RelationId> = wanted.into_iter().collect();
        wanted.retain(|id| !is_new(*id));
        let mut held: Vec<RelationId> = vec![];
        let (mut locks, in_transaction, before) = {
            let mut transaction = self.transaction.lock();
            match &mut *transaction {
                Transaction::Active(active) => {
                    let before = active.net(id)?;
                    held.extend(active.locked.iter().copied());
                    let locks = if wanted.is_empty() {
                        None
                    } else {
                        active.locks.take()
                    };
                    (locks, true, before)
                }
                _ => (None, false, Arc::default()),
            }
        };
        wanted.retain(|id| !held.contains(id));
        if !wanted.is_empty() {
            *self.locking.lock() = Some(Locking::awaited(id));
            locks = Some(self.lock_within(locks, &held, &wanted).await?);
            *self.locking.lock() = Some(Locking::held(id));
            self.check_unaltered(relation)?;
            if self.connected(id) != connected {
                return Err(altered(relation));
            }
        }
        Ok(WriteScope {
            session: Arc::clone(self),
            relation: id,
            schema: Arc::clone(relation.schema()),
            table,
            locks,
            in_transaction,
            before,
            is_new: is_new(id),
        })
    }

    /// The tables that foreign keys connect with a table.
    fn connected(&self, id: RelationId) -> BTreeSet<RelationId> {
        let connected = self.catalog().connected_by_keys(ObjectId(id.0));
        connected.into_iter().map(|id| RelationId(id.0)).collect()
    }

    /// As [`Session::lock_also`]. A transaction that could not get its locks again has lost what they guarded: there is no savepoint to
    /// which it could go back.
    async fn lock_within(
        &self,
        locks: Option<TableLocks>,
        held: &[RelationId],
        more: &[RelationId],
    ) -> SqlResult<TableLocks> {
        let defines = self.definitions().is_some();
        if defines {
            self.db.definer_waits(true);
        }
        let locked = self.lock_also(locks, held, more).await;
        if defines {
            self.db.definer_waits(false);
        }
        if locked.is_err()
            && !held.is_empty()
            && let Some(active) = self.transaction.lock().active()
        {
            active.savepoints.clear();
        }
        locked
    }

    /// Whether the open transaction has changed rows of the relation.
    pub(crate) fn has_changed(&self, id: RelationId) -> bool {
        let mut transaction = self.transaction.lock();
        let changes = transaction.active().and_then(|active| active.changes.get(&id));
        changes.is_some_and(|changes| !changes.is_empty())
    }

    /// Locks a table until the end of the open transaction.
    ///
    /// # Errors
    /// As [`Session::begin_write`].
    pub(crate) async fn hold_table(self: &Arc<Self>, relation: &Relation) -> SqlResult<()> {
        if self
            .definitions()
            .is_some_and(|definitions| definitions.widening(relation.info.id).is_some())
        {
            // It is held since the first column.
            return Ok(());
        }
        self.hold_tables(&[relation]).await
    }

    /// Refuses to change a locked table that was altered since the statement was bound: it would lose what others wrote there
    /// since, or break what holds of it by now.
    fn check_unaltered(&self, relation: &Relation) -> SqlResult<()> {
        let catalog = self.catalog();
        let now = catalog
            .object(ObjectId(relation.info.id.0))
            .and_then(|object| object.relation());
        match now {
            Some(now)
                if now.columns.len() != relation.columns.len()
                    || now.checks != relation.checks
                    || now.foreign_keys != relation.foreign_keys =>
            {
                Err(altered(relation))
            }
            _ => Ok(()),
        }
    }

    /// The locks of the tables `held` and of `more`.
    ///
    /// Locks are always taken together and in one order, so that nobody waits in a circle: those that are held are given
    /// up and taken again with the new one. Whoever wrote in between has made this transaction's work stale.
    async fn lock_also(
        &self,
        locks: Option<TableLocks>,
        held: &[RelationId],
        more: &[RelationId],
    ) -> SqlResult<TableLocks> {
        let heads = |ids: &[RelationId]| -> Vec<u64> {
            ids.iter().map(|id| self.db.store().logs().head(id.0)).collect()
        };
        let before = heads(held);
        drop(locks);
        let mut all = held.to_vec();
        all.extend(more);
        let locks = self.lock_tables(&all).await?;
        if heads(held) != before {
            return Err(SqlError::new(
                SqlState::SerializationFailure,
                "could not serialize access due to concurrent update",
            )
            .with_detail("Another session changed a table between two statements of this transaction.")
            .with_hint("Run the transaction again."));
        }
        Ok(locks)
    }

    /// Writes changes at once and for good. Until they are handed to the log the statement can be ended, and nothing of
    /// it stays; from then on it is seen through. Returns which rows did not enter their streams.
    async fn append(
        &self,
        changes: Vec<(RelationId, ChangeBatch)>,
        locks: Option<&TableLocks>,
        note: Note<'_>,
    ) -> SqlResult<LateRows> {
        let _charge = self.keep_change(changes.iter().map(|(_, change)| change))?;
        let running = self.running();
        let may = || running.submit().is_ok();
        let runtime = self.db.runtime();
        let options = WriteOptions {
            locks,
            note,
            wait_max: self.write_timeout(),
            may: &may,
            watermark: None,
        };
        let written = runtime.append_with(changes, &options).await;
        let mut written = match written {
            Err(RuntimeError::Ended) => {
                running.submit()?;
                return Err(RuntimeError::Ended.into());
            }
            written => written.map_err(|error| self.explain_write(error))?,
        };
        let late = std::mem::take(&mut written.late);
        self.written.lock().merge(&written);
        self.say_late(&late);
        Ok(late)
    }

    /// Tells the client of rows that did not enter their streams.
    fn say_late(&self, late: &LateRows) {
        let past = "late and left out: their event time is before the watermark of the stream";
        let ahead = "left out: their event time is ahead of the clock by more than watermark.max_future_skew";
        for (rows, why) in [(late.rows - late.future_rows, past), (late.future_rows, ahead)] {
            match rows {
                0 => {}
                1 => self.notice(Severity::Notice, format!("1 row is {why}")),
                _ => self.notice(Severity::Notice, format!("{rows} rows are {why}")),
            }
        }
    }

    /// Waits while backpressure holds back writes to a relation.
    ///
    /// # Errors
    /// It takes longer than `write_timeout`, or the relation was dropped.
    pub(crate) async fn wait_for_backpressure(&self, relation: ObjectId) -> SqlResult<()> {
        let (relation, wait_max) = (RelationId(relation.0), self.write_timeout());
        Ok(self
            .db
            .runtime()
            .wait_for_backpressure(relation, wait_max)
            .await?)
    }

    /// How long the session's writes wait for space.
    fn write_timeout(&self) -> Option<Duration> {
        self.settings.lock().write_timeout()
    }

    /// The error of a write, with the names of what it broke.
    pub(crate) fn explain_write(&self, error: RuntimeError) -> SqlError {
        match error {
            RuntimeError::DuplicateKey { relation, key } => duplicate_key(&self.catalog(), relation, &key),
            other => from_internal::runtime(other),
        }
    }
}

/// A table that was altered while a statement waited for it.
fn altered(relation: &Relation) -> SqlError {
    SqlError::new(
        SqlState::SerializationFailure,
        format!(
            "table \"{}\" was altered while the statement waited for it",
            relation.info.name
        ),
    )
    .with_hint("Run the transaction again.")
}

impl WriteScope {
    /// Whether the changes wait for COMMIT.
    pub fn in_transaction(&self) -> bool {
        self.in_transaction
    }

    /// The changes with what foreign keys make of them; refused if values would be twice that are unique, or be missing.
    async fn followed(&self, changes: Vec<ChangeBatch>) -> SqlResult<foreign_keys::Changes> {
        if changes.is_empty() || !self.table {
            return Ok(BTreeMap::from([(self.relation, changes)]));
        }
        foreign_keys::follow(self, changes).await
    }

    /// Makes the changes: in the transaction if one is open, else at once and for good.
    ///
    /// # Errors
    /// The write failed; nothing of it was kept.
    pub async fn finish(self, changes: Vec<ChangeBatch>) -> SqlResult<()> {
        self.finish_noted(changes, &|_| vec![]).await.map(|_| ())
    }

    /// As [`finish`](Self::finish). Without a transaction, `note` lasts if and only if the write does, and which rows did not
    /// enter their stream is known.
    ///
    /// # Errors
    /// As [`finish`](Self::finish).
    pub async fn finish_noted(self, changes: Vec<ChangeBatch>, note: Note<'_>) -> SqlResult<LateRows> {
        let changes: Vec<ChangeBatch> = changes.into_iter().filter(|batch| batch.num_rows() > 0).collect();
        let changes = self.followed(changes).await?;
        self.keep(changes, note).await
    }

    /// As [`finish`](Self::finish), of changes that are known to break no constraint.
    ///
    /// # Errors
    /// As [`finish`](Self::finish).
    pub(crate) async fn finish_unchecked(self, changes: Vec<ChangeBatch>) -> SqlResult<()> {
        let changes: Vec<ChangeBatch> = changes.into_iter().filter(|batch| batch.num_rows() > 0).collect();
        let changes = BTreeMap::from([(self.relation, changes)]);
        self.keep(changes, &|_| vec![]).await.map(|_| ())
    }

    async fn keep(mut self, changes: foreign_keys::Changes, note: Note<'_>) -> SqlResult<LateRows> {
        // What it saw is not needed any more: the transaction adds to it.
        self.before = Arc::default();
        if self.in_transaction {
            let memory = self.session.db.runtime().memory();
            if memory.is_short() {
                // It could only be given back by its end.
                let who = "the open transaction".to_owned();
                let held = memory.shown();
                return Err(ResourceError::OutOfMemory { who, held }.into());
            }
            let mut transaction = self.session.transaction.lock();
            let Some(active) = transaction.active() else {
                return Err(SqlError::internal(
                    "the transaction ended while a statement of it ran",
                ));
            };
            if let Some(locks) = self.locks.take() {
                active.locked.extend(locks.relations());
                active.locks = Some(locks);
            }
            for (relation, changes) in changes {
                if !changes.is_empty() {
                    active.changes.entry(relation).or_default().extend(changes);
                }
            }
            return Ok(LateRows::default());
        }
        let catalog = self.session.catalog();
        let stays = |id: &RelationId| commit::on_commit(&catalog, ObjectId(id.0)) != OnCommit::DeleteRows;
        let changes: Vec<(RelationId, ChangeBatch)> = changes
            .into_iter()
            .filter(|(relation, _)| stays(relation))
            .flat_map(|(relation, changes)| changes.into_iter().map(move |change| (relation, change)))
            .collect();
        if changes.is_empty() {
            return Ok(LateRows::default());
        }
        self.session.append(changes, self.locks.as_ref(), note).await
    }
}

impl Drop for WriteScope {
    /// A statement that failed leaves the locks to its transaction, which may go back to a savepoint.
    fn drop(&mut self) {
        let Some(locks) = self.locks.take() else { return };
        if !self.in_transaction {
            return;
        }
        if let Some(active) = self.session.transaction.lock().known()
            && active.locks.is_none()
        {
            active.locked.extend(locks.relations());
            active.locks = Some(locks);
        }
    }
}

/// Refuses what is neither a stream nor a table.
///
/// # Errors
/// The object is a view, an index, or something else without rows of its own, or it failed to load.
pub(crate) fn writable<'a>(object: &'a Object, verb: &str) -> SqlResult<&'a Relation> {
    use millrace_storage::ObjectKind;
    object.check_up()?;
    match (object.kind, object.relation()) {
        (
            ObjectKind::Stream | ObjectKind::Table,
            Some(Relation {
                connector: Some(connector),
                ..
            }),
        ) => Err(SqlError::new(
            SqlState::WrongObjectType,
            format!(
                "cannot {verb} {} \"{}\"",
                millrace_catalog::kind_name(object.kind),
                object.name
            ),
        )
        .with_detail(format!("Its rows come from connector \"{}\".", connector.name()))),
        (ObjectKind::Stream | ObjectKind::Table, Some(relation)) => Ok(relation),
        (ObjectKind::View | ObjectKind::MaterializedView, _) => Err(SqlError::new(
            SqlState::WrongObjectType,
            format!(
                "cannot {verb} {} \"{}\"",
                millrace_catalog::kind_name(object.kind),
                object.name
            ),
        )
        .with_hint("A view shows the result of its query. Change the streams and tables that it reads.")),
        (kind, _) => Err(SqlError::new(
            SqlState::WrongObjectType,
            format!(
                "cannot {verb} {} \"{}\"",
                millrace_catalog::kind_name(kind),
                object.name
            ),
        )),
    }
}

/// Refuses what takes no rows from statements: also a stream in which the server itself keeps something of another relation.
///
/// # Errors
/// As [`writable`].
pub(crate) fn takes_rows<'a>(scope: &Scope, object: &'a Object, verb: &str) -> SqlResult<&'a Relation> {
    let relation = writable(object, verb)?;
    match scope.catalog.kept_for(object) {
        None => Ok(relation),
        Some(of) => {
            let message = format!("cannot {verb} stream \"{}\"", object.name);
            Err(
                SqlError::new(SqlState::WrongObjectType, message).with_detail(format!(
                    "The server keeps in it what it notes of {}.",
                    of.described()
                )),
            )
        }
    }
}

/// Refuses what is no table.
///
/// # Errors
/// The object is a stream, which only takes new rows, or anything else.
pub fn table<'a>(object: &'a Object, verb: &str) -> SqlResult<&'a Relation> {
    let relation = writable(object, verb)?;
    if relation.info.kind == RelationKind::Stream {
        return Err(SqlError::new(
            SqlState::WrongObjectType,
            format!("cannot {verb} stream \"{}\"", object.name),
        )
        .with_detail("A stream is append-only: its rows are never changed or deleted.")
        .with_hint("Use a table for rows that change."));
    }
    Ok(relation)
}
