//! How a worker reaches the rest of the system.

use std::collections::HashMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use millrace_planner::RelationId;
use millrace_schedule::id::{Part, PipelineId, TaskId, WorkerId};
use millrace_schedule::local::Timer;
use millrace_schedule::message::{EpochTime, ToDriver, ToPeer};
use millrace_storage::ChangeBatch;

use super::activity::ActivityCounts;
use super::flow::{Batch, BatchId, FlowId};
use super::shuffle::Block;
use super::view::{Image, ViewInstance};
use crate::error::Result;
use crate::feed::{Cut, CutAnswer, CutRequest};

/// What an epoch takes from its surroundings.
#[derive(Debug)]
pub struct EpochCut {
    pub changes: HashMap<RelationId, Cut>,
    pub time: EpochTime,
    /// More input waits.
    pub more: bool,
    pub is_checkpoint: bool,
    /// For how long the oldest of its rows has been durable, in nanoseconds.
    pub waited_ns: u64,
    /// Epochs that may be under way at once from here on.
    pub in_flight_max: usize,
}

/// How a worker reaches the rest of the system.
pub trait Transport: Send + Sync {
    /// Tells the driver.
    fn report(&self, message: ToDriver);

    /// How much of the process's memory is in use, in thousandths of its limit.
    fn memory_permille(&self) -> u32;

    /// Tells another worker. If that fails, or may have, the driver is told: [`ToDriver::Undelivered`].
    fn send(&self, to: WorkerId, message: ToPeer);

    /// Rows that wait on another worker; an error if it does not answer.
    fn fetch(
        &self,
        from: WorkerId,
        pipeline: PipelineId,
        epoch: u64,
        block: Block,
    ) -> BoxFuture<'static, Result<Vec<ChangeBatch>>>;

    /// The next batch of a stage's channel on another worker, for the partition of its reader that has worked off `done`;
    /// none if there are no more. It comes for sure unless the worker is gone, which is the only error.
    fn next_batch(
        &self,
        from: WorkerId,
        flow: FlowId,
        partition: usize,
        done: Option<BatchId>,
    ) -> BoxFuture<'static, Result<Option<Batch>>>;

    /// Fixes the cut of every source of the pipeline for an epoch, or tells again what it was. Called in the order of
    /// epochs, on the cutter.
    fn cut(&self, request: CutRequest) -> CutAnswer<EpochCut>;

    /// Puts the state of a task into the checkpoint store. An error if it is not known to be there.
    fn keep_image(&self, part: Part, epoch: u64, image: Image) -> BoxFuture<'static, Result<()>>;

    /// What the last complete checkpoint has of a task; an error if that cannot be asked.
    fn image(&self, part: Part) -> BoxFuture<'static, Result<Option<Arc<Image>>>>;

    /// Applies what a task emitted to the rows of its view, where these are on another machine.
    fn materialize(
        &self,
        task: TaskId,
        incarnation: u64,
        rows: Vec<ChangeBatch>,
    ) -> BoxFuture<'static, Result<()>>;

    /// Sees to it that rows of a view that were lost with a worker are back, if they are kept here.
    fn bring_rows_back(&self, view: &Arc<ViewInstance>, partition: usize) -> BoxFuture<'static, Result<()>>;

    /// Whether a worker has the same memory as this one: what either keeps, both have.
    fn is_together(&self, other: WorkerId) -> bool;

    /// A task ended well, which did so much.
    fn ran(&self, view: &ViewInstance, task: TaskId, counts: &ActivityCounts);

    /// The fixed rows of a stage were emitted.
    fn emitted_fixed_rows(&self, view: &ViewInstance, stage: usize);

    /// A task that keeps rows by time ended: its output changes at `due` without input, or (`None`) never.
    fn due(&self, task: TaskId, due: Option<i64>);

    /// Whether a back-fill runs at the priority of streams.
    fn is_urgent(&self, job: PipelineId) -> bool;

    /// A view failed here. `is_memory`: because memory ran out.
    fn failed(&self, view: &ViewInstance, is_memory: bool);

    /// Whether sources arrive in this process, and the rows of views are kept here.
    fn has_sources(&self) -> bool;

    /// The oldest version of a view that a reader may still look at; its epochs run in `pipeline`.
    fn low_water(&self, view: RelationId, pipeline: PipelineId) -> u64;

    /// Calls [`wake`](super::Worker::wake) at this time (nanoseconds since the worker's start).
    fn wake_at(&self, worker: WorkerId, pipeline: PipelineId, timer: Timer, at: u64);

    /// Sees a transfer between workers through. It takes no cpu slot.
    fn transfer(&self, transfer: BoxFuture<'static, ()>);
}
