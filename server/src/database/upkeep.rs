//! What is done once a second: logs are told the time and looked after, and caches are emptied while memory is short.
//!
//! A view is made of all rows that its streams had when it was made and that came since, and without a checkpoint it is
//! made so again: at a restart, or when a worker is lost. So retention removes nothing of a stream as long as a
//! materialized view, or a job that makes one, reads it, and nothing that a sink has not delivered. What it removes of others is gone for every later SELECT and CREATE.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use millrace_storage::{LogOwner, ObjectId, ObjectKind, StorageError};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use crate::database::Database;

const INTERVAL: Duration = Duration::from_secs(1);

/// The fact that holds the watermark of a stream that has forgotten rows.
fn watermark_fact(stream: u64) -> String {
    format!("watermark/{stream}")
}

/// What the logs may ask.
struct Owner<'a> {
    db: &'a Database,
    /// The streams that forget, each with the first offset that is needed.
    needed: BTreeMap<u64, u64>,
}

impl LogOwner for Owner<'_> {
    fn needed(&self, relation: u64) -> u64 {
        // What is not in the list is not known: it may just be coming.
        self.needed.get(&relation).copied().unwrap_or(0)
    }

    fn forgetting(&self, relation: u64) -> Result<(), StorageError> {
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
}

/// The task that does it.
#[derive(Default)]
pub(super) struct Upkeep {
    task: Mutex<Option<JoinHandle<()>>>,
    stop: Arc<Notify>,
}

impl Database {
    /// Looks after the database until it is closed.
    pub(super) fn start_upkeep(self: &Arc<Self>) {
        let db: Weak<Database> = Arc::downgrade(self);
        let stop = Arc::clone(&self.upkeep.stop);
        let task = tokio::spawn(async move {
            let mut ticks = tokio::time::interval(INTERVAL);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                tokio::select! {
                    _ = ticks.tick() => {}
                    () = stop.notified() => return,
                }
                match db.upgrade() {
                    Some(db) => db.upkeep(super::now_ms()).await,
                    None => return,
                }
            }
        });
        *self.upkeep.task.lock() = Some(task);
    }

    /// Waits for what is being done, and does no more.
    pub(crate) async fn stop_upkeep(&self) {
        let task = self.upkeep.task.lock().take();
        self.upkeep.stop.notify_one();
        if let Some(task) = task
            && let Err(error) = task.await
        {
            tracing::error!(%error, "the upkeep of the logs ended early");
        }
    }

    /// Does what is due at this time, in milliseconds since 1970-01-01 UTC.
    pub(crate) async fn upkeep(self: &Arc<Self>, now_ms: i64) {
        if self.runtime.memory().is_short() {
            self.empty_caches();
        }
        // No view may begin to read a stream between the look at who reads it and the removal.
        let guard = match self.needed_offsets().is_empty() {
            true => None,
            false => Some(Arc::clone(&self.ddl).lock_owned().await),
        };
        let db = Arc::clone(self);
        let work = tokio::task::spawn_blocking(move || {
            let needed = match guard {
                Some(_) => db.needed_offsets(),
                None => BTreeMap::new(),
            };
            db.store.logs().maintain(now_ms, &Owner { needed, db: &db });
            drop(guard);
        });
        if let Err(error) = work.await {
            tracing::error!(%error, "the upkeep of the logs ended early");
        }
    }

    /// Drops what is kept only to be fast, or to be looked at again.
    fn empty_caches(&self) {
        self.profiles.clear();
        let caches = &self.state.runtime_env().cache_manager;
        caches.get_file_metadata_cache().clear();
        if let Some(cache) = caches.get_file_statistic_cache() {
            cache.clear();
        }
        if let Some(cache) = caches.get_list_files_cache() {
            cache.clear();
        }
    }

    /// Of each stream that forgets rows, the first that is still needed.
    fn needed_offsets(&self) -> BTreeMap<u64, u64> {
        let catalog = self.catalog();
        let forgetting = catalog.objects().filter(|object| {
            let relation = object.relation();
            object.kind == ObjectKind::Stream && relation.is_some_and(|relation| relation.keeping.forgets())
        });
        forgetting
            .map(|stream| {
                let is_read = catalog.closure(&[stream.id]).iter().any(|id| {
                    let reader = catalog.object(*id);
                    reader.is_some_and(|object| object.kind == ObjectKind::MaterializedView)
                }) || !self.jobs.over(std::slice::from_ref(stream)).is_empty();
                let delivered = self.sinks.needed(stream.id).unwrap_or(u64::MAX);
                (stream.id.0, if is_read { 0 } else { delivered })
            })
            .collect()
    }

    /// The watermark of a stream whose log does not tell it any more.
    pub(super) fn kept_watermark(&self, stream: ObjectId) -> Result<Option<i64>, StorageError> {
        let fact = self.store.catalog().fact(&watermark_fact(stream.0))?;
        let bytes = fact.and_then(|bytes| <[u8; 8]>::try_from(bytes).ok());
        Ok(bytes.map(i64::from_le_bytes))
    }
}
