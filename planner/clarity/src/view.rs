//! A running view over a while: how busy it keeps the machine, how fresh it is, and what rate it could sustain.
//!
//! ```text
//! time of an epoch's tasks = fixed part + cost of a row x rows       fitted over the epochs; fixed part 0 if they are too alike
//! cost of taking a row in  = processor time outside of tasks / rows  protocols, encoding, the log
//! highest rate by cpu      = cores / (both costs of a row)           as load grows, epochs grow, and the fixed part vanishes
//! highest rate by one task = the same for the busiest partition, whose epochs run one after the other
//! highest rate by a device = rate now / the share of the time that its monotasks take in a perfect schedule
//! ```
//!
//! The rate that can be sustained is the smallest of these, with the machine to itself and rows like those seen; and not less than the
//! rate that it did sustain while it was watched.

use serde::{Deserialize, Serialize};

use super::epochs::{EpochSample, EpochsAnalysis, Trace, analyse_epochs};
use super::model::{Ideal, Limit, stages_ideal};
use super::profile::{Kind, Nanoseconds, StageProfile, is_zero};
use super::scenario::Scenario;
use super::task_counts::TaskCounts;
use super::units::count;

/// Fewer epochs than this tell nothing of what is fixed and what a row costs.
const EPOCHS_FITTED_MIN: usize = 16;
/// Nor do epochs whose rows vary less than this, as standard deviation to mean.
const SPREAD_FITTED_MIN: f64 = 0.2;

/// What was counted while a view was watched. Times in nanoseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ViewProfile {
    pub view: String,
    /// How long it was watched.
    pub watched: Nanoseconds,
    pub cores: usize,
    /// Epochs committed, with and without rows.
    pub epochs: u64,
    /// Epochs that the driver schedules at once, now.
    pub group_size: u64,
    pub coordination: Coordination,
    /// The epochs with rows, of its whole pipeline; the last of them if there were very many.
    pub samples: Vec<EpochSample>,
    /// Of the committed epochs those before the samples of which nothing is remembered any more.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub forgotten: u64,
    pub stages: Vec<ViewStage>,
    /// Time of the tasks of all views of its pipeline.
    pub pipeline_busy: Nanoseconds,
    /// Processor time of the process outside of tasks: taking rows in, the log, the protocols.
    #[serde(default)]
    pub outside: Nanoseconds,
    /// Time for which the machine's host gave each processor to others, on average.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub stolen: Nanoseconds,
    /// Rows that it holds, and bytes of these and its operators' state.
    pub rows: u64,
    pub state_bytes: u64,
    /// Bytes of its state that are on disk because memory is short, which are not in `state_bytes`.
    #[serde(default)]
    pub on_disk_bytes: u64,
    /// Bytes of rows on their way: written, and between its tasks. They are not in `state_bytes` either.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub in_flight_bytes: u64,
    /// How old what readers see may be; `None`: it is to be as fresh as can be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub freshness_target: Option<Nanoseconds>,
    /// `None`: the log was not written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<LogUse>,
    /// What the schedulers saw meanwhile. `None`: it was not looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<Trace>,
}

/// What writing the log took, of all streams and tables.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogUse {
    /// The device.
    pub disk: String,
    /// Writes that were synced together, each group a monotask.
    pub groups: u64,
    pub bytes: u64,
    /// From the first write's arrival to its group's beginning.
    pub queue: Nanoseconds,
    pub service: Nanoseconds,
}

/// What groups of epochs cost beside their tasks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coordination {
    /// The driver's own time.
    pub scheduling: Nanoseconds,
    /// Time in which input waited for the next group.
    pub waited: Nanoseconds,
    /// Time of the epochs, each from its cut to its end.
    pub execution: Nanoseconds,
}

/// A stage of the view.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ViewStage {
    pub id: usize,
    pub name: String,
    pub partitions: Vec<TaskCounts>,
}

/// What follows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ViewAnalysis {
    /// A second, of the pipeline's inputs.
    pub rows_per_second: f64,
    pub epochs_per_second: f64,
    /// The driver's share of the time, and that of waiting for it.
    pub coordination_share: f64,
    /// From input waiting for its epoch to the end of it; `None`: no epoch had rows.
    pub freshness: Option<Freshness>,
    /// The share of the epochs with rows that kept its target. `None`: it has none, or no epoch had rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub freshness_met: Option<f64>,
    /// Shares of all cores that the view's tasks and its pipeline's took.
    pub view_cpu: f64,
    pub pipeline_cpu: f64,
    /// The same of what is no task: taking rows in, the log, the protocols.
    #[serde(default)]
    pub outside_cpu: f64,
    pub stages: Vec<ViewStageAnalysis>,
    /// `None`: no rows came.
    pub head_room: Option<HeadRoom>,
    /// With something changed.
    pub what_if: Option<(Scenario, HeadRoom)>,
    /// What the model says of its epochs. `None`: they were not traced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epochs: Option<EpochsAnalysis>,
    /// One line in plain words.
    pub verdict: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Freshness {
    pub p50: Nanoseconds,
    pub p99: Nanoseconds,
}

