//! Runs every experiment of drizzle at its small size.

use crate::common::small_run;
use millrace_benches::drizzle::Drizzle;

#[tokio::test(flavor = "multi_thread")]
async fn every_experiment_gives_numbers() {
    // The disk, four on simulated clusters, coordination, typed events, workers lost and added, JSON events.
    let (_, report) = small_run::<Drizzle>(9).await;
    assert!(report.contains("| with: highest rate | events/s |"), "{report}");
    assert!(
        report.contains("| added, groups of 5: until both are used | s |"),
        "{report}"
    );
}
