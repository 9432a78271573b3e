//! Immutable columns with, for each row, the version at which it appeared and the one at which it went.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use arrow::array::{BooleanArray, BooleanBufferBuilder, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::Schema;
use arrow::error::ArrowError;
use millrace_resource::spill::state::SpilledRows;
use millrace_schedule::id::Version;
use millrace_storage::checkpoint::{BlockRef, Slice};
use millrace_storage::rows_bytes;
use parking_lot::Mutex;

use crate::bounds::{self, Bounds};

/// Not deleted.
const ALIVE: Version = Version::MAX;
/// Before whatever anyone reads.
const ANCIENT: Version = 0;
/// Rows that share one allocation of deletion marks.
const BLOCK_ROWS: usize = 64;
/// Of rows on disk, a bit each for so many versions at which some went is less than marks.
const PACKED_VERSIONS_MAX: usize = 16;

/// Rows from `first` on appeared at `version`.
#[derive(Debug, Clone, Copy)]
struct Run {
    first: u32,
    version: Version,
}

/// When the rows of 64 neighbours went; made by the first that goes.
type Block = OnceLock<Box<[AtomicU64]>>;

/// Rows that do not move. Deleting one is an atomic store, so that readers need no lock.
#[derive(Debug)]
pub struct Chunk {
    pub rows: RecordBatch,
    /// Ascending by row, not always by version: epochs of a stage without state overtake each other. What every reader
    /// sees is one run.
    created: Vec<Run>,
    /// Made by the first deletion: what only grows pays nothing, and what is deleted here and there little.
    deleted: OnceLock<Box<[Block]>>,
    /// Of rows on disk, in place of marks: the rows that went, by when they did.
    packed: Vec<(Version, BooleanBuffer)>,
    dead_rows: AtomicUsize,
    stored: Mutex<Stored>,
    /// The rows are on disk; here are none of their columns.
    away: Option<SpilledRows>,
    bounds: Bounds,
}

/// Where the rows are in the checkpoint files, and the marks of those that were alive then.
#[derive(Debug, Clone, Copy, Default)]
pub struct Stored {
    pub rows: Option<BlockRef>,
    pub alive: Option<Slice>,
}

impl Chunk {
    pub fn new(rows: RecordBatch, version: Version) -> Self {
        Chunk::with_runs(rows, vec![Run { first: 0, version }])
    }

    fn with_runs(rows: RecordBatch, created: Vec<Run>) -> Self {
        Chunk {
            rows,
            created,
            deleted: OnceLock::new(),
            packed: vec![],
            dead_rows: AtomicUsize::new(0),
            stored: Mutex::default(),
            away: None,
            bounds: Bounds::default(),
        }
    }

    /// Between which values a column lies, with rows that are gone; `None`: it has no values, or they are on disk.
    pub fn bounds(&self, column: usize) -> Option<bounds::Range> {
        let values = self.rows.columns().get(column)?;
        self.bounds.of(column, self.rows.num_columns(), values)
    }

    /// Where the rows are, if they are on disk.
    pub fn away(&self) -> Option<&SpilledRows> {
        self.away.as_ref()
    }

