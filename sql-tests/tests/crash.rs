//! A few rounds of [`millrace_sql_tests::crash`]: `MILLRACE_CRASH_ROUNDS` says how many, `MILLRACE_SEED` which.

use libtest_mimic::{Arguments, Failed, Trial};
use millrace_sql_tests::{crash, seed};

/// How often the server is killed, unless the variable says otherwise.
const ROUNDS: u64 = 8;
const ROUNDS_OF_MACHINES: u64 = 4;

fn main() {
    if crash::serve_if_child() {
        return;
    }
    let arguments = Arguments::from_args();
    let trial = Trial::test("acknowledged_writes_survive_kill_9", || {
        let rounds = std::env::var("MILLRACE_CRASH_ROUNDS").ok();
        let rounds = rounds.and_then(|text| text.parse().ok()).unwrap_or(ROUNDS);
        let tell = |done: u64, seen: &crash::Seen| println!("{done} rounds: {seen:?}");
        let outcome = crash::kill_and_compare(seed(), rounds, tell);
        outcome
            .map(|_| ())
            .map_err(|error| Failed::from(error.to_string()))
    });
    let machines = Trial::test("acknowledged_writes_survive_kill_9_of_machines", || {
        let rounds = std::env::var("MILLRACE_CRASH_ROUNDS").ok();
        let rounds = rounds
            .and_then(|text| text.parse().ok())
            .unwrap_or(ROUNDS_OF_MACHINES);
        let tell = |done: u64, seen: &crash::Seen| println!("{done} rounds: {seen:?}");
        let outcome = crash::kill_machines_and_compare(seed(), rounds, tell);
        outcome
            .map(|_| ())
            .map_err(|error| Failed::from(error.to_string()))
    });
    libtest_mimic::run(&arguments, vec![trial, machines]).exit();
}
