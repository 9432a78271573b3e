//! What a task used of a disk or of the network: the records that those schedulers hand to tasks, and that the time model of
//! EXPLAIN is fed with.

use std::time::{Duration, Instant};

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Input of a query.
    Read,
    /// What a query, a checkpoint or a sink writes.
    Write,
    /// What was written for the same run: spilled rows.
    Reread,
}

/// What a piece of work has moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Moved {
    pub bytes: u64,
    pub rows: u64,
}

/// A request that was served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskUse {
    /// The device, by its place among the runtime's.
    pub device: usize,
    pub phase: Phase,
    /// When the scheduler got it.
    pub queued: Instant,
    pub started: Instant,
    pub service: Duration,
    /// Of that, on a processor: copying out of the system's cache and into it.
    pub copying: Duration,
    pub moved: Moved,
}

impl DiskUse {
    /// How long it waited to be served.
    pub fn queue(&self) -> Duration {
        self.started.saturating_duration_since(self.queued)
    }
}

/// A network monotask: rows that were fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NetworkUse {
    /// When the scheduler got the request.
    pub queued: Instant,
    pub started: Instant,
    pub service: Duration,
    pub bytes: u64,
    pub rows: u64,
}

impl NetworkUse {
    /// How long it waited to be sent.
    pub fn queue(&self) -> Duration {
        self.started.saturating_duration_since(self.queued)
    }
}
