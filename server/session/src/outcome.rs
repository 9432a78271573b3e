//! What a statement answers with, and what travels beside it: tags, notices, COPY in and out.
//!
//! The wire protocols translate these and nothing else; none of it knows a wire.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use datafusion::execution::SendableRecordBatchStream;
use futures::stream::BoxStream;
use millrace_postgres::error::SqlResult;

use crate::copy_in::CopyIn;

/// What a statement answers with.
pub enum Outcome {
    /// Rows, still to be pulled from the stream.
    ///
    /// Text of errors in the stream is made with [`millrace_postgres::from_internal::datafusion`]. The session knows when
    /// the stream failed: the transaction around it has then failed too. A batch without rows says that the next may be long in
    /// coming: what was sent should reach the client.
    Rows {
        /// The columns.
        schema: SchemaRef,
        /// The rows. Dropping it cancels the query.
        stream: SendableRecordBatchStream,
        /// What to say when the stream has ended.
        tag: CommandTag,
    },
    /// The statement is done and has no rows to show.
    Done {
        /// What to say.
        tag: CommandTag,
    },
    /// There was no statement: the wire says so in its own way.
    Empty,
    /// The client now sends data.
    CopyIn(Box<CopyIn>),
    /// The client now receives data.
    CopyOut(CopyOut),
}

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Rows { schema, tag, .. } => f
                .debug_struct("Rows")
                .field("schema", schema)
                .field("tag", tag)
                .finish_non_exhaustive(),
            Outcome::Done { tag } => f.debug_struct("Done").field("tag", tag).finish(),
            Outcome::Empty => f.write_str("Empty"),
            Outcome::CopyIn(_) => f.write_str("CopyIn"),
            Outcome::CopyOut(_) => f.write_str("CopyOut"),
        }
    }
}

/// The text that says that a command is complete: `SELECT 3`, `INSERT 0 1`, `CREATE TABLE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandTag {
    /// The words in front of the row count, `INSERT 0` included.
    pub command: Cow<'static, str>,
    /// How many rows to name.
    pub rows: TagRows,
}

/// The row count of a [`CommandTag`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TagRows {
    /// The tag names no rows.
    None,
    /// The tag names this many.
    Known(u64),
    /// The tag names as many as were sent to the client.
    Sent,
}

impl CommandTag {
    /// A tag without a row count.
    pub fn plain(command: impl Into<Cow<'static, str>>) -> Self {
        CommandTag {
            command: command.into(),
            rows: TagRows::None,
        }
    }

    /// A tag with a known row count.
    pub fn rows(command: impl Into<Cow<'static, str>>, rows: u64) -> Self {
        CommandTag {
            command: command.into(),
            rows: TagRows::Known(rows),
        }
    }

    /// A tag whose row count is the number of rows that were sent.
    pub fn sent(command: impl Into<Cow<'static, str>>) -> Self {
        CommandTag {
            command: command.into(),
            rows: TagRows::Sent,
        }
    }

    /// The full text; `sent_rows` is how many rows went to the client.
    pub fn render(&self, sent_rows: u64) -> String {
        match self.rows {
            TagRows::None => self.command.to_string(),
            TagRows::Known(rows) => format!("{} {rows}", self.command),
            TagRows::Sent => format!("{} {sent_rows}", self.command),
        }
    }
}

/// Data on its way to the client, in the format that the statement asked for.
pub struct CopyOut {
    /// The data. A piece without rows says that the next may be long in coming.
    pub stream: BoxStream<'static, SqlResult<CopyRows>>,
    /// How many columns there are.
    pub columns: usize,
    /// Whether the format is PostgreSQL's binary one.
    pub binary: bool,
    pub(crate) rows: Arc<AtomicU64>,
}

/// Some rows of a COPY TO. Clients take each in a message of its own.
#[derive(Debug, Clone, Default)]
pub struct CopyRows {
    bytes: Bytes,
    /// Where each ends.
    ends: Vec<usize>,
}

impl CopyRows {
    /// Rows of which each ends at one of these places.
    pub(crate) fn new(bytes: Bytes, ends: Vec<usize>) -> Self {
        CopyRows { bytes, ends }
    }

    /// What is one message.
    pub(crate) fn one(bytes: Bytes) -> Self {
        let ends = vec![bytes.len()];
        CopyRows { bytes, ends }
    }

    /// Each of them.
    pub fn messages(&self) -> impl Iterator<Item = Bytes> + '_ {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts
            .zip(&self.ends)
            .map(|(start, end)| self.bytes.slice(start..*end))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
}

impl CopyOut {
    /// A handle that tells the tag once the stream has ended (the stream may be moved elsewhere before).
    pub fn row_counter(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.rows)
    }

    /// The tag for what [`Self::row_counter`] has counted.
    pub fn tag(rows: &AtomicU64) -> CommandTag {
        CommandTag::rows("COPY", rows.load(Ordering::Acquire))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_read_as_in_postgresql() {
        assert_eq!(CommandTag::plain("CREATE TABLE").render(9), "CREATE TABLE");
        assert_eq!(CommandTag::rows("INSERT 0", 2).render(9), "INSERT 0 2");
        assert_eq!(CommandTag::sent("SELECT").render(9), "SELECT 9");
    }
}
