//! The epochs of a running view, each of which is a run: the model is asked of them as of queries, and the means are told.
//!
//! An epoch counts whose tasks were all seen: their times come to what its pipeline has counted.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::analysis::{UsageAnalysis, usages};
use super::model::{Model, model};
use super::profile::{Nanoseconds, Profile, StageProfile, TaskProfile};
use super::scenario::Scenario;
use super::what_if::{Prediction, what_ifs};

/// Epochs that are asked of the model: the last ones.
const EPOCHS_MAX: usize = 256;

/// One epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpochSample {
    #[serde(default)]
    pub epoch: u64,
    /// Rows of its inputs.
    pub rows: u64,
    /// Time of its tasks.
    pub busy: Nanoseconds,
    /// Time for which the oldest of its input waited to be cut, whatever for, and from its cut to its end.
    pub waited: Nanoseconds,
    pub elapsed: Nanoseconds,
}

impl EpochSample {
    /// From the arrival of the oldest of its input to its end.
    pub fn freshness(&self) -> Nanoseconds {
        self.waited + self.elapsed
    }
}

/// What the schedulers saw of a view's pipeline while it was watched.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trace {
    /// All of it as one run, from the beginning of watching to its end: the view's stages, those of the other views of its pipeline, and
    /// the log. Monotasks are listed of the last tasks, if there were very many; the tasks before them are added up to one for each stage.
    pub run: Profile,
    /// By epoch, the time of those of its tasks that were seen.
    pub busy: Vec<(u64, Nanoseconds)>,
}

/// What is said of it. Times in nanoseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EpochsAnalysis {
    /// Epochs with rows that were seen whole.
    pub epochs: u64,
    /// Measured, from the cut of an epoch to its end; the mean.
    pub elapsed: Nanoseconds,
    /// That of a perfect schedule; the mean.
    pub modelled: Model,
    /// What an epoch would take with something changed; the mean.
    pub what_ifs: Vec<Prediction>,
    /// Over all stages, each resource once.
    pub resources: Vec<UsageAnalysis>,
    /// For each stage of the trace, each resource and kind once.
    pub stages: Vec<Vec<UsageAnalysis>>,
}

/// Analyses what was seen of these epochs; `asked` is the user's what-if.
pub fn analyse_epochs(trace: &Trace, samples: &[EpochSample], asked: Option<Scenario>) -> EpochsAnalysis {
    let runs = runs(trace, samples);
    let models: Vec<Model> = runs.iter().map(|run| model(run, &Scenario::default())).collect();
    let elapsed: Nanoseconds = runs.iter().map(|run| run.end).sum();
    let run = &trace.run;
    let all: Vec<&StageProfile> = run.stages.iter().collect();
    let stages = all.iter().map(|stage| usages(run, &[stage], run.end, Some));
    EpochsAnalysis {
        epochs: runs.len() as u64,
        elapsed: elapsed / runs.len().max(1) as Nanoseconds,
        modelled: Model::mean(&models),
        what_ifs: what_ifs(&runs, asked),
        resources: usages(run, &all, run.end, |_| None),
        stages: stages.collect(),
    }
}

/// The last epochs that were seen whole, each as a run.
fn runs(trace: &Trace, samples: &[EpochSample]) -> Vec<Profile> {
    let busy: BTreeMap<u64, Nanoseconds> = trace.busy.iter().copied().collect();
    let is_whole = |sample: &&EpochSample| busy.get(&sample.epoch) == Some(&sample.busy);
    let whole: Vec<&EpochSample> = samples.iter().filter(is_whole).collect();
    let mut tasks: BTreeMap<u64, BTreeMap<usize, Vec<&TaskProfile>>> = BTreeMap::new();
    for (position, stage) in trace.run.stages.iter().enumerate() {
        for task in &stage.tasks {
            if let Some(epoch) = task.epoch {
                let of_epoch = tasks.entry(epoch).or_default();
                of_epoch.entry(position).or_default().push(task);
            }
        }
    }
    let last = whole.iter().rev().take(EPOCHS_MAX).rev();
    last.filter_map(|sample| Some(run_of(&trace.run, sample, tasks.get(&sample.epoch)?)))
        .collect()
}

