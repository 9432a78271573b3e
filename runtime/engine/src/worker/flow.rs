//! Batches between the tasks of two stages: the faucet (Lattuada and others, "Faucet", BeyondMR 2016).
//!
//! ```text
//!                 batcher                                                     probe
//!  join, lazily --> at most N batches of B rows --> exchange --> operators --> end of the reader's run
//!       ^                                                                        |
//!       +--- suspended until fewer than N are in flight <--- batch (e, b) done --+
//! ```
//! 1. A task whose stage has a faucet holds back N x B rows. What ends before that goes on as a whole, as everywhere.
//! 2. With more it opens a [`Channel`], the scheduler has the reader's tasks run beside it, and it *sends* batch after batch.
//!    A batch is divided among the reader's partitions, and in flight until each has asked for the next one after it.
//! 3. The reader's task runs its operators on each batch as it comes (`Parts`); what they may take back is emitted with
//!    the last part. It has had the last one when the scheduler says that the stage has ended here. Its other inputs come as
//!    parts too: a stage without a faucet as one, since a row may be taken back in one task that another emits.
//! 4. A channel is *void* when nobody will take from it: its epoch was released, or its worker is gone. Then nobody waits.
//!
//! Pairs of batcher and probe follow each other along the stages of a view: where a reader has a faucet of its own, it is
//! suspended in the middle of a batch, and so is, in turn, whoever sends to it.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use millrace_planner::RelationId;
use millrace_planner::stage::flow::FlowLimits;
use millrace_resource::cpu;
use millrace_resource::cpu::Waits;
use millrace_resource::memory::Charge;
use millrace_schedule::id::PipelineId;
use millrace_storage::ChangeBatch;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::error::Result;

/// A stage of a view in an epoch: its tasks on one worker share a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FlowId {
    pub pipeline: PipelineId,
    pub epoch: u64,
    pub view: RelationId,
    pub stage: usize,
}

/// A batch: the partition that sends it, and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchId {
    pub from: usize,
    pub number: u64,
}

/// A partition's share of a batch.
#[derive(Debug, Clone)]
pub struct Batch {
    pub id: BatchId,
    pub rows: Vec<ChangeBatch>,
}

#[derive(Debug, Default)]
struct State {
    /// By receiving partition.
    waiting: HashMap<usize, VecDeque<Batch>>,
    /// By sending partition and number: shares that are not worked off, and the charge for the batch.
    in_flight: HashMap<usize, BTreeMap<u64, (usize, Option<Charge>)>>,
    is_ended: bool,
    is_void: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Channel {
    state: Mutex<State>,
    changed: Notify,
}

impl Channel {
    /// Sends a batch, as soon as fewer than `batches_max` of its sender are in flight. A void channel takes everything.
    pub async fn send(
        &self,
        id: BatchId,
        batches_max: usize,
        by_partition: Vec<Vec<ChangeBatch>>,
        charge: Option<Charge>,
    ) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            {
                let mut state = self.state.lock();
                if state.is_void {
                    return;
                }
                let in_flight = state.in_flight.entry(id.from).or_default();
                if in_flight.len() < batches_max {
                    let shares = by_partition.iter().filter(|rows| !rows.is_empty()).count();
                    if shares > 0 {
                        in_flight.insert(id.number, (shares, charge));
                    }
                    for (partition, rows) in by_partition.into_iter().enumerate() {
                        if !rows.is_empty() {
                            let waiting = state.waiting.entry(partition).or_default();
                            waiting.push_back(Batch { id, rows });
                        }
                    }
                    break;
                }
            }
            cpu::waits_for(Waits::Output);
            changed.await;
        }
        self.changed.notify_waiters();
    }

    /// The next batch for a partition, which has worked off `done`; none when there will be no more.
    pub async fn next(&self, partition: usize, done: Option<BatchId>) -> Option<Batch> {
        if let Some(done) = done {
            let mut state = self.state.lock();
            if let Some(in_flight) = state.in_flight.get_mut(&done.from)
                && let Some((shares, _)) = in_flight.get_mut(&done.number)
            {
                *shares -= 1;
                if *shares == 0 {
                    in_flight.remove(&done.number);
                    self.changed.notify_waiters();
                }
            }
        }
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            {
                let mut state = self.state.lock();
                if state.is_void {
                    return None;
                }
                if let Some(batch) = state.waiting.get_mut(&partition).and_then(VecDeque::pop_front) {
                    return Some(batch);
                }
                if state.is_ended {
                    return None;
                }
            }
            cpu::waits_for(Waits::Input);
            changed.await;
        }
    }

    fn void() -> Channel {
        let channel = Channel::default();
        channel.end(true);
        channel
    }

    /// No batch will follow. `is_void`: nobody takes those that there are.
    pub fn end(&self, is_void: bool) {
        {
            let mut state = self.state.lock();
            state.is_ended = true;
            state.is_void |= is_void;
            if state.is_void {
                state.waiting.clear();
                state.in_flight.clear();
            }
        }
        self.changed.notify_waiters();
    }
}

/// The channels of a worker.
#[derive(Debug, Default)]
pub(super) struct Flows {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    channels: HashMap<FlowId, Arc<Channel>>,
    /// Epochs of pipelines up to here are asked for by nobody who is still wanted.
    released: HashMap<PipelineId, u64>,
}

impl Flows {
    /// The channel; made if it is not there, void if it is released.
    pub fn open(&self, id: FlowId) -> Arc<Channel> {
        let mut kept = self.kept.lock();
        if kept.released.get(&id.pipeline).is_some_and(|to| id.epoch <= *to) {
            return Arc::new(Channel::void());
        }
        Arc::clone(kept.channels.entry(id).or_default())
    }

