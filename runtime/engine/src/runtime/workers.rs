//! Workers join, leave and are killed: the driver is told of each.

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_mesh::Listener;
use millrace_schedule::cpu::QueryClass;
use millrace_schedule::driver::Event;
use millrace_schedule::id::{PipelineId, WorkerId};

use super::transport::InProcess;
use super::{Engine, Runtime};
use crate::cluster::HostStatus;
use crate::error::{Result, RuntimeError};
use crate::relation::Relation;
use crate::worker::{ViewInstance, Worker};

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
    /// The process that it is in, if that is another one.
    pub host: Option<HostStatus>,
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
        self.engine.add_worker()
    }
}

impl Engine {
    fn add_worker(self: &Arc<Self>) -> Result<WorkerId> {
        let id = self.workers.add(|id| {
            Arc::new(InProcess {
                engine: Arc::downgrade(self),
                from: id,
            })
        })?;
        self.post(Event::WorkerJoined {
            worker: id,
            has_sources: true,
        });
        Ok(id)
    }
}

impl Runtime {
    /// Lets a worker go: its partitions move to the others, each pipeline's between two of its groups; then its slots end.
    ///
    /// # Errors
    /// There is no such worker, or it is the last one.
    pub fn remove_worker(&self, worker: WorkerId) -> Result<()> {
        let _membership = self.engine.workers.membership();
        if let Some(member) = self.engine.cluster.get(worker) {
            member.leave();
            self.engine.post(Event::WorkerLeaving { worker });
            return Ok(());
        }
        let leaving = self.engine.workers.get(worker);
        match leaving.filter(|_| self.engine.workers.has_another(worker)) {
            Some(worker) => worker.leave(),
            None => {
                let error = match self.engine.workers.get(worker).is_some() {
                    true => RuntimeError::LastWorker(worker.0),
                    false => RuntimeError::UnknownWorker(worker.0),
                };
                return Err(error);
            }
        }
        self.engine.post(Event::WorkerLeaving { worker });
        Ok(())
    }

    /// Workers that take part, or leave.
    pub fn workers(&self) -> Vec<WorkerStatus> {
        let (placed, loads) = {
            let driver = self.engine.decisions.driver.lock();
            let placed: BTreeMap<WorkerId, usize> = driver.workers().into_iter().collect();
            (placed, driver.loads())
        };
        let load = |worker: &Worker| loads.get(&worker.id).copied().unwrap_or_default();
        let workers = self.engine.workers.all();
        let all = [QueryClass::Stream, QueryClass::Interactive, QueryClass::Batch];
        let here = workers.iter().map(|worker| WorkerStatus {
            id: worker.id.0,
            cores: self.engine.machine.cores,
            partitions: placed.get(&worker.id).copied().unwrap_or(0),
            tasks_waiting: all.iter().map(|class| worker.cpu.waiting(*class)).sum(),
            is_leaving: worker.is_leaving(),
            busy: f64::from(load(worker).busy_per_mille) / 1000.0,
            cpu_ns: worker.cpu.busy_ns(),
            state_bytes: load(worker).state_bytes,
            query_bytes: load(worker).query_bytes,
            in_flight_bytes: worker.in_flight_bytes() as u64,
            host: None,
        });
        let members = self.engine.cluster.all();
        let elsewhere = members.iter().map(|member| {
            let load = loads.get(&member.id).copied().unwrap_or_default();
            WorkerStatus {
                id: member.id.0,
                cores: member.about.cores,
                partitions: placed.get(&member.id).copied().unwrap_or(0),
                tasks_waiting: load.tasks_waiting as usize,
                is_leaving: member.is_leaving(),
                busy: f64::from(load.busy_per_mille) / 1000.0,
                cpu_ns: load.cpu_ns,
                state_bytes: load.state_bytes,
                query_bytes: load.query_bytes,
                in_flight_bytes: load.in_flight_bytes,
                host: Some(member.status()),
            }
        });
        here.chain(elsewhere).collect()
    }

