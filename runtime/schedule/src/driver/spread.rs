//! Over how many workers a pipeline is spread, from what its groups took.
//!
//! An epoch costs every worker that takes part: it is told of the cut, tells its peers of every stage, and the driver and the
//! cutter of the end. That pays when the worker has something to do. So a pipeline has as many workers as its epochs have
//! work for ([`Spread::Auto`]), and a view of a few changes an epoch lives on one. Work that is all in one partition, because
//! of a key that most rows have, counts for one.
//!
//! Decided when a group ends, and carried out as every change of placement is: the pipeline is brought to rest and opened
//! under a template with another placement. More workers are taken soon, fewer only after a while: each change costs a
//! checkpoint. Keyed state stays in the partitions in which it is, so that nothing is hashed again.

use serde::{Deserialize, Serialize};

use super::pipeline::{GroupRecord, Phase};
use super::{Command, Driver};
use crate::cpu::policy::SchedulerPolicy;
use crate::id::{PipelineId, WorkerId};
use crate::message::StageCosts;

/// How many workers a pipeline is spread over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Spread {
    /// As many as its epochs have work for.
    Auto {
        /// Nanoseconds of tasks in an epoch that are worth a worker.
        worker_ns: u64,
        /// Nanoseconds for which there has to be too little work before fewer are used; more are after a sixteenth of it.
        patience_ns: u64,
    },
    /// All that there are.
    All,
}

impl Default for Spread {
    /// A worker more costs an epoch some ten microseconds; its work has to be many times that.
    fn default() -> Self {
        Spread::Auto {
            worker_ns: 500_000,
            patience_ns: 4_000_000_000,
        }
    }
}

/// Weight of the newest group in the smoothed work of an epoch.
const SMOOTHING: f64 = 0.3;

/// What is known of a pipeline's work, and what was decided.
#[derive(Debug, Default)]
pub(super) struct Spreader {
    /// Workers in use; `None`: all.
    workers: Option<usize>,
    /// Nanoseconds of tasks in an epoch, of all workers together, smoothed.
    work_ns: Option<f64>,
    /// The speed-up of an epoch's tasks on unlimited workers over a single worker, smoothed.
    parallelism: Option<f64>,
    /// Since when this has been right.
    right_at: Option<u64>,
}

impl Spreader {
    /// Learns from a group that ended.
    pub fn learn(&mut self, group: &GroupRecord) {
        let epochs = group.last_epoch + 1 - group.first_epoch;
        let now = group.busy_ns as f64 / epochs as f64;
        let before = self.work_ns.unwrap_or(now);
        self.work_ns = Some(before + SMOOTHING * (now - before));
        // Stages follow each other, and none is done before its longest partition.
        let sum = |part: fn(&StageCosts) -> u64| group.stages.iter().map(part).sum::<u64>() as f64;
        let longest_ns = sum(|stage| stage.busiest_ns);
        if longest_ns > 0.0 {
            let now = sum(|stage| stage.busy_ns) / longest_ns;
            let before = self.parallelism.unwrap_or(now);
            self.parallelism = Some(before + SMOOTHING * (now - before));
        }
    }

    /// Of so many workers, how many are to be used from now on, if that is not what is.
    fn decide(&mut self, spread: Spread, all: usize, now: u64) -> Option<usize> {
        let used = self.workers.map_or(all, |workers| workers.min(all));
        let (worker_ns, patience_ns) = match spread {
            Spread::All => return (used < all).then_some(all),
            Spread::Auto {
                worker_ns,
                patience_ns,
            } => (worker_ns, patience_ns),
        };
        let right_at = *self.right_at.get_or_insert(now);
        // Where most rows have one key, more workers would only look on.
        let useful = self.parallelism.unwrap_or(f64::MAX).round().max(1.0);
        let worth = (self.work_ns? / worker_ns.max(1) as f64).min(useful);
        let needed = (worth.ceil() as usize).clamp(1, all);
        // Between half of what the used ones are for and a quarter more nothing changes.
        let is_more = needed > used && worth > 1.25 * used as f64;
        let is_fewer = needed < used && worth < 0.5 * used as f64;
        if !is_more && !is_fewer {
            self.right_at = Some(now);
            return None;
        }
        let patience_ns = if is_more { patience_ns / 16 } else { patience_ns };
        (now.saturating_sub(right_at) >= patience_ns).then_some(needed)
    }

    fn settle(&mut self, workers: usize, all: usize, now: u64) {
        self.workers = (workers < all).then_some(workers);
        self.right_at = Some(now);
    }
}

