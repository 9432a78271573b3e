//! How the worker of a host reaches the rest: by the link to the coordinator, and by links to other hosts.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use millrace_mesh::{Body, MeshError};
use millrace_planner::RelationId;
use millrace_schedule::id::{Part, PipelineId, TaskId, WorkerId};
use millrace_schedule::local::Timer;
use millrace_schedule::message::{ToDriver, ToPeer};
use millrace_storage::ChangeBatch;

use super::{Inner, batch_of};
use crate::cluster::protocol::{Ran, Request, ToCoordinator, encode};
use crate::cluster::{image, rows};
use crate::error::{Result, RuntimeError};
use crate::feed::{CutAnswer, CutRequest};
use crate::worker::flow::{Batch, BatchId, FlowId};
use crate::worker::shuffle::Block;
use crate::worker::{ActivityCounts, EpochCut, Image, Transport, ViewInstance};

/// How the worker of a host reaches the rest.
pub(super) struct OverLinks(pub Weak<Inner>);

impl OverLinks {
    fn tell(&self, message: &ToCoordinator) {
        if let Some(inner) = self.0.upgrade() {
            inner.tell(message);
        }
    }

    /// The host.
    ///
    /// # Errors
    /// It has ended.
    fn reach(&self) -> Result<Arc<Inner>> {
        self.0.upgrade().ok_or(RuntimeError::SHUTTING_DOWN)
    }
}

impl Transport for OverLinks {
    fn report(&self, message: ToDriver) {
        if let Some(inner) = self.0.upgrade() {
            // What an epoch did is known when it is done.
            if matches!(message, ToDriver::EpochDone { .. }) {
                inner.tell_ran();
            }
            inner.tell(&ToCoordinator::Report(message));
        }
    }

    fn memory_permille(&self) -> u32 {
        let inner = self.0.upgrade();
        inner.map_or(0, |inner| inner.machine.memory.status().permille())
    }

    fn send(&self, to: WorkerId, message: ToPeer) {
        let Some(inner) = self.0.upgrade() else { return };
        let message = match inner.others.lock().get(&to) {
            Some(other) => match other.send(message) {
                Ok(()) => return,
                Err(message) => message,
            },
            None => message,
        };
        inner.tell(&ToCoordinator::Peer { to, message });
    }

    fn fetch(
        &self,
        from: WorkerId,
        pipeline: PipelineId,
        epoch: u64,
        block: Block,
    ) -> BoxFuture<'static, Result<Vec<ChangeBatch>>> {
        let inner = self.reach();
        async move {
            let request = Request::Fetch {
                of: from,
                pipeline,
                epoch,
                block,
            };
            let body = inner?.request_of(from, request).await?;
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
        let inner = self.reach();
        async move {
            let request = Request::NextBatch {
                of: from,
                flow,
                partition,
                done,
            };
            let body = inner?.request_of(from, request).await?;
            batch_of(body).map_err(RuntimeError::Internal)
        }
        .boxed()
    }

    fn cut(&self, _: CutRequest) -> CutAnswer<EpochCut> {
        // Sources arrive at the coordinator, and the driver knows it.
        CutAnswer::Void
    }

    fn keep_image(&self, part: Part, epoch: u64, image: Image) -> BoxFuture<'static, Result<()>> {
        let inner = self.reach();
        async move {
            let inner = inner?;
            let incarnation = inner.worker().incarnation(part.view).unwrap_or_default();
            let sent = {
                let mut sent = inner.sent.lock();
                Arc::clone(sent.entry((part, incarnation)).or_default())
            };
            // Of one part only one image is under way.
            let mut sent = sent.lock().await;
            let what = image::encode(image.operators.as_ref(), &mut sent).await?;
            let request = Request::Keep {
                part,
                epoch,
                incarnation,
            };
            inner.request_with(request, what).await.map(|_| ())
        }
        .boxed()
    }

    fn image(&self, part: Part) -> BoxFuture<'static, Result<Option<Arc<Image>>>> {
        let inner = self.reach();
        async move {
            let inner = inner?;
            let body = Body::of(encode(&Request::Image { part }).map_err(RuntimeError::Internal)?);
            match inner.link.request(body).await {
                Ok(body) => {
                    let operators = image::decode(body, &mut image::Held::default(), None).await?;
                    let contents = None;
                    Ok(Some(Arc::new(Image { operators, contents })))
                }
                Err(MeshError::Failed(why)) => Err(RuntimeError::Internal(why)),
                Err(_) => Err(RuntimeError::worker_lost(inner.id.0)),
            }
        }
        .boxed()
    }

    fn materialize(
        &self,
        task: TaskId,
        incarnation: u64,
        rows: Vec<ChangeBatch>,
    ) -> BoxFuture<'static, Result<()>> {
        let inner = self.reach();
        async move {
            let what = rows::encode(&rows).map_err(RuntimeError::Internal)?;
            let request = Request::Materialize { task, incarnation };
            inner?.request_with(request, what).await.map(|_| ())
        }
        .boxed()
    }

    fn bring_rows_back(&self, _: &Arc<ViewInstance>, _: usize) -> BoxFuture<'static, Result<()>> {
        std::future::ready(Ok(())).boxed()
    }

    fn is_together(&self, other: WorkerId) -> bool {
        self.0.upgrade().is_some_and(|inner| inner.id == other)
    }

    fn has_sources(&self) -> bool {
        false
    }

    fn ran(&self, view: &ViewInstance, task: TaskId, counts: &ActivityCounts) {
        if let Some(inner) = self.0.upgrade() {
            inner.ran.lock().push(Ran {
                view: view.id,
                incarnation: view.shape.incarnation,
                stage: task.stage,
                partition: task.partition,
                counts: *counts,
            });
        }
    }

    fn emitted_fixed_rows(&self, view: &ViewInstance, stage: usize) {
        self.tell(&ToCoordinator::EmittedFixedRows {
            view: view.id,
            incarnation: view.shape.incarnation,
            stage,
        });
    }

    fn due(&self, task: TaskId, due: Option<i64>) {
        self.tell(&ToCoordinator::Due { task, due });
    }

    fn is_urgent(&self, job: PipelineId) -> bool {
        self.0
            .upgrade()
            .is_some_and(|inner| inner.urgent.lock().contains(&job))
    }

    fn failed(&self, view: &ViewInstance, is_memory: bool) {
        self.tell(&ToCoordinator::Failed {
            view: view.id,
            incarnation: view.shape.incarnation,
            why: view.failure().unwrap_or_default(),
            is_memory,
        });
    }

    fn low_water(&self, _: RelationId, _: PipelineId) -> u64 {
        // Who reads does so where the rows are.
        0
    }

    fn wake_at(&self, _: WorkerId, pipeline: PipelineId, timer: Timer, at: u64) {
        let Some(inner) = self.0.upgrade() else { return };
        let due = tokio::time::Instant::from_std(inner.started + Duration::from_nanos(at));
        let weak = self.0.clone();
        inner.machine.io.spawn(async move {
            tokio::time::sleep_until(due).await;
            if let Some(inner) = weak.upgrade() {
                inner.worker().wake(pipeline, timer);
            }
        });
    }

    fn transfer(&self, transfer: BoxFuture<'static, ()>) {
        if let Some(inner) = self.0.upgrade() {
            inner.machine.io.spawn(transfer);
        }
    }
}
