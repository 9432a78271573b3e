//! The workers of this process: they join, leave, and are killed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::future::BoxFuture;
use millrace_planner::RelationId;
use millrace_resource::cpu::{CpuGate, CpuScheduler, TaskLabel, TaskRecord, Work};
use millrace_schedule::cpu::QueryClass;
use millrace_schedule::driver::Event;
use millrace_schedule::id::WorkerId;

use super::transport::InProcess;
use super::{Inner, Runtime};
use crate::error::CpuTask;
use crate::error::{Result, RuntimeError};
use crate::worker::{Transport, ViewInstance, Worker};

/// A worker as operators see it.
#[derive(Debug, Clone)]
pub struct WorkerStatus {
    pub id: u32,
    pub cores: usize,
    /// Partitions of keyed state that live there.
    pub partitions: usize,
    /// Tasks that are ready and wait for a slot.
    pub tasks_waiting: usize,
    /// It was asked to go, and its partitions are on their way to others.
    pub is_leaving: bool,
    /// Share of its slots' time in which they were busy, smoothed over the last seconds.
    pub busy: f64,
    /// Time in which its slots were busy since it was started, in nanoseconds.
    pub cpu_ns: u64,
    /// Bytes of the state that lives there, as of its last heartbeat.
    pub state_bytes: u64,
    /// Bytes that tasks of queries hold there, smoothed, as of its last heartbeat.
    pub query_bytes: u64,
    /// Bytes of rows there that wait for other tasks.
    pub in_flight_bytes: u64,
}

impl WorkerStatus {
    /// `running` or `leaving`.
    pub fn state(&self) -> &'static str {
        if self.is_leaving { "leaving" } else { "running" }
    }
}

impl Runtime {
    /// Starts another worker. Partitions move to it, each pipeline's between two of its groups.
    ///
    /// # Errors
    /// The operating system refuses a thread.
    pub fn add_worker(&self) -> Result<WorkerId> {
        self.inner.add_worker()
    }
}

impl Inner {
    fn add_worker(self: &Arc<Self>) -> Result<WorkerId> {
        let id = WorkerId(self.next_worker.fetch_add(1, Ordering::Relaxed));
        let cpu = CpuScheduler::start(self.options.cores, Some(self.waits.handle()))?;
        cpu.watch(&self.options.memory);
        if let Some(running) = &self.options.running {
            cpu.note_in(running);
        }
        let (policy, patience) = *self.policy.lock();
        cpu.set_policy(policy);
        cpu.set_patience(patience);
        let transport: Arc<dyn Transport> = Arc::new(InProcess {
            inner: Arc::downgrade(self),
            from: id,
        });
        let worker = Worker::new(id, cpu, transport, self.started);
        {
            // Under one lock, so that a view that is installed meanwhile is installed here too.
            let mut workers = self.workers.write();
            if let Some(other) = workers.values().next() {
                for view in other.views() {
                    worker.install(view);
                }
            }
            workers.insert(id, worker);
        }
        self.post(Event::WorkerJoined { worker: id });
        Ok(id)
    }
}

impl Runtime {
    /// Lets a worker go: its partitions move to the others, each pipeline's between two of its groups; then its slots end.
    ///
    /// # Errors
    /// There is no such worker, or it is the last one.
    pub fn remove_worker(&self, worker: WorkerId) -> Result<()> {
        let _membership = self.inner.membership.lock();
        let leaving = self.inner.workers.read().get(&worker).cloned();
        match leaving.filter(|_| self.inner.has_another(worker)) {
            Some(worker) => worker.leave(),
            None => {
                let error = match self.inner.workers.read().contains_key(&worker) {
                    true => RuntimeError::LastWorker(worker.0),
                    false => RuntimeError::UnknownWorker(worker.0),
                };
                return Err(error);
            }
        }
        self.inner.post(Event::WorkerLeaving { worker });
        Ok(())
    }

    /// Workers that take part, or leave.
    pub fn workers(&self) -> Vec<WorkerStatus> {
        let (placed, loads) = {
            let driver = self.inner.driver.lock();
            let placed: BTreeMap<WorkerId, usize> = driver.workers().into_iter().collect();
            (placed, driver.loads())
        };
        let load = |worker: &Worker| loads.get(&worker.id).copied().unwrap_or_default();
        let workers = self.inner.workers.read();
        let all = [QueryClass::Stream, QueryClass::Interactive, QueryClass::Batch];
        workers
            .values()
            .map(|worker| WorkerStatus {
                id: worker.id.0,
                cores: self.inner.options.cores,
                partitions: placed.get(&worker.id).copied().unwrap_or(0),
                tasks_waiting: all.iter().map(|class| worker.cpu.waiting(*class)).sum(),
                is_leaving: worker.is_leaving(),
                busy: f64::from(load(worker).busy_per_mille) / 1000.0,
                cpu_ns: worker.cpu.busy_ns(),
                state_bytes: load(worker).state_bytes,
                query_bytes: load(worker).query_bytes,
                in_flight_bytes: worker.in_flight_bytes() as u64,
            })
            .collect()
    }

