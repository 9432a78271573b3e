//! What is done once a second: logs are told the time and looked after, those of tables are made smaller, rows on which views failed are kept, and caches are emptied while memory is short.
//!
//! A view is made of all rows that its streams had when it was made and that came since. What it needs of them at a restart is
//! what its last checkpoint does not have. So retention removes nothing behind the offset that the checkpoint reached, nothing at all
//! while a view that reads the stream is in no checkpoint or a job makes one, and nothing that a sink has not delivered. What it
//! removes is gone for every later SELECT and CREATE, and for a view whose checkpoint is lost: it fails to load.

mod believed;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_catalog::{CatalogSnapshot, Object};
use millrace_planner::{RelationId, RelationKind, StageGraph};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_storage::checkpoint::Manifest;
use millrace_storage::{CatalogChange, ChangeBatch, LogNote, LogOwner, ObjectId, ObjectKind, StorageError};
use parking_lot::Mutex;

use crate::database::Database;
use crate::database::maintenance::believed::BelievedTime;
use crate::database::sources;

const INTERVAL: Duration = Duration::from_secs(1);

/// The fact that holds the watermark of a stream that has forgotten rows.
pub fn watermark_fact(stream: u64) -> String {
    format!("watermark/{stream}")
}

/// The fact that says where the streams began that a view reads, when it was made.
pub(super) fn beginnings_fact(view: ObjectId) -> String {
    format!("begins/{}", view.0)
}

/// The streams that a view reads, through views that are no more than text too.
pub fn streams_of(catalog: &CatalogSnapshot, view: &Object) -> BTreeSet<ObjectId> {
    let mut streams = BTreeSet::new();
    let mut open = view.depends.clone();
    while let Some(id) = open.pop() {
        let Some(object) = catalog.object(id) else {
            continue;
        };
        match object.kind {
            ObjectKind::Stream => {
                streams.insert(object.id);
            }
            ObjectKind::View => open.extend(&object.depends),
            _ => {}
        }
    }
    streams
}

/// What the logs may ask.
struct Owner<'a> {
    db: &'a Database,
    /// The streams that forget, each with the first offset that is needed.
    needed: BTreeMap<u64, u64>,
    /// Where the checkpoints have each source: the first of them.
    settled: BTreeMap<u64, u64>,
    /// The clock is not believed to be beyond this.
    believed_ms: i64,
    /// Whether the catalog has the places of sources, as far as that was asked.
    kept: Mutex<BTreeMap<ObjectId, bool>>,
}

impl LogOwner for Owner<'_> {
    fn needed(&self, relation: u64) -> u64 {
        // What is not in the list is not known: it may just be coming.
        self.needed.get(&relation).copied().unwrap_or(0)
    }

    fn settled(&self, relation: u64) -> u64 {
        // A source that is in no checkpoint may be in one that is being made.
        self.settled.get(&relation).copied().unwrap_or(0)
    }

    fn retention_time(&self, now_ms: i64) -> i64 {
        now_ms.min(self.believed_ms)
    }

    fn forgetting(&self, relation: u64) -> Result<(), StorageError> {
        self.db.keep_position(relation)?;
        let watermarks = self.db.runtime.watermarks();
        let status = watermarks.iter().find(|status| status.relation.0 == relation);
        match status.and_then(|status| status.watermark) {
            Some(watermark) => {
                let fact = watermark_fact(relation);
                self.db.store.catalog().put_fact(&fact, &watermark.to_le_bytes())
            }
            None => Ok(()),
        }
    }

    fn rows(&self, relation: u64) -> Option<u64> {
        let catalog = self.db.catalog();
        let table = catalog.object(ObjectId(relation))?;
        (table.kind == ObjectKind::Table)
            .then(|| self.db.runtime.rows(RelationId(relation)))
            .flatten()
    }

    fn whole(&self, relation: u64, changes: ChangeBatch) -> Result<ChangeBatch, StorageError> {
        let whole = self.db.runtime.widened(RelationId(relation), changes);
        whole.map_err(|error| StorageError::InvalidChange {
            why: error.to_string(),
        })
    }

    fn needs_note(&self, note: &LogNote) -> bool {
        match sources::source_of(note) {
            Some(source) => {
                let mut kept = self.kept.lock();
                !*kept.entry(source).or_insert_with(|| self.db.keep_place(source))
            }
            None => {
                let is_announced = || self.db.is_announced(note).unwrap_or(true);
                !self.db.ingest_keys.is_over(note, crate::clock::now_ms()) && is_announced()
            }
        }
    }

    fn is_stopping(&self) -> bool {
        self.db.is_closing()
    }
}

