//! What a reader has of a table.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Int64Array, RecordBatch, UInt32Array};
use arrow::datatypes::SchemaRef;
use millrace_schedule::id::Version;
use millrace_storage::ChangeBatch;

use super::image::under;
use crate::bounds;
use crate::chunk::Chunk;
use crate::error::{Result, StateError};

/// The rows of a table at one version. Cheap to make and to clone.
#[derive(Debug, Clone)]
pub struct TableView {
    pub schema: SchemaRef,
    pub version: Version,
    pub(super) chunks: Arc<Vec<Arc<Chunk>>>,
}

impl TableView {
    pub(super) fn new(schema: SchemaRef, version: Version, chunks: Arc<Vec<Arc<Chunk>>>) -> Self {
        TableView {
            schema,
            version,
            chunks,
        }
    }

    /// Batches of the visible rows, `projection` applied. None of them may be on disk.
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

    /// Between which values a column lies, about (see [`bounds`]), with rows that are not visible. `None`: it has none, or rows are on disk.
    pub fn bounds(&self, column: usize) -> Option<bounds::Range> {
        if (0..self.num_chunks()).any(|chunk| self.is_spilled(chunk)) {
            return None;
        }
        let ranges = self.chunks.iter().filter_map(|chunk| chunk.bounds(column));
        ranges.reduce(bounds::union)
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

    /// Whether the rows of a chunk are on disk.
    pub fn is_spilled(&self, chunk: usize) -> bool {
        self.chunks[chunk].away().is_some()
    }

    /// A chunk with its rows, read from the disk if they are there.
    ///
    /// # Errors
    /// They cannot be read.
    pub async fn chunk(&self, chunk: usize) -> Result<Arc<Chunk>> {
        let chunk = &self.chunks[chunk];
        match chunk.away() {
            None => Ok(Arc::clone(chunk)),
            Some(away) => {
                let rows = under(&self.schema, &away.load().await?)?;
                Ok(Arc::new(chunk.come_back(rows)))
            }
        }
    }

    /// The visible rows of one chunk, which are in memory.
    ///
    /// # Errors
    /// They are not.
    pub fn batch(&self, chunk: usize, projection: Option<&[usize]>) -> Result<RecordBatch> {
        self.batch_in(&self.chunks[chunk], projection)
    }

    /// The visible rows of a chunk that [`TableView::chunk`] gave.
    pub fn batch_in(&self, chunk: &Chunk, projection: Option<&[usize]>) -> Result<RecordBatch> {
        let rows = match projection {
            Some(columns) => chunk.rows.project(columns)?,
            None => chunk.rows.clone(),
        };
        chunk.visible(self.version, &rows, 0).map_err(StateError::from)
    }

    /// The visible ones of some rows of a chunk, by their places in it.
    pub fn rows_of(&self, chunk: usize, places: &Range<usize>, projection: &[usize]) -> Result<RecordBatch> {
        self.rows_in(&self.chunks[chunk], places, projection)
    }

    /// The same of a chunk that [`TableView::chunk`] gave.
    pub fn rows_in(&self, chunk: &Chunk, places: &Range<usize>, projection: &[usize]) -> Result<RecordBatch> {
        let rows = chunk.rows.project(projection)?;
        let end = places.end.min(rows.num_rows());
        let rows = rows.slice(places.start.min(end), end - places.start.min(end));
        chunk
            .visible(self.version, &rows, places.start)
            .map_err(StateError::from)
    }

    /// What changed in such a chunk since an older version, which must have been pinned all the while: else rows that went
    /// since then may be missing.
    pub fn changes_in(&self, chunk: &Chunk, since: Version) -> Result<ChangeBatch> {
        let (positions, weights) = chunk.changes(since, self.version);
        if positions.is_empty() {
            return Ok(ChangeBatch::empty(Arc::clone(&self.schema)));
        }
        let rows = arrow::compute::take_record_batch(&chunk.rows, &UInt32Array::from(positions))?;
        let weights = weights
            .iter()
            .any(|weight| *weight != 1)
            .then(|| Int64Array::from(weights));
        Ok(ChangeBatch { rows, weights })
    }
}
