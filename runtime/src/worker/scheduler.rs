//! The local scheduler: counts of outstanding inputs, and the outputs that wait to be read.
//!
//! Pure bookkeeping under one lock; it runs nothing. Every store is emptied by its readers: at the end of an epoch nothing
//! of it is left.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use millrace_planner::RelationId;
use millrace_storage::ChangeBatch;

use super::plan::PipelinePlan;
use super::task::TaskOutput;
use super::{EpochCut, TaskId};
use crate::driver::PipelineId;
use crate::operator::{CHUNK_ROWS, Inputs};

/// A task that may run, with what it reads.
pub(super) struct Ready {
    pub task: TaskId,
    pub inputs: Inputs,
    /// The plan of its epoch.
    pub plan: Arc<PipelinePlan>,
}

/// What became ready, and how many tasks ended without running, by epoch.
pub(super) type Progress = (Vec<Ready>, Vec<(u64, usize)>);

#[derive(Default)]
pub(super) struct LocalScheduler {
    /// Outstanding inputs of tasks that wait.
    waiting: HashMap<TaskId, usize>,
    /// Reduce tasks that have not ended: the next epoch's task on the same partition waits for them.
    unfinished: HashSet<TaskId>,
    /// What a stage sent in an epoch, by receiving partition; gone when all have read it.
    exchanges: HashMap<(RelationId, usize, u64), Exchange>,
    /// A relation's changes in an epoch, for the map stages that read it.
    changes: HashMap<(RelationId, u64), Changes>,
    epochs: HashMap<(PipelineId, u64), Epoch>,
}

/// By receiving partition: what was sent to it, until it has read it.
type Exchange = Vec<Option<Vec<ChangeBatch>>>;

/// An epoch in flight.
struct Epoch {
    plan: Arc<PipelinePlan>,
    tasks_left: usize,
    /// See [`EpochCut::now`]; set by the cut.
    now: i64,
}

struct Changes {
    batches: Vec<ChangeBatch>,
    rows: usize,
    readers_left: usize,
}

impl LocalScheduler {
    /// Enters every task of an epoch with its count. None is ready before the cut.
    pub fn launch(&mut self, plan: &Arc<PipelinePlan>, epoch: u64) {
        let tasks_left = plan.views().iter().map(|view| view.tasks()).sum();
        if tasks_left > 0 {
            self.epochs.insert(
                (plan.pipeline, epoch),
                Epoch {
                    plan: Arc::clone(plan),
                    tasks_left,
                    now: i64::MIN,
                },
            );
        }
        for view in plan.views() {
            for stage in &view.graph.stages {
                let is_reduce = view.is_reduce(stage.id);
                let inputs = if is_reduce {
                    stage.upstream().len() * view.graph.partitions
                } else {
                    match stage.source().and_then(|source| plan.view(source)) {
                        Some(source) => source.graph.partitions,
                        // The cut.
                        None => 1,
                    }
                };
                for partition in 0..view.graph.partitions {
                    let task = TaskId {
                        view: view.id,
                        stage: stage.id,
                        partition,
                        epoch,
                    };
                    let mut outstanding = inputs;
                    if is_reduce {
                        let previous = TaskId {
                            epoch: epoch - 1,
                            ..task
                        };
                        outstanding += usize::from(self.unfinished.contains(&previous));
                        self.unfinished.insert(task);
                    }
                    self.waiting.insert(task, outstanding);
                }
            }
        }
    }

    /// Stores the cut and lets the map stages that read it go.
    pub fn start(&mut self, plan: &Arc<PipelinePlan>, epoch: u64, cut: EpochCut) -> Progress {
        if let Some(state) = self.epochs.get_mut(&(plan.pipeline, epoch)) {
            state.now = cut.now;
        }
        for (relation, cut) in cut.changes {
            self.store_changes(plan, relation, epoch, cut.changes);
        }
        let mut arrived = vec![];
        for view in plan.views() {
            for stage in &view.graph.stages {
                if view.is_reduce(stage.id)
                    || stage.source().is_some_and(|source| plan.view(source).is_some())
                {
                    continue;
                }
                for partition in 0..view.graph.partitions {
                    arrived.push(TaskId {
                        view: view.id,
                        stage: stage.id,
                        partition,
                        epoch,
                    });
                }
            }
        }
        self.settle(plan.pipeline, arrived, vec![])
    }

    /// Stores a task's output and counts down those that wait for it.
    pub fn finish(&mut self, plan: &Arc<PipelinePlan>, task: TaskId, output: TaskOutput) -> Progress {
        self.settle(plan.pipeline, vec![], vec![(task, output)])
    }

