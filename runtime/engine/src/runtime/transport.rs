//! How the workers of one process reach each other: a message is a call, a fetch is a look.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use millrace_planner::RelationId;
use millrace_schedule::driver::Event;
use millrace_schedule::id::{Part, PipelineId, TaskId, WorkerId};
use millrace_schedule::local::Timer;
use millrace_schedule::message::{ToDriver, ToPeer};
use millrace_storage::ChangeBatch;

use super::Inner;
use crate::error::{Result, RuntimeError};
use crate::feed::{CutAnswer, CutRequest};
use crate::worker::flow::{Batch, BatchId, FlowId};
use crate::worker::shuffle::Block;
use crate::worker::{EpochCut, Image, Transport, Worker};

/// See the module: what worker `from` uses. Weak: the runtime owns the workers.
pub(super) struct InProcess {
    pub inner: std::sync::Weak<Inner>,
    pub from: WorkerId,
}

impl InProcess {
    /// The runtime, if this worker can reach the driver and the sources.
    fn reach(&self) -> Option<Arc<Inner>> {
        let inner = self.inner.upgrade()?;
        let is_cut_off = (inner.workers.read().get(&self.from)).is_some_and(|worker| worker.is_cut_off());
        (!is_cut_off).then_some(inner)
    }

    /// Another worker, if this one can reach it.
    fn peer(&self, to: WorkerId) -> Option<Arc<Worker>> {
        let peer = self.reach()?.workers.read().get(&to).cloned();
        peer.filter(|worker| !worker.is_cut_off())
    }
}

impl Transport for InProcess {
    fn report(&self, message: ToDriver) {
        if let Some(inner) = self.reach() {
            inner.post(Event::Worker(message));
        }
    }

    fn send(&self, to: WorkerId, message: ToPeer) {
        match self.peer(to) {
            Some(worker) => worker.receive(message),
            None => self.report(ToDriver::Undelivered { to, message }),
        }
    }

    fn fetch(
        &self,
        from: WorkerId,
        pipeline: PipelineId,
        epoch: u64,
        block: Block,
    ) -> BoxFuture<'static, Result<Vec<ChangeBatch>>> {
        let rows = match self.peer(from) {
            Some(worker) => worker.fetch(pipeline, epoch, block),
            None => Err(RuntimeError::worker_lost(from.0)),
        };
        async move { rows }.boxed()
    }

    fn next_batch(
        &self,
        from: WorkerId,
        flow: FlowId,
        partition: usize,
        done: Option<BatchId>,
    ) -> BoxFuture<'static, Result<Option<Batch>>> {
        let peer = self.peer(from);
        async move {
            match peer {
                Some(worker) => worker.next_batch(flow, partition, done).await,
                None => Err(RuntimeError::worker_lost(from.0)),
            }
        }
        .boxed()
    }

    fn cut(&self, request: CutRequest) -> CutAnswer<EpochCut> {
        let Some(inner) = self.reach() else {
            return CutAnswer::Void;
        };
        let now = inner.timers.now();
        let mut taken = {
            let mut feeds = inner.feeds.lock();
            let bytes_max = inner.options.memory.cut_bytes_max();
            let taken = match feeds.cut(request, now, bytes_max) {
                CutAnswer::Taken(taken) => taken,
                CutAnswer::New => return CutAnswer::New,
                CutAnswer::Void => return CutAnswer::Void,
            };
            // Under the same lock: what was taken is known wherever somebody sees that it is no longer in the queue.
            if !taken.is_again {
                let ends = taken.ends.clone();
                inner
                    .versions
                    .cut(request.pipeline, request.epoch, ends, &taken.time);
            }
            taken
        };
        // Writes may wait for what was taken.
        inner.options.memory.tell();
        inner.widen(&mut taken);
        CutAnswer::Taken(EpochCut {
            changes: taken.changes,
            time: taken.time,
            more: taken.more,
            is_checkpoint: taken.is_checkpoint,
        })
    }

    fn keep_image(&self, part: Part, epoch: u64, image: Image) {
        if let Some(inner) = self.inner.upgrade() {
            inner.checkpoints.put(part, epoch, image);
        }
    }

    fn image(&self, part: Part) -> Option<Arc<Image>> {
        self.inner.upgrade()?.checkpoints.get(part)
    }

    fn due(&self, task: TaskId, due: Option<i64>) {
        if let Some(inner) = self.inner.upgrade() {
            inner.timers.set(&inner, task, due);
        }
    }

    fn is_urgent(&self, job: PipelineId) -> bool {
        self.inner
            .upgrade()
            .is_some_and(|inner| inner.urgent.lock().contains(&job))
    }

    fn out_of_memory(&self) {
        if let Some(inner) = self.inner.upgrade() {
            inner.divide_large();
        }
    }

    fn low_water(&self, view: RelationId) -> u64 {
        self.inner
            .upgrade()
            .map_or(0, |inner| inner.versions.low_water(view, false))
    }

    fn transfer(&self, transfer: BoxFuture<'static, ()>) {
        if let Some(inner) = self.inner.upgrade() {
            inner.io.spawn(transfer);
        }
    }

    fn wake_at(&self, worker: WorkerId, pipeline: PipelineId, timer: Timer, at: u64) {
        let Some(inner) = self.inner.upgrade() else { return };
        let due = tokio::time::Instant::from_std(inner.started + Duration::from_nanos(at));
        let weak = self.inner.clone();
        inner.io.spawn(async move {
            tokio::time::sleep_until(due).await;
            let worker = weak
                .upgrade()
                .and_then(|inner| inner.workers.read().get(&worker).cloned());
            if let Some(worker) = worker {
                worker.wake(pipeline, timer);
            }
        });
    }
}
