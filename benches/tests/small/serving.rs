//! Runs every experiment of serving at its small size.

use crate::common::small_run;
use millrace_benches::serving::Serving;

#[tokio::test(flavor = "multi_thread")]
async fn every_experiment_gives_numbers() {
    // The disk, one client, many clients.
    let (_, report) = small_run::<Serving>(3).await;
    for line in [
        "| point SELECT, prepared: millrace p50 | ms |",
        "| 4 clients, point SELECTs prepared: millrace | 1/s |",
    ] {
        assert!(report.contains(line), "{report}");
    }
}
