//! Sealing: what is kept where others may read it, and opened by whoever has the key.
//!
//! AES-256-GCM under a random nonce. What a value belongs to is sealed with it, so that one cannot be put in another's place.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::digest;
use serde::{Deserialize, Serialize};

use crate::random;

/// The length of a key.
const KEY_BYTES: usize = 32;
/// Bytes of a key's hash by which it is known.
const ID_BYTES: usize = 8;

/// A key. It shows up in no log.
#[derive(Clone, PartialEq, Eq)]
pub struct SealingKey([u8; KEY_BYTES]);

impl fmt::Debug for SealingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealingKey(..)")
    }
}

/// A value that was sealed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sealed {
    /// By which key, as its hash tells.
    key: String,
    /// The nonce and what it is with the tag, in base64.
    bytes: String,
}

/// Why a value cannot be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// It was sealed with another one.
    #[error("it was encrypted with another key")]
    OtherKey,
    /// It was changed, or is another's.
    #[error("it is damaged")]
    Damaged,
}

impl SealingKey {
    /// A new key.
    pub fn generate() -> SealingKey {
        SealingKey(random())
    }

    /// Reads a key: 64 hexadecimal digits, or the 44 characters of base64, for 32 bytes.
    ///
    /// # Errors
    /// It is neither. The error does not repeat it.
    pub fn parse(text: &str) -> Result<SealingKey, String> {
        let text = text.trim();
        let bytes = match text.len() {
            64 => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                let pair = |pair: &[u8]| u8::try_from(digit(pair[0])? * 16 + digit(pair[1])?).ok();
                text.as_bytes().chunks_exact(2).map(pair).collect()
            }
            _ => BASE64.decode(text).ok(),
        };
        let bytes = bytes.and_then(|bytes: Vec<u8>| bytes.try_into().ok());
        bytes.map(SealingKey).ok_or_else(|| {
            "a key is 32 random bytes as 64 hexadecimal digits or in base64, as `openssl rand -hex 32` makes them"
                .to_owned()
        })
    }

    fn id(&self) -> String {
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(b"millrace key");
        context.update(&self.0);
        BASE64.encode(&context.finish().as_ref()[..ID_BYTES])
    }

    fn cipher(&self) -> LessSafeKey {
        let key = UnboundKey::new(&AES_256_GCM, &self.0).expect("the key has the cipher's length");
        LessSafeKey::new(key)
    }

    /// Seals a value, for what has this identity.
    pub fn seal(&self, of: u64, value: &[u8]) -> Sealed {
        let nonce = random::<NONCE_LEN>();
        let mut sealed = value.to_vec();
        self.cipher()
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), belongs_to(of), &mut sealed)
            .expect("a secret is shorter than what the cipher can take");
        let bytes = [nonce.as_slice(), &sealed].concat();
        Sealed {
            key: self.id(),
            bytes: BASE64.encode(bytes),
        }
    }

    /// Whether a value was sealed with this key.
    pub fn has_sealed(&self, sealed: &Sealed) -> bool {
        same_text(&sealed.key, &self.id())
    }

    /// Opens a value of what has this identity.
    ///
    /// # Errors
    /// It was sealed with another key, for something else, or was changed.
    pub fn open(&self, of: u64, sealed: &Sealed) -> Result<Vec<u8>, SealError> {
        if !self.has_sealed(sealed) {
            return Err(SealError::OtherKey);
        }
        let bytes = BASE64.decode(&sealed.bytes).map_err(|_| SealError::Damaged)?;
        let (nonce, bytes) = bytes.split_first_chunk::<NONCE_LEN>().ok_or(SealError::Damaged)?;
        let mut bytes = bytes.to_vec();
        let opened =
            self.cipher()
                .open_in_place(Nonce::assume_unique_for_key(*nonce), belongs_to(of), &mut bytes);
        opened.map(|value| value.to_vec()).map_err(|_| SealError::Damaged)
    }
}

fn same_text(one: &str, other: &str) -> bool {
    crate::same(one.as_bytes(), other.as_bytes())
}

fn belongs_to(of: u64) -> Aad<[u8; 8]> {
    Aad::from(of.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> SealingKey {
        SealingKey::parse(&format!("{byte:02x}").repeat(KEY_BYTES)).unwrap()
    }

    #[test]
    fn a_value_is_opened_by_its_key_for_what_it_belongs_to() {
        for length in [0, 1, 16, 4_096] {
            let value = vec![b'x'; length];
            let sealed = key(1).seal(7, &value);
            assert_eq!(key(1).open(7, &sealed), Ok(value.clone()));
            assert_eq!(key(1).open(8, &sealed), Err(SealError::Damaged));
            assert_eq!(key(2).open(7, &sealed), Err(SealError::OtherKey));
            assert_ne!(key(1).seal(7, &value), sealed, "a nonce is used once");
            let text = shown(&sealed);
            assert!(length < 16 || !text.contains("xxxx"), "{text}");
            for at in 0..sealed.bytes.len() {
                let mut bytes = sealed.bytes.clone().into_bytes();
                bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
                let changed = Sealed {
                    bytes: String::from_utf8(bytes).unwrap(),
                    ..sealed.clone()
                };
                assert_eq!(key(1).open(7, &changed), Err(SealError::Damaged));
            }
        }
        let short = Sealed {
            bytes: "AAAA".to_owned(),
            ..key(1).seal(7, b"")
        };
        assert_eq!(key(1).open(7, &short), Err(SealError::Damaged));
    }

    fn shown(sealed: &Sealed) -> String {
        format!("{sealed:?}")
    }

    #[test]
    fn keys_are_read_in_two_forms_and_shown_in_none() {
        let hex = "00".repeat(31) + "fF";
        let base64 = BASE64.encode([[0; 31].as_slice(), &[255]].concat());
        assert_eq!(SealingKey::parse(&hex), SealingKey::parse(&format!("{base64}\n")));
        assert_eq!(format!("{:?}", key(3)), "SealingKey(..)");
        for wrong in [
            "",
            "password",
            &"0".repeat(63),
            &"g".repeat(64),
            &"é".repeat(32),
            "AAAA",
        ] {
            let error = SealingKey::parse(wrong).unwrap_err();
            assert!(wrong.is_empty() || !error.contains(wrong), "{error}");
        }
    }
}
