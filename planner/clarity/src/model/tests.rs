//! The model on runs small enough to be worked out on paper.

use super::*;
use crate::fixtures::{
    MS, SECOND, compute, decode, disk, machine, monotask, profile, read, stage, task, usage,
};
use crate::profile::{Kind, Parallelism};
use crate::scenario::Speed;

fn close(left: f64, right: f64) {
    assert!(
        (left - right).abs() <= right.abs() * 1e-9,
        "{left} is not {right}"
    );
}

/// The two examples of section 5.6.1.
#[test]
fn ideal_times_are_those_of_the_thesis() {
    let minutes = stage(
        0,
        &[],
        vec![task(0, 0, 30 * SECOND, vec![compute(20 * 60 * SECOND)])],
    );
    let run = profile(machine(80, vec![]), 30 * SECOND, vec![minutes]);
    close(model(&run, &Scenario::default()).total, 15.0 * SECOND as f64);

    let disks: Vec<Device> = (0..10).map(|_| disk(100e6)).collect();
    let reads = (0..10)
        .map(|device| usage(Resource::Disk(device), Kind::Read, SECOND, 2_000_000_000))
        .collect();
    let run = profile(
        machine(80, disks),
        30 * SECOND,
        vec![stage(0, &[], vec![task(0, 0, 30 * SECOND, reads)])],
    );
    let modelled = model(&run, &Scenario::default());
    close(modelled.total, 20.0 * SECOND as f64);
    assert_eq!(modelled.limits[0].0, Limit::Disk);
}

/// Two stages, one after the other: the first waits for the disk (4 s against 1.5 s of cpu), the second computes (3 s).
fn one_after_the_other() -> Profile {
    let first = stage(
        0,
        &[],
        vec![task(
            0,
            0,
            5 * SECOND,
            vec![read(4 * SECOND, 400_000_000), decode(SECOND), compute(2 * SECOND)],
        )],
    );
    let second = stage(
        1,
        &[0],
        vec![task(0, 5 * SECOND, 9 * SECOND, vec![compute(6 * SECOND)])],
    );
    profile(machine(2, vec![disk(100e6)]), 9 * SECOND, vec![first, second])
}

#[test]
fn stages_one_after_the_other_are_added_up() {
    let modelled = model(&one_after_the_other(), &Scenario::default());
    close(modelled.total, 7.0 * SECOND as f64);
    assert_eq!(modelled.limits.len(), 2);
    close(modelled.limits[0].1, 4.0 * SECOND as f64);
}

#[test]
fn a_change_moves_the_limit() {
    let run = one_after_the_other();
    // The disk four times as fast: 1 s, so that the first stage's cpu, 1.5 s, is its limit.
    let faster = Scenario {
        disk: Speed::Times(4.0),
        ..Scenario::default()
    };
    let after = model(&run, &faster);
    close(after.total, 4.5 * SECOND as f64);
    assert_eq!(after.limits, [(Limit::Cpu, after.total)]);
    close(predict(&run, &faster) as f64, 9.0 / 7.0 * 4.5 * SECOND as f64);
    let infinite = Scenario {
        disk: Speed::Infinite,
        ..Scenario::default()
    };
    close(model(&run, &infinite).total, 4.5 * SECOND as f64);
}

#[test]
fn input_in_memory_is_neither_read_nor_decoded() {
    let scenario = Scenario {
        input_in_memory: true,
        ..Scenario::default()
    };
    // 1 s of computing on two cores, then 3 s.
    close(
        model(&one_after_the_other(), &scenario).total,
        4.0 * SECOND as f64,
    );
}

#[test]
fn changes_combine() {
    let scenario = Scenario {
        cores: Some(8),
        disks: Some(4),
        disk: Speed::Times(2.0),
        ..Scenario::default()
    };
    // 0.5 s of disk against 0.375 s of cpu, then 0.75 s of cpu, a little longer for eight that share the memory.
    let longer = 1.0875 / 1.05;
    close(
        model(&one_after_the_other(), &scenario).total,
        (0.5 + 0.75 * longer) * SECOND as f64,
    );
}

