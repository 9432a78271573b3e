//! What the start does about state: views come back from their checkpoints or are filled again, then the logs are replayed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use millrace_catalog::{Definition, Object};
use millrace_engine::{RestoredView, RuntimeError, ViewSpec};
use millrace_planner::RelationId;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_storage::ObjectId;
use parking_lot::Mutex;

use crate::database::Database;
use crate::tuning::RecoveryReads;

/// How long the checkpoint at the end may take.
const LAST_CHECKPOINT_MAX: Duration = Duration::from_secs(10);

/// How a view came up at this start.
#[derive(Debug, Clone)]
pub struct RecoveredView {
    pub id: ObjectId,
    /// The epoch of its checkpoint; none: it was filled.
    pub epoch: Option<u64>,
    /// Why it was filled although a checkpoint has it.
    pub why_filled: Option<String>,
    /// The number of the newest checkpoint then. One that was filled is in none of those up to it.
    pub checkpoint: u64,
    pub elapsed: Duration,
}

/// What is loaded when the logs have been replayed.
pub enum Later {
    /// A view that has to be filled, and why if a checkpoint has it.
    View {
        spec: Box<ViewSpec>,
        why_filled: Option<String>,
    },
    /// An index of such a view.
    Index {
        relation: RelationId,
        columns: Vec<usize>,
    },
}

/// How the start went.
#[derive(Debug)]
pub struct Recovery {
    started: Instant,
    views: Mutex<Vec<RecoveredView>>,
    replayed: Mutex<(u64, u64, Duration)>,
    found_damage: AtomicBool,
}

impl Default for Recovery {
    fn default() -> Self {
        Recovery {
            started: Instant::now(),
            views: Mutex::default(),
            replayed: Mutex::default(),
            found_damage: AtomicBool::default(),
        }
    }
}

impl Recovery {
    /// Time since the start.
    pub fn since_start(&self) -> Duration {
        self.started.elapsed()
    }

    /// How views came up, in the order in which they did.
    pub fn views(&self) -> Vec<RecoveredView> {
        self.views.lock().clone()
    }

    /// Whether it ended early because a log was damaged that had been believed to be whole. The next one leaves it out.
    pub(super) fn found_damage(&self) -> bool {
        self.found_damage.load(Ordering::Relaxed)
    }

    /// Rows of logs that were fed again, epochs that were cut again as they were, and how long that took.
    pub fn replayed(&self) -> (u64, u64, Duration) {
        *self.replayed.lock()
    }
}

impl Database {
    /// How the start went.
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    fn newest_checkpoint(&self) -> u64 {
        let manifests = self.store.checkpoints().manifests();
        manifests.last().map_or(0, |manifest| manifest.number)
    }

    /// The number of the newest checkpoint that has nothing of a view, although it may say so: the view was filled after it.
    pub(super) fn filled_after(&self, view: ObjectId) -> Option<u64> {
        let views = self.recovery.views.lock();
        let filled = views
            .iter()
            .find(|found| found.id == view && found.epoch.is_none());
        filled.map(|view| view.checkpoint)
    }

    /// Views that show a checkpoint, because what the logs have behind it is not replayed yet.
    pub fn views_catching_up(&self) -> BTreeSet<ObjectId> {
        let behind: Vec<ObjectId> = (self.runtime.catching_up().into_iter())
            .map(|id| ObjectId(id.0))
            .collect();
        let mut views = self.catalog().closure(&behind);
        views.retain(|id| !behind.contains(id));
        views
    }

    /// Partitions that the view's keyed state has, or is to have.
    pub(super) fn partitions_of(&self, view: ObjectId) -> usize {
        let known = self.runtime.checkpointed_partitions(RelationId(view.0));
        known.unwrap_or_else(|| self.options.partitions())
    }

