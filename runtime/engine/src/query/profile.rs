//! What the schedulers saw of a run, as the time model reads it.

use std::sync::Arc;
use std::time::Duration;

use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::metrics::MetricValue;
use datafusion::physical_plan::{ExecutionPlan, displayable};
use millrace_clarity::profile::{
    Kind, Machine, MemoryUse, OperatorProfile, Parallelism, Profile, StageProfile,
};
use millrace_resource::cpu::TaskRecord;
use millrace_resource::query_memory::QueryMemory;

use super::boundary::StageBoundary;
use super::partitions::{PARTITIONS_MAX, waves};
use super::run::{QueryRun, StageRecord};
use super::wrap::Wrapped;
use crate::monotasks::{Clock, machine_profile, nanoseconds, task_profile};

/// Characters of an operator's description that are kept.
const DESCRIPTION_CHARS_MAX: usize = 100;

/// A run whose profile is wanted.
pub struct ProfileHandle {
    run: Arc<QueryRun>,
    /// Whose memory pool is the query's.
    context: Arc<TaskContext>,
}

impl ProfileHandle {
    pub(super) fn new(run: &Arc<QueryRun>, context: &Arc<TaskContext>) -> Self {
        ProfileHandle {
            run: Arc::clone(run),
            context: Arc::clone(context),
        }
    }

    /// What it had of the memory.
    fn memory(&self, spilled: u64) -> Option<MemoryUse> {
        let memory = self.context.memory_pool().downcast_ref::<QueryMemory>()?;
        let held = memory.held_max() as u64;
        Some(MemoryUse { held, spilled })
    }

    /// What was seen so far: of the whole run, once its rows have ended. `planning`: the time before the run began.
    pub fn profile(&self, planning: Duration) -> Profile {
        let clock = Clock(self.run.started);
        let cores = self.run.machine().cores;
        let stages = self.run.with_stages(|stages| {
            let profiles = stages
                .iter()
                .enumerate()
                .map(|(id, stage)| stage_profile(id, stage, cores, clock));
            profiles.collect::<Vec<_>>()
        });
        let end = (stages.iter().flat_map(|stage| &stage.tasks))
            .map(|task| task.end)
            .max()
            .unwrap_or(0);
        let usages = stages
            .iter()
            .flat_map(|stage| &stage.tasks)
            .flat_map(|task| &task.usage);
        let spilled = usages
            .filter(|usage| usage.kind == Kind::Write)
            .map(|usage| usage.bytes)
            .sum();
        let machine = self.run.with_stages(|stages| {
            let records = stages.iter().flat_map(|stage| &stage.tasks);
            let records: Vec<&TaskRecord> = records.map(Arc::as_ref).collect();
            let workers = self.run.num_workers().max(1);
            machine_profile(self.run.machine(), workers, &records, self.memory(spilled), clock)
        });
        Profile {
            planning: nanoseconds(planning),
            end,
            machine: Machine {
                tasks_in_flight: self.run.tasks_in_flight(),
                ..machine
            },
            stages,
        }
    }
}

fn stage_profile(id: usize, stage: &StageRecord, cores: usize, clock: Clock) -> StageProfile {
    let (mut operators, mut depends_on) = (vec![], vec![]);
    walk(&stage.plan, 0, &mut operators, &mut depends_on);
    depends_on.sort_unstable();
    depends_on.dedup();
    let mut words: Vec<&str> = vec![];
    for operator in operators.iter().rev() {
        let word = operator.name.split(':').next().unwrap_or_default();
        if words.last() != Some(&word) {
            words.push(word);
        }
    }
    StageProfile {
        id,
        name: words.join(", "),
        depends_on,
        // Partitions follow the rows, beyond a number that grows with the cores and up to one that may.
        parallelism: match stage.tasks.len() == waves(cores) || stage.tasks.len() >= PARTITIONS_MAX {
            true => Parallelism::Cores,
            false => Parallelism::Fixed,
        },
        tasks: (stage.tasks.iter())
            .map(|record| {
                let partition = record.label().map_or(0, |label| label.partition);
                task_profile(record, decoding(&stage.plan, partition), clock)
            })
            .collect(),
        operators,
    }
}

/// The operators of a stage, from its top to its boundaries.
fn walk(
    plan: &Arc<dyn ExecutionPlan>,
    depth: usize,
    operators: &mut Vec<OperatorProfile>,
    depends_on: &mut Vec<usize>,
) {
    if plan.is::<Wrapped>() {
        for child in plan.children() {
            walk(child, depth, operators, depends_on);
        }
        return;
    }
    operators.push(operator_profile(plan.as_ref(), depth));
    if let Some(boundary) = plan.downcast_ref::<StageBoundary>() {
        depends_on.push(boundary.stage);
        return;
    }
    for child in plan.children() {
        walk(child, depth + 1, operators, depends_on);
    }
}

fn operator_profile(plan: &dyn ExecutionPlan, depth: usize) -> OperatorProfile {
    let described = displayable(plan).one_line().to_string();
    let described = described.trim();
    let mut name: String = described
        .replacen("Exec", "", 1)
        .chars()
        .take(DESCRIPTION_CHARS_MAX)
        .collect();
    if name.len() < described.len().saturating_sub("Exec".len()) {
        name.push_str(" ..");
    }
    let (mut rows, mut bytes, mut cpu) = (None, 0, 0);
    for metric in plan.metrics().iter().flat_map(|metrics| metrics.iter()) {
        match metric.value() {
            MetricValue::OutputRows(count) => *rows.get_or_insert(0) += count.value() as u64,
            MetricValue::OutputBytes(count) => bytes += count.value() as u64,
            MetricValue::ElapsedCompute(time) => cpu += time.value() as u64,
            _ => {}
        }
    }
    OperatorProfile {
        name,
        depth,
        rows,
        bytes,
        cpu,
    }
}

/// Time in which the files' form was turned into columns, of one partition.
fn decoding(plan: &Arc<dyn ExecutionPlan>, partition: usize) -> Duration {
    if plan.is::<StageBoundary>() {
        return Duration::ZERO;
    }
    if plan.is::<DataSourceExec>() {
        let metrics = plan.metrics().unwrap_or_default();
        let times = metrics
            .iter()
            .filter(|metric| metric.partition() == Some(partition));
        return times
            .filter_map(|metric| match metric.value() {
                MetricValue::Time { name, time } if name == "time_elapsed_processing" => {
                    Some(Duration::from_nanos(time.value() as u64))
                }
                _ => None,
            })
            .sum();
    }
    plan.children()
        .into_iter()
        .map(|child| decoding(child, partition))
        .sum()
}
