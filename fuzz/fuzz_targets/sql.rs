//! SQL text.

#![no_main]

#[path = "../checks/sql.rs"]
mod sql;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| sql::check(text));
