//! Changes of definitions: what is done in which order, so that a crash at any point leaves a catalog that opens.
//!
//! The commit point is the catalog's `apply`. What is made is made before it (a log or a view without a catalog entry is
//! dropped at the next start), and what goes is taken down after it.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::common::ScalarValue;
use millrace_catalog::{CatalogSnapshot, ColumnDef, Definition, Object};
use millrace_engine::TableLocks;
use millrace_planner::RelationId;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_storage::{CatalogChange, ObjectId, ObjectKind};
use tokio::sync::MutexGuard;

use crate::database::Database;
use crate::database::definitions::Definitions;
use crate::database::maintenance::beginnings_fact;
use crate::database::{sequences, sinks, sources};
use crate::running::Running;

/// The right to change definitions; one statement at a time has it, or one transaction.
pub struct DdlGuard<'a> {
    db: &'a Arc<Database>,
    right: Right<'a>,
    /// The statement that has it; none: a job has it.
    running: Option<Running>,
}

enum Right<'a> {
    /// What changes is changed at once.
    Statement(#[expect(dead_code, reason = "held, not read")] MutexGuard<'a, ()>),
    /// What changes is changed by COMMIT.
    Transaction(Arc<Definitions>),
}

impl Database {
    /// Waits for the right to change definitions.
    pub async fn ddl(self: &Arc<Self>) -> DdlGuard<'_> {
        DdlGuard {
            db: self,
            right: Right::Statement(self.ddl.lock().await),
            running: None,
        }
    }

    /// The right that a transaction has, for a statement in it.
    pub fn ddl_within(self: &Arc<Self>, definitions: Arc<Definitions>) -> DdlGuard<'_> {
        DdlGuard {
            db: self,
            right: Right::Transaction(definitions),
            running: None,
        }
    }
}

