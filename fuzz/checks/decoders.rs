//! What any bytes must leave standing in the decoders of what lies on disk: none may panic, or take memory that has nothing to
//! do with the size of its input. `storage/src/decoders.rs` runs the same functions in its tests.

use millrace_storage::decoders::ALL;

/// The first byte chooses a decoder, the rest are its bytes.
pub fn check(bytes: &[u8]) {
    if let Some((first, rest)) = bytes.split_first() {
        let (_, decoder) = ALL[usize::from(*first) % ALL.len()];
        let _ = decoder(rest);
    }
}
