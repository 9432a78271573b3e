//! One run of a query: its stages, and the tasks that it has on the cpu schedulers.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use datafusion::physical_plan::{ExecutionPlan, displayable};
use futures::FutureExt;
use millrace_resource::cpu::{CpuGate, TaskLabel, TaskRecord, TaskStatus, Waits, Work, waits_for};
use millrace_resource::network::Network;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::Queries;
use crate::error::{CpuTask, Result};
use crate::machine::Machine;

/// A stage of a run.
pub struct StageRecord {
    /// Its plan, whose boundaries are the stages that it reads.
    pub plan: Arc<dyn ExecutionPlan>,
    pub tasks: Vec<Arc<TaskRecord>>,
}

/// Whether a query waits for its client.
#[derive(Debug)]
pub struct Client {
    /// Batches of its result that may wait.
    batches_max: usize,
    since: Mutex<Option<Instant>>,
    waited_ns: AtomicU64,
}

impl Client {
    /// Room for a batch, waited for; none if the client wants no more.
    pub async fn room<'a, T>(&self, sender: &'a mpsc::Sender<T>) -> Option<mpsc::Permit<'a, T>> {
        match sender.try_reserve() {
            Ok(room) => return Some(room),
            Err(mpsc::error::TrySendError::Closed(())) => return None,
            Err(mpsc::error::TrySendError::Full(())) => {}
        }
        let begin = Instant::now();
        *self.since.lock() = Some(begin);
        waits_for(Waits::Output);
        let room = sender.reserve().await;
        *self.since.lock() = None;
        let waited_ns = begin.elapsed().as_nanos() as u64;
        self.waited_ns.fetch_add(waited_ns, Ordering::Relaxed);
        room.ok()
    }
}

/// A query whose client does not take its rows.
#[derive(Debug, Clone, Copy)]
pub struct ClientWait {
    pub query: u64,
    /// The stage that emits the result.
    pub stage: usize,
    /// Batches of the result that may wait.
    pub batches_max: usize,
    pub since: Instant,
    /// How long it had waited before, all times together.
    pub waited: Duration,
}

/// See the module. Dropping it cancels its tasks.
pub struct QueryRun {
    pub id: u64,
    queries: Arc<Queries>,
    /// What its tasks share.
    pub work: Arc<Work>,
    pub started: Instant,
    pub client: Arc<Client>,
    keeps_stretches: bool,
    stages: Mutex<Vec<StageRecord>>,
    tasks: Mutex<Vec<CpuTask<()>>>,
}

impl QueryRun {
    /// A run that has no tasks yet. So many batches of its result may wait for the client.
    pub fn new(
        queries: &Arc<Queries>,
        work: Arc<Work>,
        keeps_stretches: bool,
        batches_max: usize,
    ) -> Arc<QueryRun> {
        let run = Arc::new(QueryRun {
            id: queries.next.fetch_add(1, Ordering::Relaxed),
            queries: Arc::clone(queries),
            work,
            started: Instant::now(),
            client: Arc::new(Client {
                batches_max,
                since: Mutex::default(),
                waited_ns: AtomicU64::new(0),
            }),
            keeps_stretches,
            stages: Mutex::default(),
            tasks: Mutex::default(),
        });
        queries.under_way.lock().insert(run.id, Arc::downgrade(&run));
        run
    }

    /// So many tasks of a stage that reads are under way at a time.
    pub fn tasks_in_flight(&self) -> usize {
        self.queries.workers.tasks_in_flight()
    }

    /// By which its workers fetch each other's rows, if that takes time.
    pub fn network(&self) -> Option<Arc<Network>> {
        let network = &self.queries.machine.network;
        network.bytes_per_second().map(|_| Arc::clone(network))
    }

    /// The number of a stage with this plan.
    pub fn new_stage(&self, plan: &Arc<dyn ExecutionPlan>) -> usize {
        let mut stages = self.stages.lock();
        stages.push(StageRecord {
            plan: Arc::clone(plan),
            tasks: vec![],
        });
        stages.len() - 1
    }

    /// Starts a task. It has to say itself how it ends, for nobody waits for it; if it panics, what it holds is dropped.
    ///
    /// # Errors
    /// The runtime is shutting down.
    pub fn spawn<F>(
        &self,
        stage: usize,
        partition: usize,
        task: impl FnOnce(CpuGate) -> F + Send + 'static,
    ) -> Result<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let handle = self.start(stage, partition, move |gate| task(gate).map(Ok).boxed())?;
        self.tasks.lock().push(handle);
        Ok(())
    }

    /// Starts the task that emits the result.
    ///
    /// # Errors
    /// The runtime is shutting down.
    pub fn start(
        &self,
        stage: usize,
        partition: usize,
        task: impl FnOnce(CpuGate) -> futures::future::BoxFuture<'static, Result<()>>,
    ) -> Result<CpuTask<()>> {
        let label = |worker| TaskLabel {
            query: self.id,
            stage,
            partition,
            worker,
        };
        let (task, record) =
            self.queries
                .workers
                .spawn_placed(&self.work, label, self.keeps_stretches, task)?;
        self.stages.lock()[stage].tasks.push(record);
        Ok(task)
    }

    /// Its tasks, stage by stage.
    pub fn tasks(&self) -> Vec<TaskStatus> {
        let stages = self.stages.lock();
        let records = stages.iter().flat_map(|stage| &stage.tasks);
        records.map(|record| record.status()).collect()
    }

    /// Since when it has waited for its client, if it does. The stage that emits the result is the last that was made.
    pub fn client_wait(&self) -> Option<ClientWait> {
        let since = (*self.client.since.lock())?;
        Some(ClientWait {
            query: self.id,
            stage: self.stages.lock().len().saturating_sub(1),
            batches_max: self.client.batches_max,
            since,
            waited: Duration::from_nanos(self.client.waited_ns.load(Ordering::Relaxed)),
        })
    }

    /// Workers that take part.
    pub fn num_workers(&self) -> usize {
        self.queries.workers.len()
    }

    /// What it runs on.
    pub fn machine(&self) -> &Machine {
        &self.queries.machine
    }

    /// Looks at the stages.
    pub fn with_stages<T>(&self, look: impl FnOnce(&[StageRecord]) -> T) -> T {
        look(&self.stages.lock())
    }
}

impl QueryRun {
    /// Abandons the tasks that have not ended. What was recorded of them stays.
    pub fn cancel(&self) {
        self.queries.under_way.lock().remove(&self.id);
        // What waits for a slot is freed with its handle.
        let tasks = std::mem::take(&mut *self.tasks.lock());
        drop(tasks);
    }
}

impl Drop for QueryRun {
    fn drop(&mut self) {
        self.cancel();
    }
}

impl std::fmt::Debug for QueryRun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let plans = self.with_stages(|stages| {
            let shown = stages
                .iter()
                .map(|stage| displayable(stage.plan.as_ref()).one_line().to_string());
            shown.collect::<Vec<_>>()
        });
        f.debug_struct("QueryRun")
            .field("id", &self.id)
            .field("stages", &plans)
            .finish()
    }
}
