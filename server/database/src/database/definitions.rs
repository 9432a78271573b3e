//! What a transaction changes of the definitions, until it commits.
//!
//! From its first statement that defines something to its end the transaction has the right to change definitions. What it defines is a
//! catalog of its own, which it alone reads: nothing is made, so that ROLLBACK has nothing to undo. COMMIT then goes this way:
//!
//! ```text
//!  make:    logs and sources of new relations, new views (filled), new indexes    nobody knows their names yet
//!  announce: what the catalog is going to get, as a fact in its journal           only if rows of older relations change too
//!  append:  the rows, as one write; with a note that tells the announcement's number
//!  finish:  one line of the journal; columns added, names published, what was dropped taken down
//! ```
//!
//! A crash before the write leaves logs that nobody names, and perhaps an announcement without a note: both go at the next start. A
//! crash after it leaves an announcement with its note: its line is written then.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use datafusion::scalar::ScalarValue;
use millrace_catalog::secret::{self, Vault};
use millrace_catalog::{CatalogSnapshot, Definition, Object};
use millrace_engine::{BackfillOptions, TableLocks, ViewSpec};
use millrace_planner::{RelationId, RelationKind};
use millrace_postgres::error::{SqlError, SqlResult};
use millrace_storage::{CatalogChange, LogNote, ObjectId, ObjectKind};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::OwnedMutexGuard;

use crate::database::Database;
use crate::database::ddl::{gone_facts, take_down};
use crate::database::jobs::Making;
use crate::secrets::Secrets;

/// The fact that announces a line of the journal.
const ANNOUNCED: &str = "transaction";

/// What is to be put into the catalog once the write of this number is in the log.
#[derive(Serialize, Deserialize)]
struct Announced {
    number: u64,
    changes: Vec<CatalogChange>,
}

/// What is written down with the rows.
#[derive(Serialize, Deserialize)]
struct Note {
    definitions: u64,
}

/// A catalog with these changes.
pub(super) fn with_changes(
    before: &CatalogSnapshot,
    put: impl IntoIterator<Item = Arc<Object>>,
    removed: &[ObjectId],
) -> CatalogSnapshot {
    let mut put: Vec<Arc<Object>> = put.into_iter().collect();
    // The plans that views over these keep were made over what these were.
    let ids: Vec<ObjectId> = put.iter().map(|object| object.id).collect();
    for id in before.closure(&ids) {
        if !ids.contains(&id)
            && let Some(object) = before.object(id)
            && let Definition::View(query) = &object.definition
        {
            let mut view = object.as_ref().clone();
            view.definition = Definition::View(Arc::new(query.with_names(query.names.clone())));
            put.push(Arc::new(view));
        }
    }
    before.with(put, removed)
}

/// The definitions as one transaction sees them.
pub struct Definitions {
    db: Arc<Database>,
    _right: OwnedMutexGuard<()>,
    /// The catalog as all others see it.
    base: Arc<CatalogSnapshot>,
    draft: Mutex<Draft>,
}

impl Drop for Definitions {
    fn drop(&mut self) {
        self.db.sequences().forget_unknown(&self.db);
    }
}

/// What was defined so far; a savepoint keeps one.
#[derive(Clone)]
pub struct Draft {
    catalog: Arc<CatalogSnapshot>,
    /// The objects that were put.
    put: BTreeSet<ObjectId>,
    /// The new materialized views.
    specs: BTreeMap<ObjectId, ViewSpec>,
}

/// A column that older rows of a table do not have yet.
#[derive(Debug, Clone)]
pub struct Widening {
    /// The columns that the rows have.
    pub before: SchemaRef,
    /// The values of those that come behind them.
    pub values: Vec<ScalarValue>,
}

impl Database {
    /// Swaps the catalog for one with these changes. Only the holder of the DDL lock, or the start, may.
    pub(crate) fn publish(&self, put: impl IntoIterator<Item = Arc<Object>>, removed: &[ObjectId]) {
        let before = self.catalog.load();
        let put: Vec<Arc<Object>> = put.into_iter().collect();
        let next = with_changes(&before, put.iter().cloned(), removed);
        self.catalog.store(Arc::new(next));
        for object in put {
            let target = object.freshness_us();
            let is_changed = (before.object(object.id)).is_some_and(|old| old.freshness_us() != target);
            // One that is not there at the moment is made with what the catalog says.
            if is_changed {
                let target = target.map(Duration::from_micros);
                let _ = self.runtime().set_freshness(RelationId(object.id.0), target);
            }
        }
    }

