//! Rows in columns, found by hash, readable at any recent version.
//!
//! Goal: one structure for tables, view contents and join sides, in which a change costs what it touches.
//!
//! ```text
//!  chunks:  [ 0..65536 ) [ 65536..90000 ) [ ..512 ) [ ..3 )     rows keep their number; small chunks at the end are merged
//!  indexes: identity (finds the row that a retraction means), and any others (join keys, CREATE INDEX)
//! ```
//!
//! 1. One writer, by `&mut self`; readers take a [`TableView`] (a list of chunks) and need no lock after that.
//! 2. `apply(changes, version)` appends the insertions and marks the deleted rows with the version.
//! 3. When more rows are dead than alive the table is rebuilt without the rows that no reader can see any more
//!    (`low_water`): amortised over the deletions that made it necessary.
//! 4. While many rows arrive and few are looked for, indexes are only brought up to date when they are asked for
//!    ([`RowTable::set_lazy`]).

mod delete;
mod image;
mod probe;
mod rebuild;
mod spilled;
#[cfg(test)]
mod tests;
mod view;

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, UInt32Array};
use arrow::datatypes::SchemaRef;
use datafusion::common::ScalarValue;
use datafusion::common::hash_utils::{RandomState, create_hashes};
use millrace_schedule::id::Version;
use millrace_storage::{ChangeBatch, rows_bytes};
use parking_lot::{Mutex, RwLock};

use super::chunk::Chunk;
use super::index::HashIndex;
use super::width::{COPIED_BYTES_MAX, Widths};
use crate::error::{Result, StateError};
use image::ChunkImage;
pub use image::TableImage;
pub use image::Tags;
pub use probe::Matches;
pub use spilled::write as write_spilled;
pub use view::TableView;

/// Small chunks are merged up to this size, so that a merge never copies more.
const CHUNK_ROWS_MAX: usize = 65_536;

/// How large a chunk is, or would be.
#[derive(Clone, Copy, Default)]
struct Size {
    rows: usize,
    bytes: usize,
}

impl Size {
    fn of(rows: &RecordBatch) -> Size {
        Size {
            rows: rows.num_rows(),
            bytes: rows_bytes(rows),
        }
    }

    fn plus(self, other: Size) -> Size {
        Size {
            rows: self.rows + other.rows,
            bytes: self.bytes + other.bytes,
        }
    }

    /// Whether chunks of this size together are put into one.
    fn fits_a_chunk(self) -> bool {
        self.rows <= CHUNK_ROWS_MAX && self.bytes <= COPIED_BYTES_MAX
    }
}

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
    indexes: Vec<HashIndex>,
    /// The index that finds the row that a deletion names; none if the table only grows.
    identity: Option<usize>,
    /// Columns that tell more rows apart than those of the index `identity`. They get an index of their own, which then is
    /// the identity, when deletions would have to look at many rows.
    finer: Option<Vec<usize>>,
    /// Indexes are behind the rows until they are asked for.
    is_lazy: bool,
    /// A number kept with each row, if the owner wants one: a join's count of matches.
    tags: Option<Vec<u32>>,
    /// Chains (index, hash) that hold more dead rows than live ones, as probes noticed.
    crowded: Mutex<Vec<(usize, u64)>>,
    /// What the last image showed.
    last_image: Vec<ChunkImage>,
    /// Another one whenever rows get other numbers.
    numbering: Arc<()>,
}

