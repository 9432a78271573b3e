//! The tasks that write sinks, one each.
//!
//! ```text
//!  start: names are settled (sink/directory) --> what there is against what was delivered: the difference is the first step
//!  then: the relation moved --> rollover is over --> step --> files --> commit (the fact) --> names --> ..
//! ```
//! What was delivered of a table or view is read from the files: their rows, added up. So it does not matter from where the
//! view came up after a crash, or whether it was filled again and rows are other ones now: what the files say is what the view
//! says, after the first step as after every other. Of a stream the fact says up to which offset it was delivered.
//!
//! So that not all files have to be read for that, a sink notes with each checkpoint of its relation how the files differ from
//! it (`sink/base`). A start from that checkpoint reads the files that came since, and compares them with what changed since.
//!
//! What goes to another system is written to the files of an outbox (`sink_files/outbox`), and sent from there (`shipping`). The next step is
//! taken when the target has the one before: so no more than one waits, however long the target is away.
//!
//! When something fails (no room, a file that is gone) the task says so, and starts again a little later.

mod asking;
mod beginning;
mod delivered;
mod drafting;
mod fold;
mod shipping;
mod subscription_log;
mod writing;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use millrace_catalog::sink::{SinkDef, Target};
use millrace_catalog::{Definition, Object};
use millrace_connectors::source::ConnectorError;
use millrace_connectors::writers;
use millrace_engine::Checkpointed;
use millrace_planner::RelationId;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_storage::{CatalogChange, ObjectId, ObjectKind};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use uuid::Uuid;

pub(crate) use self::drafting::rows_of;
use self::writing::{Ask, Writing};
use crate::database::Database;
use crate::sink_files::base::Bases;
use crate::sink_files::directory::io_error;
use crate::sink_files::outbox;

/// How long a look at a target may take when a sink is made.
const PROBE: Duration = Duration::from_secs(15);

/// The fact that says what of a sink is committed.
fn fact(sink: ObjectId) -> String {
    format!("sink/{}", sink.0)
}

/// The fact that says that a sink is paused.
fn paused_fact(sink: ObjectId) -> String {
    format!("sink_paused/{}", sink.0)
}

/// All that the catalog holds of a sink besides its definition.
pub fn facts(sink: ObjectId) -> [String; 2] {
    [fact(sink), paused_fact(sink)]
}

/// What no other sink anywhere is called.
pub fn new_id() -> String {
    format!("millrace-{}", Uuid::new_v4())
}

/// What is committed: the files below `next`. Its lasting form is JSON.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Committed {
    next: u64,
    /// Of a stream, the first offset that is in none of them.
    offset: u64,
    rows: u64,
    bytes: u64,
    /// In milliseconds since 1970-01-01 00:00 UTC.
    at_ms: i64,
    /// What is only in a sink to another system.
    #[serde(flatten)]
    outbox: OutboxFact,
}

/// What is known of an outbox. Zeroes, which are all that a sink of files has, are left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct OutboxFact {
    /// The steps below are told by a sum, of so many bytes.
    #[serde(skip_serializing_if = "is_zero")]
    first: u64,
    #[serde(skip_serializing_if = "is_zero")]
    sum_bytes: u64,
    /// Bytes of all steps when the sum was written.
    #[serde(skip_serializing_if = "is_zero")]
    summed_bytes: u64,
    /// The target has at least the steps below, which are so many rows.
    #[serde(skip_serializing_if = "is_zero")]
    delivered: u64,
    #[serde(skip_serializing_if = "is_zero")]
    delivered_rows: u64,
    /// Of a subscription, the epoch of its last step, and that as of which it began.
    #[serde(skip_serializing_if = "is_zero")]
    epoch: u64,
    #[serde(skip_serializing_if = "is_zero")]
    since: u64,
}

