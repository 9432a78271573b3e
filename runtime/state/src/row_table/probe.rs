//! Finding rows: by key, and their columns by number.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::{interleave, take};
use millrace_schedule::id::Version;

use super::{RowTable, row_hashes};
use crate::chunk::Chunk;
use crate::compare::rows_equal;
use crate::error::{Result, StateError};

/// A chain with this many dead rows more than live ones is worth cleaning.
const CROWDED_DEAD_ROWS_MIN: usize = 8;

/// Pairs of a probing row and a row of the table.
#[derive(Debug, Default)]
pub struct Matches {
    pub probe: Vec<u32>,
    pub rows: Vec<u32>,
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

impl RowTable {
    /// Live rows whose indexed columns equal the keys. With `nulls_match`, NULL equals NULL.
    pub fn probe(&self, index: usize, keys: &[ArrayRef], nulls_match: bool) -> Result<Matches> {
        self.probe_where(index, keys, nulls_match, Chunk::is_alive)
    }

    /// As [`RowTable::probe`], for the keys with these hashes ([`RowTable::hashes_of`]) from position `from` on, until there
    /// are `most` pairs and the position is worked off. Also returns the position at which to go on.
    pub fn probe_some(
        &self,
        index: usize,
        keys: &[ArrayRef],
        hashes: &[u64],
        nulls_match: bool,
        (from, most): (usize, usize),
    ) -> Result<(Matches, usize)> {
        let (mut matches, next) = self.candidates_hashed(index, hashes, (from, most), Chunk::is_alive)?;
        self.keep_matching(&mut matches, index, keys, nulls_match)?;
        Ok((matches, next))
    }

    /// The keys' hashes, as indexes have them.
    ///
    /// # Errors
    /// A column cannot be hashed.
    pub fn hashes_of(keys: &[ArrayRef], rows: usize) -> Result<Vec<u64>> {
        row_hashes(keys, rows)
    }

    /// As [`RowTable::probe`] with NULL equal to NULL, where the keys' hashes are known.
    pub fn probe_hashed(&self, index: usize, keys: &[ArrayRef], hashes: &[u64]) -> Result<Matches> {
        let (mut matches, _) = self.candidates_hashed(index, hashes, (0, usize::MAX), Chunk::is_alive)?;
        self.keep_equal(&mut matches, &self.indexes[index].columns, keys)?;
        Ok(matches)
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
        let mut matches = self.candidates(index, keys, is_there)?;
        self.keep_matching(&mut matches, index, keys, nulls_match)?;
        Ok(matches)
    }

    fn keep_matching(
        &self,
        matches: &mut Matches,
        index: usize,
        keys: &[ArrayRef],
        nulls_match: bool,
    ) -> Result<()> {
        if !nulls_match {
            let nulls: Vec<_> = keys.iter().filter_map(|key| key.logical_nulls()).collect();
            if !nulls.is_empty() {
                matches.retain(|probe, _| nulls.iter().all(|nulls| nulls.is_valid(probe as usize)));
            }
        }
        self.keep_equal(matches, &self.indexes[index].columns, keys)
    }

    /// Rows with the hash of the keys.
    pub(super) fn candidates(
        &self,
        index: usize,
        keys: &[ArrayRef],
        is_there: impl Fn(&Chunk, usize) -> bool,
    ) -> Result<Matches> {
        let rows = match keys.first() {
            Some(key) => key.len(),
            None => return Err(StateError::Internal("a probe without keys".into())),
        };
        if self.live_rows + self.dead_rows == 0 {
            return Ok(Matches::default());
        }
        let hashes = row_hashes(keys, rows)?;
        let (matches, _) = self.candidates_hashed(index, &hashes, (0, usize::MAX), is_there)?;
        Ok(matches)
    }

    /// Rows with these hashes, from position `from` on, until there are `most` of them and the position is worked off.
    fn candidates_hashed(
        &self,
        index: usize,
        hashes: &[u64],
        (from, most): (usize, usize),
        is_there: impl Fn(&Chunk, usize) -> bool,
    ) -> Result<(Matches, usize)> {
        let chains = &self.indexes[index];
        if chains.rows() < self.rows {
            return Err(StateError::Internal(
                "an index was asked that is behind its rows".into(),
            ));
        }
        let mut matches = Matches::default();
        let hashes = &hashes[from..];
        let heads = chains.heads(hashes);
        for (probe, (hash, head)) in (from..).zip(hashes.iter().zip(heads)) {
            if matches.rows.len() >= most {
                return Ok((matches, probe));
            }
            let mut dead = 0;
            let before = matches.rows.len();
            for row in chains.chain(head) {
                let (chunk, offset) = self.locate(row);
                if is_there(&self.chunks[chunk], offset) {
                    matches.probe.push(probe as u32);
                    matches.rows.push(row);
                } else {
                    dead += 1;
                }
            }
            self.note_crowded(index, *hash, dead, matches.rows.len() - before);
        }
        Ok((matches, from + hashes.len()))
    }

    /// Remembers a chain in which a walk met many dead rows beside the live ones.
    pub(super) fn note_crowded(&self, index: usize, hash: u64, dead: usize, live: usize) {
        if dead > CROWDED_DEAD_ROWS_MIN + live {
            self.crowded.lock().push((index, hash));
        }
    }

    /// Drops the pairs whose columns differ (equal hashes are not equal keys).
    pub(super) fn keep_equal(
        &self,
        matches: &mut Matches,
        columns: &[usize],
        probe: &[ArrayRef],
    ) -> Result<()> {
        if matches.rows.is_empty() {
            return Ok(());
        }
        let stored = self.gather(&matches.rows, columns)?;
        let positions = UInt32Array::from(matches.probe.clone());
        let probing = probe
            .iter()
            .map(|key| take(key, &positions, None))
            .collect::<Result<Vec<_>, _>>()?;
        let equal = rows_equal(&stored, &probing, matches.rows.len())?;
        if equal.true_count() < equal.len() {
            let mut position = 0;
            matches.retain(|_, _| {
                position += 1;
                equal.value(position - 1)
            });
        }
        Ok(())
    }

    /// Columns of the given rows, in the order given.
    pub fn gather(&self, rows: &[u32], columns: &[usize]) -> Result<Vec<ArrayRef>> {
        if let [chunk] = self.chunks.as_slice() {
            let positions = UInt32Array::from(rows.to_vec());
            let columns = columns.iter().map(|column| chunk.rows.column(*column));
            return columns
                .map(|column| take(column, &positions, None).map_err(StateError::from))
                .collect();
        }
        let positions: Vec<(usize, usize)> = rows.iter().map(|row| self.locate(*row)).collect();
        // A look-up by a key finds a row or a few: there may be thousands of chunks beside theirs.
        if let Some((first, _)) = positions.first()
            && positions.iter().all(|(chunk, _)| chunk == first)
        {
            let offsets = positions.iter().map(|(_, offset)| *offset as u32);
            let offsets = UInt32Array::from_iter_values(offsets);
            let chunk = &self.chunks[*first].rows;
            return columns
                .iter()
                .map(|column| take(chunk.column(*column), &offsets, None).map_err(StateError::from))
                .collect();
        }
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
                interleave(&arrays, &positions).map_err(StateError::from)
            })
            .collect()
    }

    /// Whole rows.
    pub fn rows(&self, rows: &[u32]) -> Result<RecordBatch> {
        let all: Vec<usize> = (0..self.schema.fields().len()).collect();
        let columns = self.gather(rows, &all)?;
        let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(rows.len()));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)
            .map_err(StateError::from)
    }
}
