//! Runs the TPC-H suite at its small size.

use crate::common::small_run;
use millrace_benches::tpch::Tpch;

#[tokio::test(flavor = "multi_thread")]
async fn every_experiment_gives_numbers() {
    // The disk, the back-fill, refreshes, memory and each query.
    let (run, _) = small_run::<Tpch>(5).await;
    let measured = run.experiments().iter();
    let measured = measured.map(|experiment| experiment.measurements().len());
    assert_eq!(measured.collect::<Vec<_>>(), [1, 4, 2, 4, 44]);
}
