//! Rows as clients send them.

#![no_main]

#[path = "../checks/rows.rs"]
mod rows;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    rows::check(bytes);
});
