//! A template as one worker sees it: its tasks as numbers, with the counts of their inputs.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use millrace_planner::RelationId;

use super::template::{StageInput, Template, ViewShape};
use crate::id::WorkerId;

/// A task of every epoch on this worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct TaskPlan {
    /// Position of the view in the template.
    pub view: usize,
    pub stage: usize,
    pub partition: usize,
}

/// Tasks are numbered; those of one stage follow each other, by partition.
#[derive(Debug)]
pub(super) struct Plan {
    pub template: Arc<Template>,
    pub me: WorkerId,
    pub participants: Vec<WorkerId>,
    pub tasks: Vec<TaskPlan>,
    /// Inputs that each task waits for, the task of the epoch before with the same state not counted.
    pub counts: Vec<u32>,
    /// For each view, for each stage: its tasks here.
    pub stages: Vec<Vec<Range<usize>>>,
    /// For each view, for each stage: the workers that have tasks of it, in order.
    workers: Vec<Vec<Vec<WorkerId>>>,
    positions: HashMap<RelationId, usize>,
    /// Map stages by what they read: (view, stage).
    readers: HashMap<RelationId, Vec<(usize, usize)>>,
}

impl Plan {
    pub fn new(template: Arc<Template>, me: WorkerId) -> Plan {
        let positions: HashMap<RelationId, usize> = template
            .views
            .iter()
            .enumerate()
            .map(|(position, view)| (view.id, position))
            .collect();
        let mut readers: HashMap<RelationId, Vec<(usize, usize)>> = HashMap::new();
        for (position, view) in template.views.iter().enumerate() {
            for (number, stage) in view.stages.iter().enumerate() {
                if let StageInput::Relation(relation) = stage.input {
                    readers.entry(relation).or_default().push((position, number));
                }
            }
        }
        let workers_of = |view: &ViewShape| {
            let of_stage = |stage| {
                let tasks = view.partitions_of(stage);
                let mut workers: Vec<WorkerId> = tasks.map(|partition| template.worker(partition)).collect();
                workers.sort_unstable();
                workers.dedup();
                workers
            };
            view.stages.iter().map(of_stage).collect()
        };
        let mut plan = Plan {
            workers: template.views.iter().map(|view| workers_of(view)).collect(),
            me,
            participants: template.participants(),
            tasks: vec![],
            counts: vec![],
            stages: vec![],
            positions,
            readers,
            template: Arc::clone(&template),
        };
        for (position, view) in template.views.iter().enumerate() {
            let mut ranges = vec![];
            for (number, stage) in view.stages.iter().enumerate() {
                let start = plan.tasks.len();
                for partition in view.partitions_of(stage) {
                    if template.worker(partition) == me {
                        plan.tasks.push(TaskPlan {
                            view: position,
                            stage: number,
                            partition,
                        });
                        // And the cut, which brings the epoch's clock.
                        plan.counts
                            .push(1 + plan.inputs_of(position, &stage.input, partition));
                    }
                }
                ranges.push(start..plan.tasks.len());
            }
            plan.stages.push(ranges);
        }
        plan
    }

    fn inputs_of(&self, view: usize, input: &StageInput, partition: usize) -> u32 {
        match input {
            StageInput::Fixed => 0,
            // The partitions of a view of the same pipeline that this one reads.
            StageInput::Relation(relation) => {
                let partitions = self.template.views[view].partitions;
                let sources = self.position(*relation).map_or(0, |source| {
                    let source = &self.template.views[source];
                    materialized(source)
                        .filter(|from| from % partitions == partition)
                        .count()
                });
                sources as u32
            }
            // Every worker that has tasks of an upstream stage.
            StageInput::Stages(upstream) => upstream
                .iter()
                .map(|stage| self.workers_of(view, *stage).len() as u32)
                .sum(),
        }
    }

    /// The workers on which a stage of the view at this position has tasks.
    pub fn workers_of(&self, view: usize, stage: usize) -> &[WorkerId] {
        &self.workers[view][stage]
    }

    pub fn position(&self, view: RelationId) -> Option<usize> {
        self.positions.get(&view).copied()
    }

    pub fn view(&self, task: TaskPlan) -> &ViewShape {
        &self.template.views[task.view]
    }

    /// The map stages that read a relation.
    pub fn readers(&self, relation: RelationId) -> &[(usize, usize)] {
        self.readers.get(&relation).map_or(&[], Vec::as_slice)
    }

    /// The task of a stage on a partition, if it is here.
    pub fn task(&self, view: usize, stage: usize, partition: usize) -> Option<usize> {
        self.stages[view][stage]
            .clone()
            .find(|task| self.tasks[*task].partition == partition)
    }
}

/// The partitions of a view's last stage.
fn materialized(view: &ViewShape) -> Range<usize> {
    view.stages.last().map_or(0..0, |stage| view.partitions_of(stage))
}
