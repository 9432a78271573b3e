//! Runs every experiment of neptune at its small size. Each query is compared with its plain answer there.

use crate::common::small_run;
use millrace_benches::neptune::Neptune;

#[tokio::test(flavor = "multi_thread")]
async fn every_experiment_gives_numbers() {
    // The disk, coroutines and threads, a simulated cluster, alone, paused, policies, a view beside batch work, with even
    // epochs and with targets for its freshness too, its demand, scoring beside training, and memory under pressure.
    let (_, report) = small_run::<Neptune>(12).await;
    assert!(report.contains("| lma: stream wait, p99 | us |"), "{report}");
}
