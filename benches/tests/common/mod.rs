//! What every suite's small run is looked at for.

use millrace_benches::results::Run;

/// Each of so many experiments has numbers, and the run can be kept; returns its report.
pub fn report(run: &Run, experiments: usize) -> String {
    assert_eq!(run.experiments().len(), experiments);
    for experiment in run.experiments() {
        assert!(!experiment.measurements().is_empty(), "{experiment:?}");
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let kept = run.write(directory.path()).expect("the run is kept");
    std::fs::read_to_string(kept.join("report.md")).expect("the report is there")
}
