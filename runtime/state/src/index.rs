//! A hash index over some columns: from a hash to the chain of rows that have it.
//!
//! ```text
//!  slots (open addressing)  next[]                     a chain is newest first; rows that are gone are unlinked
//!  h(k1) -> 7   ---------->  7 -> 4 -> 1 -> none        once probes met many of them and no reader can see them
//!  h(k2) -> 6   ---------->  6 -> none
//! ```
//! It knows hashes only; the table compares the columns. A key that is unique pays for no chain: `next` begins with the
//! first row that finds another one before it.
//!
//! A hash's slot is in proportion to the hash, not to its remainder: so the table may have any size and grows by a
//! fraction, and growing reads and writes it from front to back. Look-ups come in batches whose slots are read ahead of
//! their use, so that the processor waits for many of them at once instead of for one after the other. Very many rows enter
//! in the order of their slots, part of the table by part, as the probes of a radix join do (S. Manegold and others,
//! "Optimizing Main-Memory Join on Modern Hardware", TKDE 2002).

const NONE: u32 = u32::MAX;

/// The newest row of a chain, with the chain's hash: so neither a look-up nor growing has to look elsewhere.
#[derive(Debug, Clone, Copy)]
struct Slot {
    hash: u32,
    /// [`NONE`]: nothing is here.
    row: u32,
}

const FREE: Slot = Slot { hash: 0, row: NONE };
const SLOTS_MIN: usize = 8;
/// Slots that are read ahead.
const AHEAD: usize = 32;
/// So many rows at once enter in the order of their slots.
const IN_ORDER_ROWS_MIN: usize = 32_768;
/// Parts of the table, by the upper bits of the hash. A part of a large table fits into a core's cache.
const PARTS: usize = 256;
/// Parts in which chains are counted beforehand.
const PARTS_COUNTED: usize = 4;

#[derive(Debug)]
pub(super) struct HashIndex {
    pub columns: Vec<usize>,
    slots: Vec<Slot>,
    used: usize,
    /// Of each row: the one before it in its chain. Rows beyond its end have none.
    next: Vec<u32>,
    rows: u32,
}

/// Thirty-two bits of a hash are stored, spread well in the upper ones, by which slots are found.
fn shorten(hash: u64) -> u32 {
    ((hash ^ (hash >> 32)) as u32).wrapping_mul(0x9E37_79B1)
}

impl HashIndex {
    pub fn new(columns: Vec<usize>) -> Self {
        HashIndex {
            columns,
            slots: vec![],
            used: 0,
            next: vec![],
            rows: 0,
        }
    }

    /// Rows that were added.
    pub fn rows(&self) -> u32 {
        self.rows
    }

    /// Adds rows `first..`, in order.
    pub fn insert(&mut self, first: u32, hashes: &[u64]) {
        debug_assert_eq!(first, self.rows);
        self.rows = first + hashes.len() as u32;
        if hashes.len() >= IN_ORDER_ROWS_MIN {
            self.insert_in_order(first, hashes);
            return;
        }
        let mut row = first;
        for group in hashes.chunks(AHEAD) {
            self.reserve(group.len());
            self.read_ahead(group);
            for hash in group {
                self.insert_one(row, shorten(*hash));
                row += 1;
            }
        }
    }

    /// As [`HashIndex::insert`], in the order of the slots; equal hashes in that of the rows.
    fn insert_in_order(&mut self, first: u32, hashes: &[u64]) {
        let part = |hash: u32| hash as usize / (1 << (u32::BITS - PARTS.ilog2()));
        let mut ends = [0; PARTS];
        for hash in hashes {
            ends[part(shorten(*hash))] += 1;
        }
        let mut sum = 0;
        for end in &mut ends {
            (*end, sum) = (sum, sum + *end);
        }
        let mut ordered = vec![FREE; hashes.len()];
        for (row, hash) in (first..).zip(hashes) {
            let hash = shorten(*hash);
            let end = &mut ends[part(hash)];
            ordered[*end] = Slot { hash, row };
            *end += 1;
        }
        // Room for all at once: else the first parts would be filled before the others are looked at.
        let counted = &ordered[..ends[PARTS_COUNTED - 1]];
        let mut counted: Vec<u32> = counted.iter().map(|slot| slot.hash).collect();
        counted.sort_unstable();
        let rows = counted.len().max(1);
        counted.dedup();
        let chains = (hashes.len() as f64 * counted.len() as f64 / rows as f64 * 1.02) as usize;
        self.reserve(chains.min(hashes.len()));
        for group in ordered.chunks(AHEAD) {
            self.reserve(group.len());
            for slot in group {
                self.insert_one(slot.row, slot.hash);
            }
        }
    }

    /// Reserves space for so many chains more: at most four slots of five are used.
    fn reserve(&mut self, chains: usize) {
        if (self.used + chains) * 5 > self.slots.len() * 4 {
            self.grow(self.used + chains);
        }
    }

    fn insert_one(&mut self, row: u32, hash: u32) {
        let place = self.find(hash);
        let before = self.slots[place].row;
        if before == NONE {
            self.used += 1;
        } else if let Some(next) = self.next.get_mut(row as usize) {
            *next = before;
        } else {
            let rows = row as usize + 1;
            if rows > self.next.capacity() {
                // By an eighth: doubling would leave a third of the memory unused.
                self.next.reserve_exact((rows - self.next.len()).max(rows / 8));
            }
            self.next.resize(row as usize, NONE);
            self.next.push(before);
        }
        self.slots[place] = Slot { hash, row };
    }

