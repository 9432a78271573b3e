//! Runs every experiment of mapreduce at its small size.

use crate::common::small_run;
use millrace_benches::mapreduce::MapReduce;

#[tokio::test(flavor = "multi_thread")]
async fn every_experiment_gives_numbers() {
    // The disk, moving average, word count, service levels, communities, Nexmark.
    let (_, report) = small_run::<MapReduce>(6).await;
    assert!(
        report.contains("| 50 ms: sliding, incremental | events/s |"),
        "{report}"
    );
}
