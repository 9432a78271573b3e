//! What is kept of a password: a SCRAM verifier, in the form in which PostgreSQL keeps it.

use std::cell::Cell;
use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::{digest, hmac, pbkdf2};
use serde::{Deserialize, Serialize};

use crate::{random, same};

/// How often a password is hashed: as often as PostgreSQL does it.
const ITERATIONS: NonZeroU32 = NonZeroU32::new(4_096).expect("it is not 0");
/// More would let a verifier that somebody made keep the server busy at each login.
const ITERATIONS_MAX: u32 = 1_000_000;
const SALT_BYTES: usize = 16;
const KEY_BYTES: usize = digest::SHA256_OUTPUT_LEN;
const PREFIX: &str = "SCRAM-SHA-256$";

/// Enough to check a password, and not enough to log in with.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Verifier {
    iterations: NonZeroU32,
    salt: Vec<u8>,
    stored_key: [u8; KEY_BYTES],
    server_key: [u8; KEY_BYTES],
}

/// The text is not a verifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a verifier of the form SCRAM-SHA-256$iterations:salt$stored key:server key")]
pub struct NotAVerifier;

thread_local! {
    static HASHED: Cell<u64> = const { Cell::new(0) };
}

/// How many hashes this thread has made for passwords: who is known is not to be told by their number.
pub fn hashed() -> u64 {
    HASHED.get()
}

fn count(hashes: u32) {
    HASHED.set(HASHED.get() + u64::from(hashes));
}

impl Verifier {
    /// The verifier of a password, with a salt of its own.
    pub fn of(password: &str) -> Self {
        Verifier::salted(password, ITERATIONS, random::<SALT_BYTES>().to_vec())
    }

    /// What stands for the verifier of somebody whom nobody knows: always the same for the same name, as that of somebody who is known.
    /// No password goes with it.
    pub fn of_nobody(name: &str, secret: &[u8]) -> Self {
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
        count(1);
        let salt = hmac::sign(&key, name.as_bytes());
        Verifier {
            iterations: ITERATIONS,
            salt: salt.as_ref()[..SALT_BYTES].to_vec(),
            stored_key: random(),
            server_key: random(),
        }
    }

    fn salted(password: &str, iterations: NonZeroU32, salt: Vec<u8>) -> Self {
        // What the rules for passwords do not allow is taken as it is, as PostgreSQL does.
        let prepared = stringprep::saslprep(password);
        let password = prepared.as_deref().unwrap_or(password);
        let mut salted = [0; KEY_BYTES];
        count(iterations.get());
        pbkdf2::derive(
            pbkdf2::PBKDF2_HMAC_SHA256,
            iterations,
            &salt,
            password.as_bytes(),
            &mut salted,
        );
        let client_key = signed(&salted, b"Client Key");
        Verifier {
            iterations,
            salt,
            stored_key: hash(&client_key),
            server_key: signed(&salted, b"Server Key"),
        }
    }

    /// Whether this is the password.
    pub fn accepts(&self, password: &str) -> bool {
        let given = Verifier::salted(password, self.iterations, self.salt.clone());
        same(&given.stored_key, &self.stored_key)
    }

    /// How often the password is hashed.
    pub(crate) fn iterations(&self) -> u32 {
        self.iterations.get()
    }

    /// The salt as text.
    pub(crate) fn salt_text(&self) -> String {
        BASE64.encode(&self.salt)
    }

    /// Whether the proof shows that who made it knows the password.
    pub(crate) fn is_proven(&self, exchanged: &[u8], proof: &[u8]) -> bool {
        let signature = signed(&self.stored_key, exchanged);
        let Ok(proof) = <[u8; KEY_BYTES]>::try_from(proof) else {
            return false;
        };
        let client_key: Vec<u8> = proof.iter().zip(signature).map(|(a, b)| a ^ b).collect();
        same(&hash(&client_key), &self.stored_key)
    }

    /// What shows to the client that the server knows the verifier.
    pub(crate) fn signature(&self, exchanged: &[u8]) -> String {
        BASE64.encode(signed(&self.server_key, exchanged))
    }
}

