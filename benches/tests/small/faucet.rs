//! Runs every experiment of faucet at its small size. The forms of a view are compared with each other and with the query.

use crate::common::small_run;
use millrace_benches::faucet::Faucet;

#[tokio::test(flavor = "multi_thread")]
async fn every_experiment_gives_numbers() {
    // The disk, paths, triangles, cliques, limits, changes, the soak.
    let (_, report) = small_run::<Faucet>(7).await;
    assert!(
        report.contains("| 300 edges, binary joins: time | s |"),
        "{report}"
    );
}
