//! Runs the TPC-H suite at its small scale.

use millrace_benches::results::Run;
use millrace_benches::tpch::{self, Scale};

#[tokio::test(flavor = "multi_thread")]
async fn every_experiment_gives_numbers() {
    let scale = Scale::small();
    let run = Run::begin("tpch", "the test".to_owned(), scale.fsync_probes).unwrap();
    let run = tpch::run(run, &scale).await.unwrap();
    // The disk, the back-fill, refreshes, memory and each query.
    assert_eq!(run.experiments().len(), 5);
    let measured = |experiment: &millrace_benches::results::Experiment| experiment.measurements().len();
    assert_eq!(
        run.experiments().iter().map(measured).collect::<Vec<_>>(),
        [1, 4, 2, 4, 44]
    );
}
