//! Runs every experiment of faucet at its small scale. The forms of a view are compared with each other and with the query.

mod common;

use millrace_benches::faucet::{self, Scale};
use millrace_benches::process::Isolation;
use millrace_benches::results::Run;

#[tokio::test(flavor = "multi_thread")]
async fn every_experiment_gives_numbers() {
    let scale = Scale::small();
    let run = Run::begin("faucet", "the test".to_owned(), scale.fsync_probes).unwrap();
    let run = faucet::run(run, &scale, Isolation::None, None).await.unwrap();
    // The disk, paths, triangles, cliques, limits, changes, the soak.
    let report = common::report(&run, 7);
    assert!(
        report.contains("| 300 edges, binary joins: time | s |"),
        "{report}"
    );
}