impl DdlGuard<'_> {
    /// The same, held by a statement.
    #[must_use]
    pub fn held_by(self, running: Running) -> Self {
        DdlGuard {
            running: Some(running),
            ..self
        }
    }

    /// What the statement changes is done next, and seen through: see [`Running::submit`].
    ///
    /// # Errors
    /// The statement was ended before.
    fn submit(&self) -> SqlResult<()> {
        self.running.as_ref().map_or(Ok(()), Running::submit)
    }

    /// The statement on whose behalf it is held.
    pub fn running(&self) -> Option<&Running> {
        self.running.as_ref()
    }

    /// The database whose definitions may be changed.
    pub fn database(&self) -> &Arc<Database> {
        self.db
    }

    /// The definitions of the transaction that has it; `None`: a statement by itself has it.
    pub fn definitions(&self) -> Option<&Arc<Definitions>> {
        match &self.right {
            Right::Transaction(definitions) => Some(definitions),
            Right::Statement(_) => None,
        }
    }

    /// The catalog, which does not change while the guard is held.
    pub fn catalog(&self) -> Arc<CatalogSnapshot> {
        match self.definitions() {
            Some(definitions) => definitions.catalog(),
            None => self.db.catalog(),
        }
    }

    /// An identity for a new object.
    ///
    /// # Errors
    /// The catalog cannot be written.
    pub fn next_id(&self) -> SqlResult<ObjectId> {
        Ok(self.db.store().catalog().next_id()?)
    }

    /// Refuses a name that is taken.
    ///
    /// # Errors
    /// 42P07.
    pub fn check_free(&self, database: &str, schema: &str, name: &str) -> SqlResult<()> {
        let exists = |what: String| {
            let message = format!("relation \"{name}\" already exists");
            SqlError::new(SqlState::DuplicateTable, message)
                .with_detail_opt((!what.is_empty()).then_some(what))
        };
        if self.catalog().relation(database, schema, name).is_some() {
            return Err(exists(String::new()));
        }
        match self.db.jobs().making(database, schema, name) {
            Some(job) => Err(exists(format!("{}.", job.described()))),
            None => Ok(()),
        }
    }

    /// Makes an object that needs no job. A stream or table gets its log; an index is built.
    ///
    /// # Errors
    /// The runtime or the store refuses; nothing is left of the object.
    pub async fn create(&self, object: Object) -> SqlResult<()> {
        self.create_all(vec![object]).await
    }

    /// As [`DdlGuard::create`], several in one step, in this order.
    ///
    /// # Errors
    /// One of them cannot be made, or the catalog cannot be written; none is there then.
    pub async fn create_all(&self, objects: Vec<Object>) -> SqlResult<()> {
        if let Some(definitions) = self.definitions() {
            definitions.put(objects);
            return Ok(());
        }
        self.submit()?;
        let db = self.db;
        let objects: Vec<Arc<Object>> = objects.into_iter().map(Arc::new).collect();
        let mut made = Ok(());
        for object in &objects {
            made = match &object.definition {
                Definition::Relation(relation) => db.create_source(&object.name, relation).await,
                Definition::Index(index) => {
                    let relation = RelationId(index.relation.0);
                    let made = db.runtime().create_index(relation, index.columns.clone());
                    made.await.map_err(Into::into)
                }
                _ => Ok(()),
            };
            if made.is_err() {
                break;
            }
        }
        let changes = objects
            .iter()
            .map(|object| CatalogChange::Put(object.to_stored()));
        let committed = made.and_then(|()| {
            let applied = db.store().catalog().apply(changes.collect());
            applied.map_err(Into::into)
        });
        if let Err(error) = committed {
            take_down(db, &objects).await;
            return Err(error);
        }
        db.publish(objects.iter().cloned(), &[]);
        for object in &objects {
            db.start_source(object)?;
            db.start_sink(object, None);
        }
        Ok(())
    }

    /// Puts an object that takes nothing in the runtime: a view, a comment, a name.
    ///
    /// # Errors
    /// The catalog cannot be written.
    pub fn put(&self, object: Object) -> SqlResult<()> {
        self.put_all(vec![object])
    }

    /// As [`DdlGuard::put`], several in one step.
    ///
    /// # Errors
    /// The catalog cannot be written, or one of them failed to load: what it consists of is not known here.
    pub fn put_all(&self, objects: Vec<Object>) -> SqlResult<()> {
        objects.iter().try_for_each(Object::check_up)?;
        if let Some(definitions) = self.definitions() {
            definitions.put(objects);
            return Ok(());
        }
        self.submit()?;
        let changes = objects
            .iter()
            .map(|object| CatalogChange::Put(object.to_stored()));
        self.db.store().catalog().apply(changes.collect())?;
        self.db.publish(objects.into_iter().map(Arc::new), &[]);
        Ok(())
    }

    /// Puts a stream or table, of which the rows are kept in another way from now on.
    ///
    /// # Errors
    /// The catalog cannot be written.
    pub fn keep(&self, object: Object) -> SqlResult<()> {
        let options = object.relation().map(|relation| relation.keeping.for_log());
        let id = object.id;
        self.put(object)?;
        match options {
            Some(options) if self.definitions().is_none() => {
                Ok(self.db.store().logs().set_options(id.0, options)?)
            }
            // COMMIT says it.
            _ => Ok(()),
        }
    }

    /// Puts a stream or table to which this column was added. The caller has its lock; a transaction has it until COMMIT.
    ///
    /// # Errors
    /// The catalog cannot be written, or the runtime refuses. In the second case the column is there after the next start.
    pub fn add_column(
        &self,
        locks: Option<&TableLocks>,
        object: Object,
        column: &ColumnDef,
    ) -> SqlResult<()> {
        if let Some(definitions) = self.definitions() {
            definitions.put(vec![object]);
            return Ok(());
        }
        let locks =
            locks.ok_or_else(|| SqlError::internal("a column was added to a table without its lock"))?;
        self.submit()?;
        let value = column.added.clone().unwrap_or(ScalarValue::Null);
        // Writes with the column must not come before the catalog knows it, reads of it not before the runtime does.
        let id = RelationId(object.id.0);
        let changes = vec![CatalogChange::Put(object.to_stored())];
        self.db.store().catalog().apply(changes)?;
        // A transaction that waits for the table is to see that it was altered.
        self.db
            .runtime()
            .add_column(locks, id, Arc::clone(&column.field), value)?;
        self.db.publish([Arc::new(object)], &[]);
        Ok(())
    }

    /// Drops objects, in one step.
    ///
    /// # Errors
    /// The catalog cannot be written; nothing was dropped.
    pub async fn drop(&self, ids: &BTreeSet<ObjectId>) -> SqlResult<()> {
        self.drop_and_put(ids, vec![]).await
    }

    /// Drops objects, and puts others as they are without them, in one step.
    ///
    /// # Errors
    /// As [`DdlGuard::drop`].
    pub async fn drop_and_put(&self, ids: &BTreeSet<ObjectId>, put: Vec<Object>) -> SqlResult<()> {
        if let Some(definitions) = self.definitions() {
            definitions.remove(ids);
            definitions.put(put);
            return Ok(());
        }
        let catalog = self.catalog();
        // What depends on others is younger: down from the youngest.
        let gone: Vec<Arc<Object>> = ids
            .iter()
            .rev()
            .filter_map(|id| catalog.object(*id).cloned())
            .collect();
        let mut changes = gone_facts(&gone);
        changes.extend(put.iter().map(|object| CatalogChange::Put(object.to_stored())));
        self.submit()?;
        self.db.store().catalog().apply(changes)?;
        let removed: Vec<ObjectId> = gone.iter().map(|object| object.id).collect();
        self.db.publish(put.into_iter().map(Arc::new), &removed);
        // From here on it is dropped, whatever becomes of the statement.
        let db = Arc::clone(self.db);
        let work = tokio::spawn(async move { take_down(&db, &gone).await });
        work.await
            .map_err(|error| SqlError::internal(format!("dropping: {error}")))
    }
}

