//! A worker: runs the tasks of the epochs that the driver launched.
//!
//! The local scheduler ([`LocalScheduler`]) decides which task runs when; here its actions are carried out: cuts are taken,
//! tasks run on the cpu slots, rows are kept for those who fetch them, messages go to the peers and to the driver.
//!
//! ```text
//!  cut --> map tasks --> shuffle --> reduce tasks --> contents of the view --> shuffle --> maps of dependent views
//! ```
//!
//! Workers reach each other, the driver and the sources only through [`Transport`]; within one process that is a call.

pub mod cpu;
pub mod shuffle;
mod task;
mod view;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use futures::FutureExt;
use futures::future::BoxFuture;
use millrace_planner::RelationId;
use millrace_storage::ChangeBatch;
use parking_lot::{Mutex, RwLock};

use crate::driver::PipelineId;
use crate::error::Result;
use crate::operator::Inputs;
use crate::schedule::local::{
    Ended, LocalAction, LocalEvent, LocalScheduler, ReadyTask, Source, TaskId, Tasks,
};
use crate::schedule::message::{ToDriver, ToPeer, ToWorker};
use crate::schedule::template::WorkerId;
use cpu::{CpuScheduler, QueryClass};
use shuffle::{Block, Shuffle};
pub use task::partition_hash;
pub use view::{ViewContents, ViewInstance};

/// An epoch's share of one relation's log.
#[derive(Debug, Clone, Default)]
pub struct Cut {
    pub changes: Vec<ChangeBatch>,
}

/// What an epoch takes from its surroundings.
#[derive(Debug, Default)]
pub struct EpochCut {
    pub changes: HashMap<RelationId, Cut>,
    /// The epoch's time, in microseconds since 1970-01-01 00:00 UTC; never less than that of the epoch before.
    pub now: i64,
    /// More input waits.
    pub more: bool,
}

/// How a worker reaches the rest of the system.
pub trait Transport: Send + Sync {
    /// Tells the driver.
    fn report(&self, message: ToDriver);

    /// Tells another worker.
    fn send(&self, to: WorkerId, message: ToPeer);

    /// Rows that wait on another worker.
    fn fetch(
        &self,
        from: WorkerId,
        pipeline: PipelineId,
        epoch: u64,
        block: Block,
    ) -> BoxFuture<'static, Result<Vec<ChangeBatch>>>;

    /// Fixes the cut of every source of the pipeline for this epoch. Called once an epoch, in order, on the cutter.
    fn cut(&self, pipeline: PipelineId, epoch: u64) -> EpochCut;

    /// A task that keeps rows by time ended: its output changes at `due` without input, or (`None`) never.
    fn due(&self, task: TaskId, due: Option<i64>);

    /// Whether a back-fill runs at the priority of streams.
    fn is_urgent(&self, job: PipelineId) -> bool;

    /// The oldest version of a view that a reader may still look at.
    fn low_water(&self, view: RelationId) -> u64;

    /// Calls [`Worker::wake`] at this time (nanoseconds since the worker's start).
    fn wake_at(&self, worker: WorkerId, pipeline: PipelineId, at: u64);
}

/// See the module.
pub struct Worker {
    pub id: WorkerId,
    pub cpu: CpuScheduler,
    local: Mutex<LocalScheduler>,
    shuffle: Mutex<Shuffle>,
    views: RwLock<HashMap<RelationId, Arc<ViewInstance>>>,
    transport: Arc<dyn Transport>,
    started: Instant,
}

impl Worker {
    pub fn new(
        id: WorkerId,
        cpu: CpuScheduler,
        transport: Arc<dyn Transport>,
        started: Instant,
    ) -> Arc<Worker> {
        Arc::new(Worker {
            id,
            cpu,
            local: Mutex::new(LocalScheduler::new(id)),
            shuffle: Mutex::default(),
            views: RwLock::default(),
            transport,
            started,
        })
    }

