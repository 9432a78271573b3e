//! Runs every experiment of tenants at its small size.

use crate::common::small_run;
use millrace_benches::tenants::Tenants;

#[tokio::test(flavor = "multi_thread")]
async fn every_experiment_gives_numbers() {
    // The disk, beside, strangers.
    let (_, report) = small_run::<Tenants>(3).await;
    for line in [
        "| beside with limits / alone | % |",
        "| beside strangers: p99 | ms |",
    ] {
        assert!(report.contains(line), "{report}");
    }
}
