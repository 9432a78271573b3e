//! What the tasks of a group did on this worker, gathered by stage: the driver is told when the group ends.

use std::collections::{BTreeMap, BTreeSet};

use crate::message::StageCosts;
use crate::plan::Plan;
use crate::task::Ended;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    /// Last epochs of groups that are under way.
    ends: BTreeSet<u64>,
    /// By task, added up over epochs.
    tasks: BTreeMap<usize, Sums>,
}

#[derive(Debug, Default)]
struct Sums {
    tasks: u64,
    rows_in: u64,
    rows_out: u64,
    bytes_out: u64,
    rows_out_max: u64,
    busy_ns: u64,
}

impl Gathered {
    /// A group was launched.
    pub fn launch(&mut self, last: u64) {
        self.ends.insert(last);
    }

    /// A task of some epoch has run.
    pub fn add(&mut self, task: usize, ended: &Ended) {
        let sums = self.tasks.entry(task).or_default();
        sums.tasks += 1;
        sums.rows_in += ended.rows_in;
        sums.rows_out += ended.rows_out;
        sums.bytes_out += ended.bytes_out;
        sums.rows_out_max = sums.rows_out_max.max(ended.rows_out);
        sums.busy_ns += ended.busy_ns;
    }

    /// An epoch is done here. If it was the last of a group: what was gathered since the one before.
    pub fn take(&mut self, epoch: u64, plan: &Plan) -> Vec<StageCosts> {
        if !self.ends.remove(&epoch) {
            return vec![];
        }
        let mut stages: Vec<StageCosts> = vec![];
        for (task, sums) in std::mem::take(&mut self.tasks) {
            let planned = plan.tasks[task];
            let mut costs = StageCosts::new(plan.view(planned).id, planned.stage);
            costs.tasks = sums.tasks;
            costs.rows_in = sums.rows_in;
            costs.rows_out = sums.rows_out;
            costs.bytes_out = sums.bytes_out;
            costs.rows_out_max = sums.rows_out_max;
            costs.busy_ns = sums.busy_ns;
            costs.busiest_ns = sums.busy_ns;
            // Tasks of one stage follow each other.
            match stages.last_mut() {
                Some(last) if (last.view, last.stage) == (costs.view, costs.stage) => last.merge(&costs),
                _ => stages.push(costs),
            }
        }
        stages
    }
}
