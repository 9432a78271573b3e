//! What the schedulers saw of a run, as the time model reads it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_plan::metrics::MetricValue;
use datafusion::physical_plan::{ExecutionPlan, displayable};
use millrace_clarity::profile::{
    Blocked, Device, Kind, Machine, Monotask, Nanoseconds, OperatorProfile, Parallelism, Profile, Resource,
    StageProfile, TaskProfile, Usage,
};
use millrace_resource::cpu::{TaskRecord, Waits};
use millrace_resource::monotask::{DiskUse, NetworkUse, Phase};
use millrace_resource::network::FETCHING_TASKS_MAX;

use super::boundary::StageBoundary;
use super::partitions::{PARTITIONS_MAX, waves};
use super::run::{QueryRun, StageRecord};
use super::wrap::Wrapped;

/// Characters of an operator's description that are kept.
const DESCRIPTION_CHARS_MAX: usize = 100;

/// A run whose profile is wanted.
pub struct ProfileHandle {
    run: Arc<QueryRun>,
}

impl ProfileHandle {
    pub(super) fn new(run: &Arc<QueryRun>) -> Self {
        ProfileHandle { run: Arc::clone(run) }
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
        let uses: Vec<DiskUse> = self.run.with_stages(|stages| {
            let records = stages.iter().flat_map(|stage| &stage.tasks);
            records.flat_map(|record| record.disk_uses()).collect()
        });
        let fetches: Vec<NetworkUse> = self.run.with_stages(|stages| {
            let records = stages.iter().flat_map(|stage| &stage.tasks);
            records.flat_map(|record| record.network_uses()).collect()
        });
        let workers = self.run.num_workers().max(1);
        Profile {
            planning: nanoseconds(planning),
            end,
            machine: Machine {
                cores: self.run.machine().cores * workers,
                disks: (self.run.machine().disks.all().iter().enumerate())
                    .map(|(place, disk)| Device {
                        name: disk.name().to_owned(),
                        concurrency: disk.concurrency(),
                        measured: disk.measured(),
                        bytes_per_second: disk.bytes_per_second(),
                        busy: {
                            let of_device = uses.iter().filter(|used| used.device == place);
                            busy(of_device.map(|used| (used.started, used.service)), clock)
                        },
                    })
                    .collect(),
                network: (self.run.machine().network.bytes_per_second()).map(|rate| Device {
                    name: "network".to_owned(),
                    concurrency: FETCHING_TASKS_MAX,
                    measured: vec![],
                    // Each worker has a link.
                    bytes_per_second: Some(rate * workers as f64),
                    busy: busy(fetches.iter().map(|used| (used.started, used.service)), clock),
                }),
                tasks_in_flight: self.run.tasks_in_flight(),
                // Whoever knows when planning began adds it.
                stolen: 0,
            },
            stages,
        }
    }
}

/// Instants as nanoseconds since the run began.
#[derive(Clone, Copy)]
struct Clock(Instant);

impl Clock {
    fn at(self, instant: Instant) -> Nanoseconds {
        nanoseconds(instant.saturating_duration_since(self.0))
    }
}

fn nanoseconds(duration: Duration) -> Nanoseconds {
    duration.as_nanos() as Nanoseconds
}

/// What a disk monotask was for.
fn kind(phase: Phase) -> Kind {
    match phase {
        Phase::Read => Kind::Read,
        Phase::Write => Kind::Write,
        Phase::Reread => Kind::Reread,
    }
}