    /// The values of secrets.
    pub fn secrets(&self) -> &Arc<Secrets> {
        &self.secrets
    }

    /// By which the definition of something gets at the values of its secrets. `by`: what it is called in the audit.
    pub fn secrets_for(&self, by: &str) -> secret::Secrets {
        secret::Secrets::new(Arc::clone(&self.secrets) as Arc<dyn Vault>, by)
    }

    /// The object, which gets at the values of its secrets.
    pub(super) fn with_secrets(&self, object: Object) -> Object {
        object.with_secrets(&(Arc::clone(&self.secrets) as Arc<dyn Vault>))
    }

    /// Waits for the right to change definitions, for a transaction.
    pub async fn define(self: &Arc<Self>) -> Arc<Definitions> {
        let right = Arc::clone(&self.ddl).lock_owned().await;
        let base = self.catalog();
        Arc::new(Definitions {
            db: Arc::clone(self),
            _right: right,
            draft: Mutex::new(Draft {
                catalog: Arc::clone(&base),
                put: BTreeSet::new(),
                specs: BTreeMap::new(),
            }),
            base,
        })
    }

    /// Says whether the transaction that has the right to change definitions waits for a table.
    pub fn definer_waits(&self, waits: bool) {
        self.definer_waits.send_replace(waits);
    }

    /// Returns when the transaction that has the right to change definitions waits for a table.
    pub async fn until_definer_waits(&self) {
        // The sender is in `self`, so that this ends only when it is so.
        let _ = self.definer_waits.subscribe().wait_for(|waits| *waits).await;
    }

    /// Writes the line of the journal that a crash came before, if the rows that belong to it are there.
    ///
    /// # Errors
    /// The catalog cannot be written.
    pub(super) fn settle_announced(&self, notes: &[LogNote]) -> SqlResult<()> {
        let catalog = self.store.catalog();
        let Some(bytes) = catalog.fact(ANNOUNCED)? else {
            return Ok(());
        };
        let mut changes = vec![CatalogChange::RemoveFact {
            key: ANNOUNCED.to_owned(),
        }];
        let announced: Announced = serde_json::from_slice(&bytes)
            .map_err(|error| SqlError::internal(format!("an announced transaction is damaged: {error}")))?;
        let is_written = notes.iter().any(|note| {
            serde_json::from_slice::<Note>(&note.note).is_ok_and(|note| note.definitions == announced.number)
        });
        if is_written {
            changes.extend(announced.changes);
        }
        Ok(catalog.apply(changes)?)
    }
}

impl Database {
    /// Whether a note belongs to a line of the journal that is still to be written.
    pub(super) fn is_announced(&self, note: &LogNote) -> SqlResult<bool> {
        let Ok(note) = serde_json::from_slice::<Note>(&note.note) else {
            return Ok(false);
        };
        let announced = match self.store.catalog().fact(ANNOUNCED)? {
            Some(bytes) => serde_json::from_slice::<Announced>(&bytes),
            None => return Ok(false),
        };
        Ok(announced.map_or(true, |announced| announced.number == note.definitions))
    }
}

impl Definitions {
    /// The catalog as the transaction sees it.
    pub fn catalog(&self) -> Arc<CatalogSnapshot> {
        Arc::clone(&self.draft.lock().catalog)
    }

    /// What was defined so far.
    pub fn mark(&self) -> Draft {
        self.draft.lock().clone()
    }

    /// Forgets what was defined since.
    pub fn back_to(&self, mark: &Draft) {
        *self.draft.lock() = mark.clone();
    }

    /// Whether the transaction has made this relation: nothing is known of it but its definition.
    pub fn is_new(&self, id: RelationId) -> bool {
        let id = ObjectId(id.0);
        self.base.object(id).is_none() && self.draft.lock().catalog.object(id).is_some()
    }

