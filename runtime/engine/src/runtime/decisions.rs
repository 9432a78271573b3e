//! Where the driver meets the rest: events go to it one by one, and what it decides is carried out.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use futures::FutureExt;
use millrace_resource::cpu::is_idle_thread;
use millrace_resource::error::ResourceError;
use millrace_schedule::cpu::QueryClass;
use millrace_schedule::driver::{Command, Driver, Event};
use millrace_schedule::id::{PipelineId, Ticket};
use millrace_storage::checkpoint::EpochRecord;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::Engine;
use crate::relation::Relation;

/// The driver, and what waits for it.
#[derive(Default)]
pub(crate) struct Decisions {
    pub driver: Mutex<Driver>,
    events: Mutex<EventQueue>,
    /// Changes of definitions that wait for their turn.
    pub tickets: Mutex<HashMap<Ticket, oneshot::Sender<()>>>,
    /// A decision, or what was to be done about it, ended with a panic: the queue is worked off by nobody any more.
    has_stopped: AtomicBool,
    next_ticket: AtomicU64,
    next_pipeline: AtomicU64,
}

impl Decisions {
    /// A name for another pipeline.
    pub fn new_pipeline(&self) -> PipelineId {
        PipelineId(1 + self.next_pipeline.fetch_add(1, Ordering::Relaxed))
    }

    /// Whether no decision is made any more.
    pub fn has_stopped(&self) -> bool {
        self.has_stopped.load(Ordering::Acquire)
    }

    /// Since when the decision takes that is being made.
    pub fn since(&self) -> Option<Instant> {
        self.events.lock().since
    }

    /// A name for another change of definitions.
    pub fn new_ticket(&self) -> Ticket {
        Ticket(1 + self.next_ticket.fetch_add(1, Ordering::Relaxed))
    }
}

/// Events wait here while one is worked on, so that commands are carried out in the order of the decisions.
#[derive(Default)]
struct EventQueue {
    waiting: VecDeque<Event>,
    is_draining: bool,
    /// When the one was begun that is worked on.
    since: Option<Instant>,
}

/// Works the events off when it is dropped, wherever that is: also where the scheduler of a task that was to do it has stopped.
struct Draining(Arc<Engine>);

impl Drop for Draining {
    fn drop(&mut self) {
        self.0.drain();
    }
}

/// Notes that a decision ended with a panic.
struct Deciding<'a>(&'a Decisions);

impl Drop for Deciding<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.has_stopped.store(true, Ordering::Release);
        }
    }
}

impl Engine {
    /// Hands an event to the driver and carries out what it decides. Whoever finds the queue idle works it off; others
    /// only add to it. A thread that other programs may leave next to nothing has another one do it: everybody waits for that.
    pub fn post(self: &Arc<Self>, event: Event) {
        {
            let mut events = self.decisions.events.lock();
            events.waiting.push_back(event);
            if std::mem::replace(&mut events.is_draining, true) {
                return;
            }
        }
        let draining = Draining(Arc::clone(self));
        if is_idle_thread() {
            let draining = self
                .queries
                .statements()
                .spawn(QueryClass::Interactive, move |_| {
                    async move {
                        drop(draining);
                        Ok::<(), ResourceError>(())
                    }
                    .boxed()
                });
            draining.detach();
        }
    }

    /// Works the events off.
    fn drain(self: &Arc<Self>) {
        let _deciding = Deciding(&self.decisions);
        loop {
            let event = {
                let mut events = self.decisions.events.lock();
                events.since = Some(Instant::now());
                match events.waiting.pop_front() {
                    Some(event) => event,
                    None => {
                        events.is_draining = false;
                        events.since = None;
                        return;
                    }
                }
            };
            let about = match &event {
                Event::Worker(message) => message.about().map(|(pipeline, _)| pipeline),
                _ => None,
            };
            let started = Instant::now();
            let now = self.workers.started().elapsed().as_nanos() as u64;
            let commands = self.decisions.driver.lock().on(event, now);
            for command in commands {
                self.carry_out(command);
            }
            if let Some(pipeline) = about {
                self.decisions
                    .driver
                    .lock()
                    .spent(pipeline, started.elapsed().as_nanos() as u64);
            }
        }
    }

    /// Writes down what an epoch contains before anybody sees it.
    fn write_down(&self, pipeline: PipelineId, epoch: u64) {
        let Some(durable) = self
            .checkpoints
            .durable
            .as_ref()
            .filter(|durable| durable.is_on())
        else {
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
                let worker = self.workers.get(to);
                match worker.filter(|worker| !worker.is_cut_off()) {
                    Some(worker) => worker.command(message),
                    None if self.tell_member(to, &message) => {}
                    None => self.post(Event::Undelivered { to, message }),
                }
            }
            Command::CutterIs { pipeline, worker } => {
                self.workers.set_cutter(pipeline, worker);
            }
            Command::WorkerFree { worker } => {
                if !self.cluster.retire(worker) {
                    self.workers.retire(worker);
                }
            }
            Command::Commit { pipeline, epoch } => {
                self.write_down(pipeline, epoch);
                self.versions.commit(pipeline, epoch);
            }
            Command::Evict { worker } => {
                if !self.cluster.evict(worker) {
                    self.replace(worker);
                }
            }
            Command::Lost {
                pipeline,
                views,
                partitions,
                modulus,
            } => {
                // Before anything is gone: whoever has seen that it is there must not find it empty.
                self.versions.set_recovering(pipeline, true);
                self.checkpoints.recoveries[0].fetch_add(1, Ordering::Relaxed);
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
            Command::Recovered { pipeline } => self.recovered(pipeline),
            Command::Checkpointed {
                pipeline,
                epoch,
                views,
                is_kept,
            } => {
                self.checkpoints.store.complete(&views, epoch);
                self.writes.feeds.lock().release(pipeline, epoch);
                if let Some(durable) = &self.checkpoints.durable {
                    durable.complete(self, pipeline, epoch, &views);
                }
                if !is_kept {
                    // Nobody would take over from its worker.
                    views.iter().for_each(|view| self.checkpoints.store.remove(*view));
                }
            }
            Command::JobLost { view } => {
                self.jobs.lost.lock().insert(view);
                self.versions.notify();
            }
            Command::Abandoned { pipeline, views } => {
                self.versions.set_recovering(pipeline, false);
                self.writes.feeds.lock().void(pipeline);
                self.refill(views);
            }
            Command::Attached { view, pipeline } => {
                self.versions.attach(view, pipeline, None);
                self.timers.attach(view, pipeline);
            }
            Command::Joined { into, from } => {
                self.writes.feeds.lock().join(into, from);
                self.versions.join(into, from);
                self.timers.join(into, from);
                if let Some(durable) = &self.checkpoints.durable {
                    durable.join(into, from);
                }
            }
            Command::Quiesced { ticket, .. } => {
                // Whoever asked may have gone meanwhile: then the pipeline goes on.
                let sender = self.decisions.tickets.lock().remove(&ticket);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decision_that_panics_is_known() {
        let decisions = Decisions::default();
        drop(Deciding(&decisions));
        assert!(!decisions.has_stopped());
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _deciding = Deciding(&decisions);
            panic!("a fault");
        }));
        assert!(panicked.is_err() && decisions.has_stopped());
    }
}