/// Time in which at least one request was in flight.
fn busy(uses: impl Iterator<Item = (Instant, Duration)>, clock: Clock) -> Nanoseconds {
    let mut spans: Vec<(Nanoseconds, Nanoseconds)> = uses
        .map(|(started, service)| {
            let start = clock.at(started);
            (start, start + nanoseconds(service))
        })
        .collect();
    spans.sort_unstable();
    let (mut total, mut covered) = (0, 0);
    for (start, end) in spans {
        total += end.saturating_sub(start.max(covered));
        covered = covered.max(end);
    }
    total
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
            .map(|record| task_profile(record, &stage.plan, clock))
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

fn task_profile(record: &Arc<TaskRecord>, plan: &Arc<dyn ExecutionPlan>, clock: Clock) -> TaskProfile {
    let status = record.final_status();
    let start = clock.at(status.first_run.unwrap_or(status.created));
    let end = clock.at(status.ended.unwrap_or_else(Instant::now)).max(start);
    let partitioning = record.on_processor(record.partitioning()).min(status.cpu);
    let cpu = |kind, service: Duration, monotasks, queue| Usage {
        resource: Resource::Cpu,
        kind,
        monotasks,
        queue,
        service: nanoseconds(service),
        copying: 0,
        bytes: status.bytes,
        rows: status.rows,
    };
    let queue = nanoseconds(status.wait.saturating_sub(status.paused));
    let partition = status.label.map_or(0, |label| label.partition);
    let decoding = record
        .on_processor(decoding(plan, partition))
        .min(status.cpu - partitioning);
    let mut usage = vec![cpu(
        Kind::Compute,
        status.cpu - partitioning - decoding,
        status.polls,
        queue,
    )];
    if !partitioning.is_zero() {
        usage.push(cpu(Kind::Partition, partitioning, record.partitioned(), 0));
    }
    if !decoding.is_zero() {
        usage.push(cpu(Kind::Decode, decoding, 1, 0));
    }
    let uses = record.disk_uses();
    let mut by_kind: BTreeMap<(Resource, Kind), Vec<&DiskUse>> = BTreeMap::new();
    for used in &uses {
        let what = (Resource::Disk(used.device), kind(used.phase));
        by_kind.entry(what).or_default().push(used);
    }
    usage.extend(by_kind.into_iter().map(|((resource, kind), uses)| Usage {
        resource,
        kind,
        monotasks: uses.len() as u64,
        queue: uses.iter().map(|used| nanoseconds(used.queue())).sum(),
        service: uses.iter().map(|used| nanoseconds(used.service)).sum(),
        copying: uses.iter().map(|used| nanoseconds(used.copying)).sum(),
        bytes: uses.iter().map(|used| used.moved.bytes).sum(),
        rows: uses.iter().map(|used| used.moved.rows).sum(),
    }));
    let fetches = record.network_uses();
    if !fetches.is_empty() {
        usage.push(Usage {
            resource: Resource::Network,
            kind: Kind::Fetch,
            monotasks: fetches.len() as u64,
            queue: fetches.iter().map(|used| nanoseconds(used.queue())).sum(),
            service: fetches.iter().map(|used| nanoseconds(used.service)).sum(),
            copying: 0,
            bytes: fetches.iter().map(|used| used.bytes).sum(),
            rows: fetches.iter().map(|used| used.rows).sum(),
        });
    }
    TaskProfile {
        worker: status.label.map_or(0, |label| label.worker),
        partition,
        start,
        end,
        suspended: nanoseconds(status.paused),
        pauses: status.pauses as u32,
        blocked: Blocked {
            disk: nanoseconds(record.blocked(Waits::Disk)),
            network: nanoseconds(record.blocked(Waits::Network)),
            input: nanoseconds(record.blocked(Waits::Input)),
            output: nanoseconds(record.blocked(Waits::Output)),
        },
        rows: status.rows,
        bytes: status.bytes,
        usage,
        monotasks: monotasks(record, status.polls, &uses, &fetches, clock),
    }
}

/// The monotasks by start, if all of them were kept.
fn monotasks(
    record: &TaskRecord,
    polls: u64,
    uses: &[DiskUse],
    fetches: &[NetworkUse],
    clock: Clock,
) -> Vec<Monotask> {
    let stretches = record.stretches();
    if (stretches.len() as u64) < polls {
        return vec![];
    }
    let mut monotasks: Vec<Monotask> = (stretches.iter())
        .map(|stretch| Monotask {
            resource: Resource::Cpu,
            kind: Kind::Compute,
            queued_at: clock.at(match stretch.was_paused {
                // Being paused is no waiting for a core.
                true => stretch.started,
                false => stretch.queued,
            }),
            started_at: clock.at(stretch.started),
            service: nanoseconds(stretch.ran),
            bytes: 0,
            rows: 0,
        })
        .collect();
    monotasks.extend(uses.iter().map(|used| Monotask {
        resource: Resource::Disk(used.device),
        kind: kind(used.phase),
        queued_at: clock.at(used.queued),
        started_at: clock.at(used.started),
        service: nanoseconds(used.service),
        bytes: used.moved.bytes,
        rows: used.moved.rows,
    }));
    monotasks.extend(fetches.iter().map(|used| Monotask {
        resource: Resource::Network,
        kind: Kind::Fetch,
        queued_at: clock.at(used.queued),
        started_at: clock.at(used.started),
        service: nanoseconds(used.service),
        bytes: used.bytes,
        rows: used.rows,
    }));
    monotasks.sort_by_key(|monotask| (monotask.started_at, monotask.queued_at));
    monotasks
}
