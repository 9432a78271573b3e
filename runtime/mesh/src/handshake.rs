//! What both sides say once they can speak: who they are, and that they know the cluster's token.
//!
//! ```text
//!  connects                                 listens
//!    nonce a -------------------------------->
//!    <-------------- nonce b, HMAC(token, "listens" a b s)
//!    HMAC(token, "connects" a b s), hello --->
//!    <-------------- taken, or why not
//! ```
//! The token itself is never sent. `s` is what only the two ends of an encrypted connection have ([`crate::tls`]), and nothing
//! where it is not encrypted.

use bytes::Bytes;
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::MeshError;
use crate::stream::Stream;

const NONCE_BYTES: usize = 32;
const PROOF_BYTES: usize = 32;
/// A hello, or why a process is not taken, at most.
const HELLO_BYTES_MAX: u32 = 64 << 10;

/// The cluster's token: whoever has it may take part.
#[derive(Clone)]
pub(crate) struct Token(hmac::Key);

impl Token {
    pub fn new(token: &str) -> Token {
        Token(hmac::Key::new(hmac::HMAC_SHA256, token.as_bytes()))
    }

    fn proof(&self, side: &[u8], nonces: &[u8]) -> Vec<u8> {
        hmac::sign(&self.0, &[side, nonces].concat()).as_ref().to_vec()
    }

    fn check(&self, side: &[u8], nonces: &[u8], proof: &[u8]) -> Result<(), MeshError> {
        hmac::verify(&self.0, &[side, nonces].concat(), proof).map_err(|_| MeshError::Token)
    }
}

/// Which of the two connections of a link one is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Lane {
    Messages,
    Requests,
}

/// What the side that connects says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// Joins the two connections.
    pub link: [u8; 16],
    pub lane: Lane,
    /// The caller's own.
    pub about: Vec<u8>,
}

/// Bytes that nobody can guess.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], MeshError> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| std::io::Error::other("the system has no random numbers"))?;
    Ok(bytes)
}

async fn write_text(stream: &mut (impl AsyncWrite + Unpin), text: &[u8]) -> Result<(), MeshError> {
    stream.write_u32_le(text.len() as u32).await?;
    stream.write_all(text).await?;
    Ok(stream.flush().await?)
}

async fn read_text(stream: &mut (impl AsyncRead + Unpin)) -> Result<Vec<u8>, MeshError> {
    let length = stream.read_u32_le().await?;
    if length > HELLO_BYTES_MAX {
        return Err(MeshError::Protocol);
    }
    let mut text = vec![0; length as usize];
    stream.read_exact(&mut text).await?;
    Ok(text)
}

/// The side that connects. What it sends after this is read once it is taken.
pub(crate) async fn connects(stream: &mut Stream, token: &Token, hello: &Hello) -> Result<(), MeshError> {
    let Stream {
        reader,
        writer,
        binding,
    } = stream;
    let own: [u8; NONCE_BYTES] = random()?;
    writer.write_all(&own).await?;
    writer.flush().await?;
    let mut answer = [0; NONCE_BYTES + PROOF_BYTES];
    reader.read_exact(&mut answer).await?;
    let (others, proof) = answer.split_at(NONCE_BYTES);
    let nonces = [&own[..], others, binding].concat();
    token.check(b"listens", &nonces, proof)?;
    writer.write_all(&token.proof(b"connects", &nonces)).await?;
    let hello = rmp_serde::to_vec(hello).map_err(|_| MeshError::Protocol)?;
    write_text(writer, &hello).await?;
    let refusal = read_text(reader).await?;
    match refusal.is_empty() {
        true => Ok(()),
        false => Err(MeshError::Refused(String::from_utf8_lossy(&refusal).into_owned())),
    }
}

/// The side that listens, up to what the other says of itself.
pub(crate) async fn listens(stream: &mut Stream, token: &Token) -> Result<Hello, MeshError> {
    let Stream {
        reader,
        writer,
        binding,
    } = stream;
    let mut others = [0; NONCE_BYTES];
    reader.read_exact(&mut others).await?;
    let own: [u8; NONCE_BYTES] = random()?;
    let nonces = [&others[..], &own, binding].concat();
    writer.write_all(&own).await?;
    writer.write_all(&token.proof(b"listens", &nonces)).await?;
    writer.flush().await?;
    let mut proof = [0; PROOF_BYTES];
    reader.read_exact(&mut proof).await?;
    token.check(b"connects", &nonces, &proof)?;
    let hello = read_text(reader).await?;
    rmp_serde::from_slice(&hello).map_err(|_| MeshError::Protocol)
}

/// Takes the other side, or says why not.
pub(crate) async fn answer(stream: &mut Stream, refusal: Option<&str>) -> Result<(), MeshError> {
    write_text(&mut stream.writer, refusal.unwrap_or_default().as_bytes()).await
}

/// What a process says of itself, as bytes.
pub(crate) fn about(hello: Hello) -> Bytes {
    hello.about.into()
}
