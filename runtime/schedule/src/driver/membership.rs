//! Who is there: heartbeats, silence, and messages that could not be delivered.
//!
//! The driver is the single source of truth about that. Nobody gives up a worker because it does not answer *him*: what
//! cannot be sent or fetched is reported here, and
//! * the driver hears heartbeats of the worker in question: it relays the message, or has the task run again that could not
//!   fetch, as often as it takes;
//! * it hears nothing for [`SILENT_BEATS_MAX`] intervals, or [`SUSPECT_BEATS_MAX`] of a worker that somebody could not reach:
//!   the worker is lost ([`super::recovery`]), alive or not, and what it still says is not listened to.
//!
//! Silence is measured from tick to tick, and no longer gap counts than two intervals: a driver that was itself suspended
//! takes nobody for dead. Nor does one that hears nobody at all: then it is the driver that is cut off.

use std::collections::BTreeMap;

use super::{Command, Driver};
use crate::id::WorkerId;
use crate::message::{ToPeer, ToWorker, WorkerLoad};

/// Heartbeat intervals without a heartbeat after which a worker is held to be lost.
pub const SILENT_BEATS_MAX: u64 = 5;
/// The same of a worker that did not answer another.
pub const SUSPECT_BEATS_MAX: u64 = 2;
/// Messages that are kept for a worker that does not answer. It is lost if there are more.
const UNDELIVERED_MAX: usize = 10_000;
/// The interval of heartbeats, unless it is set.
pub const HEARTBEAT_NS: u64 = 500_000_000;

/// What is known of a worker's life.
#[derive(Debug, Default)]
pub(super) struct Liveness {
    /// There was a heartbeat since the last tick.
    is_heard: bool,
    /// Time since the last heartbeat, as of the last tick.
    silent_ns: u64,
    load: WorkerLoad,
    /// Messages to it that did not arrive.
    undelivered: Vec<ToWorker>,
    /// Others that could not fetch from it, and what they are told when it is heard.
    accusers: Vec<(WorkerId, ToWorker)>,
}

impl Liveness {
    /// What it last said of its load.
    pub fn load(&self) -> WorkerLoad {
        self.load
    }
}

impl Driver {
    /// Time goes by: finds out who is silent.
    pub(super) fn tick(&mut self, commands: &mut Vec<Command>) {
        let every_ns = self.heartbeat_ns;
        let elapsed = self.now.saturating_sub(self.ticked_at).min(2 * every_ns);
        self.ticked_at = self.now;
        for liveness in self.liveness.values_mut() {
            let is_heard = std::mem::take(&mut liveness.is_heard);
            liveness.silent_ns = if is_heard { 0 } else { liveness.silent_ns + elapsed };
        }
        let is_deaf =
            (self.liveness.values()).all(|liveness| liveness.silent_ns >= SUSPECT_BEATS_MAX * every_ns);
        if is_deaf {
            return;
        }
        let is_lost = |liveness: &Liveness| {
            let is_suspect = !liveness.accusers.is_empty();
            let beats = if is_suspect {
                SUSPECT_BEATS_MAX
            } else {
                SILENT_BEATS_MAX
            };
            liveness.silent_ns >= beats * every_ns
        };
        let lost: Vec<WorkerId> = (self.liveness.iter())
            .filter(|(_, liveness)| is_lost(liveness))
            .map(|(worker, _)| *worker)
            .collect();
        for worker in lost {
            self.lose(worker, commands);
        }
    }

    /// A worker is there: whatever waited for that goes out.
    pub(super) fn heartbeat(&mut self, worker: WorkerId, load: WorkerLoad, commands: &mut Vec<Command>) {
        let Some(liveness) = self.liveness.get_mut(&worker) else {
            return;
        };
        liveness.is_heard = true;
        liveness.load = load;
        let undelivered = std::mem::take(&mut liveness.undelivered);
        commands.extend(
            undelivered
                .into_iter()
                .map(|message| Command::Send(worker, message)),
        );
        let accusers = std::mem::take(&mut liveness.accusers);
        commands.extend(accusers.into_iter().map(|(by, retry)| Command::Send(by, retry)));
    }

    /// `by` could not fetch from `accused`, and is told `retry` if that one lives.
    pub(super) fn accuse(&mut self, accused: WorkerId, by: WorkerId, retry: ToWorker) {
        // One that is lost already has a template without it on the way.
        if let Some(liveness) = self.liveness.get_mut(&accused) {
            liveness.accusers.push((by, retry));
        }
    }

    /// A worker could not tell another.
    pub(super) fn relay(&mut self, to: WorkerId, message: ToPeer, commands: &mut Vec<Command>) {
        if self.liveness.contains_key(&to) {
            commands.push(Command::Send(to, ToWorker::Relay(message)));
        }
    }

    /// A message of the driver did not arrive: it is sent again when the worker is heard.
    pub(super) fn keep_undelivered(&mut self, to: WorkerId, message: ToWorker, commands: &mut Vec<Command>) {
        let Some(liveness) = self.liveness.get_mut(&to) else {
            return;
        };
        liveness.undelivered.push(message);
        if liveness.undelivered.len() > UNDELIVERED_MAX {
            self.lose(to, commands);
        }
    }

    /// Whether somebody waits to hear a worker.
    pub fn is_in_doubt(&self) -> bool {
        let mut liveness = self.liveness.values();
        liveness.any(|liveness| !liveness.undelivered.is_empty() || !liveness.accusers.is_empty())
    }

    /// What the workers said of their load.
    pub fn loads(&self) -> BTreeMap<WorkerId, WorkerLoad> {
        let liveness = self.liveness.iter();
        liveness
            .map(|(worker, liveness)| (*worker, liveness.load))
            .collect()
    }
}