impl Committed {
    /// As others see it, of a sink to this target.
    fn status(&self, target: &Target) -> SinkStatus {
        SinkStatus {
            files: self.next,
            rows: self.rows,
            bytes: self.bytes,
            waiting_rows: match target {
                Target::Files(_) => 0,
                Target::Kafka(_)
                | Target::Postgres(_)
                | Target::Bucket(_)
                | Target::Webhook(_)
                | Target::Delta(_)
                | Target::Subscription(_) => self.rows.saturating_sub(self.outbox.delivered_rows),
            },
            committed_at_ms: (self.next > 0).then_some(self.at_ms),
            ..SinkStatus::default()
        }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A sink as `mr_catalog.sinks` has it.
#[derive(Debug, Clone, Default)]
pub struct SinkStatus {
    /// Whether what was delivered before is known, so that changes are followed.
    pub is_running: bool,
    pub files: u64,
    pub rows: u64,
    pub bytes: u64,
    /// When files were committed last, in milliseconds since 1970-01-01 00:00 UTC; none: never.
    pub committed_at_ms: Option<i64>,
    /// Rows of steps that the target does not have yet.
    pub waiting_rows: u64,
    /// Since when there is something that the target does not have, in milliseconds since 1970-01-01 00:00 UTC.
    pub behind_since_ms: Option<i64>,
    /// Why it does not go on.
    pub error: Option<String>,
    /// Whether it does not try again: somebody must do something.
    pub has_ended: bool,
    /// Whether somebody has stopped it for a while.
    pub is_paused: bool,
}

impl SinkStatus {
    /// Whether it follows its relation, and so knows whether there is something to deliver.
    fn follows(&self) -> bool {
        self.is_running && !self.is_paused && !self.has_ended
    }

    /// Rows of steps that the target does not have yet; none: nobody knows.
    pub fn known_waiting(&self) -> Option<u64> {
        (self.follows() || self.waiting_rows > 0).then_some(self.waiting_rows)
    }

    /// For how long there has been something to deliver; none: nobody knows whether there is.
    pub fn lag_seconds(&self, now_ms: i64) -> Option<f64> {
        match self.behind_since_ms {
            Some(since) => Some(now_ms.saturating_sub(since).max(0) as f64 / 1_000.0),
            None => self.follows().then_some(0.0),
        }
    }

    /// What it is doing, in a word.
    pub fn state(&self) -> &'static str {
        match (&self.error, self.is_running) {
            _ if self.is_paused => "paused",
            _ if self.has_ended => "failed",
            (Some(_), _) => "failing",
            (None, true) => "running",
            (None, false) => "starting",
        }
    }
}

/// The tasks, by sink.
#[derive(Default)]
pub struct Sinks(Mutex<BTreeMap<ObjectId, Running>>);

struct Running {
    status: watch::Receiver<SinkStatus>,
    stop: watch::Sender<bool>,
    asks: mpsc::UnboundedSender<Ask>,
    /// None: it is paused.
    task: Option<JoinHandle<()>>,
    /// The relation that it reads, and of a stream the first offset that it has not delivered.
    relation: ObjectId,
    needed: Arc<Mutex<u64>>,
}

impl Sinks {
    /// All of them.
    pub fn list(&self) -> Vec<(ObjectId, SinkStatus)> {
        let sinks = self.0.lock();
        sinks
            .iter()
            .map(|(id, sink)| (*id, sink.status.borrow().clone()))
            .collect()
    }

    /// The first offset of a stream that a sink has to deliver yet; none: no sink reads it.
    pub fn needed(&self, stream: ObjectId) -> Option<u64> {
        let sinks = self.0.lock();
        let needed = sinks.values().filter(|sink| sink.relation == stream);
        needed.map(|sink| *sink.needed.lock()).min()
    }

    /// Stops one, which is dropped.
    pub async fn stop(&self, sink: ObjectId) {
        let running = self.0.lock().remove(&sink);
        if let Some(running) = running {
            running.stop.send_replace(true);
            if let Some(task) = running.task {
                // What is being committed is seen through.
                let _ = task.await;
            }
        }
    }