    /// The same without the columns, which are on disk. When rows went is told apart as far as somebody at `low_water` or later
    /// can tell. One that left before forgets what nobody can tell any more.
    pub fn leave(&self, away: SpilledRows, low_water: Version) -> Result<Chunk, ArrowError> {
        let options = RecordBatchOptions::new().with_row_count(Some(self.len()));
        let none = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options)?;
        let mut hollow = Chunk::with_runs(none, vec![]);
        for run in &self.created {
            hollow.begin_run(run.first, run.version, low_water);
        }
        hollow.stored = Mutex::new(self.stored());
        hollow.away = Some(away);
        hollow.delete_all(self.deletions().map(|(row, version)| match version {
            version if version <= low_water => (row, ANCIENT),
            version => (row, version),
        }));
        Ok(hollow)
    }

    /// Marks the rows that are gone, for the first time: no row goes while they are on disk.
    fn delete_all(&mut self, deletions: impl Iterator<Item = (usize, Version)>) {
        match &self.away {
            Some(_) => self.pack(deletions),
            None => deletions.for_each(|(row, version)| self.delete(row, version)),
        }
    }

    fn pack(&mut self, deletions: impl Iterator<Item = (usize, Version)>) {
        let mut by_version: BTreeMap<Version, Vec<u32>> = BTreeMap::new();
        for (row, version) in deletions {
            by_version.entry(version).or_default().push(row as u32);
        }
        if by_version.len() > PACKED_VERSIONS_MAX {
            for (version, rows) in by_version {
                rows.iter().for_each(|row| self.delete(*row as usize, version));
            }
            return;
        }
        for (version, rows) in by_version {
            let mut gone = BooleanBufferBuilder::new(self.len());
            gone.append_n(self.len(), false);
            rows.iter().for_each(|row| gone.set_bit(*row as usize, true));
            self.dead_rows.fetch_add(rows.len(), Ordering::Relaxed);
            self.packed.push((version, gone.finish()));
        }
    }

    /// Whether a row ever went.
    fn has_deletions(&self) -> bool {
        self.deleted.get().is_some() || !self.packed.is_empty()
    }

    /// The same with the columns, as they were read from the disk.
    pub fn come_back(&self, rows: RecordBatch) -> Chunk {
        let mut whole = self.with_rows(rows);
        whole.stored = Mutex::new(self.stored());
        whole
    }

    /// Rows of a checkpoint file: whoever reads sees those that are alive.
    pub fn restored(rows: RecordBatch, alive: Option<&BooleanBuffer>, stored: Stored) -> Self {
        let chunk = Chunk::new(rows, ANCIENT);
        for row in (0..chunk.len()).filter(|row| alive.is_some_and(|alive| !alive.value(*row))) {
            chunk.delete(row, ANCIENT);
        }
        *chunk.stored.lock() = stored;
        chunk
    }

    /// Where the rows are in the checkpoint files, as far as they are.
    pub fn stored(&self) -> Stored {
        *self.stored.lock()
    }

    pub fn set_stored(&self, stored: Stored) {
        *self.stored.lock() = stored;
    }

    /// Which rows a reader at this version sees; none: all of them.
    pub fn alive_at(&self, version: Version) -> Option<BooleanBuffer> {
        let all_created = self.created.iter().all(|run| run.version <= version);
        if all_created && !self.has_deletions() {
            return None;
        }
        let mask = BooleanBuffer::collect_bool(self.len(), |row| self.is_visible(row, version));
        (mask.count_set_bits() < self.len()).then_some(mask)
    }

    /// The same versions over other columns of as many rows.
    pub fn with_rows(&self, rows: RecordBatch) -> Chunk {
        let mut copy = Chunk::with_runs(rows, self.created.clone());
        copy.delete_all(self.deletions());
        copy
    }

    /// The same rows with only these alive; the others are as they are here.
    pub fn as_of(&self, alive: Option<&BooleanBuffer>) -> Chunk {
        let mut copy = Chunk::with_runs(self.rows.clone(), self.created.clone());
        copy.stored = Mutex::new(self.stored());
        copy.away.clone_from(&self.away);
        if let Some(alive) = alive {
            let gone = (0..self.len()).filter(|row| !alive.value(*row));
            copy.delete_all(gone.map(|row| (row, self.deleted_at(row))));
        }
        copy
    }

    /// The same rows, of which those that are not alive are gone whatever one reads.
    pub fn only(&self, alive: Option<&BooleanBuffer>) -> Chunk {
        let mut copy = Chunk::with_runs(self.rows.clone(), self.created.clone());
        copy.stored = Mutex::new(self.stored());
        copy.away.clone_from(&self.away);
        if let Some(alive) = alive {
            let gone = (0..self.len()).filter(|row| !alive.value(*row));
            copy.delete_all(gone.map(|row| (row, ANCIENT)));
        }
        copy
    }

    /// Rows that are gone, for the writer.
    pub fn dead_rows(&self) -> usize {
        self.dead_rows.load(Ordering::Relaxed)
    }

    /// The version at which the last row went, if one did.
    pub fn last_deletion(&self) -> Option<Version> {
        self.deletions().map(|(_, version)| version).max()
    }

    /// Several chunks as one, in order, dead rows included: row numbers stay as they are. What appeared at or before
    /// `low_water` is no longer told apart.
    pub fn concat(chunks: &[&Chunk], low_water: Version) -> Result<Chunk, ArrowError> {
        let schema = chunks[0].rows.schema();
        let rows = arrow::compute::concat_batches(&schema, chunks.iter().map(|chunk| &chunk.rows))?;
        let mut merged = Chunk::with_runs(rows, vec![]);
        let mut base = 0;
        for chunk in chunks {
            for run in &chunk.created {
                merged.begin_run(base as u32 + run.first, run.version, low_water);
            }
            for (row, version) in chunk.deletions() {
                merged.delete(base + row, version);
            }
            base += chunk.len();
        }
        Ok(merged)
    }

    /// Rows from `first` on appeared at `version`.
    fn begin_run(&mut self, first: u32, version: Version, low_water: Version) {
        let version = if version <= low_water { ANCIENT } else { version };
        if self.created.last().is_none_or(|last| last.version != version) {
            self.created.push(Run { first, version });
        }
    }

    /// Rows that are gone, with when they went.
    fn deletions(&self) -> impl Iterator<Item = (usize, Version)> + '_ {
        let blocks = self.deleted.get().map_or(&[][..], |blocks| blocks);
        let marked = blocks.iter().enumerate().flat_map(|(place, block)| {
            let marks = block.get().map_or(&[][..], |marks| marks);
            marks.iter().enumerate().filter_map(move |(row, mark)| {
                let version = mark.load(Ordering::Relaxed);
                (version != ALIVE).then_some((place * BLOCK_ROWS + row, version))
            })
        });
        let packed = self.packed.iter();
        marked.chain(packed.flat_map(|(version, gone)| gone.set_indices().map(|row| (row, *version))))
    }

    /// Positions of the rows that someone reading at `low_water` or later may still see.
    pub fn surviving(&self, low_water: Version) -> impl Iterator<Item = usize> + '_ {
        (0..self.len()).filter(move |row| self.deleted_at(*row) > low_water)
    }

    /// The rows that someone reading at `low_water` or later may still see; `None` if there are none.
    pub fn survivors(&self, low_water: Version) -> Result<Option<Chunk>, ArrowError> {
        let kept: Vec<usize> = self.surviving(low_water).collect();
        if kept.is_empty() {
            return Ok(None);
        }
        let positions = UInt32Array::from_iter_values(kept.iter().map(|row| *row as u32));
        let rows = arrow::compute::take_record_batch(&self.rows, &positions)?;
        let mut survivors = Chunk::with_runs(rows, vec![]);
        for (row, old) in kept.iter().enumerate() {
            survivors.begin_run(row as u32, self.created_at(*old), low_water);
            let deleted_at = self.deleted_at(*old);
            if deleted_at != ALIVE {
                survivors.delete(row, deleted_at);
            }
        }
        Ok(Some(survivors))
    }

    pub fn len(&self) -> usize {
        self.rows.num_rows()
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn created_at(&self, row: usize) -> Version {
        let run = self.created.partition_point(|run| run.first as usize <= row);
        self.created[run - 1].version
    }

    pub fn deleted_at(&self, row: usize) -> Version {
        if let Some((version, _)) = self.packed.iter().find(|(_, gone)| gone.value(row)) {
            return *version;
        }
        self.deleted
            .get()
            .and_then(|blocks| blocks[row / BLOCK_ROWS].get())
            .map_or(ALIVE, |marks| marks[row % BLOCK_ROWS].load(Ordering::Relaxed))
    }

    /// Whether the row is there for the writer, who sees everything written so far.
    pub fn is_alive(&self, row: usize) -> bool {
        self.deleted_at(row) == ALIVE
    }

    pub fn is_visible(&self, row: usize, version: Version) -> bool {
        self.created_at(row) <= version && self.deleted_at(row) > version
    }

    /// Marks a row as gone from `version` on.
    pub fn delete(&self, row: usize, version: Version) {
        let blocks = self.deleted.get_or_init(|| {
            let blocks = self.len().div_ceil(BLOCK_ROWS);
            (0..blocks).map(|_| Block::new()).collect()
        });
        let marks = blocks[row / BLOCK_ROWS].get_or_init(|| {
            let rows = (self.len() - row / BLOCK_ROWS * BLOCK_ROWS).min(BLOCK_ROWS);
            (0..rows).map(|_| AtomicU64::new(ALIVE)).collect()
        });
        marks[row % BLOCK_ROWS].store(version, Ordering::Relaxed);
        self.dead_rows.fetch_add(1, Ordering::Relaxed);
    }

    /// What changed between two versions: the positions of the rows that came or went, each with its weight. A row that
    /// came and went in between is not among them.
    pub fn changes(&self, since: Version, until: Version) -> (Vec<u32>, Vec<i64>) {
        let (mut positions, mut weights) = (vec![], vec![]);
        let is_older = self.created.iter().all(|run| run.version <= since);
        let is_newer = self.created.iter().all(|run| run.version > until);
        if is_newer || (is_older && !self.has_deletions()) {
            return (positions, weights);
        }
        if is_older {
            // Only what went: few rows did, and the others are not looked at.
            let went = self
                .deletions()
                .filter(|(_, at)| (since + 1..=until).contains(at));
            positions.extend(went.map(|(row, _)| row as u32));
            weights.resize(positions.len(), -1);
            return (positions, weights);
        }
        for row in 0..self.len() {
            let weight = i64::from(self.is_visible(row, until)) - i64::from(self.is_visible(row, since));
            if weight != 0 {
                positions.push(row as u32);
                weights.push(weight);
            }
        }
        (positions, weights)
    }

    /// The rows that a reader at `version` sees, without copying where that is all of them. `rows`: the chunk's from the place
    /// `first` on, maybe with fewer columns.
    pub fn visible(
        &self,
        version: Version,
        rows: &RecordBatch,
        first: usize,
    ) -> Result<RecordBatch, ArrowError> {
        let all_created = self.created.iter().all(|run| run.version <= version);
        if all_created && !self.has_deletions() {
            return Ok(rows.clone());
        }
        let mask = if all_created {
            BooleanBuffer::collect_bool(rows.num_rows(), |row| self.deleted_at(first + row) > version)
        } else {
            BooleanBuffer::collect_bool(rows.num_rows(), |row| self.is_visible(first + row, version))
        };
        match mask.count_set_bits() {
            0 => Ok(rows.slice(0, 0)),
            count if count == rows.num_rows() => Ok(rows.clone()),
            _ => arrow::compute::filter_record_batch(rows, &BooleanArray::new(mask, None)),
        }
    }

    /// Bytes of the columns and of the versions.
    pub fn memory_bytes(&self) -> usize {
        let blocks = self.deleted.get().map_or(&[][..], |blocks| blocks);
        let marks = blocks
            .iter()
            .filter_map(Block::get)
            .map(|marks| size_of_val::<[AtomicU64]>(marks));
        let packed = self.packed.iter().map(|(_, gone)| gone.inner().len());
        rows_bytes(&self.rows)
            + packed.sum::<usize>()
            + self.created.capacity() * size_of::<Run>()
            + size_of_val(blocks)
            + marks.sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array};

    use super::*;

    fn chunk(values: std::ops::Range<i64>, version: Version) -> Chunk {
        let values: ArrayRef = Arc::new(Int64Array::from_iter_values(values));
        Chunk::new(RecordBatch::try_from_iter([("v", values)]).unwrap(), version)
    }

    #[test]
    fn merged_chunks_tell_versions_apart_as_far_as_a_reader_can() {
        let chunks = [
            chunk(0..100, 3),
            chunk(100..150, 5),
            chunk(150..200, 9),
            chunk(200..250, 8),
        ];
        chunks[0].delete(70, 8);
        chunks[2].delete(0, 12);
        let merged = Chunk::concat(&chunks.iter().collect::<Vec<_>>(), 6).unwrap();
        assert_eq!(merged.created.len(), 3, "{:?}", merged.created);
        for version in 6..14 {
            let seen = merged.visible(version, &merged.rows, 0).unwrap().num_rows();
            let expected = (0..250).filter(|row| merged.is_visible(*row, version)).count();
            assert_eq!(seen, expected, "version {version}");
        }
        assert_eq!(merged.visible(8, &merged.rows, 0).unwrap().num_rows(), 199);
        assert_eq!(merged.visible(12, &merged.rows, 0).unwrap().num_rows(), 248);
        let survivors = merged.survivors(8).unwrap().unwrap();
        assert_eq!(survivors.len(), 249);
        assert_eq!(survivors.visible(12, &survivors.rows, 0).unwrap().num_rows(), 248);
    }

    #[test]
    fn rows_that_are_away_know_when_they_went_in_a_bit_each() {
        let chunk = chunk(0..6_400, 1);
        let hollow = |chunk: &Chunk| {
            let none = RecordBatch::try_new_with_options(
                Arc::new(Schema::empty()),
                vec![],
                &RecordBatchOptions::new().with_row_count(Some(chunk.len())),
            );
            let mut hollow = Chunk::with_runs(none.unwrap(), chunk.created.clone());
            hollow.pack(chunk.deletions());
            hollow
        };
        let mut went = vec![];
        for version in 5..8 {
            for row in (version as usize..6_400).step_by(10) {
                chunk.delete(row, version);
                went.push((row, version));
            }
        }
        went.sort_unstable();
        let packed = hollow(&chunk);
        let mut told: Vec<_> = packed.deletions().collect();
        told.sort_unstable();
        assert_eq!(told, went);
        assert_eq!(packed.dead_rows(), chunk.dead_rows());
        assert!(packed.memory_bytes() * 10 < chunk.memory_bytes() - rows_bytes(&chunk.rows));
        for version in 4..9 {
            assert_eq!(
                packed.alive_at(version),
                chunk.alive_at(version),
                "version {version}"
            );
        }
        // Very many versions are marks again.
        for row in 0..20 {
            chunk.delete(row * 10, 100 + row as u64);
        }
        assert_eq!(
            hollow(&chunk).deletions().collect::<Vec<_>>(),
            chunk.deletions().collect::<Vec<_>>()
        );
    }

    #[test]
    fn a_deletion_costs_the_memory_of_its_neighbourhood() {
        let chunk = chunk(0..65_536, 1);
        let before = chunk.memory_bytes();
        chunk.delete(40_000, 2);
        let marks = BLOCK_ROWS * size_of::<AtomicU64>();
        let blocks = 65_536 / BLOCK_ROWS * size_of::<Block>();
        assert_eq!(chunk.memory_bytes() - before, marks + blocks);
        assert!(!chunk.is_alive(40_000) && chunk.is_alive(39_999));
    }
}
