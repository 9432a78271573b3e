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

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int64Array, RecordBatch, UInt32Array};
use arrow::compute::{interleave, take};
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use datafusion::common::ScalarValue;
use datafusion::common::hash_utils::{RandomState, create_hashes};
use millrace_storage::ChangeBatch;
use parking_lot::Mutex;

use super::chunk::{Chunk, Version};
use super::compare::rows_equal;
use super::index::HashIndex;
use crate::error::{Result, RuntimeError};

/// Small chunks are merged up to this size, so that a merge never copies more.
const CHUNK_ROWS_MAX: usize = 65_536;
/// A table smaller than this is not rebuilt: there is nothing to win.
const REBUILD_DEAD_ROWS_MIN: usize = 1_024;
/// A chain with this many dead rows more than live ones is worth cleaning.
const CROWDED_DEAD_ROWS_MIN: usize = 8;

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
    /// The first finds the row that a deletion names, unless the table only grows.
    indexes: Vec<HashIndex>,
    has_identity: bool,
    /// A number kept with each row, if the owner wants one: a join's count of matches.
    tags: Option<Vec<i64>>,
    /// Chains (index, hash) that hold more dead rows than live ones, as probes noticed.
    crowded: Mutex<Vec<(usize, u64)>>,
}

/// The rows of a table at one version. Cheap to make and to clone.
#[derive(Debug, Clone)]
pub struct TableView {
    pub schema: SchemaRef,
    pub version: Version,
    chunks: Arc<Vec<Arc<Chunk>>>,
}