    /// Whether the transaction has made this table, so that its rows are those that the transaction has written.
    pub fn is_new_table(&self, id: RelationId) -> bool {
        let catalog = self.catalog();
        let relation = catalog
            .object(ObjectId(id.0))
            .and_then(|object| object.relation());
        self.is_new(id) && relation.is_some_and(|relation| relation.info.kind == RelationKind::Table)
    }

    /// Whether the relation is still there.
    pub fn is_there(&self, id: RelationId) -> bool {
        self.draft.lock().catalog.object(ObjectId(id.0)).is_some()
    }

    /// The columns that the transaction has added to an older relation; `None`: there are none.
    pub fn widening(&self, id: RelationId) -> Option<Widening> {
        let id = ObjectId(id.0);
        let before = self.base.object(id)?.relation()?;
        let catalog = self.catalog();
        let now = catalog.object(id)?.relation()?;
        let added = now.columns.get(before.columns.len()..).unwrap_or_default();
        (!added.is_empty()).then(|| Widening {
            before: Arc::clone(before.schema()),
            values: added
                .iter()
                .map(|column| column.added.clone().unwrap_or(ScalarValue::Null))
                .collect(),
        })
    }

    pub(super) fn put(&self, objects: Vec<Object>) {
        let mut draft = self.draft.lock();
        draft.put.extend(objects.iter().map(|object| object.id));
        let put = objects.into_iter().map(Arc::new);
        draft.catalog = Arc::new(with_changes(&draft.catalog, put, &[]));
    }

    /// Removes objects.
    pub fn remove(&self, ids: &BTreeSet<ObjectId>) {
        let removed: Vec<ObjectId> = ids.iter().copied().collect();
        let mut draft = self.draft.lock();
        draft.catalog = Arc::new(with_changes(&draft.catalog, [], &removed));
    }

    /// Puts a materialized view that COMMIT fills, with what is made beside it.
    pub fn put_view(&self, object: Object, spec: ViewSpec, beside: Vec<Object>) {
        let id = object.id;
        self.put(beside.into_iter().chain([object]).collect());
        let mut draft = self.draft.lock();
        draft.specs.insert(id, spec);
        draft.catalog = Arc::new(draft.catalog.with_unfilled(id));
    }

    /// Puts what takes the place of other objects; COMMIT fills the views among it.
    pub fn put_making(&self, making: Making) {
        let Making { specs, put, removed } = making;
        self.remove(&removed.into_iter().collect());
        let mut specs: BTreeMap<RelationId, ViewSpec> =
            specs.into_iter().map(|spec| (spec.id, spec)).collect();
        for object in put {
            match specs.remove(&RelationId(object.id.0)) {
                Some(spec) => self.put_view(object, spec, vec![]),
                None => self.put(vec![object]),
            }
        }
    }

    /// What COMMIT puts into the catalog, each after what it names.
    fn objects(&self) -> Vec<Arc<Object>> {
        let draft = self.draft.lock();
        draft.catalog.in_order(&draft.put).into_iter().cloned().collect()
    }

    /// What COMMIT makes.
    fn made(&self) -> Vec<Arc<Object>> {
        let mut objects = self.objects();
        objects.retain(|object| self.base.object(object.id).is_none());
        objects
    }

    /// What COMMIT takes down, the youngest first.
    fn gone(&self) -> Vec<Arc<Object>> {
        let catalog = self.catalog();
        let mut gone: Vec<Arc<Object>> = self.base.objects().cloned().collect();
        gone.retain(|object| catalog.object(object.id).is_none());
        gone.reverse();
        gone
    }

