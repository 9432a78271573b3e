//! What all readers have in common.

use std::collections::BTreeMap;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::FieldRef;
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
    /// Of files the one that was read last, and how far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<FileAt>,
}

/// A file, and how far it was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileAt {
    pub path: String,
    /// What it has in common with no other that has or had the path.
    pub identity: String,
    /// The bytes that were read, without compression, or the rows of a file of columns.
    pub at: u64,
    /// Of a file that can grow a checksum of the last of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail: Option<u64>,
}

/// How a file was that can grow, when it was read to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// A checksum of the last bytes that were read.
    pub tail: u64,
    /// When it was changed last.
    pub modified_us: i64,
}

/// A file that was read to its end, as far as there is one yet.
#[derive(Debug, Clone)]
pub struct FileRead {
    pub path: String,
    pub identity: String,
    /// The bytes that it had.
    pub bytes: u64,
    /// Records that came out of it since it was opened last.
    pub records: u64,
    /// Where the rest of it could not be read, and why.
    pub broken: Option<(u64, String)>,
    pub seen: Option<Seen>,
}

impl FileRead {
    /// The identity, and how the file was, in one text.
    pub fn kept_identity(&self) -> String {
        match self.seen {
            Some(Seen { tail, modified_us }) => format!("{}:{tail:016x}:{modified_us}", self.identity),
            None => self.identity.clone(),
        }
    }

    /// Both, of such a text. What a store says of content (ETag) may have colons, too: that is not of this form.
    pub fn of_kept_identity(kept: &str) -> (String, Option<Seen>) {
        let seen = || {
            let (rest, modified_us) = kept.rsplit_once(':')?;
            let (identity, tail) = rest.rsplit_once(':')?;
            let tail = Some(tail).filter(|tail| tail.len() == 16)?;
            let seen = Seen {
                tail: u64::from_str_radix(tail, 16).ok()?,
                modified_us: modified_us.parse().ok()?,
            };
            let is_inode = !identity.is_empty() && identity.bytes().all(|byte| byte.is_ascii_hexdigit());
            is_inode.then(|| (identity.to_owned(), Some(seen)))
        };
        seen().unwrap_or_else(|| (kept.to_owned(), None))
    }
}

/// The files that were read before.
pub type FilesRead = Vec<FileRead>;

impl Position {
    /// Adds what was read later.
    pub fn advance(&mut self, later: Position) {
        self.file = later.file.or(self.file.take());
        self.of = later.of.or(self.of.take());
        self.splits.extend(later.splits);
    }

    /// Takes what another is further at, of the same.
    pub fn at_least(&mut self, other: &Position) {
        if self.of != other.of {
            return;
        }
        if let Some(file) = &mut self.file
            && let Some(other) = &other.file
            && (&file.path, &file.identity) == (&other.path, &other.identity)
            && other.at > file.at
        {
            file.clone_from(other);
        }
        for (split, offset) in &other.splits {
            let known = self.splits.entry(*split).or_insert(*offset);
            *known = (*known).max(*offset);
        }
    }

    /// Whether nothing was read yet.
    pub fn is_beginning(&self) -> bool {
        self.splits.is_empty() && self.file.is_none()
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
    /// Columns that were read together, instead of records.
    pub columns: Option<Columns>,
    /// Where the splits are after these records: those that moved.
    pub position: Position,
    /// Files that end with these records.
    pub files: FilesRead,
}

/// Rows of a file of columns.
#[derive(Debug, Clone)]
pub struct Columns {
    pub rows: RecordBatch,
    /// What else the file has.
    pub others: Vec<FieldRef>,
    pub file: String,
    /// The number of the first one in the file.
    pub first: u64,
    /// When the file was written, in milliseconds since 1970-01-01 00:00 UTC.
    pub timestamp_ms: i64,
}

impl Fetched {
    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty() && self.columns.is_none() && self.files.is_empty()
    }
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
    /// How long it wants to be left alone.
    pub retry_after: Duration,
}

impl ConnectorError {
    /// One that may go away by itself.
    pub fn passing(message: impl Into<String>) -> Self {
        ConnectorError {
            message: message.into(),
            hint: None,
            is_final: false,
            retry_after: Duration::ZERO,
        }
    }

    /// One that does not.
    pub fn lasting(message: impl Into<String>, hint: impl Into<String>) -> Self {
        ConnectorError {
            message: message.into(),
            hint: Some(hint.into()),
            is_final: true,
            retry_after: Duration::ZERO,
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
    async fn lag(&mut self) -> Lag;

    /// Gives connections back.
    async fn close(&mut self);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_a_file_was_is_kept_with_its_identity() {
        let mut file = FileRead {
            path: "a".to_owned(),
            identity: "1f0".to_owned(),
            bytes: 5,
            records: 1,
            broken: None,
            seen: Some(Seen {
                tail: 7,
                modified_us: -3,
            }),
        };
        assert_eq!(file.kept_identity(), "1f0:0000000000000007:-3");
        assert_eq!(
            FileRead::of_kept_identity(&file.kept_identity()),
            (file.identity.clone(), file.seen)
        );
        // Of before, and of a bucket.
        file.seen = None;
        for identity in [
            "1f0",
            "\"a:0000000000000007:1\"-5",
            "x:0000000000000007:5",
            "1f0:7:5",
        ] {
            assert_eq!(FileRead::of_kept_identity(identity), (identity.to_owned(), None));
        }
    }

    #[test]
    fn a_position_of_before_is_read() {
        let position: Position =
            serde_json::from_str(r#"{"splits": {"0": 0}, "file": {"path": "a", "identity": "1f", "at": 9}}"#)
                .unwrap();
        let file = position.file.unwrap();
        assert_eq!((file.at, file.tail), (9, None));
    }
}