/// Pairs of a probing row and a row of the table.
#[derive(Debug, Default)]
pub struct Matches {
    pub probe: Vec<u32>,
    pub rows: Vec<u32>,
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
            indexes: identity.into_iter().map(HashIndex::new).collect(),
            has_identity,
            tags: None,
            crowded: Mutex::default(),
        }
    }

    /// Keeps a number with each row, 0 at first.
    pub fn with_tags(mut self) -> Self {
        self.tags = Some(vec![]);
        self
    }

    /// The number kept with a row.
    pub fn tag(&self, row: u32) -> i64 {
        self.tags.as_ref().map_or(0, |tags| tags[row as usize])
    }

    /// Adds to the number kept with a row; returns what it was.
    pub fn add_to_tag(&mut self, row: u32, change: i64) -> i64 {
        let Some(tags) = &mut self.tags else { return 0 };
        let before = tags[row as usize];
        tags[row as usize] += change;
        before
    }

    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Rows that are there now.
    pub fn live_rows(&self) -> usize {
        self.live_rows
    }

    /// Bytes of the columns and the indexes.
    pub fn memory_bytes(&self) -> usize {
        let columns: usize = self
            .chunks
            .iter()
            .map(|chunk| chunk.rows.get_array_memory_size() + 8 * chunk.len())
            .sum();
        columns + self.indexes.iter().map(HashIndex::memory_bytes).sum::<usize>()
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

    /// Applies a change: insertions first, then deletions, so that a row inserted and deleted in one change is found.
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
                if insertions.num_rows() > 0 {
                    self.insert(insertions, version)?;
                }
                if deletions.num_rows() > 0 {
                    self.delete(&deletions, version)?;
                }
            }
        }
        self.tidy(low_water)
    }

    /// Frees what no reader at `low_water` or later can see, when there is enough of it. Row numbers change.
    pub fn tidy(&mut self, low_water: Version) -> Result<()> {
        self.prune(low_water);
        if self.dead_rows > REBUILD_DEAD_ROWS_MIN && self.dead_rows > self.live_rows {
            self.rebuild(low_water)?;
        }
        Ok(())
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
            let merged = Chunk::concat(&chunks[first..].iter().map(Arc::as_ref).collect::<Vec<_>>())
                .map_err(arrow_error)?;
            chunks.truncate(first);
            chunks.push(Arc::new(merged));
            Arc::make_mut(&mut self.bases).truncate(first + 1);
        }
        Ok(())
    }

    /// Marks the rows that equal these as gone; returns their numbers, in the order given.
    ///
    /// # Errors
    /// One of them is not there.
    pub fn delete(&mut self, rows: &RecordBatch, version: Version) -> Result<Vec<u32>> {
        if !self.has_identity {
            return Err(RuntimeError::Internal(
                "a deletion reached a table that only grows".into(),
            ));
        }
        let columns = self.indexes[0].columns.clone();
        let keys: Vec<ArrayRef> = columns
            .iter()
            .map(|column| Arc::clone(rows.column(*column)))
            .collect();
        let mut matches = self.candidates(0, &keys, |_, _| true)?;
        let all: Vec<usize> = (0..self.schema.fields().len()).collect();
        self.keep_equal(&mut matches, &all, rows.columns())?;
        // Equal rows are interchangeable: each deletion takes the first of its matches that is still there.
        let mut deleted = vec![None; rows.num_rows()];
        for (probe, row) in matches.probe.iter().zip(&matches.rows) {
            if deleted[*probe as usize].is_some() {
                continue;
            }
            let (chunk, offset) = self.locate(*row);
            if self.chunks[chunk].is_alive(offset) {
                self.chunks[chunk].delete(offset, version);
                deleted[*probe as usize] = Some(*row);
            }
        }
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
        Ok(deleted.into_iter().flatten().collect())
    }

    /// Live rows whose indexed columns equal the keys. With `nulls_match`, NULL equals NULL.
    pub fn probe(&self, index: usize, keys: &[ArrayRef], nulls_match: bool) -> Result<Matches> {
        self.probe_where(index, keys, nulls_match, |chunk, row| chunk.is_alive(row))
    }

    /// As [`RowTable::probe`], for a reader at a version.
    pub fn probe_at(&self, index: usize, keys: &[ArrayRef], version: Version) -> Result<Matches> {
        self.probe_where(index, keys, false, |chunk, row| chunk.is_visible(row, version))
    }

    fn probe_where(
        &self,
        index: usize,
        keys: &[ArrayRef],
        nulls_match: bool,
        is_there: impl Fn(&Chunk, usize) -> bool,
    ) -> Result<Matches> {
        let mut matches = if nulls_match {
            self.candidates(index, keys, is_there)?
        } else {
            let nulls: Vec<_> = keys.iter().filter_map(|key| key.logical_nulls()).collect();
            let has_null = |probe: usize| nulls.iter().any(|nulls| nulls.is_null(probe));
            let mut matches = self.candidates(index, keys, is_there)?;
            if !nulls.is_empty() {
                matches.retain(|probe, _| !has_null(probe as usize));
            }
            matches
        };
        let columns = self.indexes[index].columns.clone();
        self.keep_equal(&mut matches, &columns, keys)?;
        Ok(matches)
    }

    /// Rows with the hash of the keys.
    fn candidates(
        &self,
        index: usize,
        keys: &[ArrayRef],
        is_there: impl Fn(&Chunk, usize) -> bool,
    ) -> Result<Matches> {
        let index_number = index;
        let index = &self.indexes[index];
        let rows = if let Some(key) = keys.first() {
            key.len()
        } else {
            return Err(RuntimeError::Internal("a probe without keys".into()));
        };
        let mut buffer = vec![0; rows];
        create_hashes(keys, &seed(), &mut buffer)?;
        let mut matches = Matches::default();
        for (probe, hash) in buffer.iter().enumerate() {
            let mut dead = 0;
            let before = matches.rows.len();
            index.walk(*hash, |row| {
                let (chunk, offset) = self.locate(row);
                if is_there(&self.chunks[chunk], offset) {
                    matches.probe.push(probe as u32);
                    matches.rows.push(row);
                } else {
                    dead += 1;
                }
                true
            });
            if dead > CROWDED_DEAD_ROWS_MIN + matches.rows.len() - before {
                self.crowded.lock().push((index_number, *hash));
            }
        }
        Ok(matches)
    }

    /// Drops the pairs whose columns differ (equal hashes are not equal keys).
    fn keep_equal(&self, matches: &mut Matches, columns: &[usize], probe: &[ArrayRef]) -> Result<()> {
        if matches.rows.is_empty() {
            return Ok(());
        }
        let stored = self.gather(&matches.rows, columns)?;
        let positions = UInt32Array::from(matches.probe.clone());
        let probing = probe
            .iter()
            .map(|key| take(key, &positions, None))
            .collect::<Result<Vec<_>, _>>()
            .map_err(arrow_error)?;
        let equal = rows_equal(&stored, &probing, matches.rows.len()).map_err(arrow_error)?;
        if equal.true_count() < equal.len() {
            let mut position = 0;
            matches.retain(|_, _| {
                position += 1;
                equal.value(position - 1)
            });
        }
        Ok(())
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

    /// Columns of the given rows, in the order given.
    pub fn gather(&self, rows: &[u32], columns: &[usize]) -> Result<Vec<ArrayRef>> {
        if self.chunks.len() == 1 {
            let positions = UInt32Array::from(rows.to_vec());
            return columns
                .iter()
                .map(|column| {
                    take(self.chunks[0].rows.column(*column), &positions, None).map_err(arrow_error)
                })
                .collect();
        }
        let positions: Vec<(usize, usize)> = rows.iter().map(|row| self.locate(*row)).collect();
        columns
            .iter()
            .map(|column| {
                if self.chunks.is_empty() {
                    return Ok(arrow::array::new_empty_array(
                        self.schema.field(*column).data_type(),
                    ));
                }
                let arrays: Vec<&dyn Array> = self
                    .chunks
                    .iter()
                    .map(|chunk| chunk.rows.column(*column).as_ref())
                    .collect();
                interleave(&arrays, &positions).map_err(arrow_error)
            })
            .collect()
    }

    /// Whole rows.
    pub fn rows(&self, rows: &[u32]) -> Result<RecordBatch> {
        let all: Vec<usize> = (0..self.schema.fields().len()).collect();
        let columns = self.gather(rows, &all)?;
        let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(rows.len()));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options).map_err(arrow_error)
    }

    /// What a reader at `version` sees.
    pub fn view(&self, version: Version) -> TableView {
        TableView {
            schema: Arc::clone(&self.schema),
            version,
            chunks: Arc::clone(&self.chunks),
        }
    }

    fn locate(&self, row: u32) -> (usize, usize) {
        let chunk = self.bases.partition_point(|base| *base <= row) - 1;
        (chunk, (row - self.bases[chunk]) as usize)
    }

    /// Makes the table anew from the rows that are alive or that a reader at `low_water` or later may see.
    fn rebuild(&mut self, low_water: Version) -> Result<()> {
        let mut rebuilt = RowTable::new(Arc::clone(&self.schema), None);
        rebuilt.has_identity = self.has_identity;
        rebuilt.tags = self.tags.as_ref().map(|tags| {
            let survivors = self
                .chunks
                .iter()
                .zip(self.bases.iter())
                .flat_map(|(chunk, base)| {
                    chunk
                        .surviving(low_water)
                        .map(|row| tags[*base as usize + row])
                        .collect::<Vec<_>>()
                });
            survivors.collect()
        });
        rebuilt.indexes = self
            .indexes
            .iter()
            .map(|index| HashIndex::new(index.columns.clone()))
            .collect();
        let mut small: Vec<Chunk> = vec![];
        let mut small_rows = 0;
        for chunk in self.chunks.iter() {
            let Some(survivors) = chunk.survivors(low_water).map_err(arrow_error)? else {
                continue;
            };
            if small_rows + survivors.len() > CHUNK_ROWS_MAX {
                rebuilt.adopt(&small)?;
                small.clear();
                small_rows = 0;
            }
            small_rows += survivors.len();
            small.push(survivors);
        }
        rebuilt.adopt(&small)?;
        *self = rebuilt;
        Ok(())
    }

    /// Appends chunks as one, with their versions.
    fn adopt(&mut self, chunks: &[Chunk]) -> Result<()> {
        if chunks.is_empty() {
            return Ok(());
        }
        let chunk = Chunk::concat(&chunks.iter().collect::<Vec<_>>()).map_err(arrow_error)?;
        for index in &mut self.indexes {
            let hashes = hashes(&chunk.rows, &index.columns)?;
            index.insert(self.rows, &hashes);
        }
        let live = (0..chunk.len()).filter(|row| chunk.is_alive(*row)).count();
        self.live_rows += live;
        self.dead_rows += chunk.len() - live;
        Arc::make_mut(&mut self.bases).push(self.rows);
        self.rows += chunk.len() as u32;
        Arc::make_mut(&mut self.chunks).push(Arc::new(chunk));
        Ok(())
    }

    /// Unlinks rows that no reader can see from the chains in which probes met many of them.
    fn prune(&mut self, low_water: Version) {
        let crowded = std::mem::take(self.crowded.get_mut());
        for (index, hash) in crowded {
            let (chunks, bases) = (&self.chunks, &self.bases);
            self.indexes[index].prune(hash, |row| {
                let chunk = bases.partition_point(|base| *base <= row) - 1;
                chunks[chunk].deleted_at((row - bases[chunk]) as usize) <= low_water
            });
        }
    }
}

