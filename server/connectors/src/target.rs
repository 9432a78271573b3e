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

/// What a target says of how far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    /// It never had anything of this sink.
    Nothing,
    /// It keeps count, and is so far.
    All(Reached),
    /// Somebody may have taken things away that it had: it is so far at least, if anything is left.
    AtLeast(Option<Reached>),
}

impl From<Option<Reached>> for Said {
    fn from(reached: Option<Reached>) -> Self {
        reached.map_or(Said::Nothing, Said::All)
    }
}

/// Writes what others are to have, step by step.
#[async_trait]
pub trait Writer: Send {
    /// How far the target is.
    fn reached(&self) -> Said;

    /// Writes a step, all of it or nothing, with how far the target is then. After an error, or when the call was dropped, it is not known
    /// whether the target has it, and the writer is to be closed.
    ///
    /// # Errors
    /// The target cannot be written now, or not by us any more.
    async fn write(&mut self, reached: Reached, messages: Vec<Message>) -> Result<(), ConnectorError>;

    /// Gives connections back.
    async fn close(&self);
}
