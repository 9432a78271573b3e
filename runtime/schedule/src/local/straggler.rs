//! Stragglers: map tasks that take far longer than most of their stage are run elsewhere too, and the first result is taken.
//!
//! ```text
//!  reader --Straggling--> driver --CopyTo(helper)--> straggler --Copy(task, inputs)--> helper
//!  straggler <--CopyEnded-- helper;  straggler fetches the rows, ends its task;  straggler --DropCopy--> helper
//! ```
//!
//! Who waits notices: half of the workers of a map stage have said that they are done, and one has not after
//! [`STRAGGLER_FACTOR`] times as long, or [`STRAGGLER_NS_MIN`] if that is longer. The driver decides who helps. The rows of the
//! copy become the task's own, on its own worker: readers, retention and recovery know nothing of copies. Whatever comes
//! second is not kept. Losing a copy, a helper or one of these messages costs the help, nothing else.
//!
//! Only maps are copied. A task with state owns it: a copy would have to have the state of the epoch before, which is being
//! changed where the task runs, and could not be forgotten if it came second. The way to help there is to move the partition.

use std::sync::Arc;

use millrace_planner::RelationId;

use super::pipeline::Pipeline;
use super::{LocalAction, ReadyTask, Timer, Work};
use crate::id::{TaskId, WorkerId};
use crate::message::{EpochTime, ToDriver, ToPeer};
use crate::task::{Ended, Source};
use crate::template::{StageInput, StageShape};

/// How many times as long as half of its workers a stage may take on one.
pub const STRAGGLER_FACTOR: u64 = 3;
/// Nanoseconds that a stage may take in any case: many times a copy's own cost, and any pause that slots may make.
pub const STRAGGLER_NS_MIN: u64 = 50_000_000;

/// How far a map stage of an epoch is, as far as tasks here wait for it.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Workers that have done it.
    done: usize,
    /// Nanoseconds that half of them took.
    half_ns: Option<u64>,
    is_reported: bool,
}

impl Progress {
    /// How long the others may take.
    fn patience_ns(&self) -> Option<u64> {
        let patience = |half_ns: u64| STRAGGLER_NS_MIN.max(half_ns.saturating_mul(STRAGGLER_FACTOR));
        self.half_ns.filter(|_| !self.is_reported).map(patience)
    }
}

/// Whether tasks of a stage may run twice: without state, over rows that are there to be read again, and with nothing out of
/// hand before they end.
fn is_copied(stage: &StageShape) -> bool {
    matches!(stage.input, StageInput::Relation(_)) && !stage.is_stateful() && !stage.has_faucet
}

impl Pipeline {
    /// Another worker has done a stage that tasks here wait for.
    pub fn note_progress(&mut self, number: u64, view: usize, stage: usize, work: &mut Work<'_>) {
        let shape = &self.plan.template.views[view];
        if self.plan.template.is_job || !is_copied(&shape.stages[stage]) {
            return;
        }
        let workers = self.plan.workers_of(view, stage).len();
        let Some(epoch) = self.epochs.get_mut(&number) else {
            return;
        };
        let progress = epoch.progress.entry((view, stage)).or_default();
        progress.done += 1;
        if progress.done == workers {
            epoch.progress.remove(&(view, stage));
            return;
        }
        if 2 * progress.done >= workers {
            let elapsed_ns = work.at.saturating_sub(epoch.started_at);
            progress.half_ns.get_or_insert(elapsed_ns);
        }
        if let Some(patience_ns) = progress.patience_ns() {
            let at = epoch.started_at + patience_ns;
            self.watch(at, work);
        }
    }

    fn watch(&mut self, at: u64, work: &mut Work<'_>) {
        if !std::mem::replace(&mut self.is_watching, true) {
            work.actions.push(LocalAction::WakeAt {
                pipeline: self.id(),
                at,
                timer: Timer::Stragglers,
            });
        }
    }

    /// Tells the driver whom tasks here have waited for too long.
    pub fn look_for_stragglers(&mut self, work: &mut Work<'_>) {
        let plan = Arc::clone(&self.plan);
        self.is_watching = false;
        let mut next = None;
        for (number, epoch) in &mut self.epochs {
            for ((view, stage), progress) in &mut epoch.progress {
                let Some(patience_ns) = progress.patience_ns() else {
                    continue;
                };
                let due = epoch.started_at + patience_ns;
                if work.at < due {
                    next = Some(next.map_or(due, |next: u64| next.min(due)));
                    continue;
                }
                progress.is_reported = true;
                let shape = &plan.template.views[*view];
                let workers = plan.workers_of(*view, *stage).iter().copied();
                for worker in workers.filter(|worker| !epoch.heard.contains(&(*view, *stage, worker.0))) {
                    work.actions.push(LocalAction::Report(ToDriver::Straggling {
                        pipeline: plan.template.pipeline,
                        version: self.version,
                        epoch: *number,
                        view: shape.id,
                        stage: *stage,
                        worker,
                    }));
                }
            }
        }
        if let Some(at) = next {
            self.watch(at, work);
        }
    }

