//! A hash index over some columns: from a hash to the chain of rows that have it.
//!
//! ```text
//!  heads (hash table)     next[]                     a chain is newest first; rows that are gone are unlinked
//!  h(k1) -> 7   -------->  7 -> 4 -> 1 -> none        once probes met many of them and no reader can see them
//!  h(k2) -> 6   -------->  6 -> none
//! ```
//! It knows hashes only; the table compares the columns. A key that is unique pays for no chain: `next` begins with the
//! first row that finds another one before it.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

const NONE: u32 = u32::MAX;

/// The newest row of a chain, with the chain's hash: so neither a look-up nor growing has to look elsewhere.
#[derive(Debug, Clone, Copy)]
struct Head {
    hash: u32,
    row: u32,
}

#[derive(Debug)]
pub(super) struct HashIndex {
    pub columns: Vec<usize>,
    heads: HashTable<Head>,
    /// Of each row: the one before it in its chain. Rows beyond its end have none.
    next: Vec<u32>,
    rows: u32,
}

/// Thirty-two bits of a hash are stored; the table wants sixty-four, well spread.
fn shorten(hash: u64) -> u32 {
    (hash ^ (hash >> 32)) as u32
}

fn spread(short: u32) -> u64 {
    u64::from(short).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

impl HashIndex {
    pub fn new(columns: Vec<usize>) -> Self {
        HashIndex {
            columns,
            heads: HashTable::new(),
            next: vec![],
            rows: 0,
        }
    }

    /// Adds rows `first..`, in order.
    pub fn insert(&mut self, first: u32, hashes: &[u64]) {
        debug_assert_eq!(first, self.rows);
        self.rows = first + hashes.len() as u32;
        for (row, hash) in (first..).zip(hashes) {
            let hash = shorten(*hash);
            let entry = self
                .heads
                .entry(spread(hash), |head| head.hash == hash, |head| spread(head.hash));
            match entry {
                Entry::Occupied(mut occupied) => {
                    self.next.resize(row as usize, NONE);
                    self.next.push(occupied.get().row);
                    occupied.get_mut().row = row;
                }
                Entry::Vacant(vacant) => {
                    vacant.insert(Head { hash, row });
                }
            }
        }
    }

    fn after(&self, row: u32) -> u32 {
        self.next.get(row as usize).copied().unwrap_or(NONE)
    }

    /// The newest row of the hash's chain.
    pub fn head(&self, hash: u64) -> Option<u32> {
        let hash = shorten(hash);
        let head = self.heads.find(spread(hash), |head| head.hash == hash);
        head.map(|head| head.row)
    }

    /// The rows of a chain from this one on.
    pub fn chain(&self, first: Option<u32>) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(first, |row| Some(self.after(*row)).filter(|row| *row != NONE))
    }

    /// Unlinks the rows of the hash's chain that `is_garbage`, as long as there are more of them than others: so it takes
    /// as long as what it removes has taken to add.
    pub fn prune(&mut self, hash: u64, is_garbage: impl Fn(u32) -> bool) {
        let hash = shorten(hash);
        let Ok(mut head) = self.heads.find_entry(spread(hash), |head| head.hash == hash) else {
            return;
        };
        let next = &mut self.next;
        let after = |next: &[u32], row: u32| next.get(row as usize).copied().unwrap_or(NONE);
        let mut first = head.get().row;
        let mut removed = 0;
        while first != NONE && is_garbage(first) {
            first = after(next, first);
            removed += 1;
        }
        if first == NONE {
            head.remove();
            return;
        }
        head.get_mut().row = first;
        let mut previous = first;
        let mut kept = 1;
        while kept <= removed + KEPT_MIN {
            let row = after(next, previous);
            if row == NONE {
                break;
            }
            if is_garbage(row) {
                next[previous as usize] = after(next, row);
                removed += 1;
            } else {
                previous = row;
                kept += 1;
            }
        }
    }

    pub fn memory_bytes(&self) -> usize {
        self.heads.allocation_size() + self.next.capacity() * size_of::<u32>()
    }
}

/// Rows that a pruning passes even if it removes none.
const KEPT_MIN: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(index: &HashIndex, hash: u64) -> Vec<u32> {
        index.chain(index.head(hash)).collect()
    }

    #[test]
    fn chains_are_newest_first_and_can_be_pruned() {
        let mut index = HashIndex::new(vec![0]);
        index.insert(0, &[7, 8, 7, 7]);
        assert_eq!(rows(&index, 7), [3, 2, 0]);
        assert_eq!(rows(&index, 9), [] as [u32; 0]);
        index.prune(7, |row| row == 2);
        assert_eq!(rows(&index, 7), [3, 0]);
        index.prune(7, |_| true);
        assert_eq!(rows(&index, 7), [] as [u32; 0]);
        index.insert(4, &[7]);
        assert_eq!(rows(&index, 7), [4]);
        assert_eq!(rows(&index, 8), [1]);
    }

    #[test]
    fn a_unique_key_has_no_chains() {
        let mut index = HashIndex::new(vec![0]);
        index.insert(0, &(0..1_000).collect::<Vec<u64>>());
        assert!(index.next.is_empty());
        index.insert(1_000, &[17]);
        assert_eq!(rows(&index, 17), [1_000, 17]);
        assert_eq!(rows(&index, 18), [18]);
    }

    #[test]
    fn pruning_a_long_chain_stops_where_nothing_is_to_be_removed() {
        let mut index = HashIndex::new(vec![0]);
        index.insert(0, &[7; 10_000]);
        let looked_at = std::cell::Cell::new(0);
        index.prune(7, |row| {
            looked_at.set(looked_at.get() + 1);
            row >= 9_990
        });
        assert!(looked_at.get() < 200, "{}", looked_at.get());
        assert_eq!(rows(&index, 7).len(), 9_990);
    }
}
