//! Runs every experiment of mapreduce at its small scale.

use millrace_benches::mapreduce::{self, Scale};
use millrace_benches::results::Run;

#[tokio::test(flavor = "multi_thread")]
async fn every_experiment_gives_numbers() {
    let scale = Scale::small();
    let run = Run::begin("mapreduce", "the test".to_owned(), scale.fsync_probes).unwrap();
    let run = mapreduce::run(run, &scale, None).await.unwrap();
    // The disk, moving average, word count, service levels, communities, Nexmark.
    assert_eq!(run.experiments().len(), 6);
    assert!(
        run.experiments()
            .iter()
            .all(|experiment| !experiment.measurements().is_empty())
    );
    let directory = tempfile::tempdir().unwrap();
    let kept = run.write(directory.path()).unwrap();
    let report = std::fs::read_to_string(kept.join("report.md")).unwrap();
    assert!(
        report.contains("| 50 ms: sliding, incremental | events/s |"),
        "{report}"
    );
}