    /// Has the tasks of a stage that run here run on worker `to` as well.
    pub fn copy_to(
        &mut self,
        number: u64,
        view: RelationId,
        stage: usize,
        to: WorkerId,
        work: &mut Work<'_>,
    ) {
        let plan = Arc::clone(&self.plan);
        let (Some(position), Some(epoch)) = (plan.position(view), self.epochs.get(&number)) else {
            return;
        };
        let shape = plan.template.views[position].stages.get(stage);
        if !shape.is_some_and(is_copied) {
            return;
        }
        let mut tasks = vec![];
        for task in plan.stages[position][stage].clone() {
            if self.awaits(task, number) && !self.lent.contains_key(&(task, number)) {
                self.lent.insert((task, number), to);
                let sources = epoch.sources.get(&task).cloned().unwrap_or_default();
                tasks.push((plan.tasks[task].partition, sources));
            }
        }
        if !tasks.is_empty() {
            let message = ToPeer::Copy {
                pipeline: self.id(),
                version: self.version,
                epoch: number,
                view,
                stage,
                from: plan.me,
                time: epoch.time.clone(),
                tasks,
            };
            work.send(plan.me, to, message);
        }
    }

    /// Runs copies of tasks of worker `from`.
    pub fn run_copies(
        &mut self,
        (epoch, view, stage): (u64, RelationId, usize),
        from: WorkerId,
        time: &EpochTime,
        tasks: Vec<(usize, Vec<Source>)>,
        work: &mut Work<'_>,
    ) {
        let Some(position) = self.plan.position(view) else {
            return;
        };
        for (partition, sources) in tasks {
            let id = TaskId {
                view,
                stage,
                partition,
                epoch,
            };
            if self.copies.insert(id, from).is_some() {
                continue;
            }
            work.actions.push(LocalAction::Run(ReadyTask {
                pipeline: self.id(),
                version: self.version,
                id,
                incarnation: self.plan.template.views[position].incarnation,
                time: time.clone(),
                gives_way: self.plan.template.gives_way(),
                is_read: false,
                is_checkpoint: false,
                sources,
                has_faucet: false,
                copy_for: Some(from),
            }));
        }
    }

    /// A copy ended here, and is still wanted as far as this worker knows; or it failed.
    pub fn copy_ended(&mut self, task: TaskId, ended: Option<Ended>, work: &mut Work<'_>) {
        let Some(ended) = ended else {
            self.copies.remove(&task);
            return;
        };
        if let Some(to) = self.copies.get(&task) {
            let message = ToPeer::CopyEnded {
                pipeline: self.id(),
                version: self.version,
                task,
                by: self.plan.me,
                ended,
            };
            work.send(self.plan.me, *to, message);
        }
    }

    /// Worker `by` has run a copy of a task of this worker.
    pub fn copy_told(&mut self, task: TaskId, by: WorkerId, ended: Ended, work: &mut Work<'_>) {
        let (pipeline, version) = (self.id(), self.version);
        let is_awaited = self.number(task).is_some_and(|number| {
            self.awaits(number, task.epoch) && self.lent.get(&(number, task.epoch)) == Some(&by)
        });
        if is_awaited {
            work.actions.push(LocalAction::TakeCopy {
                pipeline,
                version,
                id: task,
                from: by,
                ended,
            });
        } else {
            let message = ToPeer::DropCopy {
                pipeline,
                version,
                task,
            };
            work.send(self.plan.me, by, message);
        }
    }

    /// A task of this worker has ended; whoever ran a copy of it need not. Returns whether somebody did.
    pub fn call_back(&mut self, task: usize, epoch: u64, work: &mut Work<'_>) -> bool {
        let Some(by) = self.lent.remove(&(task, epoch)) else {
            return false;
        };
        let planned = self.plan.tasks[task];
        let message = ToPeer::DropCopy {
            pipeline: self.id(),
            version: self.version,
            task: TaskId {
                view: self.plan.view(planned).id,
                stage: planned.stage,
                partition: planned.partition,
                epoch,
            },
        };
        work.send(self.plan.me, by, message);
        true
    }

    /// A copy that ran here, or runs, is not needed.
    pub fn drop_copy(&mut self, task: TaskId, work: &mut Work<'_>) {
        if self.copies.remove(&task).is_some() {
            let pipeline = self.id();
            let tasks = vec![task];
            work.actions.push(LocalAction::DropCopies { pipeline, tasks });
        }
    }
}
