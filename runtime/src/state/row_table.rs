//! Rows in columns, found by hash, readable at any recent version.
//!
//! Goal: one structure for tables, view contents and join sides, in which a change costs what it touches.
//!
//! ```text
//!  chunks:  [ 0..65536 ) [ 65536..90000 ) [ ..512 ) [ ..3 )     rows keep their number; small chunks at the end are merged
//!  indexes: identity (finds the row that a retraction means), then any others (join keys, CREATE INDEX)
//! ```
//!
//! 1. One writer, by `&mut self`; readers take a [`TableView`] (a list of chunks) and need no lock after that.
//! 2. `apply(changes, version)` appends the insertions and marks the deleted rows with the version.
//! 3. When more rows are dead than alive the table is rebuilt without the rows that no reader can see any more
//!    (`low_water`): amortised over the deletions that made it necessary.

mod image;
mod probe;
mod rebuild;
#[cfg(test)]
mod tests;
mod view;

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, UInt32Array};
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use datafusion::common::ScalarValue;
use datafusion::common::hash_utils::{RandomState, create_hashes};
use hashbrown::HashMap;
use millrace_storage::ChangeBatch;
use parking_lot::Mutex;

use super::chunk::{Chunk, Version};
use super::index::HashIndex;
use crate::error::{Result, RuntimeError};
use image::ChunkImage;
pub use image::TableImage;
pub use probe::Matches;
pub use view::TableView;

/// Small chunks are merged up to this size, so that a merge never copies more.
const CHUNK_ROWS_MAX: usize = 65_536;

/// See the module.
#[derive(Debug)]
pub struct RowTable {
    schema: SchemaRef,
    chunks: Arc<Vec<Arc<Chunk>>>,
    /// First row number of each chunk.
    bases: Arc<Vec<u32>>,
    rows: u32,
    live_rows: usize,
    dead_rows: usize,
    /// Dead rows that nobody reads any more.
    forgotten_rows: usize,
    /// How many of the others went at which version, in order.
    deletions: VecDeque<(Version, usize)>,
    /// The oldest version that anyone reads, as far as the writer has heard.
    low_water: Version,
    /// The first finds the row that a deletion names, unless the table only grows.
    indexes: Vec<HashIndex>,
    has_identity: bool,
    /// A number kept with each row, if the owner wants one: a join's count of matches.
    tags: Option<Vec<u32>>,
    /// Chains (index, hash) that hold more dead rows than live ones, as probes noticed.
    crowded: Mutex<Vec<(usize, u64)>>,
    /// What the last image showed.
    last_image: Vec<ChunkImage>,
}

impl RowTable {
    /// `identity`: columns by which a deletion finds its row (a key, or all columns); `None` for rows that only arrive.
    pub fn new(schema: SchemaRef, identity: Option<Vec<usize>>) -> Self {
        let has_identity = identity.is_some();
        RowTable {
            schema,
            chunks: Arc::default(),
            bases: Arc::default(),
            rows: 0,
            live_rows: 0,
            dead_rows: 0,
            forgotten_rows: 0,
            deletions: VecDeque::new(),
            low_water: 0,
            indexes: identity.into_iter().map(HashIndex::new).collect(),
            has_identity,
            tags: None,
            crowded: Mutex::default(),
            last_image: vec![],
        }
    }

    /// Keeps a number with each row, 0 at first.
    pub fn with_tags(mut self) -> Self {
        self.tags = Some(vec![]);
        self
    }

    /// The number kept with a row.
    pub fn tag(&self, row: u32) -> u32 {
        self.tags.as_ref().map_or(0, |tags| tags[row as usize])
    }

    /// Adds to the number kept with a row; returns what it was.
    pub fn add_to_tag(&mut self, row: u32, change: i32) -> u32 {
        let Some(tags) = &mut self.tags else { return 0 };
        let before = tags[row as usize];
        tags[row as usize] = before.wrapping_add_signed(change);
        before
    }

    /// Gives a row its number.
    pub fn set_tag(&mut self, row: u32, tag: u32) {
        if let Some(tags) = &mut self.tags {
            tags[row as usize] = tag;
        }
    }

    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Rows that are there now.
    pub fn live_rows(&self) -> usize {
        self.live_rows
    }