fn signed(key: &[u8], text: &[u8]) -> [u8; KEY_BYTES] {
    count(1);
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text);
    let mut bytes = [0; KEY_BYTES];
    bytes.copy_from_slice(tag.as_ref());
    bytes
}

fn hash(bytes: &[u8]) -> [u8; KEY_BYTES] {
    count(1);
    let mut out = [0; KEY_BYTES];
    out.copy_from_slice(digest::digest(&digest::SHA256, bytes).as_ref());
    out
}

impl FromStr for Verifier {
    type Err = NotAVerifier;

    fn from_str(text: &str) -> Result<Self, NotAVerifier> {
        let read = || {
            let (salted, keys) = text.strip_prefix(PREFIX)?.split_once('$')?;
            let (iterations, salt) = salted.split_once(':')?;
            let (stored, server) = keys.split_once(':')?;
            let key = |text: &str| <[u8; KEY_BYTES]>::try_from(BASE64.decode(text).ok()?).ok();
            let iterations: NonZeroU32 = iterations.parse().ok()?;
            let salt = BASE64.decode(salt).ok()?;
            (iterations.get() <= ITERATIONS_MAX && !salt.is_empty()).then_some(Verifier {
                iterations,
                salt,
                stored_key: key(stored)?,
                server_key: key(server)?,
            })
        };
        read().ok_or(NotAVerifier)
    }
}

impl TryFrom<String> for Verifier {
    type Error = NotAVerifier;

    fn try_from(text: String) -> Result<Self, NotAVerifier> {
        text.parse()
    }
}

impl From<Verifier> for String {
    fn from(verifier: Verifier) -> String {
        format!(
            "{PREFIX}{}:{}${}:{}",
            verifier.iterations,
            BASE64.encode(&verifier.salt),
            BASE64.encode(verifier.stored_key),
            BASE64.encode(verifier.server_key)
        )
    }
}

/// It shows up in no log.
impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Verifier(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What PostgreSQL 15 kept after `CREATE ROLE a PASSWORD 'pencil'`.
    const OF_POSTGRESQL: &str = "SCRAM-SHA-256$4096:8BUEdlO/Mp9dO02cZ9WBeg==$7rBNVIneRdHUO6MVIDWZLNCHIYbNN6ufcCNZH7/tSRo=:EZ7kCEoN18tumxJh1D/eeI5VStQOUfs+HcBJ32ITjpc=";

    #[test]
    fn a_verifier_of_postgresql_is_read_and_written() {
        let verifier: Verifier = OF_POSTGRESQL.parse().unwrap();
        assert!(verifier.accepts("pencil"));
        assert!(!verifier.accepts("pencil "));
        assert_eq!(String::from(verifier), OF_POSTGRESQL);
    }

    #[test]
    fn a_password_is_not_in_its_verifier_and_two_of_the_same_differ() {
        let (one, other) = (Verifier::of("pencil"), Verifier::of("pencil"));
        assert!(one.accepts("pencil") && other.accepts("pencil") && one != other);
        assert!(!String::from(one.clone()).contains("pencil"));
        assert_eq!(format!("{one:?}"), "Verifier(..)");
    }

    #[test]
    fn other_texts_are_no_verifiers() {
        for text in [
            "",
            "md5c0ffee",
            "SCRAM-SHA-256$4096:c2FsdA==$a:b",
            "SCRAM-SHA-256$0:c2FsdA==$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
            "SCRAM-SHA-256$9999999:c2FsdA==$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
        ] {
            assert_eq!(text.parse::<Verifier>(), Err(NotAVerifier), "{text}");
        }
    }

    #[test]
    fn nobody_has_the_same_salt_each_time_and_no_password() {
        let (one, again) = (Verifier::of_nobody("eve", b"s"), Verifier::of_nobody("eve", b"s"));
        assert_eq!(one.salt, again.salt);
        assert_ne!(one.salt, Verifier::of_nobody("eva", b"s").salt);
        assert_ne!(one.salt, Verifier::of_nobody("eve", b"t").salt);
        assert!(!one.accepts("") && !one.accepts("eve"));
    }
}
