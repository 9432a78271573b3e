//! The first byte chooses a decoder of `millrace_storage::decoders`, the rest are its bytes.

#![no_main]

use std::sync::Once;

use libfuzzer_sys::fuzz_target;
use millrace_storage::decoders::ALL;

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
    if let Some((first, rest)) = bytes.split_first() {
        let (_, decoder) = ALL[usize::from(*first) % ALL.len()];
        let _ = decoder(rest);
    }
});