impl Database {
    /// Looks after the database until it is closed.
    pub(super) fn start_maintenance(self: &Arc<Self>) {
        let manifests = self.store.checkpoints().manifests();
        let before = manifests.iter().map(|manifest| manifest.written_at_ms).max();
        let mut time = BelievedTime::new(before);
        self.maintenance.start(self, INTERVAL, move |db| {
            let now_ms = crate::clock::now_ms();
            let believed_ms = time.at(now_ms, Instant::now());
            async move { db.maintain(now_ms, believed_ms).await }
        });
    }

    /// Waits for what is being done, and does no more.
    pub async fn stop_maintenance(&self) {
        self.maintenance.stop("maintenance of the logs").await;
    }

    /// Does what is due at this time by the clock, in milliseconds since 1970-01-01 UTC, of which retention believes no more than
    /// `believed_ms`.
    pub async fn maintain(self: &Arc<Self>, now_ms: i64, believed_ms: i64) {
        if self.runtime.memory().is_short() {
            self.empty_caches();
        }
        self.acquit_views().await;
        self.keep_failed_rows().await;
        // No view may begin to read a stream between the look at who reads it and the removal.
        let guard = match self.needed_offsets().is_empty() {
            true => None,
            false => Some(Arc::clone(&self.ddl).lock_owned().await),
        };
        let db = Arc::clone(self);
        let place = self.store.logs().directory().join("maintained");
        let work = move || {
            let needed = match guard {
                Some(_) => db.needed_offsets(),
                None => BTreeMap::new(),
            };
            let owner = Owner {
                needed,
                settled: db.settled_offsets(),
                believed_ms,
                db: &db,
                kept: Mutex::default(),
            };
            db.store.logs().maintain(now_ms, &owner);
            drop(guard);
        };
        if let Err(error) = self.runtime.use_files(&place, work).await {
            tracing::error!(%error, "maintenance of the logs ended early");
        }
        // It may take long, and nobody who changes definitions waits for it.
        let db = Arc::clone(self);
        let work = move || {
            let owner = Owner {
                // Who follows a table, or fills a view from it, reads its rows.
                needed: BTreeMap::new(),
                settled: db.settled_offsets(),
                believed_ms,
                db: &db,
                kept: Mutex::default(),
            };
            db.store.logs().shrink(&owner);
        };
        if let Err(error) = self.runtime.use_files(&place, work).await {
            tracing::error!(%error, "making logs smaller ended early");
        }
    }

    /// Of each source, the offset behind which a start may feed its log again: where the first checkpoint has it that a start may
    /// go on from. Those that are still to come have it there or further on.
    fn settled_offsets(&self) -> BTreeMap<u64, u64> {
        let mut settled = BTreeMap::new();
        for manifest in self.store.checkpoints().manifests() {
            for source in &manifest.sources {
                let end = settled.entry(source.relation).or_insert(source.end);
                *end = source.end.min(*end);
            }
        }
        // Of a subscription only rows are read again, wherever they were written.
        settled.extend(self.subscriptions.logs().into_iter().map(|(id, end)| (id.0, end)));
        settled
    }

    /// Drops what is kept only to be fast, or to be looked at again.
    fn empty_caches(&self) {
        self.profiles.clear();
        let caches = &self.state.runtime_env().cache_manager;
        caches.get_file_metadata_cache().clear();
        if let Some(cache) = caches.get_file_statistic_cache() {
            cache.clear();
        }
    }

    /// Of each log that forgets rows, the first that is still needed: of a stream, and of what a subscription keeps.
    fn needed_offsets(&self) -> BTreeMap<u64, u64> {
        let catalog = self.catalog();
        let forgetting = catalog.objects().filter(|object| {
            let relation = object.relation();
            object.kind == ObjectKind::Stream && relation.is_some_and(|relation| relation.keeping.forgets())
        });
        let of_subscriptions = self.subscriptions.logs().into_iter();
        let of_subscriptions = of_subscriptions.map(|(id, end)| (id.0, end));
        forgetting
            .map(|stream| {
                let mut readers = catalog.closure(&[stream.id]);
                readers.retain(|id| {
                    let reader = catalog.object(*id);
                    reader.is_some_and(|object| object.kind == ObjectKind::MaterializedView)
                });
                let of_views = match self.jobs.over(std::slice::from_ref(stream)).is_empty() {
                    true => self.checkpointed(stream.id, &readers),
                    false => 0,
                };
                let of_sinks = self.sinks.needed(stream.id).unwrap_or(u64::MAX);
                let of_subscribers = self.subscriptions.needed(stream.id).unwrap_or(u64::MAX);
                (stream.id.0, of_views.min(of_sinks).min(of_subscribers))
            })
            .chain(of_subscriptions)
            .collect()
    }

