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

mod activity;
mod execution;
pub mod flow;
mod load;
pub mod shuffle;
mod task;
mod transport;
mod view;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use futures::FutureExt;
use millrace_planner::RelationId;
use millrace_resource::cpu::CpuScheduler;
use millrace_resource::error::ResourceError;

use millrace_schedule::cpu::QueryClass;
use millrace_schedule::id::{Part, PipelineId, TaskId, WorkerId};
use millrace_schedule::local::{LocalAction, LocalEvent, LocalScheduler, TakenCut, Tasks, Timer};
use millrace_schedule::message::{EpochTime, ToDriver, ToPeer, ToWorker};
use millrace_storage::ChangeBatch;
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;

use crate::error::{Result, RuntimeError};
use crate::feed::{CutAnswer, CutRequest};
pub use activity::{ActivityCounts, Filled};
use flow::{Batch, BatchId, FlowId, Flows};
use load::LoadMeter;
use shuffle::{Block, Shuffle};
pub use task::partition_hash;
pub use transport::{EpochCut, Transport};
pub use view::{Image, ViewContents, ViewInstance, ViewSpec};
pub(crate) use view::{PARTITIONS_DIVIDED, Watch, partitions_divided};

/// See the module.
pub struct Worker {
    pub id: WorkerId,
    pub cpu: CpuScheduler,
    local: Mutex<LocalScheduler>,
    shuffle: Mutex<Shuffle>,
    flows: Flows,
    views: RwLock<HashMap<RelationId, Arc<ViewInstance>>>,
    transport: Arc<dyn Transport>,
    started: Instant,
    is_dead: AtomicBool,
    is_leaving: AtomicBool,
    is_cut_off: AtomicBool,
    /// Maps wait as long as this is so.
    is_stalled: watch::Sender<bool>,
    load: Mutex<LoadMeter>,
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
            flows: Flows::default(),
            views: RwLock::default(),
            transport,
            started,
            is_dead: AtomicBool::new(false),
            is_leaving: AtomicBool::new(false),
            is_cut_off: AtomicBool::new(false),
            is_stalled: watch::Sender::new(false),
            load: Mutex::default(),
        })
    }

    /// The worker is gone: from now on nothing that it does counts. Its rows, messages and queues are dropped.
    pub fn die(&self) {
        self.is_dead.store(true, Ordering::SeqCst);
        *self.shuffle.lock() = Shuffle::default();
        self.flows.clear();
        *self.local.lock() = LocalScheduler::new(self.id);
    }

    /// The worker has been asked to go.
    pub fn leave(&self) {
        self.is_leaving.store(true, Ordering::Relaxed);
    }

    pub fn is_leaving(&self) -> bool {
        self.is_leaving.load(Ordering::Relaxed)
    }

    /// From now on nothing reaches the worker, and nothing that it says reaches anybody, though it lives.
    pub fn cut_off(&self) {
        self.is_cut_off.store(true, Ordering::SeqCst);
    }

    pub fn is_cut_off(&self) -> bool {
        self.is_cut_off.load(Ordering::Relaxed)
    }

    /// From now on maps that come to a slot of this worker wait there, or (`false`) go on.
    pub fn stall(&self, is_stalled: bool) {
        self.is_stalled.send_replace(is_stalled);
    }

    /// Bytes that are in use there: state, what tasks of queries hold, rows in flight.
    pub fn memory(&self) -> u64 {
        self.load.lock().memory() + self.in_flight_bytes() as u64
    }

    /// Tells the driver that the worker is there, and how it is doing.
    pub fn beat(&self) {
        if self.is_alive() {
            let parts = self.local.lock().parts();
            let (load, bytes) = {
                let mut meter = self.load.lock();
                let load = meter.measure(self, &parts);
                (load, meter.moved_bytes().to_vec())
            };
            let worker = self.id;
            self.transport.report(ToDriver::Heartbeat { worker, load });
            self.transport.report(ToDriver::State { worker, bytes });
        }
    }

    fn is_alive(&self) -> bool {
        !self.is_dead.load(Ordering::SeqCst)
    }

    /// Bytes of the rows that wait here for other tasks.
    pub fn in_flight_bytes(&self) -> usize {
        self.shuffle.lock().bytes()
    }

    /// Makes a view's operators known; templates only name it.
    pub fn install(&self, view: Arc<ViewInstance>) {
        self.views.write().insert(view.id, view);
    }

    /// Forgets a view that no epoch in flight runs.
    pub fn uninstall(&self, view: RelationId) {
        self.views.write().remove(&view);
    }

    /// A view, if its operators are known here as of this attempt at it.
    pub(crate) fn view(&self, id: RelationId, incarnation: u64) -> Option<Arc<ViewInstance>> {
        let views = self.views.read();
        let view = views.get(&id)?;
        (view.shape.incarnation == incarnation).then(|| Arc::clone(view))
    }

    /// Which attempt at a view is known here.
    pub(crate) fn incarnation(&self, view: RelationId) -> Option<u64> {
        Some(self.views.read().get(&view)?.shape.incarnation)
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

    /// Whether the input of a pipeline waits for company; this worker is the cutter.
    pub fn is_paced(&self, pipeline: PipelineId) -> bool {
        self.local.lock().is_paced(pipeline)
    }

    /// Somebody waits for what there is; this worker is the cutter.
    pub fn hurry(self: &Arc<Self>, pipeline: PipelineId) {
        self.on(LocalEvent::Hurry { pipeline });
    }

    /// The time of [`Transport::wake_at`] has come.
    pub fn wake(self: &Arc<Self>, pipeline: PipelineId, timer: Timer) {
        self.on(LocalEvent::Wake { pipeline, timer });
    }

    /// Rows that wait here.
    ///
    /// # Errors
    /// The worker died, or a copy was dropped: what was there is not any more.
    pub fn fetch(&self, pipeline: PipelineId, epoch: u64, block: Block) -> Result<Vec<ChangeBatch>> {
        let rows = self.shuffle.lock().fetch(pipeline, epoch, block);
        // It dies before its rows are dropped: what was found while it lives was all of it.
        rows.filter(|_| self.is_alive())
            .ok_or(RuntimeError::worker_lost(self.id.0))
    }

    /// The next batch of a channel here; see [`Transport::next_batch`].
    ///
    /// # Errors
    /// The worker is gone.
    pub async fn next_batch(
        &self,
        flow: FlowId,
        partition: usize,
        done: Option<BatchId>,
    ) -> Result<Option<Batch>> {
        let batch = self.flows.open(flow).next(partition, done).await;
        if self.is_alive() {
            Ok(batch)
        } else {
            Err(RuntimeError::worker_lost(self.id.0))
        }
    }

    /// Time between two cuts of each pipeline, and the target for the freshness of views without one, in nanoseconds; 0: as soon as there is
    /// input.
    pub fn set_times(self: &Arc<Self>, interval: u64, freshness: u64) {
        let pipelines = self.local.lock().set_times(interval, freshness, self.as_ref());
        for pipeline in pipelines {
            self.wake(pipeline, Timer::Cut);
        }
    }

    fn on(self: &Arc<Self>, event: LocalEvent) {
        if !self.is_alive() {
            return;
        }
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
                gives_way,
                is_retained,
                is_replay,
                is_checkpoint,
            } => {
                let request = CutRequest {
                    pipeline,
                    version,
                    epoch,
                    is_retained,
                    is_replay,
                    is_checkpoint,
                };
                let worker = Arc::clone(self);
                let task = self.cpu.spawn(self.class(pipeline, gives_way), move |_| {
                    async move {
                        worker.take_cut(request);
                        Ok::<(), ResourceError>(())
                    }
                    .boxed()
                });
                task.detach();
            }
            LocalAction::Restore {
                pipeline,
                version,
                view,
                incarnation,
                stage,
                partition,
            } => {
                let worker = Arc::clone(self);
                let part = Part {
                    view,
                    stage,
                    partition,
                };
                let task = self
                    .cpu
                    .spawn_for::<_, ResourceError>(view, QueryClass::Stream, move |_| {
                        async move {
                            worker.restore(part, incarnation).await;
                            if let Some(view) = worker.view(view, incarnation) {
                                view.make_room().await;
                            }
                            worker.on(LocalEvent::Restored {
                                pipeline,
                                version,
                                view,
                                stage,
                                partition,
                            });
                            Ok(())
                        }
                        .boxed()
                    });
                task.detach();
            }
            LocalAction::Run(ready) => self.spawn(ready),
            LocalAction::Release { pipeline, epochs } => {
                self.shuffle.lock().release(pipeline, &epochs);
                self.flows.release(pipeline, &epochs);
            }
            LocalAction::EndFlow {
                pipeline,
                epoch,
                view,
                stage,
                is_void,
            } => {
                let flow = FlowId {
                    pipeline,
                    epoch,
                    view,
                    stage,
                };
                self.flows.open(flow).end(is_void);
            }
            LocalAction::Send(to, message) => self.transport.send(to, message),
            LocalAction::Report(message) => self.transport.report(message),
            LocalAction::WakeAt { pipeline, at, timer } => {
                self.transport.wake_at(self.id, pipeline, timer, at);
            }
            LocalAction::TakeCopy {
                pipeline,
                version,
                id,
                from,
                ended,
            } => {
                let transfer = Arc::clone(self).take_copy(pipeline, version, id, from, ended);
                self.transport.transfer(transfer.boxed());
            }
            LocalAction::KeepOwn(template) => {
                for shape in &template.views {
                    let Some(view) = self.view(shape.id, shape.incarnation) else {
                        continue;
                    };
                    view.prepared(template.version);
                    for partition in 0..shape.partitions {
                        if !self.transport.is_together(template.worker(partition)) {
                            view.let_go(partition);
                        }
                    }
                }
            }
            // What one worker of a process has, all of them have: not all of it is elsewhere.
            LocalAction::Discard { .. } if self.transport.has_sources() => {}
            LocalAction::Discard { views } => {
                for view in views
                    .iter()
                    .filter_map(|view| self.views.read().get(view).cloned())
                {
                    (0..view.graph.partitions).for_each(|partition| view.let_go(partition));
                }
            }
            LocalAction::DropCopies { pipeline, tasks } => self.shuffle.lock().drop_copies(pipeline, &tasks),
        }
    }

    /// Gives a task that was taken over its state as of the checkpoint.
    async fn restore(&self, part: Part, incarnation: u64) {
        let view = self.view(part.view, incarnation);
        let Some(view) = view.filter(|view| view.failure().is_none()) else {
            return;
        };
        let outcome = match self.transport.image(part).await {
            Ok(Some(image)) => match view.restore(part.stage, part.partition, &image, || self.is_alive()) {
                Ok(()) if view.is_last(part.stage) => {
                    self.transport.bring_rows_back(&view, part.partition).await
                }
                restored => restored,
            },
            Ok(None) => Err(RuntimeError::Internal(format!(
                "{part:?} is not in any checkpoint"
            ))),
            Err(error) => Err(error),
        };
        match outcome {
            // This worker is the one that is lost.
            Err(RuntimeError::Resource(ResourceError::WorkerLost(_))) => {}
            Ok(()) => {
                let indexing = Arc::clone(&view);
                let indexing = self.cpu.spawn_for(part.view, QueryClass::Batch, move |_| {
                    async move { indexing.make_indexes(part.partition) }.boxed()
                });
                indexing.detach();
                if view.keeps_time(part.stage) {
                    let epoch = 0;
                    let Part {
                        view: id,
                        stage,
                        partition,
                    } = part;
                    let task = TaskId {
                        view: id,
                        stage,
                        partition,
                        epoch,
                    };
                    self.transport.due(task, view.due(stage, partition));
                }
            }
            Err(error) => {
                tracing::error!(view = %view.name, ?part, %error, "a lost partition cannot be restored");
                view.fail(format!(
                    "a worker with a part of it was lost, and restoring that part failed: {error}"
                ));
            }
        }
    }

    /// Takes the cut and lets the maps go.
    fn take_cut(self: &Arc<Self>, request: CutRequest) {
        let CutRequest {
            pipeline,
            version,
            epoch,
            is_checkpoint,
            ..
        } = request;
        let EpochCut {
            changes,
            time,
            more,
            is_checkpoint,
            waited_ns,
            in_flight_max,
        } = match self.transport.cut(request) {
            CutAnswer::Taken(cut) => cut,
            CutAnswer::New => {
                self.on(LocalEvent::NoCut {
                    pipeline,
                    version,
                    epoch,
                    is_checkpoint,
                });
                return;
            }
            CutAnswer::Void => return,
        };
        let mut rows = vec![];
        {
            let mut shuffle = self.shuffle.lock();
            for (relation, cut) in changes {
                rows.push((
                    relation,
                    cut.changes.iter().map(|batch| batch.num_rows() as u64).sum(),
                ));
                shuffle.keep_cut(pipeline, epoch, relation, cut);
            }
        }
        self.on(LocalEvent::CutTaken {
            pipeline,
            version,
            cut: TakenCut {
                epoch,
                time,
                rows,
                more,
                is_checkpoint,
                waited_ns,
                in_flight_max,
            },
        });
    }

    /// The class of a pipeline's work. Somebody waits for a back-fill that is urgent.
    fn class(&self, pipeline: PipelineId, gives_way: bool) -> QueryClass {
        if gives_way && !self.transport.is_urgent(pipeline) {
            QueryClass::Batch
        } else {
            QueryClass::Stream
        }
    }
}

impl Tasks for Worker {
    fn has_work(&self, task: TaskId, time: &EpochTime, is_needed: bool) -> bool {
        let TaskId {
            view,
            stage,
            partition,
            ..
        } = task;
        let views = self.views.read();
        let Some(view) = views.get(&view) else {
            return false;
        };
        if view.failure().is_some() {
            return false;
        }
        is_needed
            || if view.is_fixed(stage) {
                view.is_first(stage)
            } else {
                !view.idle_without_input(stage, partition, time)
            }
    }

    fn freshness(&self, view: RelationId) -> Option<u64> {
        let target = self.views.read().get(&view)?.freshness()?;
        Some(target.as_nanos() as u64)
    }

    fn has_state(&self, part: Part, version: u64) -> bool {
        let views = self.views.read();
        // Without the view there is nothing to bring its state to.
        (views.get(&part.view)).is_none_or(|view| view.has_state(part.stage, part.partition, version))
    }
}
