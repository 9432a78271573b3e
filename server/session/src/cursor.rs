//! Cursors: a query whose rows are fetched in portions.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::error::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{StreamExt, TryStreamExt};

/// An open cursor. It reads the epoch in which it was declared.
#[derive(Clone)]
pub struct Cursor {
    /// Whether it outlives its transaction.
    pub hold: bool,
    /// Its columns.
    pub schema: SchemaRef,
    /// The query, for `SHOW CURSORS`.
    pub query: String,
    /// Whoever reads a FETCH has them until its end.
    rows: Arc<tokio::sync::Mutex<Rows>>,
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
            rows: Arc::new(tokio::sync::Mutex::new(rows)),
        }
    }

    /// The next rows, at most `count`, as they are read: none of them is kept. `None`: those of another FETCH are still to be
    /// read.
    pub fn fetch(&self, count: usize) -> Option<SendableRecordBatchStream> {
        let rows = Arc::clone(&self.rows).try_lock_owned().ok()?;
        let read = futures::stream::try_unfold((rows, count), |(mut rows, missing)| async move {
            let batch = rows.next(missing).await?;
            Ok(batch.map(|batch| {
                let left = missing - batch.num_rows();
                (batch, (rows, left))
            }))
        });
        let schema = Arc::clone(&self.schema);
        let renamed = read.map_ok({
            let schema = Arc::clone(&schema);
            move |batch| RecordBatch::try_new(Arc::clone(&schema), batch.columns().to_vec()).unwrap_or(batch)
        });
        Some(Box::pin(RecordBatchStreamAdapter::new(schema, renamed)))
    }
}

impl Rows {
    /// The next rows, at most so many; none when they are zero.
    async fn next(&mut self, missing: usize) -> Result<Option<RecordBatch>> {
        if missing == 0 {
            return Ok(None);
        }
        let batch = match self.rest.take() {
            Some(batch) => batch,
            None => {
                let Some(stream) = &mut self.stream else {
                    return Ok(None);
                };
                match stream.next().await.transpose()? {
                    Some(batch) => batch,
                    None => {
                        self.stream = None;
                        return Ok(None);
                    }
                }
            }
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
            let fetched = cursor.fetch(count).expect("nobody else reads it");
            let batches: Vec<RecordBatch> = fetched.try_collect().await.unwrap();
            batches.iter().map(RecordBatch::num_rows).sum()
        };
        assert_eq!(rows(4).await, 4);
        assert_eq!(rows(0).await, 0);
        assert_eq!(rows(4).await, 4);
        let held = cursor.fetch(1);
        assert!(held.is_some() && cursor.fetch(1).is_none());
        drop(held);
        assert_eq!(rows(usize::MAX).await, 2);
        assert_eq!(rows(1).await, 0);
    }
}
