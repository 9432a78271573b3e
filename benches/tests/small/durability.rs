//! Runs every experiment of recovery, checkpoint, disaster and writes at its small size, with the server inside this process. The views'
//! answers are checked there.

use crate::common::small_run;
use millrace_benches::durability::checkpoint::Checkpoints;
use millrace_benches::durability::disaster::Disaster;
use millrace_benches::durability::recovery::Recovery;
use millrace_benches::durability::writes::Writes;

#[tokio::test(flavor = "multi_thread")]
async fn every_experiment_of_recovery_gives_numbers() {
    // The disk, by state, by history.
    let (_, report) = small_run::<Recovery>(3).await;
    assert!(
        report.contains("| 4000 changes: from the checkpoint | ms |"),
        "{report}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn every_experiment_of_checkpoint_gives_numbers() {
    // The disk, beside views, size by change.
    let (_, report) = small_run::<Checkpoints>(3).await;
    assert!(
        report.contains("| 50ms: rate / rate without | times |"),
        "{report}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn every_experiment_of_writes_gives_numbers() {
    // The disk, inserts, updates.
    let (_, report) = small_run::<Writes>(3).await;
    assert!(
        report.contains("| 2000 rows: back-fill of a view: ratio | times |"),
        "{report}"
    );
    assert!(report.contains("| disk, changed | MB |"), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_experiment_of_disaster_gives_numbers() {
    // The disk, the point, the time, the cost.
    let (_, report) = small_run::<Disaster>(4).await;
    assert!(report.contains("| 100ms: lost | ms |"), "{report}");
    assert!(report.contains("| 2000 rows: restored | ms |"), "{report}");
}
