//! What a task reads and what it leaves behind, as messages tell of it.

use millrace_planner::RelationId;
use serde::{Deserialize, Serialize};

use crate::id::WorkerId;

/// Rows that a task has to fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Source {
    /// Its share of a relation's cut.
    Cut { relation: RelationId, from: WorkerId },
    /// What an upstream stage sent to its partition.
    Exchange { stage: usize, from: WorkerId },
    /// What an upstream stage sends to its partition while it runs, if it does, and then what those of its tasks left that
    /// did not.
    Flow { stage: usize, from: WorkerId },
    /// The changes of a partition of a view.
    Changes {
        view: RelationId,
        partition: usize,
        from: WorkerId,
    },
}

impl Source {
    /// The worker that has them.
    pub fn from(&self) -> WorkerId {
        match self {
            Source::Cut { from, .. }
            | Source::Exchange { from, .. }
            | Source::Flow { from, .. }
            | Source::Changes { from, .. } => *from,
        }
    }
}

/// What a task left behind: for an exchange, the partitions that have rows; for the last stage, partition 0 if the view
/// changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    pub filled: Vec<u32>,
    pub busy_ns: u64,
    /// Changes that it was given, and that it emitted, with the memory that these take.
    pub rows_in: u64,
    pub rows_out: u64,
    pub bytes_out: u64,
}
