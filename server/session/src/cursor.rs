//! Cursors: a query, or a relation that is followed, whose rows are fetched in portions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::error::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{FutureExt, StreamExt, TryStreamExt};
use millrace_database::clock::now_ms;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};

/// Asks whether what a cursor follows may still be read.
pub type StillAllowed = Arc<dyn Fn() -> SqlResult<()> + Send + Sync>;

/// An open cursor. Over a query it reads the epoch in which it was declared.
#[derive(Clone)]
pub struct Cursor {
    /// Whether it outlives its transaction.
    pub hold: bool,
    /// Its columns.
    pub schema: SchemaRef,
    /// The query, for `SHOW CURSORS`.
    pub query: String,
    /// What a FETCH without a timeout waits for.
    pub patience: Patience,
    /// Whether it moves in both directions.
    pub scrolls: bool,
    /// Whether what it follows may still be read; none: it is over a query, whose rows are those of when it was declared.
    pub still_allowed: Option<StillAllowed>,
    /// When it was declared, in milliseconds since 1970-01-01 UTC.
    pub began_at_ms: i64,
    /// Whoever reads a FETCH has them until its end.
    rows: Arc<tokio::sync::Mutex<Rows>>,
}

/// What a FETCH waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// Its rows: of a query they come by themselves.
    None,
    /// Nothing: it takes what is there.
    Present,
    /// The first row; then it takes what is there.
    FirstRow,
    /// As many rows as it wants, until then.
    Until(tokio::time::Instant),
}

struct Rows {
    stream: Option<SendableRecordBatchStream>,
    /// Whether the stream has nothing more yet.
    idle: Arc<AtomicBool>,
    /// The rest of a batch of which some rows were fetched.
    rest: Option<RecordBatch>,
    /// All rows so far, of one that scrolls.
    kept: Kept,
}

/// The rows of a cursor that scrolls, as far as they were read.
#[derive(Default)]
struct Kept {
    batches: Vec<RecordBatch>,
    /// How many rows these are.
    count: u64,
    bytes: usize,
    /// The number of the row at which the cursor is, from 1 on; 0: before the first, `count + 1`: behind the last.
    at: u64,
}

/// So many bytes are kept for one cursor that scrolls.
const KEPT_BYTES_MAX: usize = 256 << 20;

/// Where a cursor moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Movement {
    /// Over the next rows; of none: to the row where it is.
    Forward(u64),
    /// Over the rows before, the nearest first.
    Backward(u64),
    /// To a row by its number; negative ones count from the last.
    Absolute(i64),
    /// To the row that is so many behind.
    Relative(i64),
}

impl Cursor {
    /// A cursor before its first row.
    pub fn new(hold: bool, query: String, schema: SchemaRef, stream: SendableRecordBatchStream) -> Self {
        let rows = Rows {
            stream: Some(stream),
            idle: Arc::default(),
            rest: None,
            kept: Kept::default(),
        };
        Cursor {
            hold,
            schema,
            query,
            patience: Patience::None,
            scrolls: false,
            still_allowed: None,
            began_at_ms: now_ms(),
            rows: Arc::new(tokio::sync::Mutex::new(rows)),
        }
    }

    /// A cursor over what is followed.
    pub fn following(
        hold: bool,
        query: String,
        stream: SendableRecordBatchStream,
        still_allowed: StillAllowed,
    ) -> Self {
        Cursor {
            patience: Patience::FirstRow,
            still_allowed: Some(still_allowed),
            ..Cursor::new(hold, query, stream.schema(), stream)
        }
    }

    /// A cursor over what a subscription keeps, which outlives its transaction; `idle`: whether nothing more is there yet.
    pub fn over_kept(
        query: String,
        stream: SendableRecordBatchStream,
        idle: Arc<AtomicBool>,
        still_allowed: StillAllowed,
    ) -> Self {
        let cursor = Cursor::new(true, query, stream.schema(), stream);
        if let Ok(mut rows) = cursor.rows.try_lock() {
            rows.idle = idle;
        }
        Cursor {
            patience: Patience::Present,
            still_allowed: Some(still_allowed),
            ..cursor
        }
    }

    /// The same cursor, moving in both directions: its rows are kept.
    pub fn scrolling(self) -> Self {
        Cursor {
            scrolls: true,
            ..self
        }
    }

