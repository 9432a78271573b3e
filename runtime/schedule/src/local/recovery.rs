//! One worker's part in the recovery from a loss, and in a change of placement: it takes over what it had, and restores what is
//! new here.

use std::collections::HashMap;

use super::pipeline::{Pipeline, TaskState};
use super::{LocalAction, Work};
use crate::id::Part;
use crate::message::ToDriver;
use crate::plan::TaskPlan;

impl Pipeline {
    /// Takes over what `old`, the same pipeline under the template before a loss, had on this worker, and asks for the state
    /// of what is new here.
    pub fn take_over(&mut self, old: Option<Pipeline>, work: &mut Work<'_>) {
        let mut places: HashMap<TaskPlan, usize> = HashMap::new();
        if let Some(old) = old {
            let now: HashMap<TaskPlan, usize> = (0..).zip(&self.plan.tasks).map(|(n, t)| (*t, n)).collect();
            // Views are the same in a lineage, so positions are too.
            let moved: HashMap<usize, usize> = (old.plan.tasks.iter().enumerate())
                .filter_map(|(number, task)| Some((number, *now.get(task)?)))
                .collect();
            for (before, now) in &moved {
                self.ended[*now] = old.ended[*before].max(self.plan.template.after);
                places.insert(self.plan.tasks[*now], *now);
            }
            let after = self.plan.template.after;
            for (epoch, records) in old.records.into_iter().filter(|(epoch, _)| *epoch > after) {
                let records = records.into_iter();
                let records = records.filter_map(|(task, filled)| Some((*moved.get(&task)?, filled)));
                self.records.insert(epoch, records.collect());
            }
            let running = old.running.into_iter();
            self.running = running
                .filter_map(|(task, epoch)| Some((*moved.get(&task)?, epoch)))
                .collect();
            self.restoring = (old.restoring.iter())
                .filter_map(|(task, version)| Some((*moved.get(task)?, *version)))
                .collect();
        }
        for (number, task) in self.plan.tasks.iter().enumerate() {
            let part = Part {
                view: self.plan.view(*task).id,
                stage: task.stage,
                partition: task.partition,
            };
            let has_state = || {
                let before = self.plan.template.before[task.view];
                places.contains_key(task) || work.tasks.has_state(part, before)
            };
            if self.is_stateful(number) && !has_state() {
                self.restoring.insert(number, self.version);
                work.actions.push(LocalAction::Restore {
                    pipeline: self.id(),
                    version: self.version,
                    view: part.view,
                    incarnation: self.plan.view(*task).incarnation,
                    stage: part.stage,
                    partition: part.partition,
                });
            }
        }
        self.report_restored(work);
    }

    fn report_restored(&self, work: &mut Work<'_>) {
        if self.restoring.is_empty() && self.plan.template.replay.is_some() {
            work.actions.push(LocalAction::Report(ToDriver::Restored {
                pipeline: self.id(),
                version: self.version,
                worker: self.plan.me,
            }));
        }
    }

    /// A task's state is there again, whichever template asked for it.
    pub fn restored(&mut self, task: usize, version: u64, work: &mut Work<'_>) {
        if self.restoring.get(&task) != Some(&version) {
            return;
        }
        self.restoring.remove(&task);
        self.report_restored(work);
        let next = self.ended[task] + 1;
        if self.epochs.contains_key(&next) {
            self.settle(next, vec![task], vec![], work);
        }
    }

    /// A task could not fetch its input. If the template under which it was run is void it runs under the newer one;
    /// otherwise the driver finds out whether the one that did not answer is lost, and sends a new template or has it run
    /// again.
    pub fn task_failed(&mut self, task: usize, number: u64, version: u64, work: &mut Work<'_>) {
        self.running.remove(&(task, number));
        let Some(epoch) = self.epochs.get_mut(&number) else {
            return;
        };
        if epoch.states[task] == TaskState::Running {
            epoch.states[task] = TaskState::Waiting;
            if version < self.version {
                self.run_again(task, number, work);
            }
        }
    }

    /// Runs a task that failed, if it does not wait for anything new.
    pub fn run_again(&mut self, task: usize, number: u64, work: &mut Work<'_>) {
        let Some(epoch) = self.epochs.get(&number) else {
            return;
        };
        if epoch.states[task] == TaskState::Waiting && epoch.counts[task] == 0 {
            let mut ended = vec![];
            self.ready(number, task, &mut ended, work);
            let ended = ended
                .into_iter()
                .map(|(_, task, filled)| (task, filled))
                .collect();
            self.settle(number, vec![], ended, work);
        }
    }
}
