//! Runs every experiment of mapreduce at its small scale.

mod common;

use millrace_benches::mapreduce::{self, Scale};
use millrace_benches::results::Run;

#[tokio::test(flavor = "multi_thread")]
async fn every_experiment_gives_numbers() {
    let scale = Scale::small();
    let run = Run::begin("mapreduce", "the test".to_owned(), scale.fsync_probes).unwrap();
    let run = mapreduce::run(run, &scale, None).await.unwrap();
    // The disk, moving average, word count, service levels, communities, Nexmark.
    let report = common::report(&run, 6);
    assert!(
        report.contains("| 50 ms: sliding, incremental | events/s |"),
        "{report}"
    );
}
