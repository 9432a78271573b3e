//! What local schedulers ask of simulated tasks.

use millrace_planner::RelationId;

use super::checks::Checks;
use crate::id::{Part, TaskId, WorkerId};
use crate::local::Tasks;
use crate::message::EpochTime;

/// Which tasks have work, and what they keep on a worker.
pub(super) struct Busy<'a> {
    /// All of them, the hardest case; or only those that others left rows for.
    pub is_everyone: bool,
    pub worker: WorkerId,
    pub checks: &'a Checks,
}

impl<'a> Busy<'a> {
    pub fn all(worker: WorkerId, checks: &'a Checks) -> Self {
        Busy {
            is_everyone: true,
            worker,
            checks,
        }
    }
}

impl Tasks for Busy<'_> {
    fn has_work(&self, _: TaskId, _: &EpochTime, is_needed: bool) -> bool {
        self.is_everyone || is_needed
    }

    fn has_state(&self, part: Part, version: u64) -> bool {
        let part = (part.view, part.stage, part.partition);
        self.checks.has_state(self.worker, part, version)
    }

    fn freshness(&self, _: RelationId) -> Option<u64> {
        None
    }
}