    /// Makes a view's operators known; templates only name it.
    pub fn install(&self, view: Arc<ViewInstance>) {
        self.views.write().insert(view.id, view);
    }

    /// Forgets a view that no epoch in flight runs.
    pub fn uninstall(&self, view: RelationId) {
        self.views.write().remove(&view);
    }

    /// Views whose operators are known here.
    pub fn views(&self) -> Vec<Arc<ViewInstance>> {
        self.views.read().values().cloned().collect()
    }

    /// A message of the driver.
    pub fn command(self: &Arc<Self>, message: ToWorker) {
        self.on(LocalEvent::Driver(message));
    }

    /// A message of another worker.
    pub fn receive(self: &Arc<Self>, message: ToPeer) {
        self.on(LocalEvent::Peer(message));
    }

    /// Input waits to be cut; this worker is the cutter.
    pub fn input_arrived(self: &Arc<Self>, pipeline: PipelineId) {
        self.on(LocalEvent::InputArrived { pipeline });
    }

    /// The time of [`Transport::wake_at`] has come.
    pub fn wake(self: &Arc<Self>, pipeline: PipelineId) {
        self.on(LocalEvent::Wake { pipeline });
    }

    /// Rows that wait here.
    pub fn fetch(&self, pipeline: PipelineId, epoch: u64, block: Block) -> Vec<ChangeBatch> {
        self.shuffle.lock().fetch(pipeline, epoch, block)
    }

    /// Time between two cuts of a pipeline, in nanoseconds; 0: as soon as there is input.
    pub fn set_interval(self: &Arc<Self>, pipeline: PipelineId, interval: u64) {
        self.local.lock().set_interval(pipeline, interval);
        self.wake(pipeline);
    }

    fn on(self: &Arc<Self>, event: LocalEvent) {
        let at = self.started.elapsed().as_nanos() as u64;
        let actions = self.local.lock().on(event, at, self.as_ref());
        for action in actions {
            self.carry_out(action);
        }
    }

    fn carry_out(self: &Arc<Self>, action: LocalAction) {
        match action {
            LocalAction::TakeCut {
                pipeline,
                version,
                epoch,
                is_job,
            } => {
                let worker = Arc::clone(self);
                let task = self.cpu.spawn(self.class(pipeline, is_job), move |_| {
                    async move {
                        worker.take_cut(pipeline, version, epoch);
                        Ok(())
                    }
                    .boxed()
                });
                task.detach();
            }
            LocalAction::Run(ready) => self.spawn(ready),
            LocalAction::Release { pipeline, epochs } => self.shuffle.lock().release(pipeline, &epochs),
            LocalAction::Send(to, message) => self.transport.send(to, message),
            LocalAction::Report(message) => self.transport.report(message),
            LocalAction::WakeAt { pipeline, at } => self.transport.wake_at(self.id, pipeline, at),
        }
    }

    /// Takes the cut and lets the maps go.
    fn take_cut(self: &Arc<Self>, pipeline: PipelineId, version: u64, epoch: u64) {
        let EpochCut { changes, now, more } = self.transport.cut(pipeline, epoch);
        let mut rows = vec![];
        {
            let mut shuffle = self.shuffle.lock();
            for (relation, cut) in changes {
                rows.push((
                    relation,
                    cut.changes.iter().map(|batch| batch.num_rows() as u64).sum(),
                ));
                shuffle.keep_cut(pipeline, epoch, relation, cut.changes);
            }
        }
        self.on(LocalEvent::CutTaken {
            pipeline,
            version,
            epoch,
            now,
            rows,
            more,
        });
    }

    fn spawn(self: &Arc<Self>, ready: ReadyTask) {
        let worker = Arc::clone(self);
        let task = self
            .cpu
            .spawn(self.class(ready.pipeline, ready.is_job), move |gate| {
                async move {
                    let started = Instant::now();
                    let filled = worker.run(&ready, &gate).await;
                    let busy_ns = started.elapsed().as_nanos() as u64;
                    let ReadyTask {
                        pipeline,
                        version,
                        id,
                        ..
                    } = ready;
                    worker.on(LocalEvent::TaskEnded {
                        pipeline,
                        version,
                        id,
                        ended: Ended { filled, busy_ns },
                    });
                    Ok(())
                }
                .boxed()
            });
        task.detach();
    }

