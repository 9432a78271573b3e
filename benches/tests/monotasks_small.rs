//! Runs every experiment of monotasks at its small scale. Each answer is compared with plain DataFusion's there.

mod common;

use millrace_benches::monotasks::{self, Scale};
use millrace_benches::results::Run;

#[tokio::test(flavor = "multi_thread")]
async fn every_experiment_gives_numbers() {
    let scale = Scale::small();
    let run = Run::begin("monotasks", "the test".to_owned(), scale.fsync_probes).unwrap();
    let run = monotasks::run(run, &scale, None, None).await.unwrap();
    // The disk, a view's head-room, cost, predictions of five kinds, attribution, and time against tasks.
    common::report(&run, 10);
    assert_eq!(run.charts().len(), 7);
}
