//! Runs every experiment of neptune at its small scale. Each query is compared with its plain answer there.

mod common;

use millrace_benches::neptune::{self, Scale};
use millrace_benches::results::Run;

#[tokio::test(flavor = "multi_thread")]
async fn every_experiment_gives_numbers() {
    let scale = Scale::small();
    let run = Run::begin("neptune", "the test".to_owned(), scale.fsync_probes).unwrap();
    let run = neptune::run(run, &scale, None).await.unwrap();
    // The disk, coroutines and threads, a simulated cluster, alone, paused, policies, a view beside batch work, with even epochs too, its demand,
    // scoring beside training, and memory under pressure.
    let report = common::report(&run, 11);
    assert!(report.contains("| lma: stream wait, p99 | us |"), "{report}");
}
