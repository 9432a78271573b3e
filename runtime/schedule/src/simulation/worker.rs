//! The workers' side of a simulation: cuts, tasks on slots, and what the local schedulers want done.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use super::tasks::Busy;
use super::{Delivery, Simulation, checks};
use crate::id::{PipelineId, TaskId, WorkerId};
use crate::local::{EPOCHS_IN_FLIGHT_MAX, LocalAction, LocalEvent, ReadyTask, TakenCut};
use crate::message::{EpochTime, ToDriver, ToPeer, ToWorker, decode, encode};
use crate::task::Ended;

impl Simulation {
    /// Where sources arrive: a new cut, or one that was taken before.
    pub(super) fn cut(
        &mut self,
        worker: WorkerId,
        pipeline: PipelineId,
        version: u64,
        epoch: u64,
        is_replay: bool,
        is_checkpoint: bool,
    ) -> LocalEvent {
        let known = self.cuts.get(&(pipeline, epoch)).copied();
        if is_replay && known.is_none() {
            return LocalEvent::NoCut {
                pipeline,
                version,
                epoch,
                is_checkpoint,
            };
        }
        let left = self.inputs_left.entry(pipeline).or_default();
        if known.is_none() {
            *left = left.saturating_sub(1);
            self.cut_at.insert((pipeline, epoch), self.now);
        }
        let more = *left > 0;
        let now = i64::try_from(self.now).unwrap_or(i64::MAX);
        let (now, is_checkpoint) = *self.cuts.entry((pipeline, epoch)).or_insert((now, is_checkpoint));
        self.checks.cut(pipeline, epoch, worker);
        let sources = self.driver.sources(pipeline);
        LocalEvent::CutTaken {
            pipeline,
            version,
            cut: TakenCut {
                epoch,
                time: EpochTime {
                    now,
                    ..EpochTime::default()
                },
                rows: sources.into_iter().map(|source| (source, 1 << 24)).collect(),
                more,
                is_checkpoint,
                waited_ns: 0,
                in_flight_max: EPOCHS_IN_FLIGHT_MAX,
            },
        }
    }

    pub(super) fn task_done(&mut self, worker: WorkerId, task: ReadyTask) {
        let Some(simulated) = self.workers.get_mut(&worker) else {
            return;
        };
        simulated.slots.free += 1;
        if !self.flow_waits(worker, &task) {
            self.end_task(worker, task);
        }
        self.fill_slots(worker);
    }

    /// What a task waited for has come. It has no slot.
    pub(super) fn flow_done(&mut self, worker: WorkerId, task: ReadyTask) {
        if self.workers.contains_key(&worker) && !self.flow_waits(worker, &task) {
            self.end_task(worker, task);
        }
    }

    fn end_task(&mut self, worker: WorkerId, task: ReadyTask) {
        let Some(simulated) = self.workers.get_mut(&worker) else {
            return;
        };
        let shape = Arc::clone(&self.shapes[&task.id.view]);
        if shape.stages[task.id.stage].is_stateful() || simulated.local.awaits(&task) {
            let ended = Ended {
                filled: self.checks.ended(worker, &task, &shape, self.filled),
                busy_ns: self.setup.costs.task_ns,
                ..Ended::default()
            };
            let ReadyTask {
                pipeline,
                version,
                id,
                ..
            } = task;
            let event = match task.copy_for {
                Some(_) => LocalEvent::CopyEnded {
                    pipeline,
                    version,
                    id,
                    ended: Some(ended),
                },
                None => LocalEvent::TaskEnded {
                    pipeline,
                    version,
                    id,
                    ended,
                    is_copied: false,
                },
            };
            self.local(worker, event);
        }
    }

    /// The rows of a copy have come to the worker at which the task is at home.
    pub(super) fn copy_taken(
        &mut self,
        worker: WorkerId,
        (pipeline, version, id): (PipelineId, u64, TaskId),
        from: WorkerId,
        ended: Ended,
    ) {
        let simulated = self.workers.get(&worker);
        let is_running = simulated.is_some_and(|simulated| simulated.local.is_running(pipeline, id));
        let is_fetched = self.workers.contains_key(&from) && !self.is_fetch_dropped(worker, from);
        if is_running && is_fetched && self.checks.take_copy(worker, pipeline, id, from) {
            self.report.copies_won += 1;
            self.local(
                worker,
                LocalEvent::TaskEnded {
                    pipeline,
                    version,
                    id,
                    ended,
                    is_copied: true,
                },
            );
        }
    }

