//! Runs every measurement of `ivm` at its small size, in this process. Each view is compared with the batch query there.

use crate::common::small_run;
use millrace_benches::ivm::Ivm;

#[tokio::test(flavor = "multi_thread")]
async fn every_view_gives_numbers_and_figures() {
    // The disk and every view.
    let (run, report) = small_run::<Ivm>(11).await;
    for experiment in &run.experiments()[1..] {
        // Two sizes of change over two sizes of base, each with its processor time, and more.
        assert!(experiment.measurements().len() > 8, "{experiment:?}");
    }
    assert!(
        report.contains("| 100 changes over 600 rows | ms | 2 |"),
        "{report}"
    );
    assert_eq!(run.charts().len(), 2);
}