    /// Bytes of the columns, the versions, the tags and the indexes.
    pub fn memory_bytes(&self) -> usize {
        let chunks: usize = self.chunks.iter().map(|chunk| chunk.memory_bytes()).sum();
        let tags = self
            .tags
            .as_ref()
            .map_or(0, |tags| tags.capacity() * size_of::<u32>());
        chunks + tags + self.indexes.iter().map(HashIndex::memory_bytes).sum::<usize>()
    }

    /// Adds an index over existing and later rows; returns its number. An equal one is used again.
    pub fn add_index(&mut self, columns: Vec<usize>) -> Result<usize> {
        if let Some(known) = self.index_over(&columns) {
            return Ok(known);
        }
        let mut index = HashIndex::new(columns);
        let mut first = 0;
        for chunk in self.chunks.iter() {
            index.insert(first, &hashes(&chunk.rows, &index.columns)?);
            first += chunk.len() as u32;
        }
        self.indexes.push(index);
        Ok(self.indexes.len() - 1)
    }

    /// The index over exactly these columns, in this order.
    pub fn index_over(&self, columns: &[usize]) -> Option<usize> {
        self.indexes.iter().position(|index| index.columns == columns)
    }

    /// The indexes' columns.
    pub fn indexed_columns(&self) -> Vec<Vec<usize>> {
        self.indexes.iter().map(|index| index.columns.clone()).collect()
    }

    /// Applies a change. A row that is inserted and deleted in it is found too.
    ///
    /// # Errors
    /// A deletion names a row that is not there.
    pub fn apply(&mut self, changes: &ChangeBatch, version: Version, low_water: Version) -> Result<()> {
        match &changes.weights {
            None => {
                self.insert(changes.rows.clone(), version)?;
            }
            Some(weights) => {
                let (insertions, deletions) = split(&changes.rows, weights)?;
                // What is there goes first: the new row of a key would only be in the way of finding the old one.
                let mut deleted = vec![None; deletions.num_rows()];
                self.mark_deleted(&deletions, version, &mut deleted)?;
                if insertions.num_rows() > 0 {
                    self.insert(insertions, version)?;
                    self.mark_deleted(&deletions, version, &mut deleted)?;
                }
                self.count_deleted(&deletions, deleted, version)?;
            }
        }
        self.tidy(low_water)
    }

