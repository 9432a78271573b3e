//! Runs every experiment of recovery and checkpoint at its small scale, with the server inside this process. The views'
//! answers are checked there.

mod common;

use millrace_benches::durability::{checkpoint, recovery};
use millrace_benches::results::Run;
use millrace_benches::target::Target;

#[tokio::test(flavor = "multi_thread")]
async fn every_experiment_of_recovery_gives_numbers() {
    let scale = recovery::Scale::small();
    let run = Run::begin("recovery", "the test".to_owned(), scale.fsync_probes).unwrap();
    let run = recovery::run(run, &scale, &Target::InProcess, None)
        .await
        .unwrap();
    // The disk, by state, by history.
    let report = common::report(&run, 3);
    assert!(
        report.contains("| 4000 changes: from the checkpoint | ms |"),
        "{report}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn every_experiment_of_checkpoint_gives_numbers() {
    let scale = checkpoint::Scale::small();
    let run = Run::begin("checkpoint", "the test".to_owned(), scale.fsync_probes).unwrap();
    let run = checkpoint::run(run, &scale, &Target::InProcess, None)
        .await
        .unwrap();
    // The disk, beside views, size by change.
    let report = common::report(&run, 3);
    assert!(
        report.contains("| 50ms: rate / rate without | times |"),
        "{report}"
    );
}