#[test]
fn nothing_changed_predicts_what_was_measured() {
    let mut run = one_after_the_other();
    run.planning = 5 * MS;
    assert_eq!(predict(&run, &Scenario::default()), 9 * SECOND + 5 * MS);
    let as_it_is = Scenario {
        cores: Some(2),
        disks: Some(1),
        ..Scenario::default()
    };
    assert_eq!(predict(&run, &as_it_is), 9 * SECOND + 5 * MS);
}

/// 4 s of disk and 3 s of cpu, but in two stages that hand rows on while they run: together they take as long as the disk.
#[test]
fn stages_side_by_side_share_the_time() {
    let scan = stage(
        0,
        &[],
        vec![task(0, 0, 5 * SECOND, vec![read(4 * SECOND, 400_000_000)])],
    );
    let sum = stage(1, &[0], vec![task(0, 0, 5 * SECOND, vec![compute(6 * SECOND)])]);
    let run = profile(machine(2, vec![disk(100e6)]), 5 * SECOND, vec![scan, sum]);
    let modelled = model(&run, &Scenario::default());
    close(modelled.total, 4.0 * SECOND as f64);
    assert_eq!(modelled.limits, [(Limit::Disk, modelled.total)]);
}

/// A task that is started at once but has work only in the end belongs to the end.
#[test]
fn monotasks_say_when_a_stage_was_active() {
    let mut scan = task(0, 0, 4 * SECOND, vec![read(4 * SECOND, 400_000_000)]);
    scan.monotasks = vec![monotask(Resource::Disk(0), Kind::Read, 0, 4 * SECOND)];
    let mut sort = task(0, 0, 6 * SECOND, vec![compute(2 * SECOND)]);
    sort.monotasks = vec![
        monotask(Resource::Cpu, Kind::Compute, 0, 1_000),
        monotask(Resource::Cpu, Kind::Compute, 4 * SECOND, 2 * SECOND - 1_000),
    ];
    let run = profile(
        machine(1, vec![disk(100e6)]),
        6 * SECOND,
        vec![stage(0, &[], vec![scan]), stage(1, &[0], vec![sort])],
    );
    assert_eq!(run.stages[1].active(), Some((4 * SECOND, 6 * SECOND - 1_000)));
    let total = model(&run, &Scenario::default()).total;
    assert!((total - 6.0 * SECOND as f64).abs() < 2_000.0, "{total}");
}

#[test]
fn what_is_not_cut_finer_gains_nothing_from_cores() {
    let mut merge = stage(0, &[], vec![task(0, 0, 2 * SECOND, vec![compute(2 * SECOND)])]);
    merge.parallelism = Parallelism::Fixed;
    let run = profile(machine(2, vec![]), 2 * SECOND, vec![merge]);
    let modelled = model(&run, &Scenario::default());
    assert_eq!(modelled.limits, [(Limit::OneTask, 2.0 * SECOND as f64)]);
    let more = Scenario {
        cores: Some(8),
        ..Scenario::default()
    };
    assert_eq!(predict(&run, &more), 2 * SECOND);
    let one = Scenario {
        cores: Some(1),
        ..Scenario::default()
    };
    assert_eq!(predict(&run, &one), 2 * SECOND);
}

#[test]
fn a_device_is_as_fast_as_the_run_saw_it() {
    // Known as 100 MB/s, but 400 MB came in 2 s: the page cache had half of it.
    let mut device = disk(100e6);
    device.busy = 2 * SECOND;
    let scan = stage(
        0,
        &[],
        vec![task(0, 0, 4 * SECOND, vec![read(2 * SECOND, 400_000_000)])],
    );
    let mut run = profile(machine(2, vec![device]), 4 * SECOND, vec![scan]);
    close(model(&run, &Scenario::default()).total, 2.0 * SECOND as f64);
    run.machine.disks[0].bytes_per_second = None;
    close(model(&run, &Scenario::default()).total, 2.0 * SECOND as f64);
}

