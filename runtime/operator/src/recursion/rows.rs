//! The rows of a recursion: as comparable bytes, each with the iterations in which it is a candidate.
//!
//! There are as many as the fix-point has rows, so they are packed: bytes lie one after the other in one buffer, and a row
//! that is a candidate of one iteration, as most are, needs no list.

use hashbrown::HashTable;
use twox_hash::XxHash3_64;

use super::Iteration;
use crate::error::{OperatorError, Result};

/// A row's number while it is kept.
pub(super) type RowId = u32;

/// No iteration.
const NO_ITERATION: u32 = u32::MAX;
/// The buffer is rewritten when more of it is unused than used, and at least so much.
const UNUSED_BYTES_MIN: usize = 65_536;

/// A row that is, or was, a candidate.
#[derive(Debug)]
pub(super) struct Kept {
    /// Where its bytes begin.
    start: u64,
    bytes: u32,
    /// The iteration in which it is in the working table.
    member: u32,
    candidates: Candidates,
}

/// How often a row is a candidate of each iteration.
#[derive(Debug, Default)]
enum Candidates {
    #[default]
    None,
    One(u32, u32),
    /// In the order of the iterations; never 0 times.
    #[expect(
        clippy::box_collection,
        reason = "kept for every row: one word instead of three"
    )]
    Many(Box<Vec<(Iteration, i64)>>),
}

impl Kept {
    /// The first iteration of which it is a candidate.
    pub fn first(&self) -> Option<Iteration> {
        match &self.candidates {
            Candidates::None => None,
            Candidates::One(iteration, _) => Some(Iteration::from(*iteration)),
            Candidates::Many(candidates) => candidates.first().map(|(first, _)| *first),
        }
    }

    /// The iterations of which it is a candidate, and how often.
    pub fn candidates(&self) -> Vec<(Iteration, i64)> {
        match &self.candidates {
            Candidates::None => vec![],
            Candidates::One(iteration, count) => vec![(Iteration::from(*iteration), i64::from(*count))],
            Candidates::Many(candidates) => candidates.to_vec(),
        }
    }

    pub fn member(&self) -> Option<Iteration> {
        (self.member != NO_ITERATION).then(|| Iteration::from(self.member))
    }

    /// `iteration`: not more than [`NO_ITERATION`], which the limits see to.
    pub fn set_member(&mut self, iteration: Option<Iteration>) {
        self.member = iteration.map_or(NO_ITERATION, |iteration| iteration as u32);
    }

    /// Changes how often it is a candidate of an iteration.
    ///
    /// # Errors
    /// It would be so less often than never.
    pub fn count(&mut self, iteration: Iteration, change: i64) -> Result<()> {
        let mut candidates = match std::mem::take(&mut self.candidates) {
            Candidates::None => vec![],
            Candidates::One(known, count) => vec![(Iteration::from(known), i64::from(count))],
            Candidates::Many(candidates) => *candidates,
        };
        let found = candidates.binary_search_by_key(&iteration, |(iteration, _)| *iteration);
        let count = found.map_or(0, |position| candidates[position].1) + change;
        match (found, count) {
            (_, ..0) => {
                return Err(OperatorError::Internal(
                    "a recursion takes back a row that it did not make".into(),
                ));
            }
            (Ok(position), 0) => {
                candidates.remove(position);
            }
            (Ok(position), _) => candidates[position].1 = count,
            (Err(_), 0) => {}
            (Err(position), _) => candidates.insert(position, (iteration, count)),
        }
        self.candidates = match candidates.as_slice() {
            [] => Candidates::None,
            [(iteration, count)] => match (u32::try_from(*iteration), u32::try_from(*count)) {
                (Ok(iteration), Ok(count)) => Candidates::One(iteration, count),
                _ => Candidates::Many(Box::new(candidates)),
            },
            _ => Candidates::Many(Box::new(candidates)),
        };
        Ok(())
    }

    fn is_candidate(&self) -> bool {
        !matches!(self.candidates, Candidates::None)
    }
}

/// Rows found by their bytes, under numbers that are used again.
#[derive(Default)]
pub(super) struct Rows {
    kept: Vec<Kept>,
    by_bytes: HashTable<RowId>,
    buffer: Vec<u8>,
    unused_bytes: usize,
    free: Vec<RowId>,
    /// Rows that this epoch has named.
    touched: Vec<RowId>,
}

