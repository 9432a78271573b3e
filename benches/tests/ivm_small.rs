//! Runs every measurement of `ivm` at its small scale, in this process. Each view is compared with the batch query there.

use millrace_benches::ivm::{self, Scale};
use millrace_benches::process::Isolation;
use millrace_benches::results::Run;

#[tokio::test(flavor = "multi_thread")]
async fn every_view_gives_numbers_and_figures() {
    let scale = Scale::small();
    let run = Run::begin("ivm", "the test".to_owned(), scale.fsync_probes).unwrap();
    let run = ivm::run(run, &scale, Isolation::None, None).await.unwrap();
    assert!(run.experiments().len() >= 10, "the disk and every view");
    for experiment in &run.experiments()[1..] {
        // Two sizes of change over two sizes of base, each with its processor time, and more.
        assert!(experiment.measurements().len() > 8, "{experiment:?}");
    }
    let directory = tempfile::tempdir().unwrap();
    let kept = run.write(directory.path()).unwrap();
    let report = std::fs::read_to_string(kept.join("report.md")).unwrap();
    assert!(
        report.contains("| 100 changes over 600 rows | ms | 2 |"),
        "{report}"
    );
    for chart in run.charts() {
        assert!(kept.join(format!("{}.svg", chart.name)).is_file());
    }
}
