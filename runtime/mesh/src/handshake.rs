//! What both sides say before anything else: who they are, and that they know the cluster's token.
//!
//! ```text
//!  connects                                 listens
//!    MAGIC, nonce a ------------------------->
//!    <-------------- nonce b, HMAC(token, "listens" a b)
//!    HMAC(token, "connects" a b), hello ----->
//!    <-------------- taken, or why not
//! ```
//! The token itself is never sent. Who listens on the way learns what is said afterwards: the links are not encrypted.

use bytes::Bytes;
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::MeshError;

const MAGIC: &[u8; 16] = b"millrace mesh 1\n";
const NONCE_BYTES: usize = 32;
const PROOF_BYTES: usize = 32;
/// A hello, or why a process is not taken, at most.
const HELLO_BYTES_MAX: u32 = 64 << 10;

/// The cluster's token: whoever has it may take part.
#[derive(Clone)]
pub struct Token(hmac::Key);

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

async fn write_text<S: AsyncWrite + Unpin>(stream: &mut S, text: &[u8]) -> Result<(), MeshError> {
    stream.write_u32_le(text.len() as u32).await?;
    stream.write_all(text).await?;
    Ok(stream.flush().await?)
}

async fn read_text<S: AsyncRead + Unpin>(stream: &mut S) -> Result<Vec<u8>, MeshError> {
    let length = stream.read_u32_le().await?;
    if length > HELLO_BYTES_MAX {
        return Err(MeshError::Protocol);
    }
    let mut text = vec![0; length as usize];
    stream.read_exact(&mut text).await?;
    Ok(text)
}

/// The side that connects. What it sends after this is read once it is taken.
pub(crate) async fn connects<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    token: &Token,
    hello: &Hello,
) -> Result<(), MeshError> {
    let own: [u8; NONCE_BYTES] = random()?;
    stream.write_all(MAGIC).await?;
    stream.write_all(&own).await?;
    stream.flush().await?;
    let mut answer = [0; NONCE_BYTES + PROOF_BYTES];
    stream.read_exact(&mut answer).await?;
    let (others, proof) = answer.split_at(NONCE_BYTES);
    let nonces = [&own, others].concat();
    token.check(b"listens", &nonces, proof)?;
    stream.write_all(&token.proof(b"connects", &nonces)).await?;
    let hello = rmp_serde::to_vec(hello).map_err(|_| MeshError::Protocol)?;
    write_text(stream, &hello).await?;
    let refusal = read_text(stream).await?;
    match refusal.is_empty() {
        true => Ok(()),
        false => Err(MeshError::Refused(String::from_utf8_lossy(&refusal).into_owned())),
    }
}

/// The side that listens, up to what the other says of itself.
pub(crate) async fn listens<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    token: &Token,
) -> Result<Hello, MeshError> {
    let mut magic = [0; MAGIC.len()];
    stream.read_exact(&mut magic).await?;
    if &magic != MAGIC {
        return Err(MeshError::Protocol);
    }
    let mut others = [0; NONCE_BYTES];
    stream.read_exact(&mut others).await?;
    let own: [u8; NONCE_BYTES] = random()?;
    let nonces = [others, own].concat();
    stream.write_all(&own).await?;
    stream.write_all(&token.proof(b"listens", &nonces)).await?;
    stream.flush().await?;
    let mut proof = [0; PROOF_BYTES];
    stream.read_exact(&mut proof).await?;
    token.check(b"connects", &nonces, &proof)?;
    let hello = read_text(stream).await?;
    rmp_serde::from_slice(&hello).map_err(|_| MeshError::Protocol)
}

/// Takes the other side, or says why not.
pub(crate) async fn answer<S: AsyncWrite + Unpin>(
    stream: &mut S,
    refusal: Option<&str>,
) -> Result<(), MeshError> {
    write_text(stream, refusal.unwrap_or_default().as_bytes()).await
}

/// What a process says of itself, as bytes.
pub(crate) fn about(hello: Hello) -> Bytes {
    hello.about.into()
}
