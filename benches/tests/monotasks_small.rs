//! Runs every experiment of monotasks at its small scale. Each answer is compared with plain DataFusion's there.

mod common;

use millrace_benches::monotasks::{self, Scale};
use millrace_benches::results::Run;

#[tokio::test(flavor = "multi_thread")]
async fn every_experiment_gives_numbers() {
    let scale = Scale::small();
    let run = Run::begin("monotasks", "the test".to_owned(), scale.fsync_probes).unwrap();
    let run = monotasks::run(run, &scale, None).await.unwrap();
    // The disk, cost, predictions, attribution, and a view's head-room.
    common::report(&run, 5);
}
