//! Runs every experiment of doors at its small size, with the server inside this process. What views count is compared with what
//! was written there. Needs a broker's jars and PostgreSQL's programs; it is skipped without them.

use crate::common::small_run;
use millrace_benches::doors::Doors;
use millrace_sql_tests::{kafka, postgres};

#[tokio::test(flavor = "multi_thread")]
async fn every_experiment_gives_numbers() {
    for variable in [kafka::JARS, postgres::BIN] {
        if std::env::var_os(variable).is_none() {
            println!("skipped: {variable} is not set");
            return;
        }
    }
    // The disk, replay, freshness, snapshot, changes.
    let (_, report) = small_run::<Doors>(5).await;
    for line in [
        "| BYTES: rate | records/s |",
        "| records: p99 | ms |",
        "| copied: rate | rows/s |",
        "| lag: p50 | ms |",
    ] {
        assert!(report.contains(line), "{report}");
    }
}