    /// The offset of a stream up to which a start finds everything in checkpoints that these views are made of.
    fn checkpointed(&self, stream: ObjectId, views: &BTreeSet<ObjectId>) -> u64 {
        if views.is_empty() {
            return u64::MAX;
        }
        let manifests = self.store.checkpoints().manifests();
        let newest = |id: ObjectId| {
            let has = |manifest: &&Arc<Manifest>| manifest.relations().any(|relation| relation == id.0);
            manifests.iter().rev().find(has)
        };
        let Some(of_stream) = newest(stream) else {
            return 0;
        };
        // Only what is as of one checkpoint is restored.
        let is_whole = views.iter().all(|view| {
            let is_same = newest(*view).is_some_and(|manifest| manifest.number == of_stream.number);
            let filled = self.filled_after(*view);
            is_same && filled.is_none_or(|number| of_stream.number > number)
        });
        let mut sources = of_stream.sources.iter();
        let source = sources.find(|source| source.relation == stream.0);
        source.filter(|_| is_whole).map_or(0, |source| source.end)
    }

    /// What the catalog is to keep of a view that was just made: where the streams that it reads begin.
    pub(super) fn beginnings(&self, catalog: &CatalogSnapshot, view: &Object) -> SqlResult<CatalogChange> {
        let streams = streams_of(catalog, view);
        let begins: BTreeMap<u64, u64> = (streams.iter())
            .map(|stream| (stream.0, self.store.logs().first(stream.0)))
            .collect();
        Ok(CatalogChange::PutFact {
            key: beginnings_fact(view.id),
            value: serde_json::to_vec(&begins).map_err(|error| SqlError::internal(error.to_string()))?,
        })
    }

    /// Of the streams that a view reads, one that has forgotten rows of which the view was made, and how many it has forgotten. What
    /// says where one began when it was made may be missing: `otherwise` is taken then.
    pub fn forgotten(
        &self,
        view: ObjectId,
        streams: impl Iterator<Item = ObjectId>,
        otherwise: u64,
    ) -> SqlResult<Option<(ObjectId, u64)>> {
        let fact = self.store.catalog().fact(&beginnings_fact(view))?;
        let begins: Option<BTreeMap<u64, u64>> = fact.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let mut streams = streams.map(|stream| (stream, self.store.logs().first(stream.0)));
        Ok(streams.find(|(stream, first)| {
            let begin = begins.as_ref().and_then(|begins| begins.get(&stream.0));
            *first > begin.copied().unwrap_or(otherwise)
        }))
    }

    /// Why a view cannot be filled again, if so: rows that it was made of were removed since its checkpoint. `why`: the checkpoint
    /// is of no use; none: there is none.
    pub(super) fn history_gone(
        &self,
        view: ObjectId,
        graph: &StageGraph,
        why: Option<&str>,
    ) -> SqlResult<Option<SqlError>> {
        // The log of a table may begin later, too, and has all of its rows.
        let streams = (graph.inputs.iter())
            .filter(|input| input.kind == RelationKind::Stream)
            .map(|input| ObjectId(input.id.0));
        // Of a view that never was in a checkpoint nothing went.
        let otherwise = if why.is_some() { 0 } else { u64::MAX };
        let Some((stream, first)) = self.forgotten(view, streams, otherwise)? else {
            return Ok(None);
        };
        let name = graph.inputs.iter().find(|input| input.id.0 == stream.0);
        let name = name.map(|input| input.name.as_str()).unwrap_or_default();
        let why = match why {
            Some(why) => format!("its checkpoint cannot be used: {why}"),
            None => "no checkpoint contains it".to_owned(),
        };
        Ok(Some(SqlError::new(
            SqlState::ObjectNotInPrerequisiteState,
            format!(
                "it cannot be refilled: retention has removed the first {first} rows of stream \"{name}\", \
                 and {why}"
            ),
        )))
    }

    /// The watermark of a stream whose log does not tell it any more.
    pub(super) fn kept_watermark(&self, stream: ObjectId) -> Result<Option<i64>, StorageError> {
        let fact = self.store.catalog().fact(&watermark_fact(stream.0))?;
        let bytes = fact.and_then(|bytes| <[u8; 8]>::try_from(bytes).ok());
        Ok(bytes.map(i64::from_le_bytes))
    }
}
