//! What all readers have in common.

use std::collections::BTreeMap;

use async_trait::async_trait;
use bytes::Bytes;
use millrace_postgres::error::{SqlError, SqlState};
use serde::{Deserialize, Serialize};

/// How far a source was read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// What is read, where its name may come to mean something else: the id of a topic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// Of each split (a partition of a topic) the offset of the next record.
    pub splits: BTreeMap<i32, i64>,
}

impl Position {
    /// Adds what was read later.
    pub fn advance(&mut self, later: Position) {
        self.of = later.of.or(self.of.take());
        self.splits.extend(later.splits);
    }

    /// Takes what another is further at, of the same.
    pub fn at_least(&mut self, other: &Position) {
        if self.of != other.of {
            return;
        }
        for (split, offset) in &other.splits {
            let known = self.splits.entry(*split).or_insert(*offset);
            *known = (*known).max(*offset);
        }
    }

    /// Whether nothing was read yet.
    pub fn is_beginning(&self) -> bool {
        self.splits.is_empty()
    }
}

/// A record as it was found.
#[derive(Debug, Clone)]
pub struct Record {
    pub split: i32,
    pub offset: i64,
    /// In milliseconds since 1970-01-01 00:00 UTC.
    pub timestamp_ms: Option<i64>,
    pub key: Option<Bytes>,
    pub value: Option<Bytes>,
    pub headers: Vec<(String, Option<Bytes>)>,
}

/// What was read at a time.
#[derive(Debug, Default)]
pub struct Fetched {
    /// Of each split in its order.
    pub records: Vec<Record>,
    /// Where the splits are after these records: those that moved.
    pub position: Position,
}

/// How far the reader is behind what there is, as far as it knows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lag {
    /// Of each split how many records are there that were not read, where that is known.
    pub splits: BTreeMap<i32, Option<u64>>,
}

/// Why nothing can be read.
#[derive(Debug, Clone)]
pub struct ConnectorError {
    pub message: String,
    pub hint: Option<String>,
    /// Whether it makes no sense to try again: somebody must do something first.
    pub is_final: bool,
}

impl ConnectorError {
    /// One that may go away by itself.
    pub fn passing(message: impl Into<String>) -> Self {
        ConnectorError {
            message: message.into(),
            hint: None,
            is_final: false,
        }
    }

    /// One that does not.
    pub fn lasting(message: impl Into<String>, hint: impl Into<String>) -> Self {
        ConnectorError {
            message: message.into(),
            hint: Some(hint.into()),
            is_final: true,
        }
    }

    /// As the answer to a statement.
    pub fn into_sql(self) -> SqlError {
        SqlError::new(SqlState::ObjectNotInPrerequisiteState, self.message).with_hint_opt(self.hint)
    }
}

/// Reads what others keep, from a position on.
#[async_trait]
pub trait Reader: Send {
    /// What came next; it may be nothing after a while. If the call is dropped, nothing is lost.
    ///
    /// # Errors
    /// The source cannot be read now, or not any more.
    async fn next(&mut self) -> Result<Fetched, ConnectorError>;

    /// Where every split is read next, those too of which nothing was read yet.
    fn position(&self) -> Position;

    /// How far it is behind.
    async fn lag(&self) -> Lag;

    /// Gives connections back.
    async fn close(&self);
}
