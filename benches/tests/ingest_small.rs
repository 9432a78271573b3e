//! Runs both experiments of ingest at their small scale.

mod common;

use millrace_benches::ingest::{self, Scale};
use millrace_benches::results::Run;

#[test]
fn every_experiment_gives_numbers() {
    let scale = Scale::small();
    let run = Run::begin("ingest", "the test".to_owned(), scale.fsync_probes).unwrap();
    let run = ingest::run(run, &scale, None).unwrap();
    // The disk, small writes, large writes.
    let report = common::report(&run, 3);
    for line in [
        "| group, 4 clients: writes | 1/s |",
        "| group: share of the disk's rate | % |",
    ] {
        assert!(report.contains(line), "{report}");
    }
}
