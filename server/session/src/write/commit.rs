//! The end of a transaction: its changes as one write, and what it has defined as one line of the catalog's journal.

use std::future::Future;
use std::sync::Arc;

use millrace_catalog::CatalogSnapshot;
use millrace_catalog::temporary::OnCommit;
use millrace_database::database::definitions::Definitions;
use millrace_database::running::Running;
use millrace_engine::BackfillOptions;
use millrace_planner::RelationId;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_storage::{ChangeBatch, ObjectId};

use crate::news;
use crate::session::Session;
use crate::transaction::{Active, Transaction};

impl Session {
    /// Commits the open transaction, if there is one: its changes become one epoch.
    ///
    /// # Errors
    /// The write failed; nothing of it was kept.
    pub async fn commit(self: &Arc<Self>) -> SqlResult<()> {
        let mut active = {
            let mut transaction = self.transaction.lock();
            match std::mem::take(&mut *transaction) {
                Transaction::Active(active) => active,
                _ => return Ok(()),
            }
        };
        self.cursors.lock().retain(|_, cursor| cursor.hold);
        self.settle_temporary(&mut active);
        let written = match active.definitions.take() {
            None => self.write(&mut active).await,
            Some(definitions) => {
                let options = self.backfill_options()?;
                let (session, running) = (Arc::clone(self), self.running());
                let work = async move {
                    let done = session.define(&mut active, &definitions, options, &running).await;
                    (active, done)
                };
                // Seen through whatever becomes of the client: what was made is committed or taken down again.
                let (ended, done) = tokio::spawn(work)
                    .await
                    .map_err(|error| SqlError::internal(format!("committing: {error}")))?;
                active = ended;
                done
            }
        };
        if written.is_ok() {
            news::committed(self, std::mem::take(&mut active.told));
        }
        let settings = match &written {
            Ok(()) => active.settings_after,
            Err(_) => active.settings_before,
        };
        if let Some(settings) = settings {
            self.put_settings(settings);
        }
        written
    }

    /// Runs in the open transaction, or in one of its own that ends with it.
    ///
    /// # Errors
    /// Those of the work; nothing of it is kept in the second case.
    pub(crate) async fn in_transaction<T>(
        self: &Arc<Self>,
        work: impl Future<Output = SqlResult<T>>,
    ) -> SqlResult<T> {
        if self.transaction_is_open() {
            return work.await;
        }
        let active = Active::new(true, self.is_read_only());
        *self.transaction.lock() = Transaction::Active(Box::new(active));
        let own = OwnTransaction(Arc::clone(self));
        let done = work.await?;
        self.commit().await?;
        drop(own);
        Ok(done)
    }

    /// Forgets what does not outlast the transaction: rows of temporary tables, and such tables.
    fn settle_temporary(&self, active: &mut Active) {
        let definitions = active.definitions.as_ref();
        let catalog = definitions.map_or_else(|| self.db.catalog(), |definitions| definitions.catalog());
        active
            .changes
            .retain(|id, _| on_commit(&catalog, ObjectId(id.0)) != OnCommit::DeleteRows);
        if let Some(definitions) = definitions {
            let ids = catalog.objects().map(|object| object.id);
            let dropped: Vec<ObjectId> = ids
                .filter(|id| on_commit(&catalog, *id) == OnCommit::Drop)
                .collect();
            definitions.remove(&catalog.closure(&dropped));
        }
    }

    async fn write(&self, active: &mut Active) -> SqlResult<()> {
        let changes = active.take_changes()?;
        if changes.is_empty() {
            return Ok(());
        }
        let written = self.append(changes, active.locks.as_ref(), &|_| vec![]).await;
        written.map(|_| ())
    }

    /// Commits a transaction that has defined something.
    async fn define(
        &self,
        active: &mut Active,
        definitions: &Arc<Definitions>,
        options: BackfillOptions,
        running: &Running,
    ) -> SqlResult<()> {
        let mut was_announced = false;
        let done = async {
            running.run(definitions.make(options)).await?;
            running.submit()?;
            self.write_defined(active, definitions, &mut was_announced).await
        };
        if let Err(error) = done.await {
            definitions.abandon(was_announced).await;
            return Err(error);
        }
        definitions.finish(was_announced, active.locks.as_ref()).await
    }

    /// Writes the changes of a transaction that has defined something; what it has dropped needs none.
    async fn write_defined(
        &self,
        active: &mut Active,
        definitions: &Arc<Definitions>,
        was_announced: &mut bool,
    ) -> SqlResult<()> {
        let mut changes: Vec<(RelationId, ChangeBatch)> = active.take_changes()?;
        changes.retain(|(id, _)| definitions.is_there(*id));
        if changes.is_empty() {
            return Ok(());
        }
        let mut new: Vec<RelationId> = changes.iter().map(|(id, _)| *id).collect();
        new.retain(|id| definitions.is_new(*id));
        // Nobody knows of them: nothing is waited for.
        let of_new = self.db.runtime().lock_tables(&new).await?;
        active.locks = Some(match active.locks.take() {
            Some(locks) => locks.and(of_new),
            None => of_new,
        });
        let mut note = vec![];
        // Rows of new relations alone are nobody's until the catalog names them.
        if changes.iter().any(|(id, _)| !new.contains(id)) {
            note = definitions.announce()?;
            *was_announced = true;
        }
        let written = self
            .append(changes, active.locks.as_ref(), &|_| note.clone())
            .await;
        written.map(|_| ())
    }

