//! Runs every experiment of recovery and checkpoint at its small size, with the server inside this process. The views'
//! answers are checked there.

mod common;

use millrace_benches::durability::checkpoint::Checkpoints;
use millrace_benches::durability::recovery::Recovery;

#[tokio::test(flavor = "multi_thread")]
async fn every_experiment_of_recovery_gives_numbers() {
    // The disk, by state, by history.
    let (_, report) = common::small_run::<Recovery>(3).await;
    assert!(
        report.contains("| 4000 changes: from the checkpoint | ms |"),
        "{report}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn every_experiment_of_checkpoint_gives_numbers() {
    // The disk, beside views, size by change.
    let (_, report) = common::small_run::<Checkpoints>(3).await;
    assert!(
        report.contains("| 50ms: rate / rate without | times |"),
        "{report}"
    );
}