    /// Moves a cursor that scrolls, and returns the rows that it comes over or to. `None`: those of another FETCH are still to be read.
    ///
    /// # Errors
    /// The query failed, or there are too many rows to be kept.
    pub async fn scroll(&self, movement: Movement) -> Result<Option<Vec<RecordBatch>>> {
        let Ok(mut rows) = Arc::clone(&self.rows).try_lock_owned() else {
            return Ok(None);
        };
        let batches = rows.scroll(movement).await?;
        let renamed = batches.into_iter();
        renamed
            .map(|batch| {
                Ok(RecordBatch::try_new(
                    Arc::clone(&self.schema),
                    batch.columns().to_vec(),
                )?)
            })
            .collect::<Result<Vec<_>>>()
            .map(Some)
    }

    /// The next rows, at most `count`, as they are read: none of them is kept. `None`: those of another FETCH are still to be
    /// read.
    pub fn fetch(&self, count: usize, patience: Patience) -> Option<SendableRecordBatchStream> {
        let rows = Arc::clone(&self.rows).try_lock_owned().ok()?;
        let read = futures::stream::try_unfold(
            (rows, count, patience),
            |(mut rows, missing, patience)| async move {
                let batch = rows.next(missing, patience).await?;
                Ok(batch.map(|batch| {
                    let left = missing - batch.num_rows();
                    let patience = match patience {
                        // It has a row: what is there now is enough.
                        Patience::FirstRow if batch.num_rows() > 0 => {
                            Patience::Until(tokio::time::Instant::now())
                        }
                        other => other,
                    };
                    (batch, (rows, left, patience))
                }))
            },
        );
        let schema = Arc::clone(&self.schema);
        let renamed = read.map_ok({
            let schema = Arc::clone(&schema);
            move |batch| RecordBatch::try_new(Arc::clone(&schema), batch.columns().to_vec()).unwrap_or(batch)
        });
        Some(Box::pin(RecordBatchStreamAdapter::new(schema, renamed)))
    }
}

impl Rows {
    /// The next batch of the stream; none: there is none, or it is not waited for.
    async fn come(&mut self, patience: Patience) -> Result<Option<RecordBatch>> {
        let Some(stream) = &mut self.stream else {
            return Ok(None);
        };
        let next = match patience {
            Patience::None | Patience::FirstRow => stream.next().await,
            Patience::Present => {
                let next = match stream.next().now_or_never() {
                    Some(next) => next,
                    None if self.idle.load(Ordering::Acquire) => return Ok(None),
                    None => stream.next().await,
                };
                // A batch without rows says that there is nothing more yet.
                if let Some(Ok(batch)) = &next
                    && batch.num_rows() == 0
                {
                    return Ok(None);
                }
                next
            }
            Patience::Until(deadline) => match tokio::time::timeout_at(deadline, stream.next()).await {
                Ok(next) => next,
                Err(_) => return Ok(None),
            },
        };
        if next.is_none() {
            self.stream = None;
        }
        next.transpose()
    }

    /// Reads on until so many rows are kept, or all.
    async fn keep(&mut self, wanted: u64) -> Result<()> {
        while self.kept.count < wanted {
            let Some(batch) = self.come(Patience::None).await? else {
                break;
            };
            self.kept.bytes += batch.get_array_memory_size();
            if self.kept.bytes > KEPT_BYTES_MAX {
                return Err(SqlError::new(
                    SqlState::ProgramLimitExceeded,
                    "the rows of a cursor that scrolls take more than 256 MB",
                )
                .with_hint("Declare it with NO SCROLL, or LIMIT its query.")
                .into());
            }
            self.kept.count += batch.num_rows() as u64;
            self.kept.batches.push(batch);
        }
        Ok(())
    }

    async fn scroll(&mut self, movement: Movement) -> Result<Vec<RecordBatch>> {
        let at = self.kept.at;
        match movement {
            Movement::Forward(0) | Movement::Relative(0) => Ok(self.kept.row(at).into_iter().collect()),
            Movement::Forward(count) => {
                let last = at.saturating_add(count);
                self.keep(last).await?;
                self.kept.at = last.min(self.kept.count + 1);
                Ok(self.kept.rows(at + 1, last))
            }
            Movement::Backward(count) => {
                self.kept.at = at.saturating_sub(count);
                let over = (self.kept.at.max(1)..at).rev();
                Ok(over.filter_map(|number| self.kept.row(number)).collect())
            }
            Movement::Absolute(number) => {
                let wanted = match u64::try_from(number) {
                    Ok(number) => number,
                    Err(_) => {
                        self.keep(u64::MAX).await?;
                        (self.kept.count + 1).saturating_sub(number.unsigned_abs())
                    }
                };
                self.go_to(wanted).await
            }
            Movement::Relative(count) => self.go_to(at.saturating_add_signed(count)).await,
        }
    }

