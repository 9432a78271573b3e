//! What the tasks of a view have done: counted, always; and one by one, while somebody watches.
//!
//! ```text
//!  task ends --> is somebody watching? --no--> nothing
//!                      `--yes--> [ last tasks, with their monotasks ] --too many--> sums by stage
//! ```
//! While nobody watches this costs a task two looks at a number. A watch is bounded: of the last tasks each monotask is kept, of those
//! before them what they come to.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use millrace_clarity::profile::{Blocked, Kind, Nanoseconds, Resource, TaskProfile, Usage};
use millrace_operator::{Combiner, CombinerCounts};
use millrace_planner::RelationId;
use millrace_resource::cpu::TaskRecord;
use millrace_schedule::id::{TaskId, WorkerId};
use parking_lot::Mutex;

use super::ViewInstance;
use crate::monotasks::{Clock, task_profile};
use crate::worker::activity::{Activity, ActivityCounts, Filled};
use crate::worker::flow::{FlowMeter, FlowStatus};

/// Monotasks that are listed of what is watched: the last ones.
const MONOTASKS_MAX: usize = 8_192;

/// A stage of a view.
pub(crate) type StageOf = (RelationId, usize);

/// A task of an epoch that has ended, or is about to.
pub(in crate::worker) struct EpochTask {
    pub id: TaskId,
    pub worker: WorkerId,
    pub record: Arc<TaskRecord>,
    /// Its processor time, in nanoseconds, as the epoch counts it.
    pub busy_ns: u64,
    /// When its work was done. Its last poll goes on: it tells the schedulers, which is coordination and no work of the task.
    pub ended: Instant,
    pub rows: u64,
    pub bytes: u64,
}

impl EpochTask {
    /// As the time model has it. Waits for the end of its last poll.
    fn profile(&self, clock: Clock) -> TaskProfile {
        let mut profile = TaskProfile {
            worker: self.worker.0,
            partition: self.id.partition,
            epoch: Some(self.id.epoch),
            rows: self.rows,
            bytes: self.bytes,
            ..task_profile(&self.record, Duration::ZERO, clock)
        };
        let spent: Nanoseconds = profile.cpu();
        let ended = clock.at(self.ended);
        profile.end = ended.max(profile.start);
        let mut computed = 0;
        for monotask in &mut profile.monotasks {
            if monotask.resource == Resource::Cpu {
                let left = ended
                    .saturating_sub(monotask.started_at)
                    .min(self.busy_ns - computed);
                monotask.service = monotask.service.min(left);
                computed += monotask.service;
            }
        }
        if profile.monotasks.is_empty() {
            computed = spent.min(self.busy_ns);
        }
        let computes = profile.usage.iter_mut();
        for usage in computes.filter(|usage| usage.kind == Kind::Compute) {
            // A gate is told of what queries emit only.
            (usage.service, usage.rows, usage.bytes) = (computed, self.rows, self.bytes);
        }
        profile
    }

    fn monotasks(&self) -> usize {
        self.record.stretches().len() + self.record.disk_uses().len() + self.record.network_uses().len()
    }
}

/// What somebody watches: the tasks of some views, and what they did since it began.
pub(crate) struct Watch {
    clock: Clock,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    tasks: VecDeque<EpochTask>,
    monotasks: usize,
    /// Of the tasks before these, one for each stage.
    before: BTreeMap<StageOf, TaskProfile>,
    busy_ns: BTreeMap<u64, u64>,
}

/// What was seen.
pub(crate) struct Seen {
    pub tasks: BTreeMap<StageOf, Vec<TaskProfile>>,
    pub records: Vec<Arc<TaskRecord>>,
    /// By epoch, the time of its tasks that were seen.
    pub busy_ns: BTreeMap<u64, u64>,
}

impl Watch {
    pub fn new() -> Arc<Watch> {
        Arc::new(Watch {
            clock: Clock(Instant::now()),
            kept: Mutex::default(),
        })
    }

    /// The clock of what is seen.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    fn note(&self, task: EpochTask) {
        let mut kept = self.kept.lock();
        *kept.busy_ns.entry(task.id.epoch).or_default() += task.busy_ns;
        kept.monotasks += task.monotasks();
        kept.tasks.push_back(task);
        while kept.monotasks > MONOTASKS_MAX && kept.tasks.len() > 1 {
            let Some(oldest) = kept.tasks.pop_front() else {
                return;
            };
            kept.monotasks -= oldest.monotasks().min(kept.monotasks);
            let profile = oldest.profile(self.clock);
            let stage = (oldest.id.view, oldest.id.stage);
            match kept.before.get_mut(&stage) {
                Some(sums) => add(sums, &profile),
                None => {
                    let sums = TaskProfile {
                        epoch: None,
                        monotasks: vec![],
                        ..profile
                    };
                    kept.before.insert(stage, sums);
                }
            }
            // What was forgotten of an epoch is not all of it any more.
            kept.busy_ns.remove(&oldest.id.epoch);
        }
    }

    /// What was seen so far.
    pub fn seen(&self) -> Seen {
        let kept = self.kept.lock();
        let mut tasks: BTreeMap<StageOf, Vec<TaskProfile>> = BTreeMap::new();
        for (stage, sums) in &kept.before {
            tasks.entry(*stage).or_default().push(sums.clone());
        }
        for task in &kept.tasks {
            let of_stage = tasks.entry((task.id.view, task.id.stage)).or_default();
            of_stage.push(task.profile(self.clock));
        }
        Seen {
            tasks,
            records: kept.tasks.iter().map(|task| Arc::clone(&task.record)).collect(),
            busy_ns: kept.busy_ns.clone(),
        }
    }
}

