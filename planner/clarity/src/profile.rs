//! What the resource schedulers saw of one run: the only input of the time model.
//!
//! ```text
//! Profile ── machine (cores, disks, network)
//!    └─ StageProfile ── operators
//!          └─ TaskProfile ── use of each resource (always) ── monotasks (when the run was short enough to list them)
//! ```
//!
//! All of it is plain data. Times are nanoseconds; instants count from the moment at which the plan was handed to the
//! runtime. A resource is used by monotasks, each of which uses only one (Ousterhout 2017, section 5.3).

use serde::{Deserialize, Serialize};

/// Nanoseconds: a duration, or an instant since the run began.
pub type Nanoseconds = u64;

/// One run of a query.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// Parsing, binding and planning, before the run began.
    pub planning: Nanoseconds,
    /// When the last row was emitted.
    pub end: Nanoseconds,
    pub machine: Machine,
    /// In topological order: a stage comes after those that it depends on.
    pub stages: Vec<StageProfile>,
}

/// What the run had to itself or shared with others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Slots of the cpu schedulers that could run it.
    pub cores: usize,
    /// Devices that its disk monotasks name by position.
    pub disks: Vec<Device>,
    /// `None` with one process: nothing crosses a network.
    pub network: Option<Device>,
    /// So many tasks of a stage that reads the input were under way at most.
    #[serde(default)]
    pub tasks_in_flight: usize,
    /// Time for which the machine's host gave each processor to others meanwhile, on average.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub stolen: Nanoseconds,
    /// `None`: it was not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryUse>,
}

/// What a run had of the memory, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryUse {
    /// The most that it held at once.
    pub held: u64,
    /// What was on disk because there was no more: for a query, all that it wrote there.
    pub spilled: u64,
}

impl MemoryUse {
    /// With so much nothing would have to be on disk.
    pub fn needed(&self) -> u64 {
        self.held.saturating_add(self.spilled)
    }
}

/// A disk or the network.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Device {
    pub name: String,
    /// Requests that its scheduler keeps in flight at most.
    pub concurrency: usize,
    /// Requests in flight, and the bytes a second that the device moved with so many while others waited: what the
    /// concurrency was chosen from. Empty as long as it never had more to do than it took at once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub measured: Vec<(usize, f64)>,
    /// What it moves with that many in flight: its rate limit, or as measured. `None`: not known; the run's own
    /// throughput while the device was in use stands for it.
    pub bytes_per_second: Option<f64>,
    /// Time of the run in which at least one of its requests was in flight.
    pub busy: Nanoseconds,
}

/// Operators between two exchanges.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StageProfile {
    pub id: usize,
    /// What it does, in a few words: `scan lineitem, partial aggregate`.
    pub name: String,
    /// The stages whose output it reads.
    pub depends_on: Vec<usize>,
    pub parallelism: Parallelism,
    /// In the order of a printed plan: an operator before its inputs.
    pub operators: Vec<OperatorProfile>,
    pub tasks: Vec<TaskProfile>,
}

/// How many tasks a stage has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Parallelism {
    /// As many as there are cores: on a larger machine it is cut finer.
    Cores,
    /// As many as it has on every machine: a final merge, or an input too small or of a form that is not cut.
    Fixed,
}

/// One operator of a stage, over all tasks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OperatorProfile {
    /// `HashJoin: l_orderkey = o_orderkey`.
    pub name: String,
    /// Operators above it within the stage.
    pub depth: usize,
    /// Rows that it emitted; `None`: it does not count them.
    pub rows: Option<u64>,
    /// Bytes of these rows in memory; 0 where it does not count them.
    pub bytes: u64,
    /// Time within it, without its inputs.
    pub cpu: Nanoseconds,
}

