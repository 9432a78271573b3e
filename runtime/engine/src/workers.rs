//! The workers of this process: which there are, which of them takes a task, and what all of them are told.
//!
//! That the driver hears of who joins and goes is for whoever adds and removes them ([`crate::runtime`]).

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;
use millrace_planner::RelationId;
use millrace_resource::cpu::{CpuGate, CpuScheduler, CpuTimes, TaskLabel, TaskRecord, TaskStatus, Work};
use millrace_resource::network::FETCHING_TASKS_MAX;
use millrace_resource::running::Running;
use millrace_schedule::cpu::QueryClass;
use millrace_schedule::cpu::policy::SchedulerPolicy;
use millrace_schedule::cpu::queue::Patience;
use millrace_schedule::id::{PipelineId, WorkerId};
use parking_lot::{Mutex, MutexGuard, RwLock};

use crate::error::{CpuTask, Result, RuntimeError};
use crate::machine::Machine;
use crate::worker::{Transport, ViewInstance, Worker};

/// See the module.
pub(crate) struct Workers {
    machine: Arc<Machine>,
    /// Where it is noted which views run, for the case that the process dies in one.
    running: Option<Arc<Running>>,
    started: Instant,
    policy: Mutex<(SchedulerPolicy, Patience)>,
    cuts: Mutex<CutTimes>,
    by_id: RwLock<BTreeMap<WorkerId, Arc<Worker>>>,
    /// The worker that takes a pipeline's cuts.
    cutters: RwLock<HashMap<PipelineId, WorkerId>>,
    next: AtomicU32,
    /// Held by whoever lets a worker go: one has to stay.
    membership: Mutex<()>,
}

/// When the epochs of pipelines are cut.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CutTimes {
    /// The time between two cuts of a pipeline; none: as soon as there is input.
    pub interval: Option<Duration>,
    /// How old what readers see may be of views that do not say it; none: as fresh as can be.
    pub freshness: Option<Duration>,
}

impl Workers {
    /// None yet.
    pub fn new(
        machine: &Arc<Machine>,
        running: Option<Arc<Running>>,
        policy: (SchedulerPolicy, Patience),
        cuts: CutTimes,
    ) -> Arc<Workers> {
        Arc::new(Workers {
            machine: Arc::clone(machine),
            running,
            started: Instant::now(),
            policy: Mutex::new(policy),
            cuts: Mutex::new(cuts),
            by_id: RwLock::default(),
            cutters: RwLock::default(),
            next: AtomicU32::new(0),
            membership: Mutex::default(),
        })
    }

