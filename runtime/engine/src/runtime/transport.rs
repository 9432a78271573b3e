//! How the workers of one process reach each other: a message is a call, a fetch is a look. Workers elsewhere they reach over
//! links ([`crate::cluster`]).

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use millrace_planner::RelationId;
use millrace_schedule::driver::Event;
use millrace_schedule::id::{Part, PipelineId, TaskId, WorkerId};
use millrace_schedule::local::{EPOCHS_IN_FLIGHT_MAX, Timer};
use millrace_schedule::message::{ToDriver, ToPeer};
use millrace_storage::ChangeBatch;

use super::Engine;
use crate::cluster::{Request, ToHost, batch_of, rows};
use crate::error::{Result, RuntimeError};
use crate::feed::{CutAnswer, CutRequest};
use crate::worker::flow::{Batch, BatchId, FlowId};
use crate::worker::shuffle::Block;
use crate::worker::{ActivityCounts, EpochCut, Image, Transport, ViewInstance, Worker};

/// Epochs of a pipeline that may be under way at once while views have more of their state on disk than the memory limit: an epoch's
/// rows are there several times, as written, after the map stage and while state applies them, and must not fill the memory.
const EPOCHS_ON_DISK_MAX: usize = 2;

/// See the module: what worker `from` uses. Weak: the runtime owns the workers.
pub(super) struct InProcess {
    pub engine: std::sync::Weak<Engine>,
    pub from: WorkerId,
}

impl InProcess {
    /// The runtime, if this worker can reach the driver and the sources.
    fn reach(&self) -> Option<Arc<Engine>> {
        let engine = self.engine.upgrade()?;
        let is_cut_off = (engine.workers.get(self.from)).is_some_and(|worker| worker.is_cut_off());
        (!is_cut_off).then_some(engine)
    }

    /// Another worker, if this one can reach it.
    fn peer(&self, to: WorkerId) -> Option<Arc<Worker>> {
        let peer = self.reach()?.workers.get(to);
        peer.filter(|worker| !worker.is_cut_off())
    }
}

impl Transport for InProcess {
    fn report(&self, message: ToDriver) {
        if let Some(engine) = self.reach() {
            engine.post(Event::Worker(message));
        }
    }

    fn memory_permille(&self) -> u32 {
        let engine = self.reach();
        engine.map_or(0, |engine| engine.machine.memory.status().permille())
    }

    fn send(&self, to: WorkerId, message: ToPeer) {
        if let Some(worker) = self.peer(to) {
            worker.receive(message);
        } else if let Some(member) = self.reach().and_then(|engine| engine.cluster.get(to)) {
            member.tell(&ToHost::Peer(message));
        } else {
            self.report(ToDriver::Undelivered { to, message });
        }
    }

