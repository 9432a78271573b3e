//! A worker: runs the tasks of the epochs that the driver launches.
//!
//! The local scheduler counts, for each task, the inputs that are outstanding; a task that has none left becomes ready. A
//! task that ends stores its output and counts down those that wait for it, without asking the driver, who is told
//! afterwards (Drizzle, section 3.2: pre-scheduling). A ready task whose inputs turn out to be empty ends on the spot.
//!
//! ```text
//!  launch(epoch): all tasks of all stages, with their counts
//!  cut task (stream class) --> map tasks --> exchange store --> reduce tasks --> contents of the view --> dependent maps
//! ```

pub mod cpu;
mod plan;
mod scheduler;
mod task;
mod view;

use std::collections::HashMap;
use std::sync::Arc;

use futures::FutureExt;
use millrace_planner::RelationId;
use millrace_storage::ChangeBatch;
use parking_lot::{Mutex, RwLock};

use crate::driver::{Event, PipelineId};
use cpu::{CpuScheduler, QueryClass};
use plan::PipelinePlan;
use scheduler::{LocalScheduler, Ready};
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
}

/// What the worker asks of its surroundings.
pub trait Surroundings: Send + Sync {
    /// Fixes the cut of every source of the pipeline for this epoch, and its time. Called once an epoch, in order.
    fn cut(&self, pipeline: PipelineId, epoch: u64) -> EpochCut;

    /// A task that keeps rows by time ended: its output changes at `due` without input, or (`None`) never.
    fn due(&self, task: TaskId, due: Option<i64>);

    /// Tells the driver.
    fn post(&self, event: Event);

    /// The oldest version that a reader may still look at.
    fn low_water(&self, view: RelationId) -> u64;
}

/// Names a task for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId {
    pub view: RelationId,
    pub stage: usize,
    pub partition: usize,
    pub epoch: u64,
}

/// See the module.
pub struct Worker {
    cpu: CpuScheduler,
    scheduler: Mutex<LocalScheduler>,
    views: RwLock<HashMap<RelationId, Arc<ViewInstance>>>,
    surroundings: Arc<dyn Surroundings>,
}

impl Worker {
    pub fn new(cpu: CpuScheduler, surroundings: Arc<dyn Surroundings>) -> Arc<Worker> {
        Arc::new(Worker {
            cpu,
            scheduler: Mutex::default(),
            views: RwLock::default(),
            surroundings,
        })
    }

    /// Makes a view's tasks known; later launches only name it.
    pub fn install(&self, view: Arc<ViewInstance>) {
        self.views.write().insert(view.id, view);
    }

    /// Forgets a view that no epoch in flight runs.
    pub fn uninstall(&self, view: RelationId) {
        self.views.write().remove(&view);
    }

    pub fn view(&self, view: RelationId) -> Option<Arc<ViewInstance>> {
        self.views.read().get(&view).cloned()
    }

    /// Launches every task of an epoch. Reduce tasks wait for their inputs; the cut starts the maps.
    pub fn launch(
        self: &Arc<Self>,
        pipeline: PipelineId,
        epoch: u64,
        views: &[RelationId],
        class: QueryClass,
    ) {
        let instances: Vec<Arc<ViewInstance>> = {
            let known = self.views.read();
            views.iter().filter_map(|view| known.get(view).cloned()).collect()
        };
        let plan = Arc::new(PipelinePlan::new(pipeline, class, instances));
        self.scheduler.lock().launch(&plan, epoch);
        let worker = Arc::clone(self);
        let cut = self.cpu.spawn(class, move |_| {
            async move {
                worker.start_epoch(&plan, epoch);
                Ok(())
            }
            .boxed()
        });
        cut.detach();
    }

    /// Takes the cut and lets the maps go.
    fn start_epoch(self: &Arc<Self>, plan: &Arc<PipelinePlan>, epoch: u64) {
        let cut = self.surroundings.cut(plan.pipeline, epoch);
        let (ready, ended) = self.scheduler.lock().start(plan, epoch, cut);
        self.surroundings.post(Event::CutTaken {
            pipeline: plan.pipeline,
            epoch,
        });
        self.follow(plan.pipeline, ready, ended);
    }

    /// Spawns what is ready and reports what ended.
    fn follow(self: &Arc<Self>, pipeline: PipelineId, ready: Vec<Ready>, ended: Vec<(u64, usize)>) {
        for ready in ready {
            self.spawn(ready);
        }
        for (epoch, tasks) in ended {
            self.surroundings.post(Event::TasksFinished {
                pipeline,
                epoch,
                tasks,
            });
        }
    }

    fn spawn(self: &Arc<Self>, ready: Ready) {
        let worker = Arc::clone(self);
        let plan = Arc::clone(&ready.plan);
        let task = self.cpu.spawn(plan.class, move |gate| {
            async move {
                let id = ready.task;
                let output = worker.run(&plan, ready, &gate).await;
                worker.finish(&plan, id, output);
                Ok(())
            }
            .boxed()
        });
        task.detach();
    }

    async fn run(&self, plan: &PipelinePlan, ready: Ready, gate: &cpu::CpuGate) -> task::TaskOutput {
        let Some(view) = plan.view(ready.task.view) else {
            return task::TaskOutput::default();
        };
        let id = ready.task;
        // A panic in an operator is a failure of its view, not of the worker.
        let outcome =
            std::panic::AssertUnwindSafe(task::run(view, ready, gate, self.surroundings.low_water(id.view)))
                .catch_unwind()
                .await;
        let error = match outcome {
            Ok(Ok(output)) => return output,
            Ok(Err(error)) => error.to_string(),
            Err(_) => "an operator panicked; see the log".to_owned(),
        };
        tracing::error!(view = %view.name, stage = id.stage, partition = id.partition, epoch = id.epoch, %error,
            "a view failed; it is set aside and the others go on");
        view.fail(error);
        task::TaskOutput::default()
    }

    fn finish(self: &Arc<Self>, plan: &Arc<PipelinePlan>, task: TaskId, output: task::TaskOutput) {
        if let Some(view) = plan.view(task.view).filter(|view| view.keeps_time(task.stage)) {
            self.surroundings.due(task, view.due(task.stage, task.partition));
        }
        let (ready, ended) = self.scheduler.lock().finish(plan, task, output);
        self.follow(plan.pipeline, ready, ended);
    }
}
