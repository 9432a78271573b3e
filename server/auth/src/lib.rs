//! Who somebody is: what is kept of a password, the exchange by which a client shows that it knows one, tokens, and how
//! failures are slowed.
//!
//! ```text
//!   scram ── the server's side of SCRAM-SHA-256, with and without channel binding
//!     └── verifier ── what is kept of a password: enough to check it, not enough to log in with
//!   token ── secrets for programs          failures ── how long whoever fails again and again waits
//!   seal ── secrets of others, encrypted under a key
//! ```
//!
//! Everything here is pure: it reads no clock, knows no catalog and no connection. A password is nowhere kept.

pub mod failures;
pub mod scram;
pub mod seal;
pub mod token;
mod verifier;

pub use verifier::{Verifier, hashed};

/// Compares without telling by the time taken where the first difference is.
pub fn same(given: &[u8], expected: &[u8]) -> bool {
    let differences = given
        .iter()
        .zip(expected)
        .fold(0, |differences, (a, b)| differences | (a ^ b));
    given.len() == expected.len() && differences == 0
}

/// Random bytes that nobody can guess.
///
/// # Panics
/// The system has no source of randomness; then nothing here can be safe.
pub fn random<const N: usize>() -> [u8; N] {
    use ring::rand::SecureRandom;
    let mut bytes = [0; N];
    ring::rand::SystemRandom::new()
        .fill(&mut bytes)
        .expect("the system has a source of randomness");
    bytes
}