/// A stage's partitions added up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ViewStageAnalysis {
    pub id: usize,
    pub sums: TaskCounts,
    /// Share of all cores.
    pub cpu: f64,
    /// The busiest partition, and the share of the time in which it ran.
    pub busiest: usize,
    pub busiest_share: f64,
}

/// What the view could take.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct HeadRoom {
    /// The highest rate that it can sustain, in rows of its pipeline's inputs a second.
    pub rows_per_second: f64,
    /// What is the limit then.
    pub limit: Limit,
    /// Whether the fixed part of an epoch could be told from the cost of its rows. If not, the rate is at least this.
    pub is_fitted: bool,
}

/// Analyses what was counted.
pub fn analyse_view(profile: &ViewProfile, asked: Option<Scenario>) -> ViewAnalysis {
    let all_cores = profile.cores.max(1) as f64 * profile.watched.max(1) as f64;
    let stages: Vec<ViewStageAnalysis> = profile
        .stages
        .iter()
        .map(|stage| analyse_stage(stage, profile.watched, all_cores))
        .collect();
    let view_busy: Nanoseconds = stages.iter().map(|stage| stage.sums.busy).sum();
    let Coordination {
        scheduling,
        waited,
        execution,
    } = profile.coordination;
    let coordination = (scheduling + waited) as f64;
    let total = coordination + execution as f64;
    let rows_per_second = rows_per_second(profile);
    let head_room = head_room(profile, &stages, &Scenario::default()).map(|found| HeadRoom {
        // What it did it can do, whatever the model makes of epochs that began before it was watched.
        rows_per_second: found.rows_per_second.max(rows_per_second),
        ..found
    });
    let epochs = profile.trace.as_ref();
    let epochs = epochs.map(|trace| analyse_epochs(trace, &profile.samples, asked));
    let mut analysis = ViewAnalysis {
        rows_per_second,
        epochs_per_second: profile.epochs as f64 / seconds(profile),
        coordination_share: if total > 0.0 { coordination / total } else { 0.0 },
        freshness: freshness(&profile.samples),
        freshness_met: (profile.freshness_target).and_then(|target| met(&profile.samples, target)),
        view_cpu: view_busy as f64 / all_cores,
        pipeline_cpu: profile.pipeline_busy as f64 / all_cores,
        outside_cpu: profile.outside as f64 / all_cores,
        what_if: asked.and_then(|scenario| Some((scenario, self::head_room(profile, &stages, &scenario)?))),
        stages,
        head_room,
        epochs,
        verdict: String::new(),
    };
    analysis.verdict = verdict(profile, &analysis);
    analysis
}

/// For how long it was watched.
fn seconds(profile: &ViewProfile) -> f64 {
    (profile.watched as f64 / 1e9).max(1e-9)
}

/// Rows of its pipeline's inputs that were committed a second. Epochs that are forgotten had as many as those that are not.
fn rows_per_second(profile: &ViewProfile) -> f64 {
    let rows: u64 = profile.samples.iter().map(|sample| sample.rows).sum();
    let remembered = profile.epochs.saturating_sub(profile.forgotten).max(1);
    rows as f64 / seconds(profile) * (profile.epochs as f64 / remembered as f64).max(1.0)
}

/// One line on a running view, such as `it keeps up with 2,400 rows/s; up to 20,000 (8.3 times) before the cores are the limit`.
fn verdict(profile: &ViewProfile, analysis: &ViewAnalysis) -> String {
    let Some(head_room) = &analysis.head_room else {
        return match profile.in_flight_bytes {
            0 => "no rows arrived while the view was watched".to_owned(),
            _ => "no epoch with rows ended while the view was watched, and rows are on their way".to_owned(),
        };
    };
    let now = analysis.rows_per_second;
    let rate = |value: f64| count(value.round() as u64);
    let what = match head_room.limit {
        Limit::OneTask => "one partition is the limit",
        Limit::Cpu => "the cores are the limit",
        Limit::Disk => "the disk is the limit",
        Limit::Network => "the network is the limit",
    };
    if head_room.rows_per_second <= now {
        return format!(
            "at {} rows/s {what}: at most {} can be sustained",
            rate(now),
            rate(head_room.rows_per_second)
        );
    }
    format!(
        "it keeps up with {} rows/s; {} {} ({:.1} times) before {what}",
        rate(now),
        if head_room.is_fitted { "up to" } else { "at least" },
        rate(head_room.rows_per_second),
        head_room.rows_per_second / now.max(1e-9)
    )
}