    /// Starts a task on a free slot, if it is still wanted.
    pub(super) fn start_task(&mut self, worker: WorkerId, task: ReadyTask) {
        let Some(simulated) = self.workers.get_mut(&worker) else {
            return;
        };
        let shape = Arc::clone(&self.shapes[&task.id.view]);
        if !shape.stages[task.id.stage].is_stateful() && !simulated.local.awaits(&task) {
            return;
        }
        simulated.slots.free -= 1;
        let sources: Vec<WorkerId> = checks::sources(&task).collect();
        let lost = sources
            .into_iter()
            .find(|from| !self.workers.contains_key(from) || self.is_fetch_dropped(worker, *from));
        if let Some(lost) = lost {
            let at = self.now + self.setup.costs.message_ns.0;
            self.deliver(at, Delivery::TaskFailed { worker, task, lost });
            return;
        }
        if task.copy_for.is_some() {
            self.report.copies += 1;
            self.checks.copy_started(worker, &task);
        } else {
            let is_everyone = self.filled.is_none();
            let is_again = self.checks.started(worker, &task, &shape, is_everyone);
            self.report.tasks_again += u64::from(is_again);
            self.report.tasks += 1;
            self.flow_started(worker, &task);
        }
        let task_ns = self.task_ns(worker);
        self.deliver(self.now + task_ns, Delivery::TaskDone { worker, task });
    }

    pub(super) fn local(&mut self, worker: WorkerId, event: LocalEvent) {
        let Some(simulated) = self.workers.get_mut(&worker) else {
            return;
        };
        let start = self.now.max(simulated.free_at);
        let tasks = Busy {
            is_everyone: self.filled.is_none(),
            worker,
            checks: &self.checks,
        };
        let heard = match &event {
            LocalEvent::Peer(message) => encode(message).unwrap_or_default(),
            LocalEvent::Driver(message) => encode(message).unwrap_or_default(),
            _ => vec![],
        };
        let started = Instant::now();
        match &event {
            LocalEvent::Peer(_) => _ = black_box(decode::<ToPeer>(&heard).is_ok()),
            LocalEvent::Driver(_) => _ = black_box(decode::<ToWorker>(&heard).is_ok()),
            _ => {}
        }
        let actions = simulated.local.on(event, start, &tasks);
        let took = match self.setup.costs.worker_ns {
            Some((event_ns, message_ns)) => {
                let is_message =
                    |action: &&LocalAction| matches!(action, LocalAction::Send(..) | LocalAction::Report(_));
                event_ns + message_ns * actions.iter().filter(is_message).count() as u64
            }
            None => {
                for action in &actions {
                    match action {
                        LocalAction::Send(_, message) => _ = black_box(encode(message).is_ok()),
                        LocalAction::Report(message) => _ = black_box(encode(message).is_ok()),
                        _ => {}
                    }
                }
                started.elapsed().as_nanos() as u64
            }
        };
        simulated.free_at = start + took;
        simulated.busy_ns += took;
        self.report.worker_ns += took;
        self.report.worker_ns_max = self.report.worker_ns_max.max(simulated.busy_ns);
        let now = simulated.free_at;
        for action in actions {
            match action {
                LocalAction::TakeCut {
                    pipeline,
                    version,
                    epoch,
                    is_replay,
                    is_checkpoint,
                    ..
                } => {
                    self.deliver(
                        now,
                        Delivery::CutTaken {
                            worker,
                            pipeline,
                            version,
                            epoch,
                            is_replay,
                            is_checkpoint,
                        },
                    );
                }
                LocalAction::Restore {
                    pipeline,
                    version,
                    view,
                    stage,
                    partition,
                    ..
                } => {
                    let event = LocalEvent::Restored {
                        pipeline,
                        version,
                        view,
                        stage,
                        partition,
                    };
                    self.report.restored_bytes += self.state_bytes.get(partition).copied().unwrap_or(0);
                    let at = now + self.setup.costs.task_ns;
                    self.deliver(at, Delivery::Restored { worker, event });
                }
                LocalAction::TakeCopy {
                    pipeline,
                    version,
                    id,
                    from,
                    ended,
                } => {
                    let at = now + self.setup.costs.message_ns.1;
                    self.deliver(
                        at,
                        Delivery::CopyTaken {
                            worker,
                            pipeline,
                            version,
                            id,
                            from,
                            ended,
                        },
                    );
                }
                LocalAction::KeepOwn(template) => self.checks.keep_own(worker, &template),
                LocalAction::Discard { views } => self.checks.discard(worker, &views),
                LocalAction::DropCopies { pipeline, tasks } => {
                    self.checks.drop_copies(worker, pipeline, &tasks);
                }
                LocalAction::Run(task) => self.deliver(now, Delivery::Ready { worker, task }),
                LocalAction::Release { pipeline, epochs } => {
                    self.checks.release(worker, pipeline, &epochs);
                    self.release_flows(worker, pipeline, &epochs);
                }
                LocalAction::EndFlow {
                    pipeline,
                    epoch,
                    view,
                    stage,
                    is_void,
                } => self.end_flow((pipeline, epoch, view.0, stage, worker), is_void),
                LocalAction::Send(to, message) => {
                    self.report.worker_messages += 1;
                    self.send(now, Delivery::ToPeer(worker, to, message));
                }
                LocalAction::Report(message) => match message {
                    ToDriver::NeedEpochs { pipeline, .. } if self.central.pipelines.contains(&pipeline) => {
                        self.central.held.insert(pipeline, message);
                    }
                    message => self.send(now, Delivery::ToDriver(worker, message)),
                },
                LocalAction::WakeAt { pipeline, at, timer } => {
                    self.deliver(
                        at.max(now),
                        Delivery::Wake {
                            worker,
                            pipeline,
                            timer,
                        },
                    );
                }
            }
        }
    }
}
