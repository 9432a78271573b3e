//! SQL text, to the end of planning.

#![no_main]

#[path = "../checks/plan.rs"]
mod plan;

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;

static PLANNER: OnceLock<plan::Planner> = OnceLock::new();

fuzz_target!(|text: &str| {
    let planner = PLANNER.get_or_init(|| plan::Planner::open().expect("a database can be opened"));
    planner.check(text);
});
