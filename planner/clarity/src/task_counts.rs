//! What tasks did, counted as they ended: of a stage, of one of its partitions, in all or in some time.

use std::iter::Sum;

use serde::{Deserialize, Serialize};

use super::profile::Nanoseconds;

/// Counts of some tasks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskCounts {
    pub tasks: u64,
    pub rows_in: u64,
    pub rows_out: u64,
    /// Processor time.
    pub busy: Nanoseconds,
    /// From being ready to running.
    pub queue: Nanoseconds,
}

impl TaskCounts {
    /// What was counted since an earlier moment. A view that was filled again meanwhile counts from nothing.
    pub fn since(self, before: TaskCounts) -> TaskCounts {
        TaskCounts {
            tasks: self.tasks.saturating_sub(before.tasks),
            rows_in: self.rows_in.saturating_sub(before.rows_in),
            rows_out: self.rows_out.saturating_sub(before.rows_out),
            busy: self.busy.saturating_sub(before.busy),
            queue: self.queue.saturating_sub(before.queue),
        }
    }
}

impl Sum for TaskCounts {
    fn sum<I: Iterator<Item = TaskCounts>>(counts: I) -> TaskCounts {
        counts.fold(TaskCounts::default(), |sum, counts| TaskCounts {
            tasks: sum.tasks + counts.tasks,
            rows_in: sum.rows_in + counts.rows_in,
            rows_out: sum.rows_out + counts.rows_out,
            busy: sum.busy + counts.busy,
            queue: sum.queue + counts.queue,
        })
    }
}
