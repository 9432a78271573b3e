//! Runs every experiment of drizzle at its small scale.

mod common;

use millrace_benches::drizzle::{self, Scale};
use millrace_benches::results::Run;

#[tokio::test(flavor = "multi_thread")]
async fn every_experiment_gives_numbers() {
    let scale = Scale::small();
    let run = Run::begin("drizzle", "the test".to_owned(), scale.fsync_probes).unwrap();
    let run = drizzle::run(run, &scale, None).await.unwrap();
    // The disk, four on simulated clusters, coordination, typed events, workers lost and added, JSON events.
    let report = common::report(&run, 9);
    assert!(report.contains("| with: highest rate | events/s |"), "{report}");
    assert!(
        report.contains("| added, groups of 5: until both are used | s |"),
        "{report}"
    );
}
