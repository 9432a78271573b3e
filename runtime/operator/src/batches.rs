//! Change batches: in pieces, filtered, put together. What every operator needs of them, and nothing of any one of them.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch, RecordBatchOptions, UInt32Array,
};
use arrow::compute::{filter_record_batch, take};
use arrow::datatypes::{Int64Type, Schema, SchemaRef};
use millrace_schedule::cpu::CHUNK_ROWS;
use millrace_storage::ChangeBatch;

use crate::error::{OperatorError, Result};

/// A batch in pieces small enough for one stretch of work.
pub(crate) fn chunks(batch: &ChangeBatch) -> impl Iterator<Item = ChangeBatch> + use<'_> {
    (0..batch.num_rows()).step_by(CHUNK_ROWS).map(|start| {
        if batch.num_rows() <= CHUNK_ROWS {
            batch.clone()
        } else {
            batch.slice(start, CHUNK_ROWS.min(batch.num_rows() - start))
        }
    })
}

/// The rows where the mask is true, with their weights.
pub(crate) fn filter_changes(batch: &ChangeBatch, mask: &BooleanArray) -> Result<ChangeBatch> {
    if mask.null_count() == 0 && mask.true_count() == mask.len() {
        return Ok(batch.clone());
    }
    let rows = filter_record_batch(&batch.rows, mask)?;
    let weights = match &batch.weights {
        Some(weights) => {
            let kept = arrow::compute::filter(weights, mask)?;
            Some(kept.as_primitive::<Int64Type>().clone())
        }
        None => None,
    };
    Ok(ChangeBatch { rows, weights })
}

/// A record batch whose nullability is as the data says: an expression that failed on a row left NULL there.
pub(crate) fn batch_of(schema: &SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let violated = schema
        .fields()
        .iter()
        .zip(&columns)
        .any(|(field, column)| !field.is_nullable() && column.null_count() > 0);
    let schema = if violated {
        nullable(schema)
    } else {
        Arc::clone(schema)
    };
    RecordBatch::try_new_with_options(schema, columns, &options).map_err(OperatorError::from)
}

/// The schema with every column nullable.
pub(crate) fn nullable(schema: &SchemaRef) -> SchemaRef {
    let fields: Vec<_> = schema
        .fields()
        .iter()
        .map(|field| field.as_ref().clone().with_nullable(true))
        .collect();
    Arc::new(Schema::new(fields))
}

/// All batches as one; `None` if there are no rows. They may differ in which columns can be NULL: the branches of a union
/// do, and so do batches with and without a row on which an expression failed.
pub fn concat(batches: Vec<ChangeBatch>) -> Result<Option<ChangeBatch>> {
    let mut batches: Vec<ChangeBatch> = batches.into_iter().filter(|batch| batch.num_rows() > 0).collect();
    if batches.len() < 2 {
        return Ok(batches.pop());
    }
    let schema = nullable(&batches[0].schema());
    let batches = batches
        .into_iter()
        .map(|batch| {
            let rows = batch_of(&schema, batch.rows.columns().to_vec(), batch.num_rows())?;
            Ok(ChangeBatch {
                rows,
                weights: batch.weights,
            })
        })
        .collect::<Result<Vec<_>>>()?;
    Ok(Some(ChangeBatch::concat(&batches)?))
}

/// The weights as an array, ones where there are none.
pub(crate) fn weights_of(batch: &ChangeBatch) -> Int64Array {
    batch
        .weights
        .clone()
        .unwrap_or_else(|| Int64Array::from(vec![1; batch.num_rows()]))
}

/// The first columns of these rows.
pub(crate) fn take_columns(rows: &RecordBatch, width: usize, positions: &[u32]) -> Result<Vec<ArrayRef>> {
    let positions = UInt32Array::from(positions.to_vec());
    (0..width)
        .map(|column| take(rows.column(column), &positions, None).map_err(OperatorError::from))
        .collect()
}
