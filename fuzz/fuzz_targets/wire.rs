//! What a PostgreSQL client sends.

#![no_main]

#[path = "../checks/wire.rs"]
mod wire;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    wire::check(bytes);
});
