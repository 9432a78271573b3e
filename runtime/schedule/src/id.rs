//! The names of things: what messages, logs and tables of state call a pipeline, a worker, a task or a part of a view.

use millrace_planner::RelationId;
use serde::{Deserialize, Serialize};

/// Identifies a pipeline. Joining two keeps the smaller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PipelineId(pub u64);

/// Identifies a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct WorkerId(pub u32);

/// Identifies a change of definitions under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// A point in a relation's history: an epoch for a view, a log offset for a table. A reader at version `v` sees what
/// appeared at or before `v` and went after `v`.
pub type Version = u64;

/// Names a task forever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TaskId {
    pub view: RelationId,
    pub stage: usize,
    pub partition: usize,
    pub epoch: u64,
}

/// A partition of what a view keeps in one of its stages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Part {
    pub view: RelationId,
    pub stage: usize,
    pub partition: usize,
}
