//! Where the driver meets the rest: events go to it one by one, and what it decides is carried out.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use millrace_storage::checkpoint::EpochRecord;

use super::Inner;
use crate::driver::{Command, Event, PipelineId};
use crate::relation::Relation;

/// Events wait here while one is worked on, so that commands are carried out in the order of the decisions.
#[derive(Default)]
pub(super) struct EventQueue {
    waiting: VecDeque<Event>,
    is_draining: bool,
}

impl Inner {
    /// Hands an event to the driver and carries out what it decides. Whoever finds the queue idle works it off; others
    /// only add to it.
    pub fn post(self: &Arc<Self>, event: Event) {
        {
            let mut events = self.events.lock();
            events.waiting.push_back(event);
            if std::mem::replace(&mut events.is_draining, true) {
                return;
            }
        }
        loop {
            let event = {
                let mut events = self.events.lock();
                match events.waiting.pop_front() {
                    Some(event) => event,
                    None => {
                        events.is_draining = false;
                        return;
                    }
                }
            };
            let about = match &event {
                Event::Worker(message) => message.about().map(|(pipeline, _)| pipeline),
                _ => None,
            };
            let started = Instant::now();
            let now = self.started.elapsed().as_nanos() as u64;
            let commands = self.driver.lock().on(event, now);
            for command in commands {
                self.carry_out(command);
            }
            if let Some(pipeline) = about {
                self.driver
                    .lock()
                    .spent(pipeline, started.elapsed().as_nanos() as u64);
            }
        }
    }

    /// Writes down what an epoch contains before anybody sees it.
    fn write_down(&self, pipeline: PipelineId, epoch: u64) {
        let Some(durable) = self.durable.as_ref().filter(|durable| durable.is_on()) else {
            return;
        };
        for (now, ends) in self.versions.to_commit(pipeline, epoch) {
            let mut ends: Vec<(u64, u64)> = ends
                .into_iter()
                .map(|(relation, end)| (relation.0, end))
                .collect();
            ends.sort_unstable();
            if let Err(error) = durable.files.epochs().append(&EpochRecord { now, ends }) {
                tracing::error!(%error, "an epoch is not in the epoch log: after a crash, its rows may fall \
                 into different epochs");
            }
        }
    }

    fn carry_out(self: &Arc<Self>, command: Command) {
        match command {
            Command::Send(worker, message) => {
                let to = worker;
                let worker = self.workers.read().get(&to).cloned();
                match worker.filter(|worker| !worker.is_cut_off()) {
                    Some(worker) => worker.command(message),
                    None => self.post(Event::Undelivered { to, message }),
                }
            }
            Command::CutterIs { pipeline, worker } => {
                self.cutters.write().insert(pipeline, worker);
                self.apply_interval(pipeline, worker);
            }
            Command::WorkerFree { worker } => {
                let worker = self.workers.write().remove(&worker);
                if let Some(worker) = worker {
                    // Queries that run on its slots are seen through.
                    self.io.spawn_blocking(move || worker.cpu.retire());
                }
            }
            Command::Commit { pipeline, epoch } => {
                self.write_down(pipeline, epoch);
                self.versions.commit(pipeline, epoch);
            }
            Command::Evict { worker } => self.replace(worker),
            Command::Lost {
                pipeline,
                views,
                partitions,
                modulus,
            } => {
                // Before anything is gone: whoever has seen that it is there must not find it empty.
                self.versions.set_recovering(pipeline, true);
                self.recoveries[0].fetch_add(1, Ordering::Relaxed);
                for shape in views {
                    if let Ok(relation) = self.relation(shape.id)
                        && let Relation::View(view) = relation.as_ref()
                    {
                        let lost = (0..shape.partitions).filter(|p| partitions.contains(&(p % modulus)));
                        for partition in lost {
                            if let Err(error) = view.lose(partition) {
                                view.fail(error.to_string());
                            }
                        }
                    }
                }
            }
            Command::Recovered { pipeline } => self.versions.set_recovering(pipeline, false),
            Command::Checkpointed {
                pipeline,
                epoch,
                views,
                is_retained,
            } => {
                self.checkpoints.complete(&views, epoch);
                self.feeds.lock().release(pipeline, epoch);
                if let Some(durable) = &self.durable {
                    durable.complete(self, pipeline, epoch, &views);
                }
                if !is_retained {
                    // Nobody would take over from its worker.
                    views.iter().for_each(|view| self.checkpoints.remove(*view));
                }
            }
            Command::JobLost { view } => {
                self.lost_jobs.lock().insert(view);
                self.versions.notify();
            }
            Command::Abandoned { pipeline, views } => {
                self.versions.set_recovering(pipeline, false);
                self.feeds.lock().void(pipeline);
                self.refill(views);
            }
            Command::Attached { view, pipeline } => {
                self.versions.attach(view, pipeline, None);
                self.timers.attach(self, view, pipeline);
            }
            Command::Joined { into, from } => {
                self.feeds.lock().join(into, from);
                self.versions.join(into, from);
                self.timers.join(self, into, from);
                if let Some(durable) = &self.durable {
                    durable.join(into, from);
                }
            }
            Command::Quiesced { ticket, .. } => {
                // Whoever asked may have gone meanwhile: then the pipeline goes on.
                let sender = self.tickets.lock().remove(&ticket);
                if sender.is_none_or(|sender| sender.send(()).is_err()) {
                    self.post(Event::Resume {
                        ticket,
                        views: vec![],
                        dropped: vec![],
                    });
                }
            }
        }
    }
}
