//! One run of a query: its stages, and the tasks that it has on the cpu schedulers.

use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::Instant;

use datafusion::physical_plan::{ExecutionPlan, displayable};
use futures::FutureExt;
use parking_lot::Mutex;

use crate::error::Result;
use crate::runtime::Inner;
use crate::worker::cpu::{CpuGate, CpuTask, TaskLabel, TaskRecord, TaskStatus, Work};

/// A stage of a run.
pub struct StageRecord {
    /// Its plan, whose boundaries are the stages that it reads.
    pub plan: Arc<dyn ExecutionPlan>,
    pub tasks: Vec<Arc<TaskRecord>>,
}

/// See the module. Dropping it gives up its tasks.
pub struct QueryRun {
    pub id: u64,
    inner: Arc<Inner>,
    /// What its tasks share.
    pub work: Arc<Work>,
    pub started: Instant,
    keeps_stretches: bool,
    stages: Mutex<Vec<StageRecord>>,
    tasks: Mutex<Vec<CpuTask<()>>>,
}

impl QueryRun {
    /// A run that has no tasks yet.
    pub fn new(inner: &Arc<Inner>, work: Arc<Work>, keeps_stretches: bool) -> Arc<QueryRun> {
        let run = Arc::new(QueryRun {
            id: inner.new_query(),
            inner: Arc::clone(inner),
            work,
            started: Instant::now(),
            keeps_stretches,
            stages: Mutex::default(),
            tasks: Mutex::default(),
        });
        inner.queries.lock().insert(run.id, Arc::downgrade(&run));
        run
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

    /// Starts the task that puts out the result.
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
        let (task, record) = self
            .inner
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

    /// Looks at the stages.
    pub fn with_stages<T>(&self, look: impl FnOnce(&[StageRecord]) -> T) -> T {
        look(&self.stages.lock())
    }
}

impl QueryRun {
    /// Gives up the tasks that have not ended. What was recorded of them stays.
    pub fn cancel(&self) {
        self.inner.queries.lock().remove(&self.id);
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

/// Queries under way, by number.
pub type Queries = std::collections::BTreeMap<u64, Weak<QueryRun>>;

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
