//! Runs both experiments of ingest at their small size.

use crate::common::small_run;
use millrace_benches::ingest::Ingest;

#[tokio::test(flavor = "multi_thread")]
async fn every_experiment_gives_numbers() {
    // The disk, small writes, large writes.
    let (_, report) = small_run::<Ingest>(3).await;
    for line in [
        "| group, 4 clients: writes | 1/s |",
        "| group: share of the disk's rate | % |",
    ] {
        assert!(report.contains(line), "{report}");
    }
}
