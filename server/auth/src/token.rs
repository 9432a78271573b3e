//! Tokens: secrets that programs send over HTTP in place of a user and a password.
//!
//! A token is random, so that its plain hash tells nothing about it, and no attempt needs to be made slow.

use std::fmt;
use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use ring::digest;
use serde::{Deserialize, Serialize};

use crate::random;

/// By which a token is known for what it is, wherever it turns up.
pub const PREFIX: &str = "millrace_";
const SECRET_BYTES: usize = 32;

/// What is kept of a token.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TokenHash(String);

impl TokenHash {
    /// The hash of what a client sent.
    pub fn of(token: &str) -> Self {
        let digest = digest::digest(&digest::SHA256, token.as_bytes());
        let mut text = String::new();
        for byte in digest.as_ref() {
            // Writing to a text cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        TokenHash(text)
    }
}

/// It shows up in no log.
impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenHash(..)")
    }
}

/// A new token, which is shown once, and what is kept of it.
pub fn new() -> (String, TokenHash) {
    let token = format!("{PREFIX}{}", BASE64.encode(random::<SECRET_BYTES>()));
    let hash = TokenHash::of(&token);
    (token, hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_found_by_its_hash() {
        let (token, hash) = new();
        assert_eq!(TokenHash::of(&token), hash);
        assert_ne!(TokenHash::of(&token[1..]), hash);
        assert_ne!(new().1, hash);
        assert!(token.starts_with(PREFIX) && token.len() > 48);
        assert_eq!(format!("{hash:?}"), "TokenHash(..)");
    }
}