    /// Goes to a row; 0: before the first.
    async fn go_to(&mut self, number: u64) -> Result<Vec<RecordBatch>> {
        self.keep(number).await?;
        self.kept.at = number.min(self.kept.count + 1);
        Ok(self.kept.row(self.kept.at).into_iter().collect())
    }

    /// The next rows, at most so many; none when they are zero.
    async fn next(&mut self, missing: usize, patience: Patience) -> Result<Option<RecordBatch>> {
        if missing == 0 {
            return Ok(None);
        }
        let batch = match self.rest.take() {
            Some(batch) => batch,
            None => match self.come(patience).await? {
                Some(batch) => batch,
                None => return Ok(None),
            },
        };
        if batch.num_rows() <= missing {
            return Ok(Some(batch));
        }
        self.rest = Some(batch.slice(missing, batch.num_rows() - missing));
        Ok(Some(batch.slice(0, missing)))
    }
}

impl Kept {
    /// The row of a number, by itself.
    fn row(&self, number: u64) -> Option<RecordBatch> {
        self.rows(number, number).into_iter().next()
    }

    /// The rows from one number to another.
    fn rows(&self, first: u64, last: u64) -> Vec<RecordBatch> {
        let mut found = vec![];
        let mut before = 0;
        for batch in &self.batches {
            let count = batch.num_rows() as u64;
            let (from, to) = (first.max(before + 1), last.min(before + count));
            if first > 0 && from <= to {
                // Both are within the batch.
                let offset = usize::try_from(from - before - 1).unwrap_or_default();
                let length = usize::try_from(to - from + 1).unwrap_or_default();
                found.push(batch.slice(offset, length));
            }
            before += count;
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::rows_of;
    use arrow::array::{ArrayRef, AsArray, Int32Array};
    use arrow::datatypes::Int32Type;

    #[tokio::test]
    async fn a_cursor_that_scrolls_goes_both_ways() {
        let array: ArrayRef = Arc::new(Int32Array::from_iter_values(1..=10));
        let batch = RecordBatch::try_from_iter([("v", array)]).unwrap();
        let schema = batch.schema();
        let stream = rows_of(Arc::clone(&schema), vec![batch.slice(0, 6), batch.slice(6, 4)]);
        let cursor = Cursor::new(false, String::new(), schema, stream).scrolling();
        let rows = async |movement| -> Vec<i32> {
            let batches = cursor
                .scroll(movement)
                .await
                .unwrap()
                .expect("nobody else reads it");
            let values = batches
                .iter()
                .map(|batch| batch.column(0).as_primitive::<Int32Type>().values().to_vec());
            values.flatten().collect()
        };
        assert_eq!(rows(Movement::Forward(3)).await, [1, 2, 3]);
        assert_eq!(rows(Movement::Forward(0)).await, [3]);
        assert_eq!(rows(Movement::Backward(1)).await, [2]);
        assert_eq!(rows(Movement::Backward(5)).await, [1]);
        assert_eq!(rows(Movement::Forward(1)).await, [1]);
        assert_eq!(rows(Movement::Absolute(-1)).await, [10]);
        assert_eq!(rows(Movement::Forward(1)).await, [0; 0]);
        assert_eq!(rows(Movement::Backward(2)).await, [10, 9]);
        assert_eq!(rows(Movement::Relative(-5)).await, [4]);
        assert_eq!(rows(Movement::Absolute(11)).await, [0; 0]);
        assert_eq!(rows(Movement::Absolute(-20)).await, [0; 0]);
        assert_eq!(rows(Movement::Forward(u64::MAX)).await.len(), 10);
    }

    #[tokio::test]
    async fn rows_are_fetched_in_portions() {
        let array: ArrayRef = Arc::new(Int32Array::from_iter_values(0..10));
        let batch = RecordBatch::try_from_iter([("v", array)]).unwrap();
        let schema = batch.schema();
        let stream = rows_of(Arc::clone(&schema), vec![batch.slice(0, 6), batch.slice(6, 4)]);
        let cursor = Cursor::new(false, String::new(), schema, stream);
        let rows = async |count| -> usize {
            let fetched = cursor.fetch(count, Patience::None).expect("nobody else reads it");
            let batches: Vec<RecordBatch> = fetched.try_collect().await.unwrap();
            batches.iter().map(RecordBatch::num_rows).sum()
        };
        assert_eq!(rows(4).await, 4);
        assert_eq!(rows(0).await, 0);
        assert_eq!(rows(4).await, 4);
        let held = cursor.fetch(1, Patience::None);
        assert!(held.is_some() && cursor.fetch(1, Patience::None).is_none());
        drop(held);
        assert_eq!(rows(usize::MAX).await, 2);
        assert_eq!(rows(1).await, 0);
    }
}