    /// Kills a worker: what it has of views, of rows under way and of queries is gone at once. Views are restored from the
    /// last checkpoint on the other workers, or filled again where there is none; readers wait until they are as they were.
    /// The last worker is followed by a new one.
    ///
    /// # Errors
    /// There is no such worker; the operating system refuses the new one a thread.
    pub fn kill_worker(&self, worker: u32) -> Result<()> {
        let worker = WorkerId(worker);
        let _membership = self.inner.membership.lock();
        if !self.inner.workers.read().contains_key(&worker) {
            return Err(RuntimeError::UnknownWorker(worker.0));
        }
        if !self.inner.has_another(worker) {
            self.add_worker()?;
        }
        self.inner.evict(worker);
        self.inner.post(Event::WorkerLost { worker });
        Ok(())
    }
}

impl Runtime {
    /// Cuts a worker off from all others, from the driver and from the sources, as a broken network would: for tests. It
    /// goes on with what it has, until it is held to be lost.
    ///
    /// # Errors
    /// There is no such worker.
    pub fn cut_off_worker(&self, worker: u32) -> Result<()> {
        match self.inner.workers.read().get(&WorkerId(worker)) {
            Some(worker) => worker.cut_off(),
            None => return Err(RuntimeError::UnknownWorker(worker)),
        }
        Ok(())
    }
}

impl Runtime {
    /// Has the maps of a worker wait from now on, as on a machine that has come to a standstill, or (`false`) go on: for
    /// tests. What has state there goes on, and so do messages.
    ///
    /// # Errors
    /// There is no such worker.
    pub fn stall_worker(&self, worker: u32, is_stalled: bool) -> Result<()> {
        match self.inner.workers.read().get(&WorkerId(worker)) {
            Some(worker) => worker.stall(is_stalled),
            None => return Err(RuntimeError::UnknownWorker(worker)),
        }
        Ok(())
    }
}

impl Inner {
    /// The heartbeats of all workers here, and the driver's watch over them: one timer, while the runtime lives.
    pub(super) fn start_heartbeats(self: &Arc<Self>) {
        let every = self.options.heartbeat_every;
        let weak = Arc::downgrade(self);
        self.post(Event::Heartbeats {
            every_ns: every.as_nanos() as u64,
        });
        self.io.spawn(async move {
            let mut interval = tokio::time::interval(every);
            interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                interval.tick().await;
                let Some(inner) = weak.upgrade() else { return };
                let workers: Vec<Arc<Worker>> = inner.workers.read().values().cloned().collect();
                workers.iter().for_each(|worker| worker.beat());
                inner.post(Event::Tick);
            }
        });
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
        let workers = self.workers.read();
        Ok(self.place(&workers)?.cpu.spawn(class, future))
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
        let workers = self.workers.read();
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
        let workers = self.workers.read();
        let worker = self.place(&workers)?;
        let mut record = TaskRecord::new(Arc::clone(work), Some(label(worker.id.0)));
        if keeps_stretches {
            record = record.keeping_stretches();
        }
        let record = Arc::new(record);
        let task = worker.cpu.spawn_recorded(Arc::clone(&record), future);
        Ok((task, record))
    }

    /// Workers that there are.
    pub fn num_workers(&self) -> usize {
        self.workers.read().len()
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
        let limit = self.options.memory.status().limit;
        let share = limit.map(|limit| (limit / candidates.len()).max(1) as u64);
        let memory_permille = |bytes: u64| {
            let permille = share.map_or(0, |share| (bytes.saturating_mul(1000) / share).min(1000));
            permille as u32
        };
        let places: Vec<_> = (candidates.iter())
            .map(|worker| worker.cpu.place(worker.id.0, memory_permille(worker.memory())))
            .collect();
        let (policy, _) = *self.policy.lock();
        let chosen = policy.rules().place(None, &places);
        chosen
            .map(|chosen| candidates[chosen])
            .ok_or(RuntimeError::SHUTTING_DOWN)
    }

    /// Makes a view's operators known to every worker.
    pub fn install(&self, view: &Arc<ViewInstance>) {
        for worker in self.workers.read().values() {
            worker.install(Arc::clone(view));
        }
    }

    pub fn uninstall(&self, view: RelationId) {
        for worker in self.workers.read().values() {
            worker.uninstall(view);
        }
    }

    /// Whether a worker would stay if this one went.
    fn has_another(&self, worker: WorkerId) -> bool {
        let workers = self.workers.read();
        workers
            .values()
            .any(|other| other.id != worker && !other.is_leaving())
    }

    /// The driver holds a worker to be lost. If no other is there to stay, a new one follows it.
    pub(super) fn replace(self: &Arc<Self>, worker: WorkerId) {
        if !self.has_another(worker)
            && let Err(error) = self.add_worker()
        {
            tracing::error!(%error, "the last worker is lost, and no other can be started");
        }
        self.evict(worker);
    }

    /// Makes sure that a worker that is held to be lost does nothing more.
    pub(super) fn evict(&self, worker: WorkerId) {
        let worker = self.workers.write().remove(&worker);
        if let Some(worker) = worker {
            worker.die();
            // A poll under way is waited for, and this may be one.
            self.io.spawn_blocking(move || worker.cpu.lose(worker.id.0));
        }
    }
}
