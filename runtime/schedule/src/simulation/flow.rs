//! Stages that emitted batches, in a simulation: their tasks wait for each other as those that run do.
//!
//! A task of a stage with a faucet may have to send more than may be in flight. Then it ends only when the tasks of its reader
//! run, all of them, for it sends to each; and a task that reads batches ends when the stages that it reads have ended where
//! they run. What waits has no slot. Nobody waits for what is void.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::Simulation;
use crate::id::{PipelineId, TaskId, WorkerId};
use crate::local::{LocalEvent, ReadyTask};
use crate::task::Source;

/// A stage of a view in an epoch on a worker: pipeline, epoch, view, stage, worker.
pub(super) type FlowId = (PipelineId, u64, u64, usize, WorkerId);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Flows {
    /// Stages that have ended where their reader may run already.
    ended: HashSet<FlowId>,
    /// Those of which nobody takes anything, and epochs up to which that is so.
    void: HashSet<FlowId>,
    released: HashMap<(WorkerId, PipelineId), u64>,
    /// Tasks that have done their work and wait.
    waiting: Vec<(WorkerId, ReadyTask)>,
    /// Tasks that send batches.
    sending: Vec<(WorkerId, PipelineId, TaskId)>,
}

impl Flows {
    fn is_void(&self, id: &FlowId) -> bool {
        let released = self.released.get(&(id.4, id.0));
        self.void.contains(id) || released.is_some_and(|to| id.1 <= *to)
    }
}

fn flow(task: &ReadyTask, stage: usize, from: WorkerId) -> FlowId {
    (task.pipeline, task.id.epoch, task.id.view.0, stage, from)
}

/// The stages of which a task reads batches, and where.
pub(super) fn flows_of(task: &ReadyTask) -> impl Iterator<Item = (usize, WorkerId)> + '_ {
    task.sources.iter().filter_map(|source| match source {
        Source::Flow { stage, from } => Some((*stage, *from)),
        _ => None,
    })
}

impl Simulation {
    /// A task has started: it may turn out to send batches. Others may have waited for it.
    pub(super) fn flow_started(&mut self, worker: WorkerId, task: &ReadyTask) {
        let shape = Arc::clone(&self.shapes[&task.id.view]);
        let stage = &shape.stages[task.id.stage];
        if stage.has_faucet && stage.reader.is_some() && self.draw().is_multiple_of(2) {
            self.report.flows += 1;
            self.flows.sending.push((worker, task.pipeline, task.id));
            let event = LocalEvent::TaskFlows {
                pipeline: task.pipeline,
                version: task.version,
                id: task.id,
            };
            self.local(worker, event);
        }
        self.look_at_waiting();
    }

    /// A task has done its work; returns whether it has to wait.
    pub(super) fn flow_waits(&mut self, worker: WorkerId, task: &ReadyTask) -> bool {
        let waits = self.has_to_wait(worker, task);
        if waits {
            self.flows.waiting.push((worker, task.clone()));
        } else {
            let (pipeline, id) = (task.pipeline, task.id);
            self.flows
                .sending
                .retain(|sending| *sending != (worker, pipeline, id));
        }
        waits
    }

    fn has_to_wait(&self, worker: WorkerId, task: &ReadyTask) -> bool {
        let reads = flows_of(task).any(|(stage, from)| {
            let id = flow(task, stage, from);
            // Where a worker is gone nothing comes, not even an end.
            !self.workers.contains_key(&from) || !(self.flows.ended.contains(&id) || self.flows.is_void(&id))
        });
        let sends = self.flows.sending.contains(&(worker, task.pipeline, task.id))
            && !self.flows.is_void(&flow(task, task.id.stage, worker))
            && !self.checks.reader_runs(task, &self.shapes[&task.id.view]);
        reads || sends
    }

    /// All tasks of the stage on the worker have ended, or nobody takes their batches.
    pub(super) fn end_flow(&mut self, id: FlowId, is_void: bool) {
        if is_void {
            self.flows.void.insert(id);
        } else {
            self.flows.ended.insert(id);
        }
        self.look_at_waiting();
    }

    /// What is left of these epochs on a worker is void.
    pub(super) fn release_flows(
        &mut self,
        worker: WorkerId,
        pipeline: PipelineId,
        epochs: &std::ops::RangeInclusive<u64>,
    ) {
        if *epochs.start() == 0 {
            self.flows.released.insert((worker, pipeline), *epochs.end());
        }
        let is_kept = |id: &FlowId| id.4 != worker || id.0 != pipeline || !epochs.contains(&id.1);
        self.flows.ended.retain(is_kept);
        self.flows.void.retain(is_kept);
        self.look_at_waiting();
    }

    /// A worker is gone, with its tasks.
    pub(super) fn lose_flows(&mut self, worker: WorkerId) {
        self.flows.ended.retain(|id| id.4 != worker);
        self.flows.waiting.retain(|(on, _)| *on != worker);
        self.flows.sending.retain(|(on, _, _)| *on != worker);
    }

    fn look_at_waiting(&mut self) {
        let waiting = std::mem::take(&mut self.flows.waiting);
        for (worker, task) in waiting {
            if self.has_to_wait(worker, &task) {
                self.flows.waiting.push((worker, task));
            } else {
                self.deliver(self.now, super::Delivery::FlowDone { worker, task });
            }
        }
    }

    /// Nobody waits but for workers that are gone.
    pub(super) fn assert_no_flow(&self) {
        let seed = self.setup.seed;
        let waits_for_gone =
            |task: &ReadyTask| flows_of(task).any(|(_, from)| !self.workers.contains_key(&from));
        let waiting = self.flows.waiting.iter().find(|(_, task)| !waits_for_gone(task));
        assert!(
            waiting.is_none(),
            "seed {seed}: a task waits for ever: {waiting:?}"
        );
    }
}
