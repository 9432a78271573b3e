//! Cursors: a query whose rows are fetched in portions.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::execution::SendableRecordBatchStream;
use futures::StreamExt;

use crate::database::df;
use crate::error::SqlResult;

/// An open cursor. It reads the epoch in which it was declared.
pub struct Cursor {
    /// Whether it outlives its transaction.
    pub hold: bool,
    /// Its columns.
    pub schema: SchemaRef,
    /// The query, for `SHOW CURSORS`.
    pub query: String,
    stream: Option<SendableRecordBatchStream>,
    /// The rest of a batch of which some rows were fetched.
    rest: Option<RecordBatch>,
}

impl Cursor {
    /// A cursor before its first row.
    pub fn new(hold: bool, query: String, schema: SchemaRef, stream: SendableRecordBatchStream) -> Self {
        Cursor {
            hold,
            schema,
            query,
            stream: Some(stream),
            rest: None,
        }
    }

    /// The next rows, at most `count`.
    ///
    /// # Errors
    /// The query failed.
    pub async fn fetch(&mut self, count: usize) -> SqlResult<Vec<RecordBatch>> {
        let mut out = vec![];
        let mut missing = count;
        while missing > 0 {
            let batch = match self.rest.take() {
                Some(batch) => batch,
                None => match self.pull().await? {
                    Some(batch) => batch,
                    None => break,
                },
            };
            if batch.num_rows() > missing {
                self.rest = Some(batch.slice(missing, batch.num_rows() - missing));
                out.push(batch.slice(0, missing));
                missing = 0;
            } else {
                missing -= batch.num_rows();
                out.push(batch);
            }
        }
        Ok(out)
    }

    async fn pull(&mut self) -> SqlResult<Option<RecordBatch>> {
        let Some(stream) = &mut self.stream else {
            return Ok(None);
        };
        match stream.next().await {
            Some(batch) => {
                let batch = df(batch)?;
                let batch =
                    RecordBatch::try_new(Arc::clone(&self.schema), batch.columns().to_vec()).unwrap_or(batch);
                Ok(Some(batch))
            }
            None => {
                self.stream = None;
                Ok(None)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::query::rows_of;
    use arrow::array::{ArrayRef, Int32Array};

    #[tokio::test]
    async fn rows_are_fetched_in_portions() {
        let array: ArrayRef = Arc::new(Int32Array::from_iter_values(0..10));
        let batch = RecordBatch::try_from_iter([("v", array)]).unwrap();
        let schema = batch.schema();
        let stream = rows_of(Arc::clone(&schema), vec![batch.slice(0, 6), batch.slice(6, 4)]);
        let mut cursor = Cursor::new(false, String::new(), schema, stream);
        let rows = |batches: Vec<RecordBatch>| batches.iter().map(RecordBatch::num_rows).sum::<usize>();
        assert_eq!(rows(cursor.fetch(4).await.unwrap()), 4);
        assert_eq!(rows(cursor.fetch(4).await.unwrap()), 4);
        assert_eq!(rows(cursor.fetch(usize::MAX).await.unwrap()), 2);
        assert_eq!(rows(cursor.fetch(1).await.unwrap()), 0);
    }
}