    /// Delivers what is visible and stops all of them.
    pub async fn stop_all(&self) {
        self.flush().await;
        let sinks: Vec<ObjectId> = self.0.lock().keys().copied().collect();
        for sink in sinks {
            self.stop(sink).await;
        }
    }
}

impl Database {
    /// The sinks.
    pub fn sinks(&self) -> &Sinks {
        &self.sinks
    }

    /// What sinks read that was restored, as of its checkpoint. To be asked before the logs are replayed.
    pub(super) async fn restored_for_sinks(&self) -> SqlResult<BTreeMap<ObjectId, Checkpointed>> {
        let catalog = self.catalog();
        let mut restored = BTreeMap::new();
        for object in catalog.objects() {
            if let Definition::Sink(def) = &object.definition
                && catalog
                    .object(def.relation)
                    .is_some_and(|read| read.kind != ObjectKind::Stream)
                && let Some(checkpointed) = self.runtime.restored(RelationId(def.relation.0)).await?
            {
                restored.insert(object.id, checkpointed);
            }
        }
        let number = |sink| {
            restored
                .get(&sink)
                .map(|checkpointed: &Checkpointed| checkpointed.number)
        };
        let data = &self.options.data;
        Bases::keep(data, number).map_err(|error| io_error("clear", &data.join("sinks"), &error))?;
        let is_sink = |id| {
            let object = catalog.object(id);
            object.is_some_and(|object| matches!(object.definition, Definition::Sink(_)))
        };
        outbox::keep(data, is_sink).map_err(|error| io_error("clear", &data.join("outbox"), &error))?;
        Ok(restored)
    }

    /// Removes what a sink has in the data directory.
    pub(crate) fn forget_sink(&self, object: &Object) {
        let data = &self.options.data;
        self.subscriptions.forget(object);
        if matches!(object.definition, Definition::Sink(_))
            && let Err(error) = Bases::of(data, object.id)
                .remove()
                .and_then(|()| outbox::remove(data, object.id))
        {
            tracing::error!(%error, object = object.described(), "the record of a dropped sink could not be \
                 removed; the next start removes it");
        }
    }

    /// Looks whether the target of a new sink can be written.
    ///
    /// # Errors
    /// It cannot be reached, refuses, or is not there.
    pub async fn probe_sink(&self, sink: &SinkDef) -> SqlResult<()> {
        let by = writers::By::new(&self.options.private_hosts);
        let checked = tokio::time::timeout(PROBE, writers::check(sink, &by)).await;
        let checked = checked.unwrap_or_else(|_| {
            Err(ConnectorError::passing(format!(
                "the target did not answer within {} seconds",
                PROBE.as_secs()
            )))
        });
        checked.map_err(ConnectorError::into_sql)
    }

    /// Stops a sink until it is resumed, also over a restart. What it has to deliver is kept for it.
    ///
    /// # Errors
    /// It failed to load; the catalog cannot be written.
    pub async fn pause_sink(self: &Arc<Self>, object: &Object) -> SqlResult<()> {
        object.check_up()?;
        self.store().catalog().put_fact(&paused_fact(object.id), b"1")?;
        self.restart_sink(object).await;
        Ok(())
    }

    /// Goes on with a sink where it was paused, or tries again one that failed.
    ///
    /// # Errors
    /// It failed to load; the catalog cannot be written.
    pub async fn resume_sink(self: &Arc<Self>, object: &Object) -> SqlResult<()> {
        object.check_up()?;
        let key = paused_fact(object.id);
        self.store()
            .catalog()
            .apply(vec![CatalogChange::RemoveFact { key }])?;
        self.restart_sink(object).await;
        Ok(())
    }