    fn home(&self, hash: u32) -> usize {
        ((u64::from(hash) * self.slots.len() as u64) >> 32) as usize
    }

    /// The slot of the hash, or the free one where it belongs. There is a free one somewhere.
    fn find(&self, hash: u32) -> usize {
        let mut place = self.home(hash);
        loop {
            let slot = self.slots[place];
            if slot.row == NONE || slot.hash == hash {
                return place;
            }
            place = self.after_slot(place);
        }
    }

    fn after_slot(&self, place: usize) -> usize {
        if place + 1 == self.slots.len() {
            0
        } else {
            place + 1
        }
    }

    /// Has the slots of these hashes read into the cache, all at once.
    fn read_ahead(&self, hashes: &[u64]) {
        let rows = hashes
            .iter()
            .fold(0, |rows, hash| rows ^ self.slots[self.home(shorten(*hash))].row);
        std::hint::black_box(rows);
    }

    /// Reserves space for so many chains and some more.
    fn grow(&mut self, wanted: usize) {
        let slots = (wanted * 5 / 4 + 1).max(self.slots.len() * 7 / 5).max(SLOTS_MIN);
        let old = std::mem::replace(&mut self.slots, vec![FREE; slots]);
        for slot in old.into_iter().filter(|slot| slot.row != NONE) {
            let place = self.find(slot.hash);
            self.slots[place] = slot;
        }
    }

    fn after(&self, row: u32) -> u32 {
        self.next.get(row as usize).copied().unwrap_or(NONE)
    }

    /// The newest row of the hash's chain.
    pub fn head(&self, hash: u64) -> Option<u32> {
        if self.used == 0 {
            return None;
        }
        let row = self.slots[self.find(shorten(hash))].row;
        (row != NONE).then_some(row)
    }

    /// The newest rows of the hashes' chains.
    pub fn heads(&self, hashes: &[u64]) -> Vec<Option<u32>> {
        if self.used == 0 {
            return vec![None; hashes.len()];
        }
        let mut heads = Vec::with_capacity(hashes.len());
        for group in hashes.chunks(AHEAD) {
            self.read_ahead(group);
            heads.extend(group.iter().map(|hash| self.head(*hash)));
        }
        heads
    }

    /// The rows of a chain from this one on.
    pub fn chain(&self, first: Option<u32>) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(first, |row| Some(self.after(*row)).filter(|row| *row != NONE))
    }

    /// Unlinks the rows of the hash's chain that `is_garbage`, as long as there are more of them than others: so it takes
    /// as long as what it removes has taken to add.
    pub fn prune(&mut self, hash: u64, is_garbage: impl Fn(u32) -> bool) {
        if self.used == 0 {
            return;
        }
        let place = self.find(shorten(hash));
        let next = &mut self.next;
        let after = |next: &[u32], row: u32| next.get(row as usize).copied().unwrap_or(NONE);
        let mut first = self.slots[place].row;
        if first == NONE {
            return;
        }
        let mut removed = 0;
        while first != NONE && is_garbage(first) {
            first = after(next, first);
            removed += 1;
        }
        if first == NONE {
            self.remove(place);
            return;
        }
        self.slots[place].row = first;
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

    /// Frees a slot; those behind it that it kept from their place move up.
    fn remove(&mut self, mut hole: usize) {
        let mut place = hole;
        loop {
            place = self.after_slot(place);
            let slot = self.slots[place];
            if slot.row == NONE {
                break;
            }
            let home = self.home(slot.hash);
            let is_behind_hole = if hole <= place {
                hole < home && home <= place
            } else {
                hole < home || home <= place
            };
            if !is_behind_hole {
                self.slots[hole] = slot;
                hole = place;
            }
        }
        self.slots[hole] = FREE;
        self.used -= 1;
    }

    pub fn memory_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>() + self.next.capacity() * size_of::<u32>()
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
    fn many_rows_enter_as_few_do() {
        let hash = |row: u32| u64::from(row % 70_000).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let hashes: Vec<u64> = (0..100_000).map(hash).collect();
        let (mut few, mut many) = (HashIndex::new(vec![0]), HashIndex::new(vec![0]));
        for (first, hashes) in (0..).step_by(1_000).zip(hashes.chunks(1_000)) {
            few.insert(first, hashes);
        }
        many.insert(0, &hashes[..40_000]);
        many.insert(40_000, &hashes[40_000..]);
        for hash in &hashes {
            let expected: Vec<u32> = few.chain(few.head(*hash)).collect();
            assert_eq!(rows(&many, *hash), expected);
        }
    }

    #[test]
    fn slots_are_found_after_others_are_freed() {
        let hash = |key: u32| u64::from(key).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut index = HashIndex::new(vec![0]);
        let mut is_there = [false; 3_000];
        let mut row = 0;
        for step in 0..60_000_u32 {
            let key = step.wrapping_mul(2_654_435_761) % 3_000;
            if is_there[key as usize] {
                index.prune(hash(key), |_| true);
            } else {
                index.insert(row, &[hash(key)]);
                row += 1;
            }
            is_there[key as usize] ^= true;
            if step % 1_000 == 0 {
                let hashes: Vec<u64> = (0..3_000).map(hash).collect();
                let found: Vec<bool> = index.heads(&hashes).iter().map(Option::is_some).collect();
                assert_eq!(found, is_there);
            }
        }
        assert!(index.memory_bytes() < 3_000 * 3 * size_of::<Slot>());
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
