//! How evenly a stage's tasks took their time, and why some took longer (Ousterhout 2017, section 4.7).

use serde::{Deserialize, Serialize};

use super::profile::{Nanoseconds, Resource, StageProfile, TaskProfile};

/// A task that computes less than this share of the mean has next to nothing to do: it says nothing of the others.
const IDLE_SHARE: f64 = 0.01;

/// A task this many times as long as the median is a straggler.
const STRAGGLER_FACTOR: f64 = 1.5;

/// Tasks of a stage side by side. Times without waiting for other stages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Skew {
    pub median: Nanoseconds,
    pub largest: Nanoseconds,
    /// Tasks with next to nothing to do, which the median leaves out.
    #[serde(default)]
    pub idle: usize,
    pub stragglers: Vec<Straggler>,
}

/// A task that took much longer than the others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Straggler {
    pub partition: usize,
    /// How many times the median.
    pub factor: f64,
    pub cause: Cause,
}

/// What most of the extra time of a straggler was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// It computed longer, and had as much more to compute on.
    MoreRows,
    /// It computed longer on no more rows.
    SlowerCompute,
    Disk,
    Network,
    /// It was paused for more urgent work.
    Suspended,
    /// It waited for a core.
    CpuQueue,
    /// Its reader did not take its rows.
    Output,
}

impl Cause {
    /// As the end of a sentence: `partition 3 took 2.1 times the median: more rows`.
    pub fn text(self) -> &'static str {
        match self {
            Cause::MoreRows => "more rows",
            Cause::SlowerCompute => "slower on as many rows",
            Cause::Disk => "waited for the disk",
            Cause::Network => "waited for the network",
            Cause::Suspended => "was suspended",
            Cause::CpuQueue => "waited for a core",
            Cause::Output => "waited for the receiver of its rows",
        }
    }
}

/// `None`: the stage had no task.
pub fn skew(stage: &StageProfile) -> Option<Skew> {
    let tasks = working(stage);
    let median_time = median(&tasks, length)?;
    let largest = stage.tasks.iter().map(length).max()?;
    let mut stragglers: Vec<Straggler> = tasks
        .iter()
        .filter(|task| tasks.len() > 1 && length(task) as f64 > median_time as f64 * STRAGGLER_FACTOR)
        .map(|task| Straggler {
            partition: task.partition,
            factor: length(task) as f64 / median_time.max(1) as f64,
            cause: cause(&tasks, task),
        })
        .collect();
    stragglers.sort_by(|left, right| right.factor.total_cmp(&left.factor));
    Some(Skew {
        median: median_time,
        largest,
        idle: stage.tasks.len() - tasks.len(),
        stragglers,
    })
}

/// The tasks that have something to do.
fn working(stage: &StageProfile) -> Vec<&TaskProfile> {
    let cpu: Nanoseconds = stage.tasks.iter().map(TaskProfile::cpu).sum();
    let least = cpu as f64 / stage.tasks.len().max(1) as f64 * IDLE_SHARE;
    let tasks = stage.tasks.iter();
    tasks.filter(|task| task.cpu() as f64 >= least).collect()
}

fn length(task: &TaskProfile) -> Nanoseconds {
    task.end
        .saturating_sub(task.start)
        .saturating_sub(task.blocked.input)
}

/// The lower one of two in the middle: with two tasks of which one is slow, the other is what is usual.
fn median(tasks: &[&TaskProfile], of: impl Fn(&TaskProfile) -> Nanoseconds) -> Option<Nanoseconds> {
    let mut values: Vec<Nanoseconds> = tasks.iter().map(|task| of(task)).collect();
    values.sort_unstable();
    values.get(values.len().checked_sub(1)? / 2).copied()
}

fn cause(tasks: &[&TaskProfile], task: &TaskProfile) -> Cause {
    let extra = |of: fn(&TaskProfile) -> Nanoseconds| of(task).saturating_sub(median(tasks, of).unwrap_or(0));
    let computes = if extra(TaskProfile::cpu) as f64 > extra_by_rows(tasks, task) * 2.0 {
        Cause::SlowerCompute
    } else {
        Cause::MoreRows
    };
    [
        (extra(TaskProfile::cpu), computes),
        (extra(|task| task.blocked.disk), Cause::Disk),
        (extra(|task| task.blocked.network), Cause::Network),
        (extra(|task| task.suspended), Cause::Suspended),
        (extra(cpu_queue), Cause::CpuQueue),
        (extra(|task| task.blocked.output), Cause::Output),
    ]
    .into_iter()
    // The first of equals: what it did itself.
    .rev()
    .max_by_key(|(time, _)| *time)
    .map_or(computes, |(_, cause)| cause)
}