/// One stage on one partition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskProfile {
    pub worker: u32,
    pub partition: usize,
    /// Of a view: the epoch in which it ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// When its first monotask started.
    pub start: Nanoseconds,
    pub end: Nanoseconds,
    /// Time for which it was paused for more urgent work, and how often. It is no part of any monotask.
    pub suspended: Nanoseconds,
    pub pauses: u32,
    /// Time in which it could not compute because it waited for something else than a core.
    pub blocked: Blocked,
    /// Rows and bytes that it emitted.
    pub rows: u64,
    pub bytes: u64,
    /// What its monotasks come to, for each resource and kind that it used.
    pub usage: Vec<Usage>,
    /// The monotasks themselves, by start; empty when there were too many to keep.
    pub monotasks: Vec<Monotask>,
}

/// Time in which a task's computation stood still, by what it waited for (Ousterhout 2017, section 3.3.1).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocked {
    pub disk: Nanoseconds,
    pub network: Nanoseconds,
    /// For rows of the stages that it reads.
    pub input: Nanoseconds,
    /// For room in what reads it: the next stage's buffers, or the client.
    pub output: Nanoseconds,
}

/// What can be used by one monotask at a time (cpu: a core), or by as many as its scheduler lets in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resource {
    Cpu,
    /// By position in [`Machine::disks`].
    Disk(usize),
    Network,
}

/// What a monotask is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Disk: input of the query. Not there when the input is in memory.
    Read,
    /// Cpu: from a file's form to columns. Not there either when the input is in memory.
    Decode,
    /// Cpu: operators.
    Compute,
    /// Cpu: rows to the partitions of the next stage.
    Partition,
    /// Cpu: columns to the form in which they are written or sent.
    Encode,
    /// Disk: spilled state, results.
    Write,
    /// Disk: what the run itself wrote.
    Reread,
    /// Network: rows of another worker.
    Fetch,
    /// Disk: writes to the log that are synced together.
    Log,
}

impl Kind {
    /// Whether it brings the query's input, so that with the input in memory it is not done.
    pub fn is_input(self) -> bool {
        matches!(self, Kind::Read | Kind::Decode)
    }

    /// Whether it is there only because memory was short.
    pub fn is_spilling(self) -> bool {
        matches!(self, Kind::Write | Kind::Reread)
    }
}

/// A stretch of a task that used one resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Monotask {
    pub resource: Resource,
    pub kind: Kind,
    /// When its scheduler got it.
    pub queued_at: Nanoseconds,
    pub started_at: Nanoseconds,
    /// Time on the resource.
    pub service: Nanoseconds,
    pub bytes: u64,
    pub rows: u64,
}

/// Monotasks of one task, resource and kind, added up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    pub resource: Resource,
    pub kind: Kind,
    pub monotasks: u64,
    /// Time in the queue, from which what the task was suspended is taken out.
    pub queue: Nanoseconds,
    pub service: Nanoseconds,
    /// Of a disk's service, what it took of a core: copying out of the system's cache. Cpu monotasks are all of it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub copying: Nanoseconds,
    pub bytes: u64,
    pub rows: u64,
}

pub(super) fn is_zero(time: &Nanoseconds) -> bool {
    *time == 0
}

impl Profile {
    /// The share of the run's time for which the machine's host gave the processors to others.
    pub fn stolen_share(&self) -> f64 {
        let elapsed = self.planning + self.end;
        self.machine.stolen as f64 / elapsed.max(1) as f64
    }
}

impl Usage {
    /// Adds others of the same resource and kind.
    pub fn add(&mut self, other: &Usage) {
        self.monotasks += other.monotasks;
        self.queue += other.queue;
        self.service += other.service;
        self.copying += other.copying;
        self.bytes += other.bytes;
        self.rows += other.rows;
    }
}

impl TaskProfile {
    /// Time on a kind of resource; every disk is one kind.
    pub fn service(&self, counts: impl Fn(&Usage) -> bool) -> Nanoseconds {
        self.usage
            .iter()
            .filter(|usage| counts(usage))
            .map(|usage| usage.service)
            .sum()
    }

    /// Time on cores.
    pub fn cpu(&self) -> Nanoseconds {
        self.service(|usage| usage.resource == Resource::Cpu)
    }
}
