//! Runs every experiment of monotasks at its small size. Each answer is compared with plain DataFusion's there.

use crate::common::small_run;
use millrace_benches::monotasks::Monotasks;

#[tokio::test(flavor = "multi_thread")]
async fn every_experiment_gives_numbers() {
    // The disk, a view's head-room, cost, predictions of five kinds, attribution, and time against tasks.
    let (run, _) = small_run::<Monotasks>(10).await;
    assert_eq!(run.charts().len(), 7);
}
