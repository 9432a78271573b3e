//! What every suite's small run is looked at for.

use millrace_benches::results::Run;
use millrace_benches::suite::{Suite, small};

/// Runs a suite at its small size: each of so many experiments, the disk's among them, has numbers, and the run can be kept.
/// Returns it with its report.
pub async fn small_run<S: Suite>(experiments: usize) -> (Run, String) {
    let run = small::<S>().await.expect("the suite runs");
    assert_eq!(run.experiments().len(), experiments);
    for experiment in run.experiments() {
        assert!(!experiment.measurements().is_empty(), "{experiment:?}");
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let kept = run.write(directory.path()).expect("the run is kept");
    for chart in run.charts() {
        assert!(kept.join(format!("{}.svg", chart.name)).is_file());
    }
    let report = std::fs::read_to_string(kept.join("report.md")).expect("the report is there");
    (run, report)
}
