//! What a local scheduler is told, and what it wants done.

use std::ops::RangeInclusive;
use std::sync::Arc;

use millrace_planner::RelationId;

use crate::id::{PipelineId, TaskId, WorkerId};
use crate::message::{EpochTime, ToDriver, ToPeer, ToWorker};
use crate::task::{Ended, Source};
use crate::template::Template;

/// A task whose inputs are all there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadyTask {
    pub pipeline: PipelineId,
    pub version: u64,
    pub id: TaskId,
    /// Of the view.
    pub incarnation: u64,
    pub time: EpochTime,
    /// Batch work: see [`Template::gives_way`](crate::template::Template::gives_way).
    pub gives_way: bool,
    /// Whether other views wait for what it changes in its view.
    pub is_read: bool,
    /// Its state after this epoch is to be put into the checkpoint store before it ends.
    pub is_checkpoint: bool,
    pub sources: Vec<Source>,
    /// Whether its rows may go on in batches.
    pub has_faucet: bool,
    /// It is a copy of a task of this worker.
    pub copy_for: Option<WorkerId>,
}

/// What a timer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timer {
    /// The next cut is due.
    Cut,
    /// To look for stragglers.
    Stragglers,
}

/// What happened on a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LocalEvent {
    Driver(ToWorker),
    Peer(ToPeer),
    /// Input waits to be cut; here is the cutter.
    InputArrived {
        pipeline: PipelineId,
    },
    /// The answer to [`LocalAction::TakeCut`].
    CutTaken {
        pipeline: PipelineId,
        version: u64,
        cut: TakenCut,
    },
    /// Somebody waits for what there is: it does not wait for company. An interval that was set is kept.
    Hurry {
        pipeline: PipelineId,
    },
    /// The answer to [`LocalAction::TakeCut`] where there is no cut to be taken again.
    NoCut {
        pipeline: PipelineId,
        version: u64,
        epoch: u64,
        is_checkpoint: bool,
    },
    /// A task that was run ended.
    TaskEnded {
        pipeline: PipelineId,
        version: u64,
        id: TaskId,
        ended: Ended,
        /// Its output is that of its copy.
        is_copied: bool,
    },
    /// A task that runs emits batches from now on.
    TaskFlows {
        pipeline: PipelineId,
        version: u64,
        id: TaskId,
    },
    /// A copy that was run ended; none: it failed, and has left nothing.
    CopyEnded {
        pipeline: PipelineId,
        version: u64,
        id: TaskId,
        ended: Option<Ended>,
    },
    /// A task that was run found that worker `lost` does not answer; it has done nothing.
    TaskFailed {
        pipeline: PipelineId,
        version: u64,
        id: TaskId,
        lost: WorkerId,
    },
    /// The answer to [`LocalAction::Restore`].
    Restored {
        pipeline: PipelineId,
        version: u64,
        view: RelationId,
        stage: usize,
        partition: usize,
    },
    /// The time of [`LocalAction::WakeAt`] has come.
    Wake {
        pipeline: PipelineId,
        timer: Timer,
    },
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LocalAction {
    /// Fix the cut of every source for this epoch.
    TakeCut {
        pipeline: PipelineId,
        version: u64,
        epoch: u64,
        /// As in [`ReadyTask`].
        gives_way: bool,
        /// It is to be remembered until it is released: see [`ToWorker::Release`].
        is_retained: bool,
        /// Only a cut that was taken before is wanted.
        is_replay: bool,
        is_checkpoint: bool,
    },
    Run(ReadyTask),
    /// Fetch a task's state from the last checkpoint.
    Restore {
        pipeline: PipelineId,
        version: u64,
        view: RelationId,
        incarnation: u64,
        stage: usize,
        partition: usize,
    },
    /// All tasks of a stage here have ended whose reader may take batches: none will follow. `is_void`: nobody takes those
    /// that there are.
    EndFlow {
        pipeline: PipelineId,
        epoch: u64,
        view: RelationId,
        stage: usize,
        is_void: bool,
    },
    /// Rows that were kept of these epochs are fetched by nobody any more.
    Release {
        pipeline: PipelineId,
        epochs: RangeInclusive<u64>,
    },
    Send(WorkerId, ToPeer),
    Report(ToDriver),
    /// [`LocalEvent::Wake`] is wanted at this time (nanoseconds).
    WakeAt {
        pipeline: PipelineId,
        at: u64,
        timer: Timer,
    },
    /// The output of a task's copy is to be fetched from the worker where it ran, kept as the task's own, and then the task
    /// has ended ([`LocalEvent::TaskEnded`]); unless it ended by itself meanwhile.
    TakeCopy {
        pipeline: PipelineId,
        version: u64,
        id: TaskId,
        from: WorkerId,
        ended: Ended,
    },
    /// Of the views of this template only what it puts on this worker is of use here.
    KeepOwn(Arc<Template>),
    /// What is kept of these views here is of no use.
    Discard {
        views: Vec<RelationId>,
    },
    /// What these copies left here is wanted by nobody.
    DropCopies {
        pipeline: PipelineId,
        tasks: Vec<TaskId>,
    },
}

/// What a cut took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenCut {
    pub epoch: u64,
    pub time: EpochTime,
    /// Rows of each relation.
    pub rows: Vec<(RelationId, u64)>,
    /// More input waits.
    pub more: bool,
    /// Whether the epoch is a checkpoint: of a cut that is taken again, what it was.
    pub is_checkpoint: bool,
    /// For how long the oldest of its input has waited for it, in nanoseconds.
    pub waited_ns: u64,
    /// Epochs that may be under way at once from here on.
    pub in_flight_max: usize,
}
