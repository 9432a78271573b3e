//! What the driver is told, and what it answers.

use std::sync::Arc;

use millrace_planner::RelationId;

use super::{CheckpointPolicy, Spread};
use crate::cpu::policy::SchedulerPolicy;
use crate::group_size::GroupSize;
use crate::id::{PipelineId, Ticket, WorkerId};
use crate::message::{ToDriver, ToWorker};
use crate::template::ViewShape;

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A worker is there from now on; partitions move to it when their pipeline is next opened. `has_sources`: sources arrive
    /// where it is, so that it may take cuts.
    WorkerJoined { worker: WorkerId, has_sources: bool },
    /// A worker is to leave: pipelines that have partitions there are moved off it; then [`Command::WorkerFree`].
    WorkerLeaving { worker: WorkerId },
    /// A worker is gone, with everything that it had.
    WorkerLost { worker: WorkerId },
    /// A worker says something.
    Worker(ToDriver),
    /// A message to a worker could not be delivered, or it is not known whether it was.
    Undelivered { to: WorkerId, message: ToWorker },
    /// An interval of heartbeats has passed.
    Tick,
    /// A stream or table exists from now on; it is a pipeline of its own.
    SourceAdded {
        relation: RelationId,
        pipeline: PipelineId,
    },
    /// A back-fill of views starts: a pipeline of its own until it has caught up.
    JobAdded {
        views: Vec<Arc<ViewShape>>,
        pipeline: PipelineId,
    },
    /// Definitions over these relations are to change (a view that is back-filled stands for its back-fill). If there are
    /// none, a new pipeline is made, under the id given.
    Quiesce {
        ticket: Ticket,
        relations: Vec<RelationId>,
        or_new: PipelineId,
    },
    /// The change is done: `views` joined the pipeline, in this order; `dropped` are gone.
    Resume {
        ticket: Ticket,
        views: Vec<Arc<ViewShape>>,
        dropped: Vec<RelationId>,
    },
    /// The back-fill of a view, and of what is filled with it, ended or was abandoned.
    JobRemoved { view: RelationId },
    /// How many epochs groups have from now on.
    GroupSize(GroupSize),
    /// How often there are checkpoints, of pipelines that are opened from now on.
    Checkpoints(CheckpointPolicy),
    /// The next epoch of the pipeline is to be a checkpoint, with or without input. Nothing happens if it is at rest.
    CheckpointDue { pipeline: PipelineId },
    /// Over how many workers pipelines are spread.
    Spread(Spread),
    /// By which rules partitions are placed, from the next change of workers on.
    Policy(SchedulerPolicy),
    /// The time between two heartbeats of a worker, in nanoseconds.
    Heartbeats { every_ns: u64 },
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    Send(WorkerId, ToWorker),
    /// Everything up to this epoch is done: readers may see it.
    Commit {
        pipeline: PipelineId,
        epoch: u64,
    },
    /// The view is part of the pipeline, and what its back-fill made is visible.
    Attached {
        view: RelationId,
        pipeline: PipelineId,
    },
    /// These pipelines are one from now on.
    Joined {
        into: PipelineId,
        from: PipelineId,
    },
    /// The pipeline's cuts are taken by this worker from now on.
    CutterIs {
        pipeline: PipelineId,
        worker: WorkerId,
    },
    /// Nothing of the pipeline is in flight, and nothing will be until the ticket is resumed.
    Quiesced {
        ticket: Ticket,
        pipeline: PipelineId,
        epoch: u64,
    },
    /// No pipeline has anything on the worker any more.
    WorkerFree {
        worker: WorkerId,
    },
    /// The worker is held to be lost: nothing that it says or does from now on may count.
    Evict {
        worker: WorkerId,
    },
    /// These partitions (numbers are taken modulo `modulus`) of the views are lost, and will be restored elsewhere. Readers
    /// are to wait until the pipeline has [`Command::Recovered`].
    Lost {
        pipeline: PipelineId,
        views: Vec<Arc<ViewShape>>,
        partitions: Vec<usize>,
        modulus: usize,
    },
    /// All that readers had seen is there again.
    Recovered {
        pipeline: PipelineId,
    },
    /// The views are lost, and part of the pipeline no longer: they have to be filled again.
    Abandoned {
        pipeline: PipelineId,
        views: Vec<RelationId>,
    },
    /// A part of the back-fill of this view is lost: it has to start again.
    JobLost {
        view: RelationId,
    },
    /// What was put into the checkpoint store after this epoch is what is restored from now on; cuts up to it are not taken
    /// again.
    Checkpointed {
        pipeline: PipelineId,
        epoch: u64,
        views: Vec<RelationId>,
        /// It may be restored from; otherwise it is for whoever asked for it.
        is_kept: bool,
    },
}