impl TableView {
    /// Batches of the visible rows, `projection` applied.
    pub fn batches(&self, projection: Option<&[usize]>) -> Result<Vec<RecordBatch>> {
        (0..self.chunks.len())
            .map(|chunk| self.batch(chunk, projection))
            .filter(|b| !matches!(b, Ok(b) if b.num_rows() == 0))
            .collect()
    }

    pub fn num_chunks(&self) -> usize {
        self.chunks.len()
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

impl Matches {
    fn retain(&mut self, mut keep: impl FnMut(u32, u32) -> bool) {
        let mut kept = 0;
        for position in 0..self.rows.len() {
            if keep(self.probe[position], self.rows[position]) {
                self.probe[kept] = self.probe[position];
                self.rows[kept] = self.rows[position];
                kept += 1;
            }
        }
        self.probe.truncate(kept);
        self.rows.truncate(kept);
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
fn seed() -> RandomState {
    RandomState::with_seed(0x6d69_6c6c)
}

pub(crate) fn arrow_error(error: ArrowError) -> RuntimeError {
    RuntimeError::DataFusion(error.into())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use arrow::array::{AsArray, StringArray};
    use arrow::datatypes::{DataType, Field, Int64Type, Schema};
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    fn schema() -> SchemaRef {
        Arc::new(Schema::new(vec![
            Field::new("k", DataType::Int64, true),
            Field::new("v", DataType::Utf8, true),
        ]))
    }

    fn change(rows: &[(i64, &str, i64)]) -> ChangeBatch {
        let k = Int64Array::from_iter_values(rows.iter().map(|row| row.0));
        let v = StringArray::from_iter_values(rows.iter().map(|row| row.1));
        let weights = Int64Array::from_iter_values(rows.iter().map(|row| row.2));
        let batch = RecordBatch::try_new(schema(), vec![Arc::new(k), Arc::new(v)]).unwrap();
        ChangeBatch::new(batch, Some(weights)).unwrap()
    }

    fn contents(view: &TableView) -> BTreeMap<(i64, String), usize> {
        let mut rows = BTreeMap::new();
        for batch in view.batches(None).unwrap() {
            let k = batch.column(0).as_primitive::<Int64Type>();
            let v = batch.column(1).as_string::<i32>();
            for row in 0..batch.num_rows() {
                *rows.entry((k.value(row), v.value(row).to_owned())).or_default() += 1;
            }
        }
        rows
    }

    /// What is added up of `view.changes(.., since)` to what was there at `since` is what is there at the view's version.
    #[test]
    fn changes_lead_from_one_version_to_another() {
        let mut random = StdRng::seed_from_u64(3);
        let mut table = RowTable::new(schema(), Some(vec![0, 1]));
        let mut views = vec![table.view(0)];
        let mut live: Vec<(i64, &str)> = vec![];
        for version in 1..200 {
            let mut rows = vec![];
            for _ in 0..random.random_range(0..20) {
                if live.is_empty() || random.random_bool(0.55) {
                    let row = (random.random_range(0..9), ["a", "b"][random.random_range(0..2)]);
                    live.push(row);
                    rows.push((row.0, row.1, 1));
                } else {
                    let row = live.swap_remove(random.random_range(0..live.len()));
                    rows.push((row.0, row.1, -1));
                }
            }
            table.apply(&change(&rows), version, 0).unwrap();
            views.push(table.view(version));
        }
        for _ in 0..300 {
            let since = random.random_range(0..views.len() - 1);
            let until = random.random_range(since..views.len());
            let mut sum: BTreeMap<(i64, String), i64> = contents(&views[since])
                .into_iter()
                .map(|(row, count)| (row, count as i64))
                .collect();
            for chunk in 0..views[until].num_chunks() {
                let changes = views[until].changes(chunk, since as u64).unwrap();
                let k = changes.rows.column(0).as_primitive::<Int64Type>();
                let v = changes.rows.column(1).as_string::<i32>();
                for row in 0..changes.num_rows() {
                    let count = sum.entry((k.value(row), v.value(row).to_owned())).or_default();
                    *count += changes.weight(row);
                }
            }
            sum.retain(|_, count| *count != 0);
            let there: BTreeMap<(i64, String), i64> = contents(&views[until])
                .into_iter()
                .map(|(row, count)| (row, count as i64))
                .collect();
            assert_eq!(sum, there, "from {since} to {until}");
        }
    }

    #[test]
    fn a_reader_keeps_its_version_while_the_writer_goes_on() {
        let mut table = RowTable::new(schema(), Some(vec![0]));
        table.apply(&change(&[(1, "a", 1), (2, "b", 1)]), 1, 0).unwrap();
        let first = table.view(1);
        table.apply(&change(&[(1, "a", -1), (1, "c", 1)]), 2, 0).unwrap();
        let second = table.view(2);
        assert_eq!(
            contents(&first),
            BTreeMap::from([((1, "a".into()), 1), ((2, "b".into()), 1)])
        );
        assert_eq!(
            contents(&second),
            BTreeMap::from([((1, "c".into()), 1), ((2, "b".into()), 1)])
        );
        assert_eq!(table.live_rows(), 2);
    }

    #[test]
    fn a_deletion_of_nothing_is_an_error() {
        let mut table = RowTable::new(schema(), Some(vec![0]));
        table.apply(&change(&[(1, "a", 1)]), 1, 0).unwrap();
        assert!(table.apply(&change(&[(1, "b", -1)]), 2, 0).is_err());
    }

    #[test]
    fn random_changes_equal_a_model_at_every_version_that_is_still_readable() {
        for seed in 0..20 {
            let mut random = StdRng::seed_from_u64(seed);
            let mut table = RowTable::new(schema(), Some(vec![0, 1]));
            let by_key = table.add_index(vec![0]).unwrap();
            let mut model: BTreeMap<(i64, String), usize> = BTreeMap::new();
            let mut kept = vec![];
            for version in 1..400 {
                let mut rows = vec![];
                for _ in 0..random.random_range(0..40) {
                    let row = (
                        random.random_range(0..8),
                        format!("v{}", random.random_range(0..3)),
                    );
                    let count = model.entry(row.clone()).or_default();
                    if *count > 0 && random.random_bool(0.5) {
                        *count -= 1;
                        rows.push((row.0, row.1, -1));
                    } else {
                        *count += 1;
                        rows.push((row.0, row.1, 1));
                    }
                }
                model.retain(|_, count| *count > 0);
                let rows: Vec<_> = rows.iter().map(|(k, v, w)| (*k, v.as_str(), *w)).collect();
                table.apply(&change(&rows), version, version - 1).unwrap();
                let view = table.view(version);
                assert_eq!(contents(&view), model, "seed {seed}, version {version}");
                assert_eq!(table.live_rows(), model.values().sum::<usize>());
                let key: ArrayRef = Arc::new(Int64Array::from(vec![3]));
                let found = table.probe(by_key, &[key], false).unwrap().rows.len();
                assert_eq!(
                    found,
                    model
                        .iter()
                        .filter(|((k, _), _)| *k == 3)
                        .map(|(_, n)| n)
                        .sum::<usize>()
                );
                if version % 37 == 0 {
                    kept.push((view, model.clone()));
                }
            }
            for (view, model) in kept {
                assert_eq!(contents(&view), model, "seed {seed}, an old view");
            }
        }
    }
}