    /// Brings a view back from its checkpoint, or returns that it has to be filled.
    pub(super) async fn restore_view(&self, spec: ViewSpec) -> SqlResult<Option<Later>> {
        let started = Instant::now();
        let why = Some("it is not used");
        let cannot_be_filled = self
            .history_gone(ObjectId(spec.id.0), &spec.graph, why)?
            .is_some();
        let why_filled = match self.runtime.restore_view(spec.clone(), cannot_be_filled).await? {
            RestoredView::Restored { epoch } => {
                self.recovery.views.lock().push(RecoveredView {
                    id: ObjectId(spec.id.0),
                    epoch: Some(epoch),
                    why_filled: None,
                    checkpoint: self.newest_checkpoint(),
                    elapsed: started.elapsed(),
                });
                return Ok(None);
            }
            RestoredView::Absent => None,
            RestoredView::Unusable(why) => Some(why),
        };
        if let Some(why) = &why_filled {
            tracing::warn!(
                view = spec.name,
                why,
                "the checkpoint of a view is not used: the view is refilled"
            );
        }
        let spec = Box::new(spec);
        Ok(Some(Later::View { spec, why_filled }))
    }

    /// Brings up what had to wait.
    pub(super) async fn bring_up_rest(&self, rest: Later) -> SqlResult<()> {
        let started = Instant::now();
        match rest {
            Later::View { spec, why_filled } => {
                let id = ObjectId(spec.id.0);
                let damaged = self.store.checkpoints().damaged();
                let damaged = damaged.first().map(|(_, why)| why);
                let why = why_filled.as_ref().or(damaged).map(String::as_str);
                if let Some(error) = self.history_gone(id, &spec.graph, why)? {
                    return Err(error);
                }
                let catalog = self.catalog();
                let mut inputs = spec.graph.inputs.iter();
                let has_failed =
                    |object: &&Arc<Object>| matches!(object.definition, Definition::FailedToLoad(_));
                if let Some(read) =
                    inputs.find_map(|input| catalog.object(ObjectId(input.id.0)).filter(has_failed))
                {
                    return Err(SqlError::new(
                        SqlState::ObjectNotInPrerequisiteState,
                        format!("{}, which it reads, failed to load", read.described()),
                    ));
                }
                self.runtime.create_view(*spec).await?;
                self.recovery.views.lock().push(RecoveredView {
                    id,
                    epoch: None,
                    why_filled,
                    checkpoint: self.newest_checkpoint(),
                    elapsed: started.elapsed(),
                });
            }
            Later::Index { relation, columns } => self.runtime.create_index(relation, columns).await?,
        }
        Ok(())
    }

    /// Feeds again what the logs have behind the checkpoints; waits until it is visible, unless reads are not to wait and
    /// nothing else has to.
    pub(super) async fn replay(&self, has_to_wait: bool) -> SqlResult<()> {
        let started = Instant::now();
        let replayed = match self.runtime.replay().await {
            Ok(replayed) => replayed,
            Err(error) => {
                if let RuntimeError::Storage(damage) = &error {
                    let found = self.store.logs().distrust(damage)?;
                    self.recovery.found_damage.store(found, Ordering::Relaxed);
                }
                return Err(error.into());
            }
        };
        if has_to_wait || self.tuning().recovery_reads == RecoveryReads::Wait {
            self.runtime.wait_for(&replayed.token).await?;
            // What has gone by time alone since is gone.
            self.runtime.follow_clock().await?;
        }
        *self.recovery.replayed.lock() = (replayed.rows, replayed.epochs, started.elapsed());
        Ok(())
    }

    /// Puts everything into checkpoints before the end, so that the next start has nothing to replay.
    pub(super) async fn checkpoint_at_end(&self) {
        if self.tuning().checkpoint_interval.is_some()
            && tokio::time::timeout(LAST_CHECKPOINT_MAX, self.runtime.checkpoint())
                .await
                .is_err()
        {
            tracing::warn!(
                "the last checkpoint takes too long and is abandoned: the next start replays more of the log"
            );
        }
    }
}

/// An object that failed to load stays in the catalog, with the reason.
pub(super) fn mark_failed(object: &mut Object, error: SqlError) {
    tracing::error!(
        object = object.described(),
        error = error.message,
        detail = error.detail,
        "an object failed to load at startup"
    );
    object.definition = Definition::FailedToLoad(match error.detail {
        Some(detail) => format!("{}: {detail}", error.message),
        None => error.message,
    });
}
