//! Who helps a worker on which a map stage takes far longer than on the others (Drizzle, section 3.3; how it is done and
//! noticed: [`crate::local`]).
//!
//! Everybody who waits for the stage reports it; it is helped once. Work that is merely long, and takes a copy as long as the
//! original, is not worth two workers: after [`LOST_COPIES_MAX`] copies that came second, one is tried every
//! [`RETRY_NS`] only, until one comes first.

use std::collections::BTreeMap;

use millrace_planner::RelationId;

use super::{Command, Driver};
use crate::id::{PipelineId, WorkerId};
use crate::message::{EpochCosts, ToWorker};

/// Copies that may come second, one after the other, before copies become rare.
pub const LOST_COPIES_MAX: u32 = 16;
/// Nanoseconds between two copies, then.
pub const RETRY_NS: u64 = 10_000_000_000;

/// A stage of an epoch on a worker that was late.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Late {
    pub epoch: u64,
    pub view: RelationId,
    pub stage: usize,
    pub worker: WorkerId,
}

/// What a pipeline knows of its stragglers.
#[derive(Debug, Default)]
pub(super) struct Stragglers {
    /// Who helps.
    helped: BTreeMap<Late, WorkerId>,
    /// Copies that came second since the last one that did not.
    lost: u32,
    copied_at: u64,
}

impl Stragglers {
    /// A worker has done an epoch.
    pub fn learn(&mut self, costs: &EpochCosts) {
        if costs.copies_won > 0 {
            self.lost = 0;
        } else {
            self.lost = self.lost.saturating_add(costs.tasks_copied);
        }
    }

    /// Nobody waits for anything up to this epoch.
    pub fn settle(&mut self, epoch: u64) {
        self.helped.retain(|late, _| late.epoch > epoch);
    }

    /// Under another template, everything is reported again.
    pub fn forget(&mut self) {
        self.helped.clear();
    }
}

impl Driver {
    /// Tasks wait for a worker: another one is to do what it has not done.
    pub(super) fn help(&mut self, id: PipelineId, late: Late, commands: &mut Vec<Command>) {
        let now = self.now;
        let Some(pipeline) = self.pipelines.get_mut(&id) else {
            return;
        };
        let Some(template) = &pipeline.template else {
            return;
        };
        let stragglers = &mut pipeline.stragglers;
        if late.epoch <= pipeline.settled
            || stragglers.helped.contains_key(&late)
            || (stragglers.lost >= LOST_COPIES_MAX && now.saturating_sub(stragglers.copied_at) < RETRY_NS)
        {
            return;
        }
        // Those that know the views and are not late themselves: who helps least, then who is least busy.
        let is_late = |worker: &WorkerId| {
            let mut helped = stragglers.helped.keys();
            helped.any(|other| (other.epoch, other.worker) == (late.epoch, *worker))
        };
        let burden = |worker: &WorkerId| {
            let copies = stragglers.helped.values().filter(|by| *by == worker).count();
            let load = self.liveness.get(worker).map(|known| known.load());
            let load = load.map_or((u32::MAX, u32::MAX), |load| {
                (load.tasks_waiting, load.busy_per_mille)
            });
            (copies, load, *worker)
        };
        let candidates = template.participants().into_iter();
        let helper = candidates
            .filter(|worker| *worker != late.worker && self.workers.contains(worker) && !is_late(worker))
            .min_by_key(burden);
        let Some(to) = helper else { return };
        let message = ToWorker::CopyTo {
            pipeline: id,
            version: template.version,
            epoch: late.epoch,
            view: late.view,
            stage: late.stage,
            to,
        };
        stragglers.helped.insert(late, to);
        stragglers.copied_at = now;
        commands.push(Command::Send(late.worker, message));
    }
}