    /// Adds columns at the end, with these values in the rows that there are, whatever their version. Readers keep what
    /// they have.
    pub fn widen(&mut self, schema: &SchemaRef, values: &[ScalarValue]) -> Result<()> {
        let chunks = self
            .chunks
            .iter()
            .map(|chunk| {
                let mut columns = chunk.rows.columns().to_vec();
                for value in values {
                    columns.push(value.to_array_of_size(chunk.len())?);
                }
                let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(chunk.len()));
                let rows = RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
                    .map_err(arrow_error)?;
                Ok(Arc::new(chunk.with_rows(rows)))
            })
            .collect::<Result<Vec<_>>>()?;
        self.chunks = Arc::new(chunks);
        self.schema = Arc::clone(schema);
        Ok(())
    }

    /// Appends rows; returns the number of the first.
    pub fn insert(&mut self, rows: RecordBatch, version: Version) -> Result<u32> {
        let first = self.rows;
        if u32::try_from(self.rows as usize + rows.num_rows()).is_err() {
            return Err(RuntimeError::Internal(
                "a partition of a table has more than 4 billion rows".into(),
            ));
        }
        for index in &mut self.indexes {
            let hashes = hashes(&rows, &index.columns)?;
            index.insert(self.rows, &hashes);
        }
        self.live_rows += rows.num_rows();
        Arc::make_mut(&mut self.bases).push(self.rows);
        self.rows += rows.num_rows() as u32;
        if let Some(tags) = &mut self.tags {
            tags.resize(self.rows as usize, 0);
        }
        let chunks = Arc::make_mut(&mut self.chunks);
        chunks.push(Arc::new(Chunk::new(rows, version)));
        self.merge_small_chunks()?;
        Ok(first)
    }

    /// Merges the last chunks while they are of similar size: each row is copied a logarithmic number of times.
    fn merge_small_chunks(&mut self) -> Result<()> {
        let chunks = Arc::make_mut(&mut self.chunks);
        let mut first = chunks.len() - 1;
        let mut rows = chunks[first].len();
        while first > 0 {
            let before = chunks[first - 1].len();
            if before > 2 * rows || before + rows > CHUNK_ROWS_MAX {
                break;
            }
            rows += before;
            first -= 1;
        }
        if first + 1 < chunks.len() {
            let merging: Vec<&Chunk> = chunks[first..].iter().map(Arc::as_ref).collect();
            let merged = Chunk::concat(&merging, self.low_water).map_err(arrow_error)?;
            chunks.truncate(first);
            chunks.push(Arc::new(merged));
            Arc::make_mut(&mut self.bases).truncate(first + 1);
        }
        Ok(())
    }

    /// Marks the rows that equal these as gone; returns their numbers, in the order given. Of equal rows any may go.
    ///
    /// # Errors
    /// One of them is not there.
    pub fn delete(&mut self, rows: &RecordBatch, version: Version) -> Result<Vec<u32>> {
        let mut deleted = vec![None; rows.num_rows()];
        self.mark_deleted(rows, version, &mut deleted)?;
        self.count_deleted(rows, deleted, version)
    }

    /// Marks those of the rows that are there and not yet marked.
    fn mark_deleted(&self, rows: &RecordBatch, version: Version, deleted: &mut [Option<u32>]) -> Result<()> {
        if deleted.iter().all(Option::is_some) {
            return Ok(());
        }
        if !self.has_identity {
            return Err(RuntimeError::Internal(
                "a deletion reached a table that only grows".into(),
            ));
        }
        if deleted.iter().all(Option::is_none) {
            self.delete_first_candidates(rows, version, deleted)?;
        }
        self.delete_any_candidates(rows, version, deleted)
    }

    /// Counts the rows that were marked; returns their numbers.
    fn count_deleted(
        &mut self,
        rows: &RecordBatch,
        deleted: Vec<Option<u32>>,
        version: Version,
    ) -> Result<Vec<u32>> {
        if let Some(missing) = deleted.iter().position(Option::is_none) {
            let row = rows.slice(missing, 1);
            let shown = arrow::util::pretty::pretty_format_batches(&[row])
                .map(|t| t.to_string())
                .unwrap_or_default();
            return Err(RuntimeError::Internal(format!(
                "a deletion names a row that is not there:\n{shown}"
            )));
        }
        self.live_rows -= rows.num_rows();
        self.dead_rows += rows.num_rows();
        match self.deletions.back_mut() {
            // Epochs may overtake each other: what went before counts with what went after.
            Some((last, count)) if *last >= version => *count += rows.num_rows(),
            _ if rows.num_rows() > 0 => self.deletions.push_back((version, rows.num_rows())),
            _ => {}
        }
        Ok(deleted.into_iter().flatten().collect())
    }

    /// Deletes where the newest live row with the same hash is the one: nearly always, and however many equal rows there
    /// are.
    fn delete_first_candidates(
        &self,
        rows: &RecordBatch,
        version: Version,
        deleted: &mut [Option<u32>],
    ) -> Result<()> {
        let index = &self.indexes[0];
        let mut matches = Matches::default();
        // Several rows with one hash go on where the one before them stopped.
        let mut rest: HashMap<u64, Option<u32>> = HashMap::new();
        for (probe, hash) in (0..).zip(hashes(rows, &index.columns)?) {
            let start = rest.get(&hash).copied().unwrap_or_else(|| index.head(hash));
            let mut chain = index.chain(start);
            let mut dead = 0;
            let found = chain.find(|row| {
                let alive = self.is_alive(*row);
                dead += usize::from(!alive);
                alive
            });
            rest.insert(hash, chain.next());
            self.note_crowded(0, hash, dead, 1);
            if let Some(row) = found {
                matches.probe.push(probe);
                matches.rows.push(row);
            }
        }
        let all: Vec<usize> = (0..self.schema.fields().len()).collect();
        self.keep_equal(&mut matches, &all, rows.columns())?;
        for (probe, row) in matches.probe.iter().zip(&matches.rows) {
            let (chunk, offset) = self.locate(*row);
            self.chunks[chunk].delete(offset, version);
            deleted[*probe as usize] = Some(*row);
        }
        Ok(())
    }

    /// Deletes what is left, looking at every row with the same hash.
    fn delete_any_candidates(
        &self,
        rows: &RecordBatch,
        version: Version,
        deleted: &mut [Option<u32>],
    ) -> Result<()> {
        let left: Vec<u32> = (0..)
            .zip(deleted.iter())
            .filter(|(_, row)| row.is_none())
            .map(|(probe, _)| probe)
            .collect();
        if left.is_empty() {
            return Ok(());
        }
        let rows =
            arrow::compute::take_record_batch(rows, &UInt32Array::from(left.clone())).map_err(arrow_error)?;
        let keys: Vec<ArrayRef> = self.indexes[0]
            .columns
            .iter()
            .map(|column| Arc::clone(rows.column(*column)))
            .collect();
        let mut matches = self.candidates(0, &keys, Chunk::is_alive)?;
        let all: Vec<usize> = (0..self.schema.fields().len()).collect();
        self.keep_equal(&mut matches, &all, rows.columns())?;
        // Equal rows are interchangeable: each deletion takes the first of its matches that is still there.
        for (probe, row) in matches.probe.iter().zip(&matches.rows) {
            let deleted = &mut deleted[left[*probe as usize] as usize];
            let (chunk, offset) = self.locate(*row);
            if deleted.is_none() && self.chunks[chunk].is_alive(offset) {
                self.chunks[chunk].delete(offset, version);
                *deleted = Some(*row);
            }
        }
        Ok(())
    }

    fn is_alive(&self, row: u32) -> bool {
        let (chunk, offset) = self.locate(row);
        self.chunks[chunk].is_alive(offset)
    }

    fn locate(&self, row: u32) -> (usize, usize) {
        let chunk = self.bases.partition_point(|base| *base <= row) - 1;
        (chunk, (row - self.bases[chunk]) as usize)
    }

    /// Every live row's number, for joins without keys.
    pub fn live_row_numbers(&self) -> Vec<u32> {
        let mut numbers = Vec::with_capacity(self.live_rows);
        for (chunk, base) in self.chunks.iter().zip(self.bases.iter()) {
            numbers.extend(
                (0..chunk.len())
                    .filter(|row| chunk.is_alive(*row))
                    .map(|row| base + row as u32),
            );
        }
        numbers
    }

    /// What a reader at `version` sees.
    pub fn view(&self, version: Version) -> TableView {
        TableView::new(Arc::clone(&self.schema), version, Arc::clone(&self.chunks))
    }
}

