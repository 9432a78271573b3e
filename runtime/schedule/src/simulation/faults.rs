//! What goes wrong between the parts of a simulation, and the heartbeats by which the driver finds out.
//!
//! A message arrives, or its sender finds out that it may not have. Then a worker that could not tell another tells the
//! driver; one that could not tell the driver tells it again; the driver is told [`Event::Undelivered`].

use super::{Delivery, Simulation};
use crate::driver::Event;
use crate::id::WorkerId;
use crate::local::Timer;
use crate::message::{ToDriver, WorkerLoad};

impl Delivery {
    /// Whether the simulation is not at rest before it has arrived.
    pub(super) fn is_foreground(&self) -> bool {
        match self {
            Delivery::Beat
            | Delivery::ToDriver(_, ToDriver::Heartbeat { .. } | ToDriver::State { .. })
            | Delivery::Wake {
                timer: Timer::Stragglers,
                ..
            } => false,
            Delivery::Failed(delivery) => delivery.is_foreground(),
            _ => true,
        }
    }
}

impl Simulation {
    /// Whether a message that is sent now will fail.
    pub(super) fn is_dropped(&mut self, delivery: &Delivery) -> bool {
        let is_cut_off = match delivery {
            Delivery::ToWorker(worker, _) | Delivery::ToDriver(worker, _) => self.is_silent(*worker),
            Delivery::ToPeer(from, to, _) => self.is_silent(*from) || self.is_silent(*to),
            _ => return false,
        };
        is_cut_off || self.is_unlucky()
    }

    /// Whether a fetch that is tried now fails, though whoever has the rows is there.
    pub(super) fn is_fetch_dropped(&mut self, by: WorkerId, from: WorkerId) -> bool {
        by != from && (self.is_silent(by) || self.is_silent(from) || self.is_unlucky())
    }

    /// What a task that starts now takes.
    pub(super) fn task_ns(&mut self, worker: WorkerId) -> u64 {
        let (per_mille, slow_ns) = self.setup.costs.slow;
        let times = self.slow.get(&worker).copied().unwrap_or(1);
        if per_mille > 0 && self.draw() % 1000 < per_mille {
            return 1 + self.draw() % slow_ns;
        }
        times * self.setup.costs.task_ns
    }

    fn is_unlucky(&mut self) -> bool {
        let per_mille = self.setup.costs.dropped_per_mille;
        per_mille > 0 && self.draw() % 1000 < per_mille
    }

    /// The sender of a message finds out.
    pub(super) fn failed(&mut self, delivery: Delivery) {
        match delivery {
            Delivery::ToWorker(to, message) => self.event(Event::Undelivered { to, message }),
            Delivery::ToPeer(from, to, message) if self.workers.contains_key(&from) => {
                let report = ToDriver::Undelivered { to, message };
                self.send(self.now, Delivery::ToDriver(from, report));
            }
            // A heartbeat is not missed if another one comes.
            Delivery::ToDriver(_, ToDriver::Heartbeat { .. } | ToDriver::State { .. }) => {}
            Delivery::ToDriver(from, message) if self.workers.contains_key(&from) => {
                let again_ns = self.setup.costs.message_ns.1;
                self.send(self.now + again_ns, Delivery::ToDriver(from, message));
            }
            _ => {}
        }
    }

    /// Every worker says that it is there; the driver looks who has not. Goes on until the simulation is at rest.
    pub(super) fn beat(&mut self) {
        let workers: Vec<WorkerId> = self.workers.keys().copied().collect();
        for worker in workers {
            let load = WorkerLoad::default();
            self.send(
                self.now,
                Delivery::ToDriver(worker, ToDriver::Heartbeat { worker, load }),
            );
            if !self.state_bytes.is_empty() {
                let bytes = self.checks.kept_of(worker, &self.state_bytes);
                self.send(
                    self.now,
                    Delivery::ToDriver(worker, ToDriver::State { worker, bytes }),
                );
            }
        }
        self.event(Event::Tick);
        let now = self.now;
        let is_at_rest = self.foreground == 0
            && !self.driver.is_in_doubt()
            && self.silent.values().all(|until| *until <= now);
        self.is_beating = !is_at_rest;
        if let Some(every_ns) = self.heartbeat_ns.filter(|_| !is_at_rest) {
            self.deliver(self.now + every_ns, Delivery::Beat);
        }
    }
}
