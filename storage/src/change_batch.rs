//! A change batch: rows and how often each was added or taken away. What every operator, the log and the
//! tables exchange.

use arrow::array::{Array, Int64Array, RecordBatch};
use arrow::compute;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;

use crate::StorageError;

/// A Z-set delta: row `i` was inserted `weight(i)` times, or deleted if that is negative.
///
/// No weights means that every row has weight +1, so that an append-only stream pays nothing for them.
#[derive(Debug, Clone, PartialEq)]
pub struct ChangeBatch {
    /// The rows that change.
    pub rows: RecordBatch,
    /// One weight a row, without nulls; `None` if all are +1.
    pub weights: Option<Int64Array>,
}

impl ChangeBatch {
    /// Rows with their weights; refused unless there is exactly one weight, not null, for each row.
    pub fn new(rows: RecordBatch, weights: Option<Int64Array>) -> Result<Self, StorageError> {
        if let Some(weights) = &weights {
            if weights.len() != rows.num_rows() {
                let why = format!("{} rows, but {} weights", rows.num_rows(), weights.len());
                return Err(StorageError::InvalidChange { why });
            }
            if weights.null_count() > 0 {
                return Err(StorageError::InvalidChange {
                    why: "a weight is null".to_owned(),
                });
            }
        }
        Ok(ChangeBatch { rows, weights })
    }

    /// Rows that are all inserted once.
    pub fn insertions(rows: RecordBatch) -> Self {
        ChangeBatch { rows, weights: None }
    }

    /// A batch without rows.
    pub fn empty(schema: SchemaRef) -> Self {
        ChangeBatch::insertions(RecordBatch::new_empty(schema))
    }

    /// The schema of the rows, without the weights.
    pub fn schema(&self) -> SchemaRef {
        self.rows.schema()
    }

    /// How many rows change.
    pub fn num_rows(&self) -> usize {
        self.rows.num_rows()
    }

    /// The weight of row `i`.
    pub fn weight(&self, i: usize) -> i64 {
        self.weights.as_ref().map_or(1, |weights| weights.value(i))
    }

    /// Rows `offset..offset + len`, sharing the memory.
    pub fn slice(&self, offset: usize, len: usize) -> Self {
        ChangeBatch {
            rows: self.rows.slice(offset, len),
            weights: self.weights.as_ref().map(|weights| weights.slice(offset, len)),
        }
    }

    /// All rows of several batches of one schema, in order. There must be at least one batch.
    pub fn concat(batches: &[ChangeBatch]) -> Result<Self, StorageError> {
        let Some(first) = batches.first() else {
            return Err(StorageError::InvalidChange {
                why: "nothing to concatenate".to_owned(),
            });
        };
        if batches.len() == 1 {
            return Ok(first.clone());
        }
        let rows = compute::concat_batches(&first.schema(), batches.iter().map(|batch| &batch.rows))
            .map_err(invalid)?;
        let weights = batches.iter().any(|batch| batch.weights.is_some()).then(|| {
            let all = batches
                .iter()
                .flat_map(|batch| (0..batch.num_rows()).map(|i| batch.weight(i)));
            Int64Array::from_iter_values(all)
        });
        ChangeBatch::new(rows, weights)
    }

    /// Whether nothing is taken away: there are no weights, or none is negative.
    #[cfg(test)]
    pub fn is_append_only(&self) -> bool {
        self.weights
            .as_ref()
            .is_none_or(|weights| weights.values().iter().all(|weight| *weight >= 0))
    }

    /// The columns at `indices`, in that order, with the same weights.
    pub fn project(&self, indices: &[usize]) -> Result<Self, StorageError> {
        let rows = self.rows.project(indices).map_err(invalid)?;
        Ok(ChangeBatch {
            rows,
            weights: self.weights.clone(),
        })
    }

    /// Memory held by the arrays, shared or not.
    pub fn memory_bytes(&self) -> usize {
        let weights = self
            .weights
            .as_ref()
            .map_or(0, |weights| weights.get_array_memory_size());
        self.rows.get_array_memory_size() + weights
    }
}

fn invalid(error: ArrowError) -> StorageError {
    StorageError::InvalidChange {
        why: error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, StringArray};

    use super::*;

    fn rows(values: &[i64]) -> RecordBatch {
        let ids: ArrayRef = Arc::new(Int64Array::from(values.to_vec()));
        let names: ArrayRef = Arc::new(StringArray::from_iter_values(
            values.iter().map(|v| format!("r{v}")),
        ));
        RecordBatch::try_from_iter([("id", ids), ("name", names)]).unwrap()
    }

    #[test]
    fn weights_must_match_the_rows() {
        assert!(ChangeBatch::new(rows(&[1, 2]), Some(Int64Array::from(vec![1]))).is_err());
        assert!(ChangeBatch::new(rows(&[1, 2]), Some(Int64Array::from(vec![Some(1), None]))).is_err());
        let batch = ChangeBatch::new(rows(&[1, 2]), Some(Int64Array::from(vec![-1, 2]))).unwrap();
        assert_eq!((batch.weight(0), batch.weight(1)), (-1, 2));
        assert!(!batch.is_append_only());
        assert!(ChangeBatch::insertions(rows(&[1])).is_append_only());
    }

    #[test]
    fn slices_and_concatenation_are_inverse() {
        let batch = ChangeBatch::new(rows(&[1, 2, 3]), Some(Int64Array::from(vec![1, -1, 5]))).unwrap();
        let joined = ChangeBatch::concat(&[batch.slice(0, 1), batch.slice(1, 0), batch.slice(1, 2)]).unwrap();
        assert_eq!(joined, batch);
        assert!(ChangeBatch::concat(&[]).is_err());
    }

    #[test]
    fn concatenation_spells_out_weights_only_where_one_batch_has_them() {
        let plain = ChangeBatch::insertions(rows(&[1]));
        let weighted = ChangeBatch::new(rows(&[2]), Some(Int64Array::from(vec![-1]))).unwrap();
        assert!(
            ChangeBatch::concat(&[plain.clone(), plain.clone()])
                .unwrap()
                .weights
                .is_none()
        );
        let mixed = ChangeBatch::concat(&[plain, weighted]).unwrap();
        assert_eq!(mixed.weights, Some(Int64Array::from(vec![1, -1])));
    }

    #[test]
    fn projection_keeps_the_weights() {
        let batch = ChangeBatch::new(rows(&[1, 2]), Some(Int64Array::from(vec![1, -1]))).unwrap();
        let names = batch.project(&[1]).unwrap();
        assert_eq!(names.schema().field(0).name(), "name");
        assert_eq!(names.weights, batch.weights);
        assert!(batch.project(&[7]).is_err());
    }
}
