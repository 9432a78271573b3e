//! Immutable columns with, for each row, the version at which it appeared and the one at which it went.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::{BooleanArray, RecordBatch, UInt32Array};
use arrow::buffer::BooleanBuffer;

/// A point in a relation's history: an epoch for a view, a log offset for a table. A reader at version `v` sees what
/// appeared at or before `v` and went after `v`.
pub type Version = u64;

/// Not deleted.
const ALIVE: Version = Version::MAX;

/// When the rows of a chunk appeared.
#[derive(Debug, Clone)]
enum Created {
    Together(Version),
    Each(Box<[Version]>),
}

/// Rows that do not move. Deleting one is an atomic store, so that readers need no lock.
#[derive(Debug)]
pub struct Chunk {
    pub rows: RecordBatch,
    created: Created,
    /// Made by the first deletion: what only grows pays nothing.
    deleted: OnceLock<Box<[AtomicU64]>>,
}

impl Chunk {
    pub fn new(rows: RecordBatch, version: Version) -> Self {
        Chunk {
            rows,
            created: Created::Together(version),
            deleted: OnceLock::new(),
        }
    }

    /// The same versions over other columns of as many rows.
    pub fn with_rows(&self, rows: RecordBatch) -> Chunk {
        let copy = Chunk {
            rows,
            created: self.created.clone(),
            deleted: OnceLock::new(),
        };
        for row in (0..self.len()).filter(|row| !self.is_alive(*row)) {
            copy.delete(row, self.deleted_at(row));
        }
        copy
    }

    /// Several chunks as one, in order, dead rows included: row numbers stay as they are.
    pub fn concat(chunks: &[&Chunk]) -> Result<Chunk, arrow::error::ArrowError> {
        let schema = chunks[0].rows.schema();
        let rows = arrow::compute::concat_batches(&schema, chunks.iter().map(|chunk| &chunk.rows))?;
        let first = chunks[0].created_at(0);
        let created = if chunks
            .iter()
            .all(|c| matches!(c.created, Created::Together(v) if v == first))
        {
            Created::Together(first)
        } else {
            Created::Each(
                chunks
                    .iter()
                    .flat_map(|c| (0..c.len()).map(|row| c.created_at(row)))
                    .collect(),
            )
        };
        let merged = Chunk {
            rows,
            created,
            deleted: OnceLock::new(),
        };
        if chunks.iter().any(|chunk| chunk.deleted.get().is_some()) {
            let deleted = chunks
                .iter()
                .flat_map(|c| (0..c.len()).map(|row| AtomicU64::new(c.deleted_at(row))))
                .collect();
            merged.deleted.set(deleted).expect("the chunk was just made");
        }
        Ok(merged)
    }

    /// Positions of the rows that someone reading at `low_water` or later may still see.
    pub fn surviving(&self, low_water: Version) -> impl Iterator<Item = usize> + '_ {
        (0..self.len()).filter(move |row| self.deleted_at(*row) > low_water)
    }

    /// The rows that someone reading at `low_water` or later may still see; `None` if there are none.
    pub fn survivors(&self, low_water: Version) -> Result<Option<Chunk>, arrow::error::ArrowError> {
        let kept: Vec<usize> = self.surviving(low_water).collect();
        if kept.is_empty() {
            return Ok(None);
        }
        let positions = UInt32Array::from_iter_values(kept.iter().map(|row| *row as u32));
        let rows = arrow::compute::take_record_batch(&self.rows, &positions)?;
        let created = match self.created {
            Created::Together(version) => Created::Together(version),
            Created::Each(_) => Created::Each(kept.iter().map(|row| self.created_at(*row)).collect()),
        };
        let survivors = Chunk {
            rows,
            created,
            deleted: OnceLock::new(),
        };
        for (row, old) in kept.iter().enumerate() {
            if !self.is_alive(*old) {
                survivors.delete(row, self.deleted_at(*old));
            }
        }
        Ok(Some(survivors))
    }

    pub fn len(&self) -> usize {
        self.rows.num_rows()
    }

    pub fn created_at(&self, row: usize) -> Version {
        match &self.created {
            Created::Together(version) => *version,
            Created::Each(versions) => versions[row],
        }
    }

    pub fn deleted_at(&self, row: usize) -> Version {
        self.deleted
            .get()
            .map_or(ALIVE, |deleted| deleted[row].load(Ordering::Relaxed))
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
        let deleted = self
            .deleted
            .get_or_init(|| (0..self.len()).map(|_| AtomicU64::new(ALIVE)).collect());
        deleted[row].store(version, Ordering::Relaxed);
    }

    /// What changed between two versions: the positions of the rows that came or went, each with its weight. A row that
    /// came and went in between is not among them.
    pub fn changes(&self, since: Version, until: Version) -> (Vec<u32>, Vec<i64>) {
        let (mut positions, mut weights) = (vec![], vec![]);
        let is_older = matches!(self.created, Created::Together(created) if created <= since);
        let is_newer = matches!(self.created, Created::Together(created) if created > until);
        if is_newer || (is_older && self.deleted.get().is_none()) {
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

    /// The rows that a reader at `version` sees, without copying where that is all of them.
    pub fn visible(
        &self,
        version: Version,
        rows: &RecordBatch,
    ) -> Result<RecordBatch, arrow::error::ArrowError> {
        let all_created = matches!(self.created, Created::Together(created) if created <= version);
        if all_created && self.deleted.get().is_none() {
            return Ok(rows.clone());
        }
        if let Created::Together(created) = self.created
            && created > version
        {
            return Ok(rows.slice(0, 0));
        }
        let mask = BooleanBuffer::collect_bool(self.len(), |row| self.is_visible(row, version));
        match mask.count_set_bits() {
            0 => Ok(rows.slice(0, 0)),
            count if count == self.len() => Ok(rows.clone()),
            _ => arrow::compute::filter_record_batch(rows, &BooleanArray::new(mask, None)),
        }
    }
}