    /// Nobody takes anything of these epochs any more. A range from the start says what is released in all.
    pub fn release(&self, pipeline: PipelineId, epochs: &RangeInclusive<u64>) {
        let mut released = vec![];
        {
            let mut kept = self.kept.lock();
            if *epochs.start() == 0 {
                kept.released.insert(pipeline, *epochs.end());
            }
            kept.channels.retain(|id, channel| {
                let is_released = id.pipeline == pipeline && epochs.contains(&id.epoch);
                if is_released {
                    released.push(Arc::clone(channel));
                }
                !is_released
            });
        }
        for channel in released {
            channel.end(true);
        }
    }

    /// The worker is gone.
    pub fn clear(&self) {
        let channels = std::mem::take(&mut self.kept.lock().channels);
        for channel in channels.values() {
            channel.end(true);
        }
    }
}

/// Fetches the batch after `done` of a stage's channel on a worker.
pub(super) type Fetch<'a, W> =
    dyn Fn(usize, W, Option<BatchId>) -> BoxFuture<'static, Result<Option<Batch>>> + Send + Sync + 'a;

/// What comes to a task while it runs.
pub(super) enum Part<W> {
    /// A batch of a stage.
    Batch { stage: usize, rows: Vec<ChangeBatch> },
    /// A stage has ended on this worker: no batch follows, and the rest of its rows is there.
    End { stage: usize, from: W },
}

type NextBatch<W> = BoxFuture<'static, (usize, W, Result<Option<Batch>>)>;

/// What comes to a task from the stages that flow, whichever has something first.
pub(super) struct Parts<'a, W> {
    fetch: &'a Fetch<'a, W>,
    coming: FuturesUnordered<NextBatch<W>>,
    /// The batch that was given out last is done when the next part is asked for.
    last: Option<(usize, W, BatchId)>,
}

impl<'a, W: Copy + Send + 'static> Parts<'a, W> {
    /// Batches of these stages on these workers.
    pub fn new(flows: &[(usize, W)], fetch: &'a Fetch<'a, W>) -> Self {
        let mut parts = Parts {
            fetch,
            coming: FuturesUnordered::new(),
            last: None,
        };
        for (stage, from) in flows {
            parts.ask(*stage, *from, None);
        }
        parts
    }

    fn ask(&mut self, stage: usize, from: W, done: Option<BatchId>) {
        let next = (self.fetch)(stage, from, done);
        self.coming
            .push(next.map(move |batch| (stage, from, batch)).boxed());
    }

    /// The next part; none when all stages have ended.
    ///
    /// # Errors
    /// A worker is gone.
    pub async fn next(&mut self) -> Result<Option<Part<W>>> {
        if let Some((stage, from, done)) = self.last.take() {
            self.ask(stage, from, Some(done));
        }
        let Some((stage, from, batch)) = self.coming.next().await else {
            return Ok(None);
        };
        Ok(Some(match batch? {
            Some(Batch { id, rows }) => {
                self.last = Some((stage, from, id));
                Part::Batch { stage, rows }
            }
            None => Part::End { stage, from },
        }))
    }

    /// Takes what is still to come and drops it, so that nobody waits for a task that can do nothing with it.
    pub async fn drain(mut self) {
        while let Ok(Some(_)) = self.next().await {}
    }
}

/// What a stage's tasks emitted in batches since the view was made.
#[derive(Debug, Default)]
pub struct FlowMeter {
    batches: AtomicU64,
    rows: AtomicU64,
    waited_ns: AtomicU64,
    /// Tasks that wait for space now, and since when there have been any.
    waiting: Mutex<(usize, Option<Instant>)>,
}

/// A [`FlowMeter`] at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FlowCounts {
    pub batches: u64,
    pub rows: u64,
    /// How long tasks waited until fewer than N batches were in flight, added up.
    pub waited_ns: u64,
    /// Tasks that wait now.
    pub waiting: usize,
    /// Since when there have been any.
    pub since: Option<Instant>,
}

/// A stage that may emit batches.
#[derive(Debug, Clone)]
pub struct FlowStatus {
    pub stage: usize,
    /// Why it may emit more than it reads.
    pub reason: String,
    pub limits: FlowLimits,
    pub counts: FlowCounts,
}

/// A task that sends a batch.
pub(super) struct Sending<'a> {
    meter: &'a FlowMeter,
    started: Instant,
}

impl FlowMeter {
    /// A task sends a batch of so many rows, until the guard is dropped.
    pub(super) fn send(&self, rows: u64) -> Sending<'_> {
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.rows.fetch_add(rows, Ordering::Relaxed);
        let started = Instant::now();
        let mut waiting = self.waiting.lock();
        waiting.0 += 1;
        waiting.1.get_or_insert(started);
        Sending { meter: self, started }
    }

    pub fn counts(&self) -> FlowCounts {
        let (waiting, since) = *self.waiting.lock();
        FlowCounts {
            batches: self.batches.load(Ordering::Relaxed),
            rows: self.rows.load(Ordering::Relaxed),
            waited_ns: self.waited_ns.load(Ordering::Relaxed),
            waiting,
            since,
        }
    }
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        let waited = self.started.elapsed().as_nanos() as u64;
        self.meter.waited_ns.fetch_add(waited, Ordering::Relaxed);
        let mut waiting = self.meter.waiting.lock();
        waiting.0 -= 1;
        if waiting.0 == 0 {
            waiting.1 = None;
        }
    }
}

#[cfg(test)]
mod tests;