    /// Takes in workers of other processes that connect to this listener, as long as the runtime lives. `build`: those of
    /// another one are refused.
    pub fn listen_for_workers(&self, listener: Listener, build: &str) {
        self.engine.listen(listener, build.to_owned());
    }

    /// Whether every view would be restored if a worker were lost now, and none filled again. False for a moment after a view was
    /// added or partitions have moved, and always with a single worker.
    pub fn can_lose_worker(&self) -> bool {
        let pipelines = self.engine.decisions.driver.lock().pipelines();
        pipelines.iter().all(|pipeline| pipeline.can_lose_worker)
    }

    /// Kills a worker: what it has of views, of rows under way and of queries is gone at once. Views are restored from the
    /// last checkpoint on the other workers, or filled again where there is none; readers wait until they are as they were.
    /// The last worker is followed by a new one.
    ///
    /// # Errors
    /// There is no such worker; the operating system refuses the new one a thread.
    pub fn kill_worker(&self, worker: u32) -> Result<()> {
        let worker = WorkerId(worker);
        let _membership = self.engine.workers.membership();
        if self.engine.cluster.evict(worker) {
            self.engine.post(Event::WorkerLost { worker });
            return Ok(());
        }
        if self.engine.workers.get(worker).is_none() {
            return Err(RuntimeError::UnknownWorker(worker.0));
        }
        if !self.engine.workers.has_another(worker) {
            self.add_worker()?;
        }
        self.engine.workers.evict(worker);
        self.engine.post(Event::WorkerLost { worker });
        Ok(())
    }
}

impl Engine {
    /// The heartbeats of all workers here, and the driver's watch over them: one timer, while the runtime lives.
    pub(super) fn start_heartbeats(self: &Arc<Self>) {
        let every = self.options.heartbeat_every;
        let weak = Arc::downgrade(self);
        self.post(Event::Heartbeats {
            every_ns: every.as_nanos() as u64,
        });
        self.machine.io.spawn(async move {
            let mut interval = tokio::time::interval(every);
            interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                interval.tick().await;
                let Some(engine) = weak.upgrade() else { return };
                let workers: Vec<Arc<Worker>> = engine.workers.all();
                workers.iter().for_each(|worker| worker.beat());
                engine.post(Event::Tick);
            }
        });
    }

    /// The driver holds a worker to be lost. If no other is there to stay, a new one follows it.
    pub(super) fn replace(self: &Arc<Self>, worker: WorkerId) {
        if !self.workers.has_another(worker)
            && let Err(error) = self.add_worker()
        {
            tracing::error!(%error, "the last worker is lost, and no other can be started");
        }
        self.workers.evict(worker);
    }
}

impl Engine {
    /// What readers have seen of a pipeline's views is there again, apart from rows that are still to be put in place: those whose
    /// tasks are on another machine nobody else brings back.
    pub(super) fn recovered(self: &Arc<Self>, pipeline: PipelineId) {
        let views: Vec<Arc<ViewInstance>> = {
            let relations = self.relations.read();
            let views = relations.values().filter_map(|relation| match relation.as_ref() {
                Relation::View(view) => Some(view),
                Relation::Stream(_) | Relation::Table(_) => None,
            });
            let of_pipeline = views.filter(|view| self.versions.pipeline_of(view.id) == Some(pipeline));
            let is_lost = |view: &&Arc<ViewInstance>| {
                (0..view.graph.partitions).any(|partition| view.are_rows_lost(partition))
            };
            of_pipeline.filter(is_lost).cloned().collect()
        };
        if views.is_empty() {
            return self.versions.set_recovering(pipeline, false);
        }
        let engine = Arc::clone(self);
        self.machine.io.spawn(async move {
            for view in views {
                for partition in 0..view.graph.partitions {
                    if let Err(error) = engine.bring_rows_back(&view, partition).await {
                        view.fail(format!(
                            "a worker with a part of it was lost, and restoring that part failed: {error}"
                        ));
                        engine.tell_failed(&view);
                    }
                }
            }
            engine.versions.set_recovering(pipeline, false);
        });
    }
}