fn analyse_stage(stage: &ViewStage, watched: Nanoseconds, all_cores: f64) -> ViewStageAnalysis {
    let sums: TaskCounts = stage.partitions.iter().copied().sum();
    let mut busiest = (0, 0);
    for (position, partition) in stage.partitions.iter().enumerate() {
        if partition.busy > busiest.1 {
            busiest = (position, partition.busy);
        }
    }
    ViewStageAnalysis {
        id: stage.id,
        sums,
        cpu: sums.busy as f64 / all_cores,
        busiest: busiest.0,
        busiest_share: busiest.1 as f64 / watched.max(1) as f64,
    }
}

/// The share of epochs whose input was not older at their end.
fn met(samples: &[EpochSample], target: Nanoseconds) -> Option<f64> {
    let within = samples.iter().filter(|sample| sample.freshness() <= target);
    (!samples.is_empty()).then(|| within.count() as f64 / samples.len() as f64)
}

fn freshness(samples: &[EpochSample]) -> Option<Freshness> {
    let mut times: Vec<Nanoseconds> = samples.iter().map(EpochSample::freshness).collect();
    times.sort_unstable();
    let at = |share: f64| {
        times
            .get(((times.len() as f64 * share).ceil() as usize).saturating_sub(1))
            .copied()
    };
    Some(Freshness {
        p50: at(0.5)?,
        p99: at(0.99)?,
    })
}

fn head_room(profile: &ViewProfile, stages: &[ViewStageAnalysis], asked: &Scenario) -> Option<HeadRoom> {
    let rows: u64 = profile.samples.iter().map(|sample| sample.rows).sum();
    let busy: Nanoseconds = profile.samples.iter().map(|sample| sample.busy).sum();
    if rows == 0 || busy == 0 || profile.watched == 0 {
        return None;
    }
    let average = busy as f64 / rows as f64;
    let fitted = cost_of_a_row(&profile.samples);
    let cost = fitted.unwrap_or(average);
    // Samples may be only the last of all epochs.
    let all_rows = rows as f64 * (profile.pipeline_busy as f64 / busy as f64).max(1.0);
    let outside = profile.outside as f64 / all_rows;
    let cores = asked.cores.unwrap_or(profile.cores).max(1);
    let by_cpu = cores as f64 / (cost + outside) * 1e9;
    let busiest = stages.iter().map(|stage| stage.busiest_share).fold(0.0, f64::max);
    let watched = profile.watched as f64;
    let rate = all_rows / (watched / 1e9);
    // At so many times the rate something has no time left.
    let by = |share: f64| if share > 0.0 { rate / share } else { f64::INFINITY };
    let ideal = device_times(profile, asked);
    let mut found = (Limit::Cpu, by_cpu);
    for (limit, highest) in [
        // Of the busiest partition's time, the part that grows with the rows.
        (Limit::OneTask, by(busiest * cost / average)),
        (Limit::Disk, by(ideal.disk / watched)),
        (Limit::Network, by(ideal.network / watched)),
    ] {
        if highest < found.1 {
            found = (limit, highest);
        }
    }
    Some(HeadRoom {
        rows_per_second: found.1,
        limit: found.0,
        is_fitted: fitted.is_some(),
    })
}

/// What a perfect schedule of its epochs' tasks needs of each device. The log is not in it: as more comes, its groups of writes grow
/// instead of becoming more.
fn device_times(profile: &ViewProfile, asked: &Scenario) -> Ideal {
    let Some(trace) = &profile.trace else {
        return Ideal::default();
    };
    let has = |stage: &StageProfile, kind: Kind| {
        let mut usages = stage.tasks.iter().flat_map(|task| &task.usage);
        usages.any(|usage| usage.kind == kind)
    };
    let stages = trace.run.stages.iter();
    let of_epochs: Vec<StageProfile> = stages.filter(|stage| !has(stage, Kind::Log)).cloned().collect();
    stages_ideal(&trace.run, &of_epochs, asked)
}

/// Nanoseconds of tasks for each further row: the slope of the line through the epochs, by least squares. `None`: the epochs
/// are too few or too alike, or the line makes no sense.
fn cost_of_a_row(samples: &[EpochSample]) -> Option<f64> {
    if samples.len() < EPOCHS_FITTED_MIN {
        return None;
    }
    let count = samples.len() as f64;
    let mean =
        |of: fn(&EpochSample) -> u64| samples.iter().map(|sample| of(sample) as f64).sum::<f64>() / count;
    let (rows_mean, busy_mean) = (mean(|sample| sample.rows), mean(|sample| sample.busy));
    let (mut spread, mut together) = (0.0, 0.0);
    for sample in samples {
        let rows = sample.rows as f64 - rows_mean;
        spread += rows * rows;
        together += rows * (sample.busy as f64 - busy_mean);
    }
    if (spread / count).sqrt() < rows_mean * SPREAD_FITTED_MIN {
        return None;
    }
    let slope = together / spread;
    // A line that starts below nothing would say that small epochs cost less than their rows.
    (slope > 0.0 && slope <= busy_mean / rows_mean).then_some(slope)
}

#[cfg(test)]
pub(super) mod tests;
