//! What goes into the log and what comes back from a write.

use crate::{ChangeBatch, Durability, StorageError};

/// Changes to one relation; several of them may form one atomic write.
#[derive(Debug, Clone)]
pub struct LogWrite {
    /// The relation's id, as given to `create`.
    pub relation: u64,
    /// The rows to add to its log.
    pub changes: ChangeBatch,
}

/// What is particular about the log of one relation. The owner of the catalog says it after each open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RelationOptions {
    /// What an acknowledged write survives, where that is not the store's. A write to several relations is as durable as
    /// the most durable of them.
    pub durability: Option<Durability>,
    /// Rows may be removed when they are older than this.
    pub retention_ms: Option<i64>,
    /// The oldest rows may be removed while the log is larger than this.
    pub retention_bytes: Option<u64>,
}

/// What the owner wrote down with a write, found when the logs were opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogNote {
    /// In milliseconds since 1970-01-01 UTC; 0 if that is not known.
    pub written_at_ms: i64,
    /// The number of the write.
    pub write_id: u64,
    /// As it was given to [`LogStore::prepare`](super::LogStore::prepare).
    pub note: Vec<u8>,
}

/// Whoever reads logs again, by what the logs themselves do not know.
pub trait LogOwner {
    /// The lowest offset of a relation that may be read again: nothing from there on is removed. Holds are kept besides.
    fn needed(&self, relation: u64) -> u64;

    /// The offset of a relation up to which no start feeds rows again as the writes that they came with: in front of it several
    /// writes may become one.
    fn settled(&self, relation: u64) -> u64;

    /// The time that retention goes by, when it is `now_ms` by the clock: an earlier one, if the clock is doubted.
    fn retention_time(&self, now_ms: i64) -> i64 {
        now_ms
    }

    /// Called before rows of a relation are removed: time to write down what only they tell.
    ///
    /// # Errors
    /// That failed; nothing is removed now.
    fn forgetting(&self, relation: u64) -> Result<(), StorageError>;

    /// How many rows a table has; `None`: it is none, and its changes are never added up.
    fn rows(&self, _relation: u64) -> Option<u64> {
        None
    }

    /// How many more changes than twice its rows a table's log may have.
    fn spare_rows(&self) -> u64 {
        2_000
    }

    /// The changes with all columns that the relation has now.
    ///
    /// # Errors
    /// They are not changes of the relation.
    fn whole(&self, _relation: u64, changes: ChangeBatch) -> Result<ChangeBatch, StorageError> {
        Ok(changes)
    }

    /// Whether a note of a write that was settled may still be asked for, after [`forgetting`](Self::forgetting).
    fn needs_note(&self, _note: &LogNote) -> bool {
        true
    }

    /// Whether what takes long is to end soon.
    fn is_stopping(&self) -> bool {
        false
    }
}

/// Where the rows of one [`LogWrite`] went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// The relation of the write.
    pub relation: u64,
    /// The offset of its first row.
    pub first_offset: u64,
    /// How many rows, and so offsets, it took.
    pub rows: u64,
}