    /// Since when times are counted that workers and driver are told.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// The right to let workers go.
    pub fn membership(&self) -> MutexGuard<'_, ()> {
        self.membership.lock()
    }

    /// A name for another worker.
    pub fn next_id(&self) -> WorkerId {
        WorkerId(self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// A view, if there is this attempt at it.
    pub fn view(&self, id: RelationId, incarnation: u64) -> Option<Arc<ViewInstance>> {
        let workers = self.by_id.read();
        workers.values().next()?.view(id, incarnation)
    }

    /// Starts another worker, which reaches the rest by this transport.
    ///
    /// # Errors
    /// The operating system refuses a thread.
    pub fn add(&self, transport: impl FnOnce(WorkerId) -> Arc<dyn Transport>) -> Result<WorkerId> {
        let id = self.next_id();
        let cpu = CpuScheduler::start(self.machine.cores, Some(self.machine.waits()))?;
        cpu.watch(&self.machine.memory);
        if let Some(running) = &self.running {
            cpu.note_in(running);
        }
        let (policy, patience) = self.policy();
        cpu.set_policy(policy);
        cpu.set_patience(patience);
        let worker = Worker::new(id, cpu, transport(id), self.started);
        // Under one lock, so that a view that is installed meanwhile is installed here too.
        let mut workers = self.by_id.write();
        self.apply_cut_times(&worker);
        if let Some(other) = workers.values().next() {
            for view in other.views() {
                worker.install(view);
            }
        }
        workers.insert(id, worker);
        Ok(id)
    }

    /// The worker of this name, if there is one.
    pub fn get(&self, id: WorkerId) -> Option<Arc<Worker>> {
        self.by_id.read().get(&id).cloned()
    }

    /// All of them, in order.
    pub fn all(&self) -> Vec<Arc<Worker>> {
        self.by_id.read().values().cloned().collect()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_id.read().len()
    }

    /// Whether another than this one takes part.
    pub fn has_another(&self, worker: WorkerId) -> bool {
        let workers = self.by_id.read();
        workers
            .values()
            .any(|other| other.id != worker && !other.is_leaving())
    }

    /// Takes a worker out as if it had died.
    pub fn evict(&self, worker: WorkerId) {
        let worker = self.by_id.write().remove(&worker);
        if let Some(worker) = worker {
            worker.die();
            // A poll under way is waited for, and this may be one.
            self.machine
                .io
                .spawn_blocking(move || worker.cpu.lose(worker.id.0));
        }
    }

    /// Takes out one that has nothing left to do. Queries that run on its slots are seen through.
    pub fn retire(&self, worker: WorkerId) {
        let worker = self.by_id.write().remove(&worker);
        if let Some(worker) = worker {
            self.machine.io.spawn_blocking(move || worker.cpu.retire());
        }
    }

    /// Runs a coroutine of no epoch on the slots of the worker that the policy chooses.
    ///
    /// # Errors
    /// The runtime is shutting down.
    pub fn spawn<T: Send + 'static>(
        &self,
        class: QueryClass,
        future: impl FnOnce(CpuGate) -> BoxFuture<'static, Result<T>>,
    ) -> Result<CpuTask<T>> {
        // Held until it is spawned: a worker that leaves sees through what it was given before.
        let workers = self.by_id.read();
        Ok(self.place(&workers)?.cpu.spawn(class, future))
    }

    /// The same for work of which others may know.
    ///
    /// # Errors
    /// The runtime is shutting down.
    pub fn spawn_of<T: Send + 'static>(
        &self,
        work: Arc<Work>,
        future: impl FnOnce(CpuGate) -> BoxFuture<'static, Result<T>>,
    ) -> Result<CpuTask<T>> {
        let workers = self.by_id.read();
        let record = Arc::new(TaskRecord::new(work, None));
        Ok(self.place(&workers)?.cpu.spawn_recorded(record, future))
    }

    /// The same for a view alone.
    ///
    /// # Errors
    /// The runtime is shutting down.
    pub fn spawn_for<T: Send + 'static>(
        &self,
        view: RelationId,
        class: QueryClass,
        future: impl FnOnce(CpuGate) -> BoxFuture<'static, Result<T>>,
    ) -> Result<CpuTask<T>> {
        let workers = self.by_id.read();
        Ok(self.place(&workers)?.cpu.spawn_for(view, class, future))
    }

    /// The same for a task of a query.
    ///
    /// # Errors
    /// The runtime is shutting down.
    pub fn spawn_placed(
        &self,
        work: &Arc<Work>,
        label: impl FnOnce(u32) -> TaskLabel,
        keeps_stretches: bool,
        future: impl FnOnce(CpuGate) -> BoxFuture<'static, Result<()>>,
    ) -> Result<(CpuTask<()>, Arc<TaskRecord>)> {
        let workers = self.by_id.read();
        let worker = self.place(&workers)?;
        let mut record = TaskRecord::new(Arc::clone(work), Some(label(worker.id.0)));
        if keeps_stretches {
            record = record.keeping_stretches();
        }
        let record = Arc::new(record);
        let task = worker.cpu.spawn_recorded(Arc::clone(&record), future);
        Ok((task, record))
    }

    /// Makes an index as batch work, without anybody waiting for it.
    ///
    /// # Errors
    /// The runtime is shutting down.
    pub fn spawn_indexing(
        &self,
        relation: RelationId,
        make: impl FnOnce() -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let indexing = self.spawn_for(relation, QueryClass::Batch, move |_| {
            async move {
                if let Err(error) = make() {
                    // Whoever asks for one meets the same error.
                    tracing::error!(%error, "an index cannot be built");
                }
                Ok(())
            }
            .boxed()
        })?;
        indexing.detach();
        Ok(())
    }

    /// The worker for a task that has no input on any of them.
    fn place<'a>(&self, workers: &'a BTreeMap<WorkerId, Arc<Worker>>) -> Result<&'a Arc<Worker>> {
        let mut all = workers.values().filter(|worker| !worker.is_cut_off());
        if let (Some(only), None) = (all.next(), all.next()) {
            return Ok(only);
        }
        let candidates: Vec<&Arc<Worker>> =
            (workers.values()).filter(|worker| !worker.is_cut_off()).collect();
        // The memory of the process, divided evenly among its workers.
        let limit = self.machine.memory.status().limit;
        let share = limit.map(|limit| (limit / candidates.len()).max(1) as u64);
        let memory_permille = |bytes: u64| {
            let permille = share.map_or(0, |share| (bytes.saturating_mul(1000) / share).min(1000));
            permille as u32
        };
        let places: Vec<_> = (candidates.iter())
            .map(|worker| worker.cpu.place(worker.id.0, memory_permille(worker.memory())))
            .collect();
        let (policy, _) = self.policy();
        let chosen = policy.rules().place(None, &places);
        chosen
            .map(|chosen| candidates[chosen])
            .ok_or(RuntimeError::SHUTTING_DOWN)
    }

    /// So many tasks keep every resource at work, with one more that is ready when one of them ends (Ousterhout 2017, section
    /// 5.3.1): one a core, and one for each request that a device is good for.
    pub fn tasks_in_flight(&self) -> usize {
        let cores = self.machine.cores * self.len().max(1);
        let disks = self.machine.disks.all();
        let requests: usize = disks.iter().map(|disk| disk.concurrency()).sum();
        let network = self.machine.network.bytes_per_second();
        let fetching = network.map_or(0, |_| FETCHING_TASKS_MAX);
        cores + requests + fetching + 1
    }

    /// The views that there are, those included that are being made.
    pub fn views(&self) -> Vec<Arc<ViewInstance>> {
        let first = self.by_id.read().values().next().map(|worker| worker.views());
        first.unwrap_or_default()
    }

    /// Makes a view known to all workers.
    pub fn install(&self, view: &Arc<ViewInstance>) {
        for worker in self.by_id.read().values() {
            worker.install(Arc::clone(view));
        }
    }

    /// Takes it from them.
    pub fn uninstall(&self, view: RelationId) {
        for worker in self.by_id.read().values() {
            worker.uninstall(view);
        }
    }

    /// Has a view's stages combine rows before exchanges where that pays, or never.
    pub fn set_combining(&self, view: RelationId, is_on: bool) {
        for worker in self.by_id.read().values() {
            for view in worker.views().iter().filter(|instance| instance.id == view) {
                view.set_combining(is_on);
            }
        }
    }

    /// How the slots are shared from now on.
    pub fn set_policy(&self, policy: SchedulerPolicy, patience: Patience) {
        *self.policy.lock() = (policy, patience);
        for worker in self.by_id.read().values() {
            worker.cpu.set_policy(policy);
            worker.cpu.set_patience(patience);
        }
    }

    /// How the slots are shared.
    pub fn policy(&self) -> (SchedulerPolicy, Patience) {
        *self.policy.lock()
    }

    /// When epochs are cut from now on.
    pub fn set_cut_times(&self, cuts: CutTimes) {
        *self.cuts.lock() = cuts;
        self.retime();
    }

    /// Has all cutters look again when epochs are to be cut: the target of a view is another.
    pub fn retime(&self) {
        for worker in self.all() {
            self.apply_cut_times(&worker);
        }
    }

    pub fn cut_times(&self) -> CutTimes {
        *self.cuts.lock()
    }

    /// From now on this worker takes the cuts of a pipeline.
    pub fn set_cutter(&self, pipeline: PipelineId, worker: WorkerId) {
        self.cutters.write().insert(pipeline, worker);
    }

    fn apply_cut_times(&self, worker: &Arc<Worker>) {
        let cuts = self.cut_times();
        let nanoseconds = |time: Option<Duration>| time.unwrap_or_default().as_nanos() as u64;
        worker.set_times(nanoseconds(cuts.interval), nanoseconds(cuts.freshness));
    }

    /// Whether the input of a pipeline waits for company.
    pub fn is_paced(&self, pipeline: PipelineId) -> bool {
        let cutter = self.cutters.read().get(&pipeline).copied();
        let worker = cutter.and_then(|cutter| self.get(cutter));
        worker.is_some_and(|worker| worker.is_paced(pipeline))
    }

    /// Somebody waits for the input of a pipeline: it does not wait for company.
    pub fn hurry(&self, pipeline: PipelineId) {
        let cutter = self.cutters.read().get(&pipeline).copied();
        if let Some(worker) = cutter.and_then(|cutter| self.get(cutter)) {
            worker.hurry(pipeline);
        }
    }

    /// Nanoseconds since the start.
    pub fn now(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    /// Tells the cutter of a pipeline that input waits.
    pub fn input_arrived(&self, pipeline: PipelineId) {
        let cutter = self.cutters.read().get(&pipeline).copied();
        if let Some(worker) = cutter.and_then(|cutter| self.get(cutter)) {
            worker.input_arrived(pipeline);
        }
    }

    /// Tasks that are ready and wait for a cpu slot.
    pub fn tasks_waiting(&self, class: QueryClass) -> usize {
        let workers = self.by_id.read();
        workers.values().map(|worker| worker.cpu.waiting(class)).sum()
    }

    /// What the slots of all workers have measured since the start.
    pub fn cpu_times(&self) -> CpuTimes {
        let mut times = CpuTimes::default();
        for worker in self.by_id.read().values() {
            times.merge(&worker.cpu.times());
        }
        times
    }

    /// The tasks that are paused for more urgent ones, with their workers; the oldest of a worker first.
    pub fn paused_tasks(&self) -> Vec<(u32, TaskStatus)> {
        let workers = self.by_id.read();
        let paused = workers.values().flat_map(|worker| {
            let records = worker.cpu.paused();
            records
                .into_iter()
                .map(|record| (worker.id.0, record.status()))
                .collect::<Vec<_>>()
        });
        paused.collect()
    }
}