    fn fetch(
        &self,
        from: WorkerId,
        pipeline: PipelineId,
        epoch: u64,
        block: Block,
    ) -> BoxFuture<'static, Result<Vec<ChangeBatch>>> {
        if let Some(worker) = self.peer(from) {
            let rows = worker.fetch(pipeline, epoch, block);
            return async move { rows }.boxed();
        }
        let member = self.reach().and_then(|engine| engine.cluster.get(from));
        async move {
            let member = member.ok_or(RuntimeError::worker_lost(from.0))?;
            let request = Request::Fetch {
                of: from,
                pipeline,
                epoch,
                block,
            };
            let body = member.request(&request).await?;
            rows::decode(body).map_err(RuntimeError::Internal)
        }
        .boxed()
    }

    fn next_batch(
        &self,
        from: WorkerId,
        flow: FlowId,
        partition: usize,
        done: Option<BatchId>,
    ) -> BoxFuture<'static, Result<Option<Batch>>> {
        let peer = self.peer(from);
        let member = self.reach().and_then(|engine| engine.cluster.get(from));
        async move {
            if let Some(worker) = peer {
                return worker.next_batch(flow, partition, done).await;
            }
            let member = member.ok_or(RuntimeError::worker_lost(from.0))?;
            let request = Request::NextBatch {
                of: from,
                flow,
                partition,
                done,
            };
            let body = member.request(&request).await?;
            batch_of(body).map_err(RuntimeError::Internal)
        }
        .boxed()
    }

    fn cut(&self, request: CutRequest) -> CutAnswer<EpochCut> {
        let Some(engine) = self.reach() else {
            return CutAnswer::Void;
        };
        let now = engine.timers.of_epoch();
        let mut taken = {
            let mut feeds = engine.writes.feeds.lock();
            let bytes_max = engine.machine.memory.cut_bytes_max();
            let taken = match feeds.cut(request, now, bytes_max) {
                CutAnswer::Taken(taken) => taken,
                CutAnswer::New => return CutAnswer::New,
                CutAnswer::Void => return CutAnswer::Void,
            };
            // Under the same lock: what was taken is known wherever somebody sees that it is no longer in the queue.
            if !taken.is_again {
                let ends = taken.ends.clone();
                engine
                    .versions
                    .cut(request.pipeline, request.epoch, ends, &taken.time);
            }
            taken
        };
        // Writes may wait for what was taken.
        engine.machine.memory.tell();
        engine.widen(&mut taken);
        CutAnswer::Taken(EpochCut {
            changes: taken.changes,
            time: taken.time,
            more: taken.more,
            is_checkpoint: taken.is_checkpoint,
            waited_ns: (taken.oldest_at).map_or(0, |at| engine.workers.now().saturating_sub(at)),
            in_flight_max: match engine.machine.memory.is_mostly_on_disk() {
                true => EPOCHS_ON_DISK_MAX,
                false => EPOCHS_IN_FLIGHT_MAX,
            },
        })
    }

    fn keep_image(&self, part: Part, epoch: u64, image: Image) -> BoxFuture<'static, Result<()>> {
        if let Some(engine) = self.engine.upgrade() {
            engine.checkpoints.store.put(part, epoch, image);
        }
        ready(Ok(())).boxed()
    }

    fn image(&self, part: Part) -> BoxFuture<'static, Result<Option<Arc<Image>>>> {
        let engine = self.engine.upgrade();
        let image = engine.and_then(|engine| engine.checkpoints.store.get(part));
        ready(Ok(image)).boxed()
    }

    fn materialize(&self, _: TaskId, _: u64, _: Vec<ChangeBatch>) -> BoxFuture<'static, Result<()>> {
        let why = "the rows of views are kept in this process".to_owned();
        ready(Err(RuntimeError::Internal(why))).boxed()
    }

    fn bring_rows_back(&self, view: &Arc<ViewInstance>, partition: usize) -> BoxFuture<'static, Result<()>> {
        let (engine, view) = (self.engine.upgrade(), Arc::clone(view));
        async move {
            match engine {
                Some(engine) => engine.bring_rows_back(&view, partition).await,
                None => Err(RuntimeError::SHUTTING_DOWN),
            }
        }
        .boxed()
    }

    fn is_together(&self, other: WorkerId) -> bool {
        // One that is not there any more has nothing, wherever it was.
        (self.engine.upgrade()).is_none_or(|engine| engine.cluster.get(other).is_none())
    }

    fn has_sources(&self) -> bool {
        true
    }

    fn ran(&self, _: &ViewInstance, _: TaskId, _: &ActivityCounts) {}

    fn emitted_fixed_rows(&self, _: &ViewInstance, _: usize) {}

    fn due(&self, task: TaskId, due: Option<i64>) {
        if let Some(engine) = self.engine.upgrade() {
            engine.timers.set(task, due);
        }
    }

    fn is_urgent(&self, job: PipelineId) -> bool {
        self.engine
            .upgrade()
            .is_some_and(|engine| engine.jobs.urgent.lock().contains(&job))
    }

    fn failed(&self, view: &ViewInstance, is_memory: bool) {
        if let Some(engine) = self.engine.upgrade() {
            engine.view_failed(view, is_memory);
        }
    }

    fn low_water(&self, view: RelationId, pipeline: PipelineId) -> u64 {
        self.engine
            .upgrade()
            .map_or(0, |engine| engine.versions.low_water_in(view, pipeline))
    }

    fn transfer(&self, transfer: BoxFuture<'static, ()>) {
        if let Some(engine) = self.engine.upgrade() {
            engine.machine.io.spawn(transfer);
        }
    }

    fn wake_at(&self, worker: WorkerId, pipeline: PipelineId, timer: Timer, at: u64) {
        let Some(engine) = self.engine.upgrade() else {
            return;
        };
        let due = tokio::time::Instant::from_std(engine.workers.started() + Duration::from_nanos(at));
        let weak = self.engine.clone();
        engine.machine.io.spawn(async move {
            tokio::time::sleep_until(due).await;
            let worker = weak.upgrade().and_then(|engine| engine.workers.get(worker));
            if let Some(worker) = worker {
                worker.wake(pipeline, timer);
            }
        });
    }
}