/// Adds a task to others of its stage.
fn add(sums: &mut TaskProfile, task: &TaskProfile) {
    sums.start = sums.start.min(task.start);
    sums.end = sums.end.max(task.end);
    sums.suspended += task.suspended;
    sums.pauses += task.pauses;
    sums.rows += task.rows;
    sums.bytes += task.bytes;
    let blocked: [fn(&mut Blocked) -> &mut Nanoseconds; 4] = [
        |blocked| &mut blocked.disk,
        |blocked| &mut blocked.network,
        |blocked| &mut blocked.input,
        |blocked| &mut blocked.output,
    ];
    let mut others = task.blocked;
    for of in blocked {
        *of(&mut sums.blocked) += *of(&mut others);
    }
    for usage in &task.usage {
        let is_same = |known: &&mut Usage| (known.resource, known.kind) == (usage.resource, usage.kind);
        match sums.usage.iter_mut().find(is_same) {
            Some(known) => known.add(usage),
            None => sums.usage.push(usage.clone()),
        }
    }
}

/// Those who watch a view.
#[derive(Default)]
pub(super) struct Watchers {
    count: AtomicUsize,
    watches: Mutex<Vec<Weak<Watch>>>,
}

impl ViewInstance {
    /// What a stage's tasks have learned of combining rows.
    pub fn combiner(&self, stage: usize) -> Arc<Combiner> {
        Arc::clone(&self.combiners[stage])
    }

    /// What a stage's tasks emitted in batches.
    pub fn flow(&self, stage: usize) -> &FlowMeter {
        &self.flows[stage]
    }

    /// Of the stages with a faucet, what went on in batches.
    pub fn flow_statuses(&self) -> Vec<FlowStatus> {
        let stages = self.graph.stages.iter().zip(&self.flows);
        let flows = stages.filter_map(|(stage, meter)| {
            Some(FlowStatus {
                stage: stage.id,
                reason: stage.faucet.as_ref()?.reason.to_string(),
                limits: self.graph.flow,
                counts: meter.counts(),
            })
        });
        flows.collect()
    }

    /// For each stage that combined rows or passed them on, how many.
    pub fn combiner_counts(&self) -> Vec<(usize, CombinerCounts)> {
        let counts = self.combiners.iter().map(|combiner| combiner.counts());
        let stages = counts.enumerate();
        stages
            .filter(|(_, counts)| counts.combined + counts.passed > 0)
            .collect()
    }

    pub fn set_combining(&self, is_on: bool) {
        self.combiners.iter().for_each(|combiner| combiner.set(is_on));
    }

    /// The counters of a stage's tasks on a partition.
    pub fn activity(&self, stage: usize, partition: usize) -> &Activity {
        &self.activity[stage][partition]
    }

    /// The stage of the task that has been running for the longest now, and since when.
    pub fn longest_task(&self) -> Option<(usize, Instant)> {
        let stages = self.activity.iter().enumerate();
        let running = stages.flat_map(|(stage, partitions)| {
            let since = partitions.iter().filter_map(Activity::running_since);
            since.map(move |since| (stage, since))
        });
        running.min_by_key(|(_, since)| *since)
    }

    /// For each stage, for each partition, what its tasks have done.
    pub fn activity_counts(&self) -> Vec<Vec<ActivityCounts>> {
        let stages = self.activity.iter();
        stages
            .map(|partitions| partitions.iter().map(Activity::counts).collect())
            .collect()
    }

    /// Its back-fill has ended, having taken so long.
    pub fn is_filled(&self, elapsed: Option<Duration>) {
        let activity = self.activity_counts();
        let activity = activity.iter().map(ActivityCounts::sum).collect();
        // A view is filled once.
        let _ = self.filled.set(Filled { elapsed, activity });
    }

    /// What it took to fill it, if that has ended.
    pub fn filled(&self) -> Option<&Filled> {
        self.filled.get()
    }

    /// From now on what its tasks do is noted, as long as somebody has the watch.
    pub(crate) fn watch(&self, watch: &Arc<Watch>) {
        let mut watches = self.watchers.watches.lock();
        watches.push(Arc::downgrade(watch));
        self.watchers.count.store(watches.len(), Ordering::Relaxed);
    }

    /// Whether somebody watches.
    pub(in crate::worker) fn is_watched(&self) -> bool {
        self.watchers.count.load(Ordering::Relaxed) > 0
    }

    /// A task of it has ended well.
    pub(in crate::worker) fn note_for_watchers(&self, task: impl Fn() -> EpochTask) {
        if !self.is_watched() {
            return;
        }
        let mut watches = self.watchers.watches.lock();
        watches.retain(|watch| match watch.upgrade() {
            Some(watch) => {
                watch.note(task());
                true
            }
            None => false,
        });
        self.watchers.count.store(watches.len(), Ordering::Relaxed);
    }
}
