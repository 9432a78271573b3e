//! Batches of few rows in memory for many. What a recursive query gives is that: a join makes room for thousands of rows in each step,
//! and gives one or two. A sort keeps them all until the end, and the process came to its end first.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::SchemaRef;
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;

use super::wrap::Wrap;

/// Its input's rows, in batches that take as much memory as their rows.
pub struct Compacting;

impl Wrap for Compacting {
    fn wrap(
        &self,
        rows: SendableRecordBatchStream,
        schema: SchemaRef,
        _: &TaskContext,
    ) -> Result<SendableRecordBatchStream> {
        let rows = rows.map(|batch| batch.and_then(compact));
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }
}

/// The same rows; copied if most of the memory of an array has none.
fn compact(batch: RecordBatch) -> Result<RecordBatch> {
    const SPARE_MAX: usize = 4;
    const SMALL_BYTES: usize = 1 << 10;
    let Ok(rows) = u32::try_from(batch.num_rows()) else {
        return Ok(batch);
    };
    let is_loose = |column: &ArrayRef| {
        let used = column.to_data().get_slice_memory_size().unwrap_or(usize::MAX);
        column.get_buffer_memory_size() > used.saturating_mul(SPARE_MAX).saturating_add(SMALL_BYTES)
    };
    if !batch.columns().iter().any(is_loose) {
        return Ok(batch);
    }
    let all = UInt32Array::from_iter_values(0..rows);
    let columns = batch.columns().iter().map(|column| match is_loose(column) {
        true => take(column, &all, None),
        false => Ok(Arc::clone(column)),
    });
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(
        batch.schema(),
        columns,
        &options,
    )?)
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, Int64Builder, StringArray};

    use super::*;

    #[test]
    fn what_has_room_for_many_rows_is_copied() {
        let mut roomy = Int64Builder::with_capacity(8_192);
        roomy.append_value(7);
        let roomy: ArrayRef = Arc::new(roomy.finish());
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["x".repeat(3_000)]));
        let batch = RecordBatch::try_from_iter([("a", roomy), ("b", Arc::clone(&texts))]).unwrap();
        assert!(batch.get_array_memory_size() > 60_000);
        let compacted = compact(batch.clone()).unwrap();
        assert_eq!(compacted, batch);
        assert!(compacted.get_array_memory_size() < 10_000);
        assert!(Arc::ptr_eq(compacted.column(1), &texts));
        let full: ArrayRef = Arc::new(Int64Array::from_iter_values(0..8_192));
        let batch = RecordBatch::try_from_iter([("a", Arc::clone(&full))]).unwrap();
        assert!(Arc::ptr_eq(compact(batch).unwrap().column(0), &full));
    }
}