    fn class(&self, pipeline: PipelineId, is_job: bool) -> QueryClass {
        if is_job && !self.transport.is_urgent(pipeline) {
            QueryClass::Batch
        } else {
            QueryClass::Stream
        }
    }

    /// Runs a task; returns which partitions it has filled.
    async fn run(&self, ready: &ReadyTask, gate: &cpu::CpuGate) -> Vec<u32> {
        let id = ready.id;
        let Some(view) = self.views.read().get(&id.view).cloned() else {
            return vec![];
        };
        // A panic in an operator is a failure of its view, not of the worker.
        let outcome = std::panic::AssertUnwindSafe(async {
            let inputs = self.inputs(&view, ready).await?;
            let low_water = self.transport.low_water(view.id);
            let output = task::run(&view, id, inputs, gate, low_water).await?;
            if view.keeps_time(id.stage) {
                self.transport.due(id, view.due(id.stage, id.partition));
            }
            Ok::<_, crate::error::RuntimeError>(output)
        })
        .catch_unwind()
        .await;
        let error = match outcome {
            Ok(Ok(output)) => {
                let filled = output.filled();
                let mut shuffle = self.shuffle.lock();
                if !output.exchanged.is_empty() {
                    shuffle.keep_exchanged(ready.pipeline, id.epoch, (id.view, id.stage), output.exchanged);
                }
                if ready.is_read && !output.materialized.is_empty() {
                    shuffle.keep_changes(
                        ready.pipeline,
                        id.epoch,
                        (id.view, id.partition),
                        output.materialized,
                    );
                }
                return filled;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "an operator panicked; see the log".to_owned(),
        };
        tracing::error!(view = %view.name, stage = id.stage, partition = id.partition, epoch = id.epoch, %error,
            "a view failed; it is set aside and the others go on");
        view.fail(error);
        vec![]
    }

    /// Fetches what a task reads.
    async fn inputs(&self, view: &ViewInstance, ready: &ReadyTask) -> Result<Inputs> {
        let id = ready.id;
        let mut inputs = Inputs {
            first: view.is_fixed(id.stage) && view.take_first(id.stage),
            now: ready.now,
            combiner: view.combiner(id.stage),
            is_filling: view.is_filling(),
            ..Inputs::default()
        };
        for source in &ready.sources {
            let (from, block) = match *source {
                Source::Cut { relation, from } => {
                    let block = Block::Cut {
                        relation,
                        partition: id.partition,
                        partitions: view.graph.partitions,
                    };
                    (from, block)
                }
                Source::Exchange { stage, from } => (
                    from,
                    Block::Exchange {
                        view: id.view,
                        stage,
                        partition: id.partition,
                    },
                ),
                Source::Changes {
                    view,
                    partition,
                    from,
                } => (from, Block::Changes { view, partition }),
            };
            let rows = if from == self.id {
                self.fetch(ready.pipeline, id.epoch, block)
            } else {
                self.transport
                    .fetch(from, ready.pipeline, id.epoch, block)
                    .await?
            };
            match source {
                Source::Exchange { stage, .. } => inputs.exchanges.entry(*stage).or_default().extend(rows),
                _ => inputs.source.extend(rows),
            }
        }
        Ok(inputs)
    }
}

impl Tasks for Worker {
    fn has_work(&self, view: RelationId, stage: usize, partition: usize, now: i64, is_filled: bool) -> bool {
        let views = self.views.read();
        let Some(view) = views.get(&view) else {
            return false;
        };
        if view.failure().is_some() {
            return false;
        }
        is_filled
            || if view.is_fixed(stage) {
                view.is_first(stage)
            } else {
                !view.idle_without_input(stage, partition, now)
            }
    }
}
