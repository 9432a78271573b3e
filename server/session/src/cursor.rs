//! Cursors: a query, or a relation that is followed, whose rows are fetched in portions.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::error::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{StreamExt, TryStreamExt};

/// An open cursor. Over a query it reads the epoch in which it was declared.
#[derive(Clone)]
pub struct Cursor {
    /// Whether it outlives its transaction.
    pub hold: bool,
    /// Its columns.
    pub schema: SchemaRef,
    /// The query, for `SHOW CURSORS`.
    pub query: String,
    /// Whether it is over SUBSCRIBE.
    pub is_following: bool,
    /// Whoever reads a FETCH has them until its end.
    rows: Arc<tokio::sync::Mutex<Rows>>,
}

/// What a FETCH waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// Its rows: of a query they come by themselves.
    None,
    /// The first row; then it takes what is there.
    FirstRow,
    /// As many rows as it wants, until then.
    Until(tokio::time::Instant),
}

struct Rows {
    stream: Option<SendableRecordBatchStream>,
    /// The rest of a batch of which some rows were fetched.
    rest: Option<RecordBatch>,
}

impl Cursor {
    /// A cursor before its first row.
    pub fn new(hold: bool, query: String, schema: SchemaRef, stream: SendableRecordBatchStream) -> Self {
        let rows = Rows {
            stream: Some(stream),
            rest: None,
        };
        Cursor {
            hold,
            schema,
            query,
            is_following: false,
            rows: Arc::new(tokio::sync::Mutex::new(rows)),
        }
    }

    /// A cursor over what is followed.
    pub fn following(hold: bool, query: String, stream: SendableRecordBatchStream) -> Self {
        Cursor {
            is_following: true,
            ..Cursor::new(hold, query, stream.schema(), stream)
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::rows_of;
    use arrow::array::{ArrayRef, Int32Array};

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