impl Rows {
    /// The row's number; it gets one if it has none.
    pub fn intern(&mut self, bytes: &[u8]) -> RowId {
        let hash = XxHash3_64::oneshot(bytes);
        if let Some(row) = self.by_bytes.find(hash, |row| self.bytes(*row) == bytes) {
            self.touched.push(*row);
            return *row;
        }
        let new = Kept {
            start: self.buffer.len() as u64,
            bytes: bytes.len() as u32,
            member: NO_ITERATION,
            candidates: Candidates::None,
        };
        // By an eighth: doubling would leave a third of the memory unused.
        if self.buffer.len() + bytes.len() > self.buffer.capacity() {
            self.buffer.reserve_exact(bytes.len().max(self.buffer.len() / 8));
        }
        self.buffer.extend_from_slice(bytes);
        let row = match self.free.pop() {
            Some(row) => {
                self.kept[row as usize] = new;
                row
            }
            None => {
                if self.kept.len() == self.kept.capacity() {
                    self.kept.reserve_exact((self.kept.len() / 8).max(1));
                }
                self.kept.push(new);
                (self.kept.len() - 1) as RowId
            }
        };
        let (kept, buffer) = (&self.kept, &self.buffer);
        self.by_bytes.insert_unique(hash, row, |row| {
            XxHash3_64::oneshot(bytes_of(&kept[*row as usize], buffer))
        });
        self.touched.push(row);
        row
    }

    /// All rows, by their bytes.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &Kept)> {
        self.by_bytes
            .iter()
            .map(|row| (self.bytes(*row), &self.kept[*row as usize]))
    }

    pub fn kept(&mut self, row: RowId) -> &mut Kept {
        &mut self.kept[row as usize]
    }

    pub fn bytes(&self, row: RowId) -> &[u8] {
        bytes_of(&self.kept[row as usize], &self.buffer)
    }

    /// At the end of an epoch: forgets the rows that are no candidates any more, or all.
    pub fn forget(&mut self, unless_candidate: bool) {
        for row in std::mem::take(&mut self.touched) {
            if unless_candidate && self.kept[row as usize].is_candidate() {
                continue;
            }
            let hash = XxHash3_64::oneshot(self.bytes(row));
            // A row that was touched twice is gone already.
            if let Ok(entry) = self.by_bytes.find_entry(hash, |other| *other == row) {
                entry.remove();
                let kept = &mut self.kept[row as usize];
                self.unused_bytes += kept.bytes as usize;
                *kept = Kept {
                    start: 0,
                    bytes: 0,
                    member: NO_ITERATION,
                    candidates: Candidates::None,
                };
                self.free.push(row);
            }
        }
        if self.unused_bytes > UNUSED_BYTES_MIN.max(self.buffer.len() / 2) {
            self.pack();
        }
    }

    /// Rewrites the buffer, without what no row uses.
    fn pack(&mut self) {
        let mut packed = Vec::with_capacity(self.buffer.len() - self.unused_bytes);
        for kept in &mut self.kept {
            let start = packed.len() as u64;
            packed.extend_from_slice(bytes_of(kept, &self.buffer));
            kept.start = start;
        }
        self.buffer = packed;
        self.unused_bytes = 0;
    }

    pub fn memory_bytes(&self) -> usize {
        let candidates: usize = self
            .kept
            .iter()
            .map(|kept| match &kept.candidates {
                Candidates::Many(candidates) => {
                    size_of::<Vec<(Iteration, i64)>>() + candidates.capacity() * size_of::<(Iteration, i64)>()
                }
                _ => 0,
            })
            .sum();
        self.kept.capacity() * size_of::<Kept>()
            + candidates
            + self.buffer.capacity()
            + self.by_bytes.allocation_size()
            + (self.free.capacity() + self.touched.capacity()) * size_of::<RowId>()
    }
}

fn bytes_of<'a>(kept: &Kept, buffer: &'a [u8]) -> &'a [u8] {
    &buffer[kept.start as usize..kept.start as usize + kept.bytes as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_bytes_are_used_again() {
        let mut rows = Rows::default();
        let key = |number: u64| number.to_be_bytes().repeat(1 + number as usize % 3);
        for round in 0..20 {
            for number in 0..5_000 {
                let row = rows.intern(&key(round * 1_000 + number));
                rows.kept(row).count(7, 1).unwrap();
                // Another one, and back: the row is a candidate of two iterations for a while.
                rows.kept(row).count(3, 2).unwrap();
                assert_eq!(rows.kept(row).first(), Some(3));
                rows.kept(row).count(3, -2).unwrap();
                assert_eq!(rows.kept(row).first(), Some(7));
            }
            rows.forget(true);
            for number in 0..5_000 {
                let row = rows.intern(&key(round * 1_000 + number));
                assert_eq!(rows.bytes(row), key(round * 1_000 + number));
                rows.kept(row).count(7, -1).unwrap();
                assert!(rows.kept(row).count(7, -1).is_err());
            }
            rows.forget(true);
            assert!(rows.by_bytes.is_empty() && rows.kept.len() <= 5_000);
            assert_eq!(rows.free.len(), rows.kept.len());
        }
        assert!(rows.buffer.len() <= 2 * 5_000 * 24 + UNUSED_BYTES_MIN);
    }
}
