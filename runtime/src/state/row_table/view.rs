//! What a reader has of a table.

use std::sync::Arc;

use arrow::array::{Int64Array, RecordBatch, UInt32Array};
use arrow::datatypes::SchemaRef;
use millrace_storage::ChangeBatch;

use super::arrow_error;
use crate::error::Result;
use crate::state::chunk::{Chunk, Version};

/// The rows of a table at one version. Cheap to make and to clone.
#[derive(Debug, Clone)]
pub struct TableView {
    pub schema: SchemaRef,
    pub version: Version,
    chunks: Arc<Vec<Arc<Chunk>>>,
}

impl TableView {
    pub(super) fn new(schema: SchemaRef, version: Version, chunks: Arc<Vec<Arc<Chunk>>>) -> Self {
        TableView {
            schema,
            version,
            chunks,
        }
    }

    /// Batches of the visible rows, `projection` applied.
    pub fn batches(&self, projection: Option<&[usize]>) -> Result<Vec<RecordBatch>> {
        (0..self.chunks.len())
            .map(|chunk| self.batch(chunk, projection))
            .filter(|b| !matches!(b, Ok(b) if b.num_rows() == 0))
            .collect()
    }

    /// Rows of all chunks, dead ones included.
    pub fn rows_max(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.len()).sum()
    }

    /// Rows of a chunk, dead ones included.
    pub fn chunk_rows_max(&self, chunk: usize) -> usize {
        self.chunks[chunk].len()
    }

    pub fn num_chunks(&self) -> usize {
        self.chunks.len()
    }

    /// The chunks, with rows that are not visible.
    pub fn chunks(&self) -> &[Arc<Chunk>] {
        &self.chunks
    }

    /// The visible rows of one chunk.
    pub fn batch(&self, chunk: usize, projection: Option<&[usize]>) -> Result<RecordBatch> {
        let chunk = &self.chunks[chunk];
        let rows = match projection {
            Some(columns) => chunk.rows.project(columns).map_err(arrow_error)?,
            None => chunk.rows.clone(),
        };
        chunk.visible(self.version, &rows).map_err(arrow_error)
    }

    /// What changed in one chunk since an older version, which must have been pinned all the while: else rows that went
    /// since then may be missing.
    pub fn changes(&self, chunk: usize, since: Version) -> Result<ChangeBatch> {
        let chunk = &self.chunks[chunk];
        let (positions, weights) = chunk.changes(since, self.version);
        if positions.is_empty() {
            return Ok(ChangeBatch::empty(Arc::clone(&self.schema)));
        }
        let rows = arrow::compute::take_record_batch(&chunk.rows, &UInt32Array::from(positions))
            .map_err(arrow_error)?;
        let weights = weights
            .iter()
            .any(|weight| *weight != 1)
            .then(|| Int64Array::from(weights));
        Ok(ChangeBatch { rows, weights })
    }
}
