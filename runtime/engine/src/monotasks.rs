//! What the schedulers recorded of tasks, in the form in which the time model reads it: for queries, and for views that are watched.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use millrace_clarity::profile::{
    Blocked, Device, Kind, Machine as MachineProfile, MemoryUse, Monotask, Nanoseconds, Resource,
    TaskProfile, Usage,
};
use millrace_resource::cpu::{TaskRecord, Waits};
use millrace_resource::monotask::{DiskUse, NetworkUse, Phase};
use millrace_resource::network::FETCHING_TASKS_MAX;

use crate::machine::Machine;

/// Instants as nanoseconds since the run began, or the watching.
#[derive(Clone, Copy)]
pub struct Clock(pub Instant);

impl Clock {
    pub fn at(self, instant: Instant) -> Nanoseconds {
        nanoseconds(instant.saturating_duration_since(self.0))
    }
}

pub fn nanoseconds(duration: Duration) -> Nanoseconds {
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

/// The machine, with so many workers, and what some tasks used of it.
pub fn machine_profile(
    machine: &Machine,
    workers: usize,
    records: &[&TaskRecord],
    memory: Option<MemoryUse>,
    clock: Clock,
) -> MachineProfile {
    let uses: Vec<DiskUse> = records.iter().flat_map(|record| record.disk_uses()).collect();
    let fetches: Vec<NetworkUse> = records.iter().flat_map(|record| record.network_uses()).collect();
    MachineProfile {
        cores: machine.cores * workers,
        disks: (machine.disks.all().iter().enumerate())
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
        network: (machine.network.bytes_per_second()).map(|rate| Device {
            name: "network".to_owned(),
            concurrency: FETCHING_TASKS_MAX,
            measured: vec![],
            // Each worker has a link.
            bytes_per_second: Some(rate * workers as f64),
            busy: busy(fetches.iter().map(|used| (used.started, used.service)), clock),
        }),
        tasks_in_flight: 0,
        // Whoever knows when planning began adds it.
        stolen: 0,
        memory,
    }
}

/// A task that has ended, or what is seen of it so far. `decoding`: of its polls, the time that went into turning the files' form into
/// columns, on the clock.
pub fn task_profile(record: &TaskRecord, decoding: Duration, clock: Clock) -> TaskProfile {
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
    let decoding = record.on_processor(decoding).min(status.cpu - partitioning);
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
        epoch: None,
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