impl Driver {
    /// Where the partitions of a pipeline are to be: those of workers that it does not use are on the ones that it does.
    pub(super) fn placement_of(&self, id: PipelineId) -> Vec<WorkerId> {
        let spreader = self.pipelines.get(&id).map(|pipeline| &pipeline.spreader);
        let Some(workers) = spreader.and_then(|spreader| spreader.workers) else {
            return self.placement.clone();
        };
        // Pipelines with few begin at different ones.
        let home = self.placement[id.0 as usize % self.placement.len()];
        let mut used: Vec<WorkerId> = self.workers.iter().copied().collect();
        let first = used.iter().position(|worker| *worker == home).unwrap_or(0);
        used.rotate_left(first);
        // Rows that stay where they arrive cost no message.
        if self.policy == SchedulerPolicy::Lma {
            used.sort_by_key(|worker| !self.cutters.contains(worker));
        }
        used.truncate(workers);
        let at = |(partition, worker): (usize, &WorkerId)| match used.contains(worker) {
            true => *worker,
            false => used[partition % used.len()],
        };
        self.placement.iter().enumerate().map(at).collect()
    }

    /// Closes the pipeline if it is to be spread over other workers from now on.
    pub(super) fn respread(&mut self, id: PipelineId, commands: &mut Vec<Command>) {
        let (spread, all, now) = (self.spread, self.workers.len(), self.now);
        let Some(pipeline) = self.pipelines.get_mut(&id) else {
            return;
        };
        if pipeline.phase != Phase::Open
            || pipeline.is_job
            || pipeline.is_recovering
            || pipeline.views.is_empty()
        {
            return;
        }
        if let Some(workers) = pipeline.spreader.decide(spread, all, now) {
            pipeline.spreader.settle(workers, all, now);
            self.close(id, commands);
        }
    }
}

#[cfg(test)]
mod tests {
    use millrace_planner::RelationId;

    use super::*;

    const SPREAD: Spread = Spread::Auto {
        worker_ns: 100,
        patience_ns: 1_600,
    };

    fn group(work_ns: u64) -> GroupRecord {
        let mut group = GroupRecord::new(1, 10, false);
        group.busy_ns = 10 * work_ns;
        group
    }

    #[test]
    fn work_in_one_partition_has_one_worker() {
        let mut spreader = Spreader::default();
        let mut skewed = group(10_000);
        let mut stage = StageCosts::new(RelationId(1), 0);
        (stage.busy_ns, stage.busiest_ns) = (100_000, 98_000);
        skewed.stages = vec![stage.clone()];
        spreader.learn(&skewed);
        assert_eq!(spreader.decide(SPREAD, 4, 0), None);
        // A hundredth on other partitions is worth no worker.
        assert_eq!(spreader.decide(SPREAD, 4, 1_600), Some(1));
        spreader.settle(1, 4, 1_600);
        stage.busiest_ns = 25_000;
        skewed.stages = vec![stage];
        for _ in 0..20 {
            spreader.learn(&skewed);
        }
        assert_eq!(spreader.decide(SPREAD, 4, 2_000), Some(4));
    }

    /// What is decided over time, with epochs of so much work.
    fn decided(spreader: &mut Spreader, work_ns: u64, times: std::ops::Range<u64>) -> Vec<(u64, usize)> {
        let mut decided = vec![];
        for now in times.step_by(100) {
            spreader.learn(&group(work_ns));
            if let Some(workers) = spreader.decide(SPREAD, 4, now) {
                spreader.settle(workers, 4, now);
                decided.push((now, workers));
            }
        }
        decided
    }

    #[test]
    fn little_work_has_one_worker_after_a_while_and_more_work_has_more_soon() {
        let mut spreader = Spreader::default();
        assert_eq!(decided(&mut spreader, 10, 0..5_000), [(1_600, 1)]);
        let more = decided(&mut spreader, 290, 5_000..10_000);
        assert!(more[0].0 < 5_700 && more.last().unwrap().1 == 3, "{more:?}");
        // A little more or less changes nothing.
        for work_ns in [260, 330, 200, 340] {
            assert_eq!(decided(&mut spreader, work_ns, 20_000..30_000), []);
        }
        assert_eq!(
            decided(&mut spreader, 10_000, 30_000..35_000).last().unwrap().1,
            4
        );
        assert_eq!(spreader.decide(Spread::All, 4, 35_000), None);
        // Of workers that are not there none are used.
        let mut spreader = Spreader::default();
        decided(&mut spreader, 10, 0..5_000);
        assert_eq!(spreader.decide(Spread::All, 4, 5_000), Some(4));
        assert_eq!(spreader.decide(SPREAD, 1, 5_000), None);
    }
}
