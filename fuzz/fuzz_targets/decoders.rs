//! Bytes that lie on disk.

#![no_main]

#[path = "../checks/decoders.rs"]
mod decoders;

use std::sync::Once;

use libfuzzer_sys::fuzz_target;

static HOOK: Once = Once::new();

fuzz_target!(|bytes: &[u8]| {
    // Panics inside of Arrow are caught by the decoders; every other one ends the run.
    HOOK.call_once(|| {
        std::panic::set_hook(Box::new(|panic| {
            let file = panic.location().map_or("", |location| location.file());
            if !(file.contains("arrow") || file.contains("flatbuffers")) {
                eprintln!("{panic}");
                std::process::abort();
            }
        }));
    });
    decoders::check(bytes);
});
