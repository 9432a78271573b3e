//! A hash index over some columns: from a hash to the chain of rows that have it.
//!
//! ```text
//!  heads (hash table)     next[]                     a chain is newest first; rows that are gone are unlinked
//!  h(k1) -> 7   -------->  7 -> 4 -> 1 -> none        while walking, once no reader can see them
//!  h(k2) -> 6   -------->  6 -> none
//! ```
//! It knows hashes only; the table compares the columns.

use hashbrown::HashTable;

const NONE: u32 = u32::MAX;

#[derive(Debug)]
pub(super) struct HashIndex {
    pub columns: Vec<usize>,
    heads: HashTable<u32>,
    /// Of each row: the hash of its key, shortened.
    hashes: Vec<u32>,
    next: Vec<u32>,
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
            hashes: vec![],
            next: vec![],
        }
    }

    /// Adds rows `first..`, in order.
    pub fn insert(&mut self, first: u32, hashes: &[u64]) {
        debug_assert_eq!(first as usize, self.hashes.len());
        for (offset, hash) in hashes.iter().enumerate() {
            let row = first + offset as u32;
            let short = shorten(*hash);
            self.hashes.push(short);
            let stored = &self.hashes;
            let entry = self.heads.entry(
                spread(short),
                |head| stored[*head as usize] == short,
                |head| spread(stored[*head as usize]),
            );
            match entry {
                hashbrown::hash_table::Entry::Occupied(mut occupied) => {
                    self.next.push(*occupied.get());
                    *occupied.get_mut() = row;
                }
                hashbrown::hash_table::Entry::Vacant(vacant) => {
                    self.next.push(NONE);
                    vacant.insert(row);
                }
            }
        }
    }

    /// Calls `found` with every row of the hash's chain until it says stop (`false`).
    pub fn walk(&self, hash: u64, mut found: impl FnMut(u32) -> bool) {
        let short = shorten(hash);
        let head = self
            .heads
            .find(spread(short), |head| self.hashes[*head as usize] == short);
        let mut row = head.copied().unwrap_or(NONE);
        while row != NONE {
            if !found(row) {
                return;
            }
            row = self.next[row as usize];
        }
    }

    /// Unlinks the rows of the hash's chain that `is_garbage`.
    pub fn prune(&mut self, hash: u64, is_garbage: impl Fn(u32) -> bool) {
        let short = shorten(hash);
        let hashes = &self.hashes;
        let Ok(mut head) = self
            .heads
            .find_entry(spread(short), |head| hashes[*head as usize] == short)
        else {
            return;
        };
        let mut first = *head.get();
        while first != NONE && is_garbage(first) {
            first = self.next[first as usize];
        }
        if first == NONE {
            head.remove();
            return;
        }
        *head.get_mut() = first;
        let mut previous = first;
        while self.next[previous as usize] != NONE {
            let row = self.next[previous as usize];
            if is_garbage(row) {
                self.next[previous as usize] = self.next[row as usize];
            } else {
                previous = row;
            }
        }
    }

    pub fn memory_bytes(&self) -> usize {
        self.heads.capacity() * 5 + self.hashes.capacity() * 4 + self.next.capacity() * 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(index: &HashIndex, hash: u64) -> Vec<u32> {
        let mut rows = vec![];
        index.walk(hash, |row| {
            rows.push(row);
            true
        });
        rows
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
}
