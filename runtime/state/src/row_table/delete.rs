//! Deleting: finding the rows that a retraction means.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch, UInt32Array};
use hashbrown::HashMap;
use millrace_schedule::id::Version;

use super::{Matches, RowTable, hashes};
use crate::chunk::Chunk;
use crate::error::{Result, StateError};

/// A finer index is made when more rows than this have the hash of one that is sought, on average.
const CANDIDATES_MAX: usize = 8;
/// Rows that are looked at in any case.
const CANDIDATES_FREE: usize = 64;
/// Rows by which it is told whether deletions will have to look at many.
const SAMPLE_ROWS: usize = 256;

impl RowTable {
    /// Marks the rows that equal these as gone; returns their numbers, in the order given. Of equal rows any may go.
    ///
    /// # Errors
    /// One of them is not there.
    pub fn delete(&mut self, rows: &RecordBatch, version: Version) -> Result<Vec<u32>> {
        let mut deleted = vec![None; rows.num_rows()];
        self.mark_deleted(rows, version, &mut deleted)?;
        self.count_deleted(rows, deleted, version)
    }

    /// Marks the rows for which `is_gone` holds as gone, for a table that nobody reads at older versions.
    ///
    /// # Errors
    /// `is_gone` fails on a chunk.
    pub fn forget<E: From<StateError>>(
        &mut self,
        is_gone: impl Fn(&RecordBatch) -> Result<BooleanArray, E>,
    ) -> Result<(), E> {
        let mut gone = 0;
        for chunk in self.chunks.iter() {
            for row in is_gone(&chunk.rows)?.values().set_indices() {
                if chunk.is_alive(row) {
                    chunk.delete(row, 0);
                    gone += 1;
                }
            }
        }
        self.live_rows -= gone;
        self.dead_rows += gone;
        self.deletions.push_front((0, gone));
        Ok(self.tidy(Version::MAX - 1)?)
    }

    /// Marks those of the rows that are there and not yet marked.
    pub(super) fn mark_deleted(
        &mut self,
        rows: &RecordBatch,
        version: Version,
        deleted: &mut [Option<u32>],
    ) -> Result<()> {
        if deleted.iter().all(Option::is_some) {
            return Ok(());
        }
        let identity = self.identity_for(rows)?;
        // In an index that tells few rows apart the first one is not likely to be the one.
        if self.finer.is_none() && deleted.iter().all(Option::is_none) {
            self.delete_first_candidates(identity, rows, version, deleted)?;
        }
        self.delete_any_candidates(identity, rows, version, deleted)
    }

    /// Counts the rows that were marked; returns their numbers.
    pub(super) fn count_deleted(
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
            return Err(StateError::Internal(format!(
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
        identity: usize,
        rows: &RecordBatch,
        version: Version,
        deleted: &mut [Option<u32>],
    ) -> Result<()> {
        let index = &self.indexes[identity];
        let mut matches = Matches::default();
        // Several rows with one hash go on where the one before them stopped.
        let mut rest: HashMap<u64, Option<u32>> = HashMap::new();
        let hashes = hashes(rows, &index.columns)?;
        for ((probe, hash), head) in (0..).zip(&hashes).zip(index.heads(&hashes)) {
            let start = rest.get(hash).copied().unwrap_or(head);
            let mut chain = index.chain(start);
            let mut dead = 0;
            let found = chain.find(|row| {
                let alive = self.is_alive(*row);
                dead += usize::from(!alive);
                alive
            });
            rest.insert(*hash, chain.next());
            self.note_crowded(identity, *hash, dead, 1);
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
        identity: usize,
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
        let rows = arrow::compute::take_record_batch(rows, &UInt32Array::from(left.clone()))?;
        let keys: Vec<ArrayRef> = self.indexes[identity]
            .columns
            .iter()
            .map(|column| Arc::clone(rows.column(*column)))
            .collect();
        let mut matches = self.candidates(identity, &keys, Chunk::is_alive)?;
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

    /// The index by which to find rows that equal these, up to date.
    fn identity_for(&mut self, rows: &RecordBatch) -> Result<usize> {
        let Some(identity) = self.identity else {
            return Err(StateError::Internal(
                "a deletion reached a table that only grows".into(),
            ));
        };
        self.catch_up(identity)?;
        self.refine(rows)?;
        Ok(self.identity.unwrap_or(identity))
    }

    /// Makes the finer index if it would be missed by a deletion of these rows.
    fn refine(&mut self, rows: &RecordBatch) -> Result<()> {
        let (Some(identity), true) = (self.identity, self.finer.is_some()) else {
            return Ok(());
        };
        let index = &self.indexes[identity];
        let free = CANDIDATES_MAX * rows.num_rows() + CANDIDATES_FREE;
        let heads = index.heads(&hashes(rows, &index.columns)?);
        let candidates = heads.into_iter().flat_map(|head| index.chain(head));
        if candidates.take(free + 1).count() <= free {
            return Ok(());
        }
        if let Some(columns) = self.finer.take() {
            let finer = self.add_index(columns)?;
            self.catch_up(finer)?;
            self.identity = Some(finer);
        }
        Ok(())
    }

    /// As [`RowTable::refine`], for a deletion of any rows.
    pub(super) fn refine_by_sample(&mut self) -> Result<()> {
        if self.finer.is_none() || self.rows == 0 {
            return Ok(());
        }
        let step = (self.rows as usize).div_ceil(SAMPLE_ROWS);
        let sample: Vec<u32> = (0..self.rows).step_by(step).collect();
        let sample = self.rows(&sample)?;
        self.refine(&sample)
    }
}
