//! A bounded number of cases of the random oracle. `cargo run --release -p millrace-benches -- oracle` runs as many as one
//! likes.
//!
//! `MILLRACE_SEED` is the first seed, `MILLRACE_ORACLE_CASES` the number of cases.

use millrace_sql_tests::oracle::{Options, run};
use millrace_sql_tests::seed;

#[test]
fn views_equal_the_batch_answer_at_random_epochs() {
    let options = Options {
        cases: millrace_oracle::cases(400),
        seed: seed(),
        threads: 2,
        out: None,
        failures_max: 1,
        talk: false,
    };
    let report = run(&options).unwrap();
    println!("{}", report.text());
    assert!(report.failures.is_empty(), "{}", report.text());
    // What is refused must not become the way to be right.
    assert!(report.refused_share() < 0.1, "{}", report.text());
    assert!(report.cases >= options.cases);
    assert!(
        report.restored > 0 && report.not_restored.is_empty(),
        "{}",
        report.text()
    );
}
