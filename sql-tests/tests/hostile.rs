//! A hostile client, [`millrace_sql_tests::hostile`]: `MILLRACE_HOSTILE` says how many statements, `MILLRACE_WIDE` how
//! many views of wide rows, `MILLRACE_SEED` which.

use libtest_mimic::{Arguments, Failed, Trial};
use millrace_sql_tests::{crash, hostile, seed};

/// That of the binary: another one would keep what was freed.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// How many views of wide rows, unless the variable says otherwise: they take up to ten seconds each.
const VIEWS: u64 = 4;
/// How many statements, unless the variable says otherwise: about a minute, not optimised.
const STATEMENTS: u64 = 400;

fn main() {
    if crash::serve_if_child() {
        return;
    }
    let arguments = Arguments::from_args();
    let trial = Trial::test("no_statement_ends_the_server", || {
        let statements = std::env::var("MILLRACE_HOSTILE").ok();
        let statements = statements
            .and_then(|text| text.parse().ok())
            .unwrap_or(STATEMENTS);
        let outcome = hostile::attack(seed(), statements, |seen| println!("{seen:?}"));
        outcome
            .map(|_| ())
            .map_err(|error| Failed::from(error.to_string()))
    });
    let wide = Trial::test("no_view_of_wide_rows_ends_the_server", || {
        let views = std::env::var("MILLRACE_WIDE").ok();
        let views = views.and_then(|text| text.parse().ok()).unwrap_or(VIEWS);
        hostile::wide_rows(seed(), views).map_err(|error| Failed::from(error.to_string()))
    });
    libtest_mimic::run(&arguments, vec![trial, wide]).exit();
}