#[test]
fn a_run_that_used_nothing_is_predicted_as_it_was() {
    let run = profile(machine(2, vec![]), SECOND, vec![]);
    let faster = Scenario {
        cores: Some(64),
        ..Scenario::default()
    };
    assert_eq!(
        model(&run, &faster),
        Model {
            total: 0.0,
            limits: vec![]
        }
    );
    assert_eq!(predict(&run, &faster), SECOND);
}

#[test]
fn a_stage_has_ideal_times_of_its_own() {
    let run = one_after_the_other();
    let ideal = stage_ideal(&run, &run.stages[0], &Scenario::default());
    close(ideal.cpu, 1.5 * SECOND as f64);
    close(ideal.disk, 4.0 * SECOND as f64);
    assert_eq!(ideal.limit().unwrap().0, Limit::Disk);
}

/// 4 s of disk that took 5: the rest is not the disk's.
#[test]
fn what_is_not_explained_does_not_grow_with_a_slower_disk() {
    let scan = task(0, 0, 5 * SECOND, vec![read(4 * SECOND, 400_000_000)]);
    let run = profile(
        machine(2, vec![disk(100e6)]),
        5 * SECOND,
        vec![stage(0, &[], vec![scan])],
    );
    let disk_times = |factor: f64| Scenario {
        disk: Speed::Times(factor),
        ..Scenario::default()
    };
    assert_eq!(predict(&run, &disk_times(0.25)), 17 * SECOND);
    // But it shrinks with a faster one.
    assert_eq!(predict(&run, &disk_times(4.0)), 1_250 * MS);
}

/// 6 s of cpu on two cores that took 4 s: for 1 s both had nothing to do, of which nothing is left on one.
#[test]
fn idle_cores_are_not_missed() {
    let tasks = (0..6).map(|partition| task(partition, 0, 4 * SECOND, vec![compute(SECOND)]));
    let run = profile(
        machine(2, vec![]),
        4 * SECOND,
        vec![stage(0, &[], tasks.collect())],
    );
    let cores = |cores: usize| Scenario {
        cores: Some(cores),
        ..Scenario::default()
    };
    close(
        predict(&run, &cores(1)) as f64,
        (6.0 * SECOND as f64 / 1.05).round(),
    );
    let three = profile(machine(3, vec![]), 3 * SECOND, run.stages);
    // 1 s, of 2/3 of the cores; two of them are 3/4 of that.
    let expected = 3.0 * 1.05 / (1.0 + 0.1 * 2.0 / 3.0) + 0.75;
    close(
        predict(&three, &cores(2)) as f64,
        (expected * SECOND as f64).round(),
    );
}

/// One of eight tasks has half of the work: two cores are done with the others long before it.
#[test]
fn the_largest_task_bounds_a_stage() {
    let tasks = (0..8).map(|partition| {
        let work = if partition == 0 { 7 * SECOND } else { SECOND };
        task(partition, 0, 7 * SECOND, vec![compute(work)])
    });
    let run = profile(
        machine(1, vec![]),
        14 * SECOND,
        vec![stage(0, &[], tasks.collect())],
    );
    let cores = |cores: usize| Scenario {
        cores: Some(cores),
        ..Scenario::default()
    };
    // Both cores work all the time, 5 % longer than one by itself; the large task is done before that.
    assert_eq!(predict(&run, &cores(2)), 7_350 * MS);
    // With four there would be twelve tasks of the same work.
    assert!(predict(&run, &cores(4)).abs_diff(7 * SECOND * 8 / 12) <= 1);
}

/// What a disk's monotasks copy takes a core, but is no task's own work.
#[test]
fn copying_takes_cores() {
    let mut reads = read(SECOND, 1_000_000);
    reads.copying = SECOND;
    let scan = task(0, 0, 2 * SECOND, vec![reads, compute(SECOND)]);
    let run = profile(
        machine(1, vec![disk(100e6)]),
        2 * SECOND,
        vec![stage(0, &[], vec![scan])],
    );
    let modelled = model(&run, &Scenario::default());
    assert_eq!(modelled.limits, [(Limit::Cpu, 2.0 * SECOND as f64)]);
}
