//! How the workers of one process reach each other: a message is a call, a fetch is a look.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use millrace_planner::RelationId;
use millrace_storage::ChangeBatch;

use super::Inner;
use crate::checkpoint::Part;
use crate::driver::{Event, PipelineId};
use crate::error::{Result, RuntimeError};
use crate::feed::{CutAnswer, CutRequest};
use crate::schedule::local::TaskId;
use crate::schedule::message::{ToDriver, ToPeer};
use crate::schedule::template::WorkerId;
use crate::worker::shuffle::Block;
use crate::worker::{EpochCut, Image, Transport};

/// See the module. Weak: the runtime owns the workers.
pub(super) struct InProcess(pub std::sync::Weak<Inner>);

impl Transport for InProcess {
    fn report(&self, message: ToDriver) {
        if let Some(inner) = self.0.upgrade() {
            inner.post(Event::Worker(message));
        }
    }

    fn send(&self, to: WorkerId, message: ToPeer) {
        let worker = self
            .0
            .upgrade()
            .and_then(|inner| inner.workers.read().get(&to).cloned());
        if let Some(worker) = worker {
            worker.receive(message);
        }
    }

    fn fetch(
        &self,
        from: WorkerId,
        pipeline: PipelineId,
        epoch: u64,
        block: Block,
    ) -> BoxFuture<'static, Result<Vec<ChangeBatch>>> {
        let worker = self
            .0
            .upgrade()
            .and_then(|inner| inner.workers.read().get(&from).cloned());
        let rows = match worker {
            Some(worker) => worker.fetch(pipeline, epoch, block),
            None => Err(RuntimeError::WorkerLost(from.0)),
        };
        async move { rows }.boxed()
    }

    fn cut(&self, request: CutRequest) -> CutAnswer<EpochCut> {
        let Some(inner) = self.0.upgrade() else {
            return CutAnswer::Void;
        };
        let now = inner.timers.now();
        let mut taken = {
            let mut feeds = inner.feeds.lock();
            let taken = match feeds.cut(request, now) {
                CutAnswer::Taken(taken) => taken,
                CutAnswer::New => return CutAnswer::New,
                CutAnswer::Void => return CutAnswer::Void,
            };
            // Under the same lock: what was taken is known wherever somebody sees that it is no longer in the queue.
            if !taken.is_again {
                let ends = taken.ends.clone();
                inner
                    .versions
                    .cut(request.pipeline, request.epoch, ends, taken.now);
            }
            taken
        };
        inner.widen(&mut taken);
        CutAnswer::Taken(EpochCut {
            changes: taken.changes,
            now: taken.now,
            more: taken.more,
            is_checkpoint: taken.is_checkpoint,
        })
    }

    fn keep_image(&self, part: Part, epoch: u64, image: Image) {
        if let Some(inner) = self.0.upgrade() {
            inner.checkpoints.put(part, epoch, image);
        }
    }

    fn image(&self, part: Part) -> Option<Arc<Image>> {
        self.0.upgrade()?.checkpoints.get(part)
    }

    fn due(&self, task: TaskId, due: Option<i64>) {
        if let Some(inner) = self.0.upgrade() {
            inner.timers.set(&inner, task, due);
        }
    }

    fn is_urgent(&self, job: PipelineId) -> bool {
        self.0
            .upgrade()
            .is_some_and(|inner| inner.urgent.lock().contains(&job))
    }

    fn low_water(&self, view: RelationId) -> u64 {
        self.0
            .upgrade()
            .map_or(0, |inner| inner.versions.low_water(view, false))
    }

    fn wake_at(&self, worker: WorkerId, pipeline: PipelineId, at: u64) {
        let Some(inner) = self.0.upgrade() else { return };
        let due = tokio::time::Instant::from_std(inner.started + Duration::from_nanos(at));
        let weak = self.0.clone();
        inner.io.spawn(async move {
            tokio::time::sleep_until(due).await;
            let worker = weak
                .upgrade()
                .and_then(|inner| inner.workers.read().get(&worker).cloned());
            if let Some(worker) = worker {
                worker.wake(pipeline);
            }
        });
    }
}