/// Rows to add and rows to take away, each as often as its weight says.
pub(crate) fn split(rows: &RecordBatch, weights: &Int64Array) -> Result<(RecordBatch, RecordBatch)> {
    let mut add = vec![];
    let mut remove = vec![];
    for (row, weight) in weights.values().iter().enumerate() {
        let target = if *weight > 0 { &mut add } else { &mut remove };
        for _ in 0..weight.unsigned_abs() {
            target.push(row as u32);
        }
    }
    if remove.is_empty() && add.len() == rows.num_rows() && weights.values().iter().all(|w| *w == 1) {
        return Ok((rows.clone(), rows.slice(0, 0)));
    }
    if add.is_empty() && weights.values().iter().all(|w| *w == -1) {
        return Ok((rows.slice(0, 0), rows.clone()));
    }
    let pick = |positions: Vec<u32>| {
        arrow::compute::take_record_batch(rows, &UInt32Array::from(positions)).map_err(arrow_error)
    };
    Ok((pick(add)?, pick(remove)?))
}

fn hashes(rows: &RecordBatch, columns: &[usize]) -> Result<Vec<u64>> {
    let keys: Vec<ArrayRef> = columns
        .iter()
        .map(|column| Arc::clone(rows.column(*column)))
        .collect();
    let mut buffer = vec![0; rows.num_rows()];
    create_hashes(&keys, &seed(), &mut buffer)?;
    Ok(buffer)
}

/// In memory only: what is stored or sent hashes with [`crate::worker::partition_hash`].
pub(crate) fn seed() -> RandomState {
    RandomState::with_seed(0x6d69_6c6c)
}

pub(crate) fn arrow_error(error: ArrowError) -> RuntimeError {
    RuntimeError::DataFusion(error.into())
}