    /// Waits for the right to change definitions, for the open transaction.
    ///
    /// # Errors
    /// 55P03; 40P01 if whoever has it waits for a table that this transaction has locked.
    pub(super) async fn right_to_define(&self) -> SqlResult<Arc<Definitions>> {
        let holds_tables = self
            .transaction
            .lock()
            .active()
            .is_some_and(|active| !active.locked.is_empty());
        let right = self.within_lock_timeout(self.db.define());
        if !holds_tables {
            return right.await;
        }
        tokio::select! {
            biased;
            right = right => right,
            () = self.db.until_definer_waits() => Err(deadlock()),
        }
    }

    /// What the session wants of a back-fill: `backfill_rate_limit`, in rows a second.
    ///
    /// # Errors
    /// The setting is not a number of rows.
    pub(crate) fn backfill_options(&self) -> SqlResult<BackfillOptions> {
        let limit = self.setting("backfill_rate_limit").unwrap_or_default();
        let rows_per_second = match limit.as_str() {
            "default" | "-1" => None,
            number => Some(number.parse().ok().filter(|rate| *rate > 0).ok_or_else(|| {
                SqlError::new(
                    SqlState::InvalidParameterValue,
                    format!("invalid value for parameter \"backfill_rate_limit\": \"{number}\""),
                )
                .with_hint("Give a number of rows per second, at least 1, or \"default\" for no limit.")
            })?),
        };
        Ok(BackfillOptions {
            rows_per_second,
            ..BackfillOptions::default()
        })
    }
}

/// What COMMIT does to a table.
pub(super) fn on_commit(catalog: &CatalogSnapshot, id: ObjectId) -> OnCommit {
    let relation = catalog.object(id).and_then(|object| object.relation());
    relation.map_or_else(OnCommit::default, |relation| relation.keeping.on_commit)
}

/// A transaction of one statement; it is taken back unless it was committed.
struct OwnTransaction(Arc<Session>);

impl Drop for OwnTransaction {
    fn drop(&mut self) {
        *self.0.transaction.lock() = Transaction::Idle;
    }
}

/// Two transactions wait for each other.
pub(crate) fn deadlock() -> SqlError {
    SqlError::new(SqlState::DeadlockDetected, "deadlock detected")
        .with_detail(
            "Another transaction is changing definitions and waits for a table that this one has locked.",
        )
        .with_hint("Run the transaction again.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Fixture;

    /// A transaction that makes a table, drops one and writes to an old one, up to its COMMIT.
    async fn open() -> (Fixture, Box<Active>, Arc<Definitions>) {
        let f = Fixture::new().await;
        f.ok("CREATE TABLE old (a INT)").await;
        f.ok("CREATE TABLE gone (a INT)").await;
        f.ok("INSERT INTO old VALUES (1)").await;
        f.ok("BEGIN").await;
        f.ok("CREATE TABLE new (a INT)").await;
        f.ok("INSERT INTO new VALUES (2)").await;
        f.ok("INSERT INTO old VALUES (3)").await;
        f.ok("DROP TABLE gone").await;
        let taken = std::mem::take(&mut *f.session.transaction.lock());
        let Transaction::Active(mut active) = taken else {
            panic!("no transaction is open")
        };
        let definitions = active.definitions.take().unwrap();
        definitions.make(BackfillOptions::default()).await.unwrap();
        (f, active, definitions)
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_crash_before_the_write_leaves_nothing() {
        let (f, _active, definitions) = open().await;
        definitions.announce().unwrap();
        let g = Fixture::open_with(f.copied(), |_| {}).await;
        assert_eq!(g.ok("SELECT a FROM old").await, ["1"]);
        assert_eq!(g.ok("SELECT count(*) FROM gone").await, ["0"]);
        assert_eq!(g.error("SELECT * FROM new").await.code, SqlState::UndefinedTable);
        assert_eq!(g.db.store().logs().relations().len(), 2);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_crash_behind_the_write_leaves_all() {
        let (f, mut active, definitions) = open().await;
        let mut was_announced = false;
        f.session
            .write_defined(&mut active, &definitions, &mut was_announced)
            .await
            .unwrap();
        assert!(was_announced);
        let g = Fixture::open_with(f.copied(), |_| {}).await;
        assert_eq!(g.ok("SELECT a FROM old ORDER BY a").await, ["1", "3"]);
        assert_eq!(g.ok("SELECT a FROM new").await, ["2"]);
        assert_eq!(g.error("SELECT * FROM gone").await.code, SqlState::UndefinedTable);
        // What was announced was settled once.
        assert_eq!(g.db.store().catalog().fact("transaction").unwrap(), None);
    }
}