    /// Makes what is new, before anybody knows its name. Dropping the future leaves some of it: see [`Self::abandon`].
    ///
    /// # Errors
    /// A relation or index cannot be made, or filling a view failed.
    pub async fn make(&self, options: BackfillOptions) -> SqlResult<()> {
        let made = self.made();
        for object in &made {
            if let Definition::Relation(relation) = &object.definition
                && relation.query.is_none()
            {
                self.db.create_source(&object.name, relation).await?;
            }
        }
        let specs: Vec<ViewSpec> = {
            let draft = self.draft.lock();
            let views = made.iter().filter_map(|object| {
                let mut spec = draft.specs.get(&object.id)?.clone();
                spec.graph.freshness_us = object.freshness_us();
                Some(ViewSpec {
                    name: object.name.clone(),
                    ..spec
                })
            });
            views.collect()
        };
        if !specs.is_empty() {
            self.db.runtime().create_views(specs, options).await?;
        }
        // Also those that were there, of a relation that another takes the place of.
        for object in self.objects() {
            if let Definition::Index(index) = &object.definition
                && self
                    .base
                    .object(object.id)
                    .is_none_or(|_| self.is_new(RelationId(index.relation.0)))
            {
                let relation = RelationId(index.relation.0);
                let columns = index.columns.clone();
                self.db.runtime().create_index(relation, columns).await?;
            }
        }
        Ok(())
    }

    /// The changes of the catalog.
    fn changes(&self) -> SqlResult<Vec<CatalogChange>> {
        let mut changes = gone_facts(&self.gone());
        for object in self.objects() {
            changes.push(CatalogChange::Put(object.to_stored()));
            if object.kind == ObjectKind::MaterializedView && self.base.object(object.id).is_none() {
                changes.push(self.db.beginnings(&self.catalog(), &object)?);
            }
        }
        Ok(changes)
    }

    /// Writes down what the catalog is going to get if the write comes about that this note goes with.
    ///
    /// # Errors
    /// The catalog cannot be written.
    pub fn announce(&self) -> SqlResult<Vec<u8>> {
        let number = self.db.store().catalog().next_id()?.0;
        let announced = Announced {
            number,
            changes: self.changes()?,
        };
        let bytes = |error: serde_json::Error| SqlError::internal(error.to_string());
        let value = serde_json::to_vec(&announced).map_err(bytes)?;
        self.db.store().catalog().put_fact(ANNOUNCED, &value)?;
        serde_json::to_vec(&Note { definitions: number }).map_err(bytes)
    }

    /// Makes it last, and known to everybody. `locks` has the tables to which columns were added.
    ///
    /// # Errors
    /// The catalog cannot be written.
    pub async fn finish(&self, was_announced: bool, locks: Option<&TableLocks>) -> SqlResult<()> {
        let db = &self.db;
        let (objects, gone) = (self.objects(), self.gone());
        let mut changes = self.changes()?;
        if was_announced {
            changes.push(CatalogChange::RemoveFact {
                key: ANNOUNCED.to_owned(),
            });
        }
        // They follow what takes the place of their relations.
        db.detach_sinks(&objects).await;
        let applied = db.store().catalog().apply(changes);
        if let Err(error) = applied {
            let before = objects.iter().filter_map(|object| self.base.object(object.id));
            before.for_each(|object| db.start_sink(object, None));
            return Err(error.into());
        }
        for object in &objects {
            let Some(relation) = object.relation().filter(|relation| relation.query.is_none()) else {
                continue;
            };
            let id = relation.info.id;
            if let (Some(widening), Some(locks)) = (self.widening(id), locks) {
                let added = &relation.columns[widening.before.fields().len()..];
                for (column, value) in added.iter().zip(widening.values) {
                    db.runtime()
                        .add_column(locks, id, Arc::clone(&column.field), value)?;
                }
            }
            db.store().logs().set_options(id.0, relation.keeping.for_log())?;
        }
        let removed: Vec<ObjectId> = gone.iter().map(|object| object.id).collect();
        db.publish(objects.iter().cloned(), &removed);
        for object in &objects {
            db.start_sink(object, None);
        }
        for object in objects
            .iter()
            .filter(|object| self.base.object(object.id).is_none())
        {
            db.start_source(object)?;
        }
        take_down(db, &gone).await;
        Ok(())
    }

    /// Takes down what was made for a transaction that does not come about.
    pub async fn abandon(&self, was_announced: bool) {
        if was_announced {
            let key = ANNOUNCED.to_owned();
            let forgotten = self
                .db
                .store()
                .catalog()
                .apply(vec![CatalogChange::RemoveFact { key }]);
            if let Err(error) = forgotten {
                tracing::error!(%error, "the announcement of a transaction could not be removed; the next start removes it");
            }
        }
        for object in self.made().into_iter().rev() {
            take_down(&self.db, &[object]).await;
        }
    }
}
