//! What is simulated, and what a run shows.

use super::BatchReport;
use crate::driver::CheckpointPolicy;
use crate::group_size::GroupSize;

/// What things take, in nanoseconds.
#[derive(Debug, Clone)]
pub struct Costs {
    /// A message on its way, at least and at most.
    pub message_ns: (u64, u64),
    /// A task on a slot.
    pub task_ns: u64,
    /// The driver's handling of an event, and of each message that it sends; `None`: as long as the real code, encoding
    /// included, takes on this machine.
    pub driver_ns: Option<(u64, u64)>,
    /// The same of a worker's local scheduler, which has a thread of its own beside the slots.
    pub worker_ns: Option<(u64, u64)>,
    /// How many messages of a thousand arrive twice.
    pub doubled_per_mille: u64,
    /// How many messages and fetches of a thousand fail.
    pub dropped_per_mille: u64,
    /// How many tasks of a thousand are slow, and what they take at most, in nanoseconds.
    pub slow: (u64, u64),
}

impl Costs {
    /// Messages and tasks that take so long, of which none is lost, doubled or slow; drivers and local schedulers cost little.
    pub fn reliable(message_ns: (u64, u64), task_ns: u64) -> Costs {
        Costs {
            message_ns,
            task_ns,
            driver_ns: Some((2_000, 1_000)),
            worker_ns: Some((0, 0)),
            doubled_per_mille: 0,
            dropped_per_mille: 0,
            slow: (0, 0),
        }
    }
}

/// How large the cluster is, and how it behaves.
#[derive(Debug, Clone)]
pub struct Setup {
    pub workers: u32,
    pub cores: usize,
    pub group_size: GroupSize,
    pub checkpoints: CheckpointPolicy,
    pub costs: Costs,
    pub seed: u64,
}

/// What a run showed.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Simulated time.
    pub elapsed_ns: u64,
    pub epochs: u64,
    pub tasks: u64,
    /// Tasks that sent batches.
    pub flows: u64,
    /// Messages of the driver, their bytes, and the driver's time.
    pub driver_messages: u64,
    pub driver_bytes: u64,
    pub driver_ns: u64,
    /// Messages between workers, and the time of the local schedulers: of all, and of the busiest.
    pub worker_messages: u64,
    pub worker_ns: u64,
    pub worker_ns_max: u64,
    /// From an epoch's cut to its commit.
    pub latencies_ns: Vec<u64>,
    /// Groups in the order in which they ended.
    pub groups: Vec<GroupSeen>,
    /// Checkpoints that were complete, losses after which a pipeline was restored from one, and tasks that ran again.
    pub checkpoints: u64,
    pub recoveries: u64,
    pub tasks_again: u64,
    /// Bytes of state of parts that were restored on another worker than the one that had them.
    pub restored_bytes: u64,
    /// Copies of tasks that were run, and those that ended before the task.
    pub copies: u64,
    pub copies_won: u64,
    /// Workers that were there and were held to be lost.
    pub evicted: u64,
    pub batch: BatchReport,
}

/// A group of a simulated run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GroupSeen {
    /// When it ended, in simulated nanoseconds.
    pub at_ns: u64,
    /// Epochs in it.
    pub epochs: u64,
    /// The smoothed share of coordination after it.
    pub share: f64,
}
