//! Runs every experiment of first light at its small scale, with the server inside this process.

use millrace_benches::first_light::{self, Scale};
use millrace_benches::flights;
use millrace_benches::results::Run;
use millrace_benches::target::Target;

#[tokio::test(flavor = "multi_thread")]
async fn every_experiment_gives_numbers() {
    let scale = Scale::small();
    let flights = flights::load(None, scale.flights).unwrap();
    let run = Run::begin("first-light", "the test".to_owned(), scale.fsync_probes).unwrap();
    let run = first_light::run(run, &scale, &Target::InProcess, &flights, None).await;
    let run = run.unwrap();
    // The disk, start-up, idleness, freshness, three copies and point queries.
    assert_eq!(run.experiments().len(), 8);
    assert!(
        run.experiments()
            .iter()
            .all(|experiment| !experiment.measurements().is_empty())
    );
    let directory = tempfile::tempdir().unwrap();
    let kept = run.write(directory.path()).unwrap();
    let report = std::fs::read_to_string(kept.join("report.md")).unwrap();
    assert!(report.contains("| rate until visible | rows/s |"), "{report}");
}