/// One epoch, on a clock that begins with it.
fn run_of(all: &Profile, sample: &EpochSample, tasks: &BTreeMap<usize, Vec<&TaskProfile>>) -> Profile {
    let listed = || tasks.values().flatten();
    let queued = listed().filter_map(|task| task.monotasks.first().map(|first| first.queued_at));
    let starts = listed().map(|task| task.start).chain(queued);
    let begin = starts.min().unwrap_or(0);
    let last = listed().map(|task| task.end).max().unwrap_or(begin);
    let stages = tasks.iter().map(|(position, tasks)| {
        let stage = &all.stages[*position];
        StageProfile {
            id: stage.id,
            name: stage.name.clone(),
            depends_on: stage.depends_on.clone(),
            parallelism: stage.parallelism,
            operators: vec![],
            tasks: tasks.iter().map(|task| task.since(begin)).collect(),
        }
    });
    Profile {
        planning: 0,
        end: sample.elapsed.max(last.saturating_sub(begin)),
        machine: all.machine.clone(),
        stages: stages.collect(),
    }
}

impl TaskProfile {
    /// The same on a clock that begins at an instant of this one.
    fn since(&self, begin: Nanoseconds) -> TaskProfile {
        let mut task = self.clone();
        let shift = |instant: &mut Nanoseconds| *instant = instant.saturating_sub(begin);
        shift(&mut task.start);
        shift(&mut task.end);
        for monotask in &mut task.monotasks {
            shift(&mut monotask.queued_at);
            shift(&mut monotask.started_at);
        }
        task
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{MS, compute, disk, machine, profile, stage, task, usage};
    use crate::profile::{Kind, MemoryUse, Resource};
    use crate::scenario::Speed;

    /// Two stages on two partitions: 3 ms of cores, 2 ms of the disk for what was spilled; an epoch each 10 ms.
    fn trace(epochs: u64) -> (Trace, Vec<EpochSample>) {
        let (mut maps, mut reduces, mut samples) = (vec![], vec![], vec![]);
        for epoch in 0..epochs {
            let at = (10 + epoch * 10) * MS;
            let mut map = task(0, at, at + MS, vec![compute(MS)]);
            map.epoch = Some(epoch);
            maps.push(map);
            for partition in 0..2 {
                let spilled = usage(Resource::Disk(0), Kind::Reread, MS, 100_000);
                let mut reduce = task(partition, at + MS, at + 3 * MS, vec![compute(MS), spilled]);
                reduce.epoch = Some(epoch);
                reduces.push(reduce);
            }
            samples.push(EpochSample {
                epoch,
                rows: 10,
                busy: 5 * MS,
                waited: 0,
                elapsed: 4 * MS,
            });
        }
        let mut run = profile(
            machine(2, vec![disk(100e6)]),
            (10 + epochs * 10) * MS,
            vec![stage(0, &[], maps), stage(1, &[0], reduces)],
        );
        run.stages
            .iter_mut()
            .for_each(|stage| stage.parallelism = crate::profile::Parallelism::Fixed);
        run.machine.memory = Some(MemoryUse {
            held: 1_000,
            spilled: 500,
        });
        let busy = (0..epochs).map(|epoch| (epoch, 5 * MS)).collect();
        (Trace { run, busy }, samples)
    }

    #[test]
    fn an_epoch_is_a_run() {
        let (trace, samples) = trace(4);
        let found = analyse_epochs(&trace, &samples, None);
        assert_eq!((found.epochs, found.elapsed), (4, 4 * MS));
        // A millisecond of the map alone, then two of the disk.
        assert_eq!(found.modelled.total, 3.0 * MS as f64);
        let line = |text: &str| {
            let found = found.what_ifs.iter();
            let mut lines = found.filter(|line| line.scenario.to_string() == text);
            lines.next().unwrap_or_else(|| panic!("{text}")).elapsed
        };
        assert!(line("disk = x2") < 4 * MS);
        assert_eq!(line("memory = 1.50 kB"), line("disk = infinite"));
        assert!(line("cores = 1") >= 4 * MS);
        let cpu: Vec<Nanoseconds> = found.stages.iter().map(|usages| usages[0].service).collect();
        assert_eq!(cpu, [4 * MS, 8 * MS]);
        assert_eq!(found.resources[0].service, 12 * MS);
        assert_eq!(found.resources[1].service, 8 * MS);
    }

    #[test]
    fn an_epoch_that_was_not_seen_whole_does_not_count() {
        let (mut trace, samples) = trace(3);
        trace.busy[0].1 -= 1;
        trace.busy.remove(2);
        let asked = Scenario {
            disk: Speed::Infinite,
            ..Scenario::default()
        };
        let found = analyse_epochs(&trace, &samples, Some(asked));
        assert_eq!(found.epochs, 1);
        assert_eq!(found.what_ifs[0].scenario, asked);
        // What was used counts all the same.
        assert_eq!(found.resources[0].service, 9 * MS);
        trace.busy.clear();
        let found = analyse_epochs(&trace, &samples, Some(asked));
        assert_eq!((found.epochs, found.elapsed), (0, 0));
    }
}
