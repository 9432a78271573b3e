//! What changes in a relation, for those who pass it on: sinks and subscriptions.
//!
//! ```text
//!  moved --> step: everything between the version that was taken last (pinned) and the newest one, as changes --> moved ..
//! ```
//! A step ends at a committed epoch. Nothing is recorded between two of them: of a stream it is read from the log, and the
//! rows of tables and views know the versions at which they came and went.

use std::sync::Arc;

use millrace_planner::RelationId;
use millrace_resource::disk::DiskScheduler;
use millrace_schedule::id::Version;
use millrace_storage::ChangeBatch;
use tokio::sync::{mpsc, oneshot};

use crate::error::{Result, RuntimeError};
use crate::relation::Relation;
use crate::runtime::backfill::input::{Input, Step};
use crate::runtime::{Engine, Runtime};
use crate::snapshot::{Frozen, FrozenRows};

/// Follows one relation from step to step.
pub struct Follower {
    runtime: Runtime,
    input: Input,
    taken: Option<Version>,
}

/// What one step brings; empty where nothing changed.
pub struct Changes {
    step: Step,
    disk: Arc<DiskScheduler>,
}

/// A table or view as of a checkpoint that is about to count. It counts when this is dropped, at the latest.
pub struct Checkpointed {
    /// The checkpoint's.
    pub number: u64,
    pub(crate) relation: Frozen,
    pub(crate) _seen: oneshot::Sender<()>,
}

/// What is between a checkpoint and what was taken of a relation.
pub struct Between {
    pub changes: Changes,
    /// The changes lead to the checkpoint; otherwise they lead from there to what was taken.
    pub is_ahead: bool,
}

impl Runtime {
    /// Every checkpoint of a table or view from now on, before it counts.
    pub fn checkpoints_of(&self, relation: RelationId) -> mpsc::UnboundedReceiver<Checkpointed> {
        let (tell, told) = mpsc::unbounded_channel();
        if let Some(durable) = &self.engine.checkpoints.durable {
            durable.tell(relation, tell);
        }
        told
    }

    /// A table or view as of the checkpoint that it was restored from. To be asked before [`Runtime::replay`].
    ///
    /// # Errors
    /// The runtime is shutting down.
    pub async fn restored(&self, relation: RelationId) -> Result<Option<Checkpointed>> {
        let number = {
            let recovery = self.engine.checkpoints.recovery.lock();
            recovery
                .as_ref()
                .and_then(|recovery| recovery.number_of(relation))
        };
        let Some(number) = number else { return Ok(None) };
        let snapshot = self.snapshot(&[relation], None).await?;
        Ok(Some(Checkpointed {
            number,
            relation: snapshot.frozen(relation)?.clone(),
            _seen: oneshot::channel().0,
        }))
    }

    /// Begins to follow a relation that was taken as of a checkpoint.
    pub fn follow_from(&self, checkpoint: &Checkpointed) -> Follower {
        Follower {
            runtime: self.clone(),
            input: Input::taken_as(&checkpoint.relation),
            taken: Some(checkpoint.relation.version),
        }
    }

    /// Begins to follow a relation. The first step brings all rows of a table or view, of a stream those from `offset` on.
    pub fn follow(&self, relation: RelationId, offset: u64) -> Follower {
        Follower {
            runtime: self.clone(),
            input: Input::beginning(relation, offset),
            taken: None,
        }
    }
}

impl Follower {
    /// Resolves when there is a version that was not taken.
    ///
    /// # Errors
    /// The relation is gone, or the runtime is shutting down.
    pub async fn moved(&self) -> Result<()> {
        let relation = self.input.relation;
        let by_offset = !matches!(
            self.runtime.engine.relation(relation)?.as_ref(),
            Relation::View(_)
        );
        let taken = self.taken;
        self.runtime
            .until(|engine| Some(engine.versions.version(relation, by_offset)) != taken)
            .await
    }

    /// Resolves when an epoch was committed that was not taken, whatever changed in it.
    ///
    /// # Errors
    /// The relation is gone, or the runtime is shutting down.
    pub async fn passed(&self) -> Result<()> {
        let (relation, taken) = (self.input.relation, self.input.epoch());
        let is_over = |engine: &Engine| {
            engine.relation(relation).is_err() || engine.versions.version(relation, false) != taken
        };
        self.runtime.until(is_over).await?;
        self.runtime.engine.relation(relation).map(|_| ())
    }

    /// The epoch of the relation's pipeline that was taken last.
    pub fn epoch(&self) -> u64 {
        self.input.epoch()
    }

    /// All rows as of the step that was taken last, of a stream those that its log still has.
    ///
    /// # Errors
    /// The relation is gone, or its log is damaged.
    pub fn everything(&self) -> Result<Changes> {
        Ok(Changes {
            step: self.input.everything(&self.runtime)?,
            disk: Arc::clone(self.runtime.engine.machine.data()),
        })
    }

    /// Takes the newest version. The changes of the step before must have been read.
    ///
    /// # Errors
    /// The relation is gone, a view that failed, or a view that lost rows with a worker since the step before: what changed
    /// is not known then, and who follows has to start again.
    pub async fn step(&mut self) -> Result<Changes> {
        let before = self.input.taken().cloned();
        let (step, _) = self.input.next(&self.runtime, u64::MAX).await?;
        if let Some(now) = self.input.taken() {
            if let Relation::View(view) = now.relation.as_ref()
                && let Some(why) = view.failure()
            {
                return Err(RuntimeError::ViewFailed {
                    view: view.name.clone(),
                    why,
                });
            }
            if let Some(before) = before
                && !before.is_same_incarnation(now)
            {
                return Err(RuntimeError::RowsLost {
                    relation: now.relation.name().to_owned(),
                });
            }
            self.taken = Some(now.version);
        } else {
            self.taken = Some(self.input.offset());
        }
        Ok(Changes {
            step,
            disk: Arc::clone(self.runtime.engine.machine.data()),
        })
    }

    /// What a checkpoint has that was not taken, or the other way round. `None`: it is of other tables than what was taken.
    pub fn between(&self, checkpoint: &Checkpointed) -> Option<Between> {
        let (taken, of_checkpoint) = (self.input.taken()?, &checkpoint.relation);
        if !taken.is_same_incarnation(of_checkpoint) || !taken.is_current() {
            return None;
        }
        let is_ahead = taken.version <= of_checkpoint.version;
        let (older, newer) = match is_ahead {
            true => (taken, of_checkpoint),
            false => (of_checkpoint, taken),
        };
        let FrozenRows::Table(partitions) = &newer.rows else {
            return None;
        };
        let step = Step::Rows {
            partitions: partitions.clone(),
            since: Some(older.version),
            at: (0, 0),
        };
        let disk = Arc::clone(self.runtime.engine.machine.data());
        let changes = Changes { step, disk };
        Some(Between { changes, is_ahead })
    }

    /// Of a stream, the offset up to which it was taken.
    pub fn offset(&self) -> u64 {
        self.input.offset()
    }
}

impl Changes {
    /// The next changes; `None`: that was all.
    ///
    /// # Errors
    /// The log is damaged.
    pub async fn next(&mut self) -> Result<Option<ChangeBatch>> {
        self.step.next(&self.disk).await
    }

    /// Begins again with the first change, if it is a table or a view.
    pub fn rewind(&mut self) {
        if let Step::Rows { at, .. } = &mut self.step {
            *at = (0, 0);
        }
    }
}