fn cpu_queue(task: &TaskProfile) -> Nanoseconds {
    task.usage
        .iter()
        .filter(|usage| usage.resource == Resource::Cpu)
        .map(|usage| usage.queue)
        .sum()
}

/// The cpu time beyond the median's that its rows account for, if each costs what it costs in the median task.
fn extra_by_rows(tasks: &[&TaskProfile], task: &TaskProfile) -> f64 {
    let usual_rows = median(tasks, rows).unwrap_or(0).max(1) as f64;
    let usual_cpu = median(tasks, TaskProfile::cpu).unwrap_or(0) as f64;
    (rows(task) as f64 / usual_rows - 1.0).max(0.0) * usual_cpu
}

/// Rows that a task went through: those of its monotasks, or where none counts rows those that it emitted.
fn rows(task: &TaskProfile) -> u64 {
    let most = task.usage.iter().map(|usage| usage.rows).max().unwrap_or(0);
    most.max(task.rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{MS, compute, stage, task};

    /// Three tasks of 10 ms on 1,000 rows, and a fourth.
    fn with(change: impl Fn(&mut TaskProfile)) -> Skew {
        let mut tasks: Vec<TaskProfile> = (0..4)
            .map(|partition| {
                let mut task = task(partition, 0, 10 * MS, vec![compute(9 * MS)]);
                task.rows = 1_000;
                task
            })
            .collect();
        change(&mut tasks[3]);
        skew(&stage(0, &[], tasks)).unwrap()
    }

    fn only_cause(change: impl Fn(&mut TaskProfile)) -> Cause {
        let found = with(change);
        assert_eq!(found.stragglers.len(), 1);
        assert_eq!(found.stragglers[0].partition, 3);
        found.stragglers[0].cause
    }

    #[test]
    fn even_tasks_have_no_stragglers() {
        let even = with(|task| task.end = 14 * MS);
        assert_eq!(
            (even.median, even.largest, even.stragglers),
            (10 * MS, 14 * MS, vec![])
        );
    }

    #[test]
    fn each_cause_is_found() {
        assert_eq!(
            only_cause(|task| {
                task.end = 30 * MS;
                task.usage = vec![compute(28 * MS)];
                task.rows = 3_000;
            }),
            Cause::MoreRows
        );
        assert_eq!(
            only_cause(|task| {
                task.end = 30 * MS;
                task.usage = vec![compute(28 * MS)];
            }),
            Cause::SlowerCompute
        );
        assert_eq!(
            only_cause(|task| {
                task.end = 30 * MS;
                task.blocked.disk = 18 * MS;
            }),
            Cause::Disk
        );
        assert_eq!(
            only_cause(|task| {
                task.end = 30 * MS;
                task.blocked.network = 18 * MS;
            }),
            Cause::Network
        );
        assert_eq!(
            only_cause(|task| {
                task.end = 30 * MS;
                task.suspended = 18 * MS;
            }),
            Cause::Suspended
        );
        assert_eq!(
            only_cause(|task| {
                task.end = 30 * MS;
                task.usage[0].queue = 18 * MS;
            }),
            Cause::CpuQueue
        );
        assert_eq!(
            only_cause(|task| {
                task.end = 30 * MS;
                task.blocked.output = 18 * MS;
            }),
            Cause::Output
        );
    }

    #[test]
    fn waiting_for_another_stage_makes_no_straggler() {
        let found = with(|task| {
            task.end = 30 * MS;
            task.blocked.input = 20 * MS;
        });
        assert!(found.stragglers.is_empty());
    }

    #[test]
    fn a_task_alone_is_no_straggler() {
        let alone = stage(0, &[], vec![task(0, 0, 10 * MS, vec![])]);
        assert_eq!(skew(&alone).unwrap().stragglers, vec![]);
        assert_eq!(skew(&stage(0, &[], vec![])), None);
    }
}
