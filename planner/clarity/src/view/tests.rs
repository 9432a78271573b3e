//! Views with known costs.

use super::*;
use crate::fixtures::{MS, SECOND};

/// Over 10 s on two cores: an epoch every 100 ms, whose tasks take 2 ms and 1 µs a row, a quarter of it on one partition of
/// the last stage.
pub fn watched(rows: impl Fn(u64) -> u64) -> ViewProfile {
    let samples: Vec<EpochSample> = (0..100)
        .map(|epoch| EpochSample {
            epoch,
            rows: rows(epoch),
            busy: 2 * MS + rows(epoch) * 1_000,
            waited: MS,
            elapsed: (1 + epoch % 10) * MS,
        })
        .collect();
    let busy: Nanoseconds = samples.iter().map(|sample| sample.busy).sum();
    let rows: u64 = samples.iter().map(|sample| sample.rows).sum();
    let counts = |share: u64| TaskCounts {
        tasks: 100,
        rows_in: rows / share,
        rows_out: rows / share / 10,
        busy: busy / share,
        queue: 5 * MS,
    };
    ViewProfile {
        view: "by_carrier".to_owned(),
        watched: 10 * SECOND,
        cores: 2,
        epochs: 100,
        group_size: 4,
        coordination: Coordination {
            scheduling: 20 * MS,
            waited: 30 * MS,
            execution: 950 * MS,
        },
        samples,
        stages: vec![
            ViewStage {
                id: 0,
                name: "Source: flights".to_owned(),
                partitions: vec![counts(4), counts(4)],
            },
            ViewStage {
                id: 1,
                name: "Aggregate: carrier".to_owned(),
                partitions: vec![counts(8), counts(8), counts(4)],
            },
        ],
        pipeline_busy: busy,
        outside: 0,
        stolen: 0,
        rows: 700,
        state_bytes: 1_200_000,
        on_disk_bytes: 0,
        in_flight_bytes: 0,
        forgotten: 0,
        freshness_target: None,
        log: Some(LogUse {
            disk: "data".to_owned(),
            groups: 400,
            bytes: 9_500_000,
            queue: 60 * MS,
            service: 380 * MS,
        }),
        trace: None,
    }
}

#[test]
fn the_cost_of_a_row_is_told_from_that_of_an_epoch() {
    let found = analyse_view(&watched(|epoch| 1_000 + 200 * (epoch % 10)), None);
    let head_room = found.head_room.unwrap();
    assert!(head_room.is_fitted);
    // One core does a million rows a second; the busiest partition has a quarter of the work, so that two cores are the limit.
    assert!((head_room.rows_per_second - 2e6).abs() < 1.0, "{head_room:?}");
    assert_eq!(head_room.limit, Limit::Cpu);
}

#[test]
fn epochs_that_are_alike_give_a_lower_bound() {
    let found = analyse_view(&watched(|_| 2_000), None);
    let head_room = found.head_room.unwrap();
    assert!(!head_room.is_fitted);
    // 4 ms for 2,000 rows, the fixed part included.
    assert!((head_room.rows_per_second - 1e6).abs() < 1.0, "{head_room:?}");
}

#[test]
fn one_partition_can_be_the_limit() {
    let mut profile = watched(|epoch| 1_000 + 200 * (epoch % 10));
    let busy = profile.pipeline_busy;
    profile.stages[1].partitions = vec![TaskCounts {
        busy: busy * 3 / 4,
        ..TaskCounts::default()
    }];
    let found = analyse_view(&profile, None);
    let head_room = found.head_room.unwrap();
    assert_eq!(head_room.limit, Limit::OneTask);
    // A core does a million rows a second, of which three quarters are this partition's.
    assert!(
        (head_room.rows_per_second - 4e6 / 3.0).abs() < 10.0,
        "{head_room:?}"
    );
    let more = Scenario {
        cores: Some(8),
        ..Scenario::default()
    };
    let (_, after) = analyse_view(&profile, Some(more)).what_if.unwrap();
    assert_eq!(after, head_room);
}

#[test]
fn more_cores_take_more() {
    let profile = watched(|epoch| 1_000 + 200 * (epoch % 10));
    let more = Scenario {
        cores: Some(4),
        ..Scenario::default()
    };
    let found = analyse_view(&profile, Some(more));
    let (_, after) = found.what_if.unwrap();
    assert!((after.rows_per_second - 4e6).abs() < 10.0, "{after:?}");
}

#[test]
fn shares_and_percentiles() {
    let found = analyse_view(&watched(|_| 2_000), None);
    assert!((found.coordination_share - 0.05).abs() < 1e-9);
    assert_eq!(
        found.freshness,
        Some(Freshness {
            p50: 6 * MS,
            p99: 11 * MS
        })
    );
    assert!((found.rows_per_second - 20_000.0).abs() < 1e-6);
    // 400 ms of 20 s.
    assert!((found.pipeline_cpu - 0.02).abs() < 1e-9);
    assert_eq!(found.stages[1].busiest, 2);
}

#[test]
fn nothing_is_said_of_a_view_without_input() {
    let mut profile = watched(|_| 2_000);
    profile.samples.clear();
    profile.pipeline_busy = 0;
    let found = analyse_view(&profile, None);
    assert_eq!((found.head_room, found.freshness), (None, None));
    assert_eq!(found.verdict, "no rows arrived while the view was watched");
    // Its epoch takes longer than it was watched.
    profile.in_flight_bytes = 5_000_000;
    assert_eq!(
        analyse_view(&profile, None).verdict,
        "no epoch with rows ended while the view was watched, and rows are on their way"
    );
}

#[test]
fn what_it_did_it_can_do() {
    // Tasks of epochs that began before it was watched: more than the cores have in that time.
    let mut profile = watched(|_| 50_000);
    for sample in &mut profile.samples {
        sample.busy *= 8;
    }
    profile.pipeline_busy *= 8;
    let found = analyse_view(&profile, None);
    let head_room = found.head_room.unwrap();
    assert!(
        (head_room.rows_per_second - found.rows_per_second).abs() < 1e-6,
        "{head_room:?}"
    );
    assert_eq!(
        found.verdict,
        "at 500,000 rows/s the cores are the limit: at most 500,000 can be sustained"
    );
}

#[test]
fn epochs_that_are_forgotten_had_rows_too() {
    let mut profile = watched(|_| 2_000);
    profile.epochs = 400;
    profile.forgotten = 300;
    assert!((analyse_view(&profile, None).rows_per_second - 80_000.0).abs() < 1e-6);
}
