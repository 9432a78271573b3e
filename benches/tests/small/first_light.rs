//! Runs every experiment of first light at its small size, with the server inside this process.

use crate::common::small_run;
use millrace_benches::first_light::FirstLight;

#[tokio::test(flavor = "multi_thread")]
async fn every_experiment_gives_numbers() {
    // The disk, start-up, idleness, freshness, three copies and point queries.
    let (_, report) = small_run::<FirstLight>(8).await;
    assert!(report.contains("| rate until visible | rows/s |"), "{report}");
}