    /// Works off arrivals and ends until nothing more follows without running a task.
    fn settle(
        &mut self,
        pipeline: PipelineId,
        mut arrived: Vec<TaskId>,
        mut ended: Vec<(TaskId, TaskOutput)>,
    ) -> Progress {
        let mut ready = vec![];
        let mut counts: Vec<(u64, usize)> = vec![];
        loop {
            if let Some((task, output)) = ended.pop() {
                let key = (pipeline, task.epoch);
                let Some(epoch) = self.epochs.get_mut(&key) else {
                    continue;
                };
                let plan = Arc::clone(&epoch.plan);
                epoch.tasks_left -= 1;
                if epoch.tasks_left == 0 {
                    self.epochs.remove(&key);
                }
                self.end(&plan, task, output, &mut arrived);
                match counts.iter_mut().find(|(epoch, _)| *epoch == task.epoch) {
                    Some((_, count)) => *count += 1,
                    None => counts.push((task.epoch, 1)),
                }
            } else if let Some(task) = arrived.pop() {
                let Some(outstanding) = self.waiting.get_mut(&task) else {
                    continue;
                };
                *outstanding -= 1;
                if *outstanding > 0 {
                    continue;
                }
                self.waiting.remove(&task);
                let Some(epoch) = self.epochs.get(&(pipeline, task.epoch)) else {
                    continue;
                };
                let (plan, now) = (Arc::clone(&epoch.plan), epoch.now);
                match self.inputs(&plan, task, now) {
                    Some(inputs) => ready.push(Ready { task, inputs, plan }),
                    None => ended.push((task, TaskOutput::default())),
                }
            } else {
                return (ready, counts);
            }
        }
    }

    fn end(&mut self, plan: &PipelinePlan, task: TaskId, output: TaskOutput, arrived: &mut Vec<TaskId>) {
        let Some(view) = plan.view(task.view) else { return };
        if view.is_reduce(task.stage) {
            self.unfinished.remove(&task);
            let next = TaskId {
                epoch: task.epoch + 1,
                ..task
            };
            if self.waiting.contains_key(&next) {
                arrived.push(next);
            }
        }
        if view.materializes(task.stage) {
            if plan.reading_tasks(task.view) > 0 {
                self.store_changes(plan, task.view, task.epoch, output.materialized);
            }
            for (reader, stage) in plan.readers(task.view) {
                let Some(reader) = plan.view(*reader) else {
                    continue;
                };
                for partition in 0..reader.graph.partitions {
                    arrived.push(TaskId {
                        view: reader.id,
                        stage: *stage,
                        partition,
                        epoch: task.epoch,
                    });
                }
            }
        } else if let Some(consumer) = plan.consumer(task.view, task.stage) {
            let partitions = view.graph.partitions;
            let store = self
                .exchanges
                .entry((task.view, task.stage, task.epoch))
                .or_insert_with(|| (0..partitions).map(|_| Some(vec![])).collect());
            for (partition, batches) in output.exchanged.into_iter().enumerate() {
                if let Some(waiting) = &mut store[partition] {
                    waiting.extend(batches);
                }
            }
            for partition in 0..partitions {
                arrived.push(TaskId {
                    stage: consumer,
                    partition,
                    ..task
                });
            }
        }
    }

    fn store_changes(
        &mut self,
        plan: &PipelinePlan,
        relation: RelationId,
        epoch: u64,
        batches: Vec<ChangeBatch>,
    ) {
        let readers_left = plan.reading_tasks(relation);
        if readers_left == 0 {
            return;
        }
        let changes = self.changes.entry((relation, epoch)).or_insert(Changes {
            batches: vec![],
            rows: 0,
            readers_left,
        });
        changes.rows += batches.iter().map(ChangeBatch::num_rows).sum::<usize>();
        changes.batches.extend(batches);
    }

    /// What a task reads; `None` if that is nothing and it would change nothing.
    fn inputs(&mut self, plan: &PipelinePlan, task: TaskId, now: i64) -> Option<Inputs> {
        let view = plan.view(task.view)?;
        let stage = &view.graph.stages[task.stage];
        let mut inputs = Inputs {
            now,
            is_filling: view.is_filling(),
            ..Inputs::default()
        };
        if view.is_reduce(task.stage) {
            let mut is_empty = true;
            for upstream in stage.upstream() {
                let key = (task.view, upstream, task.epoch);
                let Some(store) = self.exchanges.get_mut(&key) else {
                    continue;
                };
                let batches = store[task.partition].take().unwrap_or_default();
                is_empty &= batches.is_empty();
                inputs.exchanges.insert(upstream, batches);
                if store.iter().all(Option::is_none) {
                    self.exchanges.remove(&key);
                }
            }
            let idle = view.failure().is_some() || view.idle_without_input(task.stage, task.partition, now);
            return (!is_empty || !idle).then_some(inputs);
        }
        let Some(source) = stage.source() else {
            // Fixed rows appear once, in the first epoch that the view sees.
            inputs.first = task.partition == 0 && view.take_first(task.stage);
            return inputs.first.then_some(inputs);
        };
        let changes = self.changes.get_mut(&(source, task.epoch))?;
        inputs.source = share(
            &changes.batches,
            changes.rows,
            task.partition,
            view.graph.partitions,
        );
        changes.readers_left -= 1;
        if changes.readers_left == 0 {
            self.changes.remove(&(source, task.epoch));
        }
        (!inputs.source.is_empty() && view.failure().is_none()).then_some(inputs)
    }
}

/// Partition `p`'s share of an epoch's changes: even pieces, but no more of them than there is work for.
fn share(batches: &[ChangeBatch], rows: usize, partition: usize, partitions: usize) -> Vec<ChangeBatch> {
    let pieces = rows.div_ceil(CHUNK_ROWS).clamp(1, partitions);
    if partition >= pieces {
        return vec![];
    }
    let (start, end) = (rows * partition / pieces, rows * (partition + 1) / pieces);
    let mut shared = vec![];
    let mut offset = 0;
    for batch in batches {
        let (from, to) = (start.max(offset), end.min(offset + batch.num_rows()));
        if from < to {
            shared.push(batch.slice(from - offset, to - from));
        }
        offset += batch.num_rows();
    }
    shared
}