/// What removes objects from the catalog, with what else it holds of them.
pub(super) fn gone_facts(gone: &[Arc<Object>]) -> Vec<CatalogChange> {
    let changes = gone.iter().flat_map(|object| {
        let keys = match object.kind {
            ObjectKind::MaterializedView => vec![beginnings_fact(object.id)],
            ObjectKind::Sequence => vec![sequences::fact(object.id)],
            _ if matches!(object.definition, Definition::Sink(_)) => sinks::facts(object.id).to_vec(),
            _ => match object.relation() {
                Some(relation) if relation.connector.is_some() => sources::facts(object.id).to_vec(),
                _ => vec![],
            },
        };
        let facts = keys.into_iter().map(|key| CatalogChange::RemoveFact { key });
        std::iter::once(CatalogChange::Remove(object.id)).chain(facts)
    });
    changes.collect()
}

/// Removes what objects have in the runtime and on disk. What fails is left for the next start.
pub(crate) async fn take_down(db: &Database, objects: &[Arc<Object>]) {
    db.end_queries_over(objects).await;
    for object in objects {
        db.stop_source(object).await;
        db.sinks().stop(object.id).await;
        db.forget_sink(object);
        db.sequences().forget(object.id);
    }
    let relations: Vec<RelationId> = objects
        .iter()
        .filter_map(|object| object.relation())
        .map(|relation| relation.info.id)
        .collect();
    if !relations.is_empty()
        && let Err(error) = db.runtime().drop_relations(&relations).await
    {
        tracing::debug!(%error, "relations were not in the runtime when they were removed");
    }
    for object in objects {
        let has_log = matches!(
            object.kind,
            ObjectKind::Stream | ObjectKind::Table | ObjectKind::Subscription
        );
        if has_log
            && db.store().logs().contains(object.id.0)
            && let Err(error) = db.store().logs().remove(object.id.0)
        {
            tracing::error!(%error, object = object.described(), "the log of a dropped object could not be \
                 removed; the next start removes it");
        }
    }
}
