//! Profiles for the tests of this module, put together by hand so that every expected number can be worked out on paper.

use super::forecast::interval::{Certainty, Interval};
use super::forecast::view::{PlannedInput, StageForecast, ViewForecast};
use super::profile::{
    Blocked, Device, Kind, Machine, Monotask, Nanoseconds, OperatorProfile, Parallelism, Profile, Resource,
    StageProfile, TaskProfile, Usage,
};

pub const MS: Nanoseconds = 1_000_000;
pub const SECOND: Nanoseconds = 1_000 * MS;

pub fn disk(bytes_per_second: f64) -> Device {
    Device {
        name: "nvme0n1".to_owned(),
        concurrency: 1,
        measured: vec![],
        bytes_per_second: Some(bytes_per_second),
        busy: 0,
    }
}

pub fn machine(cores: usize, disks: Vec<Device>) -> Machine {
    Machine {
        cores,
        disks,
        network: None,
        tasks_in_flight: 0,
        stolen: 0,
        memory: None,
    }
}

pub fn profile(machine: Machine, end: Nanoseconds, stages: Vec<StageProfile>) -> Profile {
    Profile {
        planning: 0,
        end,
        machine,
        stages,
    }
}

pub fn stage(id: usize, depends_on: &[usize], tasks: Vec<TaskProfile>) -> StageProfile {
    StageProfile {
        id,
        name: format!("stage {id}"),
        depends_on: depends_on.to_vec(),
        parallelism: Parallelism::Cores,
        operators: vec![],
        tasks,
    }
}

pub fn task(partition: usize, start: Nanoseconds, end: Nanoseconds, usage: Vec<Usage>) -> TaskProfile {
    TaskProfile {
        worker: 0,
        partition,
        epoch: None,
        start,
        end,
        suspended: 0,
        pauses: 0,
        blocked: Blocked::default(),
        rows: 0,
        bytes: 0,
        usage,
        monotasks: vec![],
    }
}

pub fn usage(resource: Resource, kind: Kind, service: Nanoseconds, bytes: u64) -> Usage {
    Usage {
        resource,
        kind,
        monotasks: 1,
        queue: 0,
        service,
        copying: 0,
        bytes,
        rows: 0,
    }
}

pub fn compute(service: Nanoseconds) -> Usage {
    usage(Resource::Cpu, Kind::Compute, service, 0)
}

pub fn decode(service: Nanoseconds) -> Usage {
    usage(Resource::Cpu, Kind::Decode, service, 0)
}

pub fn read(service: Nanoseconds, bytes: u64) -> Usage {
    usage(Resource::Disk(0), Kind::Read, service, bytes)
}

pub fn monotask(resource: Resource, kind: Kind, started_at: Nanoseconds, service: Nanoseconds) -> Monotask {
    Monotask {
        resource,
        kind,
        queued_at: started_at,
        started_at,
        service,
        bytes: 0,
        rows: 0,
    }
}

/// A query of two stages, scan and final merge, that was paused once: two cores, one disk at 200 MB/s.
pub fn two_stages() -> Profile {
    let scan = |partition: usize, end: Nanoseconds, share: u64| {
        let mut reads = read(share * 300 * MS, share * 60_000_000);
        reads.monotasks = share * 15;
        reads.queue = share * 20 * MS;
        let mut decodes = decode(share * 90 * MS);
        decodes.monotasks = share * 15;
        decodes.rows = share * 500_000;
        let mut computes = compute(share * 120 * MS);
        computes.monotasks = share * 15;
        computes.queue = share * 5 * MS;
        let mut task = task(partition, 2 * MS, end, vec![reads, decodes, computes]);
        task.blocked.disk = share * 250 * MS;
        task.rows = share * 2;
        task.bytes = share * 64;
        task
    };
    let mut slow = scan(1, 1_500 * MS, 3);
    slow.suspended = 40 * MS;
    slow.pauses = 1;
    let mut first = stage(0, &[], vec![scan(0, 900 * MS, 2), slow]);
    first.name = "scan lineitem, partial aggregate".to_owned();
    first.operators = vec![
        operator("PartialAggregate: l_returnflag, l_linestatus", 0, 10, 600 * MS),
        operator("Scan: lineitem", 1, 2_500_000, 450 * MS),
    ];
    let mut merging = compute(60 * MS);
    merging.rows = 4;
    let mut merge = task(0, 1_500 * MS, 1_600 * MS, vec![merging]);
    merge.rows = 4;
    merge.blocked.input = 10 * MS;
    let mut last = stage(1, &[0], vec![merge]);
    last.parallelism = Parallelism::Fixed;
    last.name = "final aggregate, sort".to_owned();
    last.operators = vec![
        operator("Sort: l_returnflag, l_linestatus", 0, 4, 10 * MS),
        operator("Aggregate: l_returnflag, l_linestatus", 1, 4, 50 * MS),
        operator("Exchange: from stage 0", 2, 10, 0),
    ];
    let mut device = disk(200e6);
    device.busy = 1_500 * MS;
    Profile {
        planning: 3 * MS,
        ..profile(machine(2, vec![device]), 1_600 * MS, vec![first, last])
    }
}

fn operator(name: &str, depth: usize, rows: u64, cpu: Nanoseconds) -> OperatorProfile {
    OperatorProfile {
        name: name.to_owned(),
        depth,
        rows: Some(rows),
        bytes: rows * 32,
        cpu,
    }
}

/// What is forecast of an aggregate over flights.
pub fn view_forecast() -> ViewForecast {
    let stage = |name: &str, rows_in, cpu, row_cost| StageForecast {
        name: name.to_owned(),
        rows_in,
        cpu,
        row_cost,
    };
    ViewForecast {
        inputs: vec![PlannedInput {
            name: "flights".to_owned(),
            rows: 600_000,
            rows_per_second: 19_175.2,
        }],
        stages: vec![
            stage("PartialAggregate, Source: flights", 600_000.0, 60_000_000, 212.0),
            stage("Aggregate", 14_000.0, 4_000_000, 1_310.0),
        ],
        time: Interval {
            expected: 41_000_000,
            low: 30_000_000,
            high: 62_000_000,
        },
        cpu: 0.03,
        cpu_high: 0.05,
        cpu_free: 0.95,
        rows_per_second_max: Some(620_173.0),
        certainty: Certainty::Medium,
        views: 3,
        verdict: "it will keep up".to_owned(),
        freshness: None,
    }
}