    /// Stops the task of a sink and starts it as the catalog says. The caller has the right to change definitions.
    async fn restart_sink(self: &Arc<Self>, object: &Object) {
        // Nothing that it needs is removed meanwhile: retention waits for the right to change definitions.
        self.sinks.stop(object.id).await;
        self.start_sink(object, None);
    }

    /// Stops the tasks of sinks that are about to follow other relations than before; what they noted with checkpoints was of those.
    pub(crate) async fn detach_sinks(&self, objects: &[Arc<Object>]) {
        let catalog = self.catalog();
        let relation = |object: &Arc<Object>| match &object.definition {
            Definition::Sink(def) => Some(def.relation),
            _ => None,
        };
        for object in objects {
            let before = catalog.object(object.id).and_then(relation);
            if before.is_some() && before != relation(object) {
                self.sinks.stop(object.id).await;
                if let Err(error) = Bases::of(&self.options.data, object.id).remove() {
                    tracing::error!(%error, object = object.described(), "the notes that a sink made with checkpoints could not be removed");
                }
            }
        }
    }

    /// What a sink has committed, and whether it is paused.
    fn stored_of_sink(&self, sink: ObjectId) -> SqlResult<(Committed, bool)> {
        let catalog = self.store().catalog();
        let committed = match catalog.fact(&fact(sink))? {
            None => Committed::default(),
            Some(bytes) => serde_json::from_slice(&bytes).map_err(|error| {
                SqlError::new(
                    SqlState::DataCorrupted,
                    format!("the record of the sink's files cannot be read: {error}"),
                )
            })?,
        };
        Ok((committed, catalog.fact(&paused_fact(sink))?.is_some()))
    }

    /// Starts to write a sink, if the object is one that is not written yet and nobody has paused it. `restored`: what it reads, if that was restored at
    /// this start.
    pub(crate) fn start_sink(self: &Arc<Self>, object: &Object, restored: Option<Checkpointed>) {
        let Definition::Sink(def) = &object.definition else {
            return;
        };
        if self.sinks.0.lock().contains_key(&object.id) {
            return;
        }
        let kept = self.keep_steps(object, def);
        if let Ok((committed, true)) = self.stored_of_sink(object.id) {
            let status = SinkStatus {
                is_paused: true,
                ..committed.status(&def.target)
            };
            let paused = Running {
                status: watch::channel(status).1,
                stop: watch::channel(false).0,
                asks: mpsc::unbounded_channel().0,
                relation: def.relation,
                needed: Arc::new(Mutex::new(committed.offset)),
                task: None,
            };
            self.sinks.0.lock().insert(object.id, paused);
            return;
        }
        let (tell, status) = watch::channel(SinkStatus::default());
        let (stop, stopped) = watch::channel(false);
        let (asks, asked) = mpsc::unbounded_channel();
        let needed = Arc::default();
        let writing = Writing::new(
            self,
            object.id,
            object.described(),
            def,
            restored,
            writing::Wires {
                status: tell,
                stopped,
                asked,
                needed: Arc::clone(&needed),
                kept,
            },
        );
        let running = Running {
            status,
            stop,
            asks,
            relation: def.relation,
            needed,
            task: Some(tokio::spawn(writing.run())),
        };
        self.sinks.0.lock().insert(object.id, running);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_to_wait_is_not_nothing() {
        let told = |status: &SinkStatus| (status.known_waiting(), status.lag_seconds(5_000));
        let running = SinkStatus {
            is_running: true,
            ..SinkStatus::default()
        };
        assert_eq!(told(&running), (Some(0), Some(0.0)));
        let paused = SinkStatus {
            is_paused: true,
            ..running.clone()
        };
        assert_eq!(told(&paused), (None, None));
        let failed = SinkStatus {
            has_ended: true,
            waiting_rows: 7,
            behind_since_ms: Some(1_000),
            ..running
        };
        assert_eq!(told(&failed), (Some(7), Some(4.0)));
        assert_eq!(told(&SinkStatus::default()), (None, None));
    }
}
