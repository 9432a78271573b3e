//! Runs every experiment of the cluster at its small size.

use crate::common::small_run;
use millrace_benches::cluster::Cluster;

#[tokio::test(flavor = "multi_thread")]
async fn every_experiment_gives_numbers() {
    // The disk, scaling, loss, elastic.
    let (_, report) = small_run::<Cluster>(4).await;
    for line in [
        "| keyed sums, 2 machines | rows/s |",
        "| killed: until it could be read | ms |",
        "| a worker joins: the longest read | ms |",
    ] {
        assert!(report.contains(line), "{report}");
    }
}
