//! What all writers have in common: the mirror of [`crate::source`].
//!
//! ```text
//!   outbox (by the database): step n, always the same bytes --> Writer: its messages and "n is here" together --> the target
//! ```
//! A step stays in the outbox until the target has it. Whoever does not know whether it has opens the target again, and asks how far it is.

use async_trait::async_trait;
use bytes::Bytes;

use crate::source::ConnectorError;

/// What goes out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub key: Option<Bytes>,
    /// None: the key is gone.
    pub value: Option<Bytes>,
}

/// How far a target is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reached {
    /// The first step that it does not have.
    pub next: u64,
    /// The checksum of the one before.
    pub sum: u32,
}

/// Writes what others are to have, step by step.
#[async_trait]
pub trait Writer: Send {
    /// How far the target is; none: it never had anything of this sink.
    fn reached(&self) -> Option<Reached>;

    /// Writes a step, all of it or nothing, with how far the target is then. After an error, or when the call was dropped, it is not known
    /// whether the target has it, and the writer is to be closed.
    ///
    /// # Errors
    /// The target cannot be written now, or not by us any more.
    async fn write(&mut self, reached: Reached, messages: Vec<Message>) -> Result<(), ConnectorError>;

    /// Gives connections back.
    async fn close(&self);
}