impl RowTable {
    /// `identity`: columns by which a deletion finds its row (a key, or all columns); `None` for rows that only arrive.
    pub fn new(schema: SchemaRef, identity: Option<Vec<usize>>) -> Self {
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
            identity: identity.is_some().then_some(0),
            indexes: identity.into_iter().map(HashIndex::new).collect(),
            finer: None,
            is_lazy: false,
            tags: None,
            crowded: Mutex::default(),
            last_image: vec![],
            numbering: Arc::default(),
        }
    }

    /// With an index over `key`, by which deletions find their rows too as long as few share one; what tells rows apart is
    /// `unique`.
    pub fn keyed(schema: SchemaRef, key: Vec<usize>, unique: Vec<usize>) -> Self {
        let mut table = RowTable::new(schema, Some(key));
        table.finer = Some(unique);
        table
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

    /// Bytes of a copy of a row.
    pub fn copied_bytes(&self, widths: &Widths, row: u32) -> usize {
        let (chunk, place) = self.locate(row);
        widths.row_bytes(&self.chunks[chunk].rows, place)
    }

    /// Adds an index over existing and later rows; returns its number. An equal one is used again.
    pub fn add_index(&mut self, columns: Vec<usize>) -> Result<usize> {
        if let Some(known) = self.index_over(&columns) {
            return Ok(known);
        }
        self.indexes.push(HashIndex::new(columns));
        let added = self.indexes.len() - 1;
        if !self.is_lazy && !self.is_spilled() {
            self.catch_up(added)?;
        }
        Ok(added)
    }

    /// Whether rows that are inserted from now on enter the indexes only when these are asked for
    /// ([`RowTable::catch_up`]). Ends with all indexes up to date.
    pub fn set_lazy(&mut self, is_lazy: bool) -> Result<()> {
        if std::mem::replace(&mut self.is_lazy, is_lazy) && !is_lazy && !self.is_spilled() {
            self.catch_up_all()?;
        }
        Ok(())
    }

    fn catch_up_all(&mut self) -> Result<()> {
        for index in 0..self.indexes.len() {
            self.catch_up(index)?;
        }
        self.refine_by_sample()
    }

    pub fn is_lazy(&self) -> bool {
        self.is_lazy
    }

    /// Brings an index up to date, in one go for all rows that it lacks.
    pub fn catch_up(&mut self, index: usize) -> Result<()> {
        let index = &mut self.indexes[index];
        if index.rows() == self.rows {
            return Ok(());
        }
        let behind = index.rows();
        let first = self.bases.partition_point(|base| *base <= behind).max(1) - 1;
        let mut lacking = Vec::with_capacity((self.rows - behind) as usize);
        for (chunk, base) in self.chunks.iter().zip(self.bases.iter()).skip(first) {
            let known = (behind.max(*base) - base) as usize;
            let rows = chunk.rows.slice(known, chunk.len() - known);
            lacking.extend(hashes(&rows, &index.columns)?);
        }
        index.insert(behind, &lacking);
        Ok(())
    }

    /// Whether rows are lacking in an index.
    pub fn is_behind(&self, index: usize) -> bool {
        self.indexes[index].rows() < self.rows
    }

    /// An index that lacks all rows, to be made while the table goes on.
    pub fn begin_index(&self) -> Option<IndexDraft> {
        if self.is_spilled() || self.is_lazy {
            return None;
        }
        let place = self.indexes.iter().position(|index| index.rows() == 0)?;
        (self.rows > 0).then(|| IndexDraft {
            place,
            index: HashIndex::new(self.indexes[place].columns.clone()),
            chunks: Arc::clone(&self.chunks),
            numbering: Arc::clone(&self.numbering),
        })
    }

    /// Takes an index that was made, unless somebody could not wait for it.
    ///
    /// # Errors
    /// A column cannot be hashed.
    pub fn put_index(&mut self, made: IndexDraft) -> Result<()> {
        let is_same = Arc::ptr_eq(&self.numbering, &made.numbering) && !self.is_spilled();
        if is_same && self.indexes[made.place].rows() == 0 {
            self.indexes[made.place] = made.index;
            self.catch_up(made.place)?;
        }
        Ok(())
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
                let rows = RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?;
                Ok(Arc::new(chunk.with_rows(rows)))
            })
            .collect::<Result<Vec<_>>>()?;
        self.chunks = Arc::new(chunks);
        self.schema = Arc::clone(schema);
        Ok(())
    }

    /// Appends rows; returns the number of the first.
    pub fn insert(&mut self, rows: RecordBatch, version: Version) -> Result<u32> {
        if !self.is_lazy {
            // One that is behind stays so until it is asked for.
            for index in self.indexes.iter_mut().filter(|index| index.rows() == self.rows) {
                let hashes = hashes(&rows, &index.columns)?;
                index.insert(self.rows, &hashes);
            }
        }
        self.append(rows, version)
    }

    /// As [`RowTable::insert`], with the rows' hashes by the only index.
    pub fn insert_hashed(&mut self, rows: RecordBatch, hashes: &[u64], version: Version) -> Result<u32> {
        for index in &mut self.indexes {
            index.insert(self.rows, hashes);
        }
        self.append(rows, version)
    }

    /// Appends rows that are in the indexes already, as far as they have to be.
    fn append(&mut self, rows: RecordBatch, version: Version) -> Result<u32> {
        let first = self.rows;
        if u32::try_from(self.rows as usize + rows.num_rows()).is_err() {
            return Err(StateError::Internal(
                "a partition of a table has more than 4 billion rows".into(),
            ));
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

    /// Merges the last chunks while they are of similar size: each row is copied a logarithmic number of times. Of wide rows only so
    /// many bytes are copied at a time.
    fn merge_small_chunks(&mut self) -> Result<()> {
        let chunks = Arc::make_mut(&mut self.chunks);
        let mut first = chunks.len() - 1;
        let mut size = Size::of(&chunks[first].rows);
        while first > 0 {
            let before = &chunks[first - 1];
            if before.len() > 2 * size.rows {
                break;
            }
            let both = size.plus(Size::of(&before.rows));
            if !both.fits_a_chunk() {
                break;
            }
            size = both;
            first -= 1;
        }
        if first + 1 < chunks.len() {
            let merging: Vec<&Chunk> = chunks[first..].iter().map(Arc::as_ref).collect();
            let merged = Chunk::concat(&merging, self.low_water)?;
            chunks.truncate(first);
            chunks.push(Arc::new(merged));
            Arc::make_mut(&mut self.bases).truncate(first + 1);
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

/// An index that is made beside its table.
pub struct IndexDraft {
    place: usize,
    index: HashIndex,
    chunks: Arc<Vec<Arc<Chunk>>>,
    numbering: Arc<()>,
}

impl IndexDraft {
    /// Adds the rows that there were when it was begun.
    ///
    /// # Errors
    /// A column cannot be hashed.
    pub fn make(&mut self) -> Result<()> {
        let mut all = vec![];
        for chunk in self.chunks.iter() {
            all.extend(hashes(&chunk.rows, &self.index.columns)?);
        }
        self.index.insert(0, &all);
        Ok(())
    }
}

/// Makes the indexes that lack all rows, while the table goes on.
///
/// # Errors
/// A column cannot be hashed.
pub fn make_indexes(table: &RwLock<RowTable>) -> Result<()> {
    loop {
        let Some(mut draft) = table.read().begin_index() else {
            return Ok(());
        };
        draft.make()?;
        table.write().put_index(draft)?;
    }
}

/// Rows to add and rows to take away, each as often as its weight says.
pub fn split(rows: &RecordBatch, weights: &Int64Array) -> Result<(RecordBatch, RecordBatch)> {
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
        arrow::compute::take_record_batch(rows, &UInt32Array::from(positions)).map_err(StateError::from)
    };
    Ok((pick(add)?, pick(remove)?))
}

fn hashes(rows: &RecordBatch, columns: &[usize]) -> Result<Vec<u64>> {
    let keys: Vec<ArrayRef> = columns
        .iter()
        .map(|column| Arc::clone(rows.column(*column)))
        .collect();
    row_hashes(&keys, rows.num_rows())
}

/// The hash of each row, as indexes have it. In memory only: what is stored or sent hashes with
/// the engine's `partition_hash`.
pub fn row_hashes(columns: &[ArrayRef], rows: usize) -> Result<Vec<u64>> {
    let mut hashes = vec![0; rows];
    create_hashes(columns, &RandomState::with_seed(0x6d69_6c6c), &mut hashes)?;
    Ok(hashes)
}

/// What is restored was not made of a table like this.
fn mismatch() -> StateError {
    StateError::Internal("a checkpoint is not one of this table".into())
}
