//! An ordered multiset of byte strings, packed: the values of one group, the rows of one partition.
//!
//! ```text
//!  few:   one leaf                 [len key count | len key count | ..]      in order, without gaps
//!  many:  leaves by lower bound    "" -> leaf, "k17" -> leaf, ..             found in logarithmic time
//! ```
//! A tree node a value costs several times the value; a leaf costs two bytes.

use std::collections::BTreeMap;
use std::ops::{Bound, Range};

/// A leaf that grows beyond this is split, unless it holds one entry.
const LEAF_BYTES_MAX: usize = 1_024;

/// See the module.
#[derive(Debug)]
pub(crate) enum Multiset {
    Few(Leaf),
    Many(Box<Tree>),
}

#[derive(Debug)]
pub(crate) struct Tree {
    /// By a lower bound of their keys. The first one's is empty, and only that leaf may be empty too.
    leaves: BTreeMap<Box<[u8]>, Leaf>,
    entries: usize,
}

/// Entries in order: the key's length, the key, its count (not 0; below 0 while a deletion has come before what it
/// deletes). Numbers are variable-length, as in Protocol Buffers.
#[derive(Debug, Default)]
pub(crate) struct Leaf(Vec<u8>);

/// Where an entry is in its leaf.
struct Entry {
    /// All of it.
    bytes: Range<usize>,
    key: Range<usize>,
    count: i64,
}

impl Default for Multiset {
    fn default() -> Self {
        Multiset::Few(Leaf::default())
    }
}

impl Multiset {
    /// Adds a key so many times; what reaches 0 is gone.
    pub fn add(&mut self, key: &[u8], times: i64) {
        match self {
            Multiset::Few(leaf) => {
                leaf.add(key, times);
                if let Some((bound, upper)) = leaf.split() {
                    let entries = leaf.entries().count() + upper.entries().count();
                    let lower = std::mem::take(leaf);
                    let leaves = BTreeMap::from([(Box::default(), lower), (bound, upper)]);
                    *self = Multiset::Many(Box::new(Tree { leaves, entries }));
                }
            }
            Multiset::Many(tree) => tree.add(key, times),
        }
    }

    /// The smallest key.
    pub fn first(&self) -> Option<&[u8]> {
        self.iter().next().map(|(key, _)| key)
    }

    /// The smallest key, with its count.
    pub fn first_entry(&self) -> Option<(&[u8], i64)> {
        self.iter().next()
    }

    /// The largest key, with its count.
    pub fn last_entry(&self) -> Option<(&[u8], i64)> {
        let leaf = match self {
            Multiset::Few(leaf) => leaf,
            // Only the first leaf may be empty, and then it is the only one that can be the last.
            Multiset::Many(tree) => tree.leaves.values().next_back()?,
        };
        let entry = leaf.entries().last()?;
        Some((&leaf.0[entry.key], entry.count))
    }

    /// How often a key is there.
    pub fn count_of(&self, key: &[u8]) -> i64 {
        let leaf = match self {
            Multiset::Few(leaf) => leaf,
            Multiset::Many(tree) => match tree.leaf_of(key) {
                Some(leaf) => leaf,
                None => return 0,
            },
        };
        let mut entries = leaf.entries();
        entries
            .find(|entry| &leaf.0[entry.key.clone()] == key)
            .map_or(0, |entry| entry.count)
    }

    pub fn is_empty(&self) -> bool {
        self.first_entry().is_none()
    }

    /// Keys with their counts, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], i64)> {
        let (few, many) = match self {
            Multiset::Few(leaf) => (Some(leaf), None),
            Multiset::Many(tree) => (None, Some(tree.leaves.values())),
        };
        few.into_iter()
            .chain(many.into_iter().flatten())
            .flat_map(|leaf| leaf.entries().map(|entry| (&leaf.0[entry.key], entry.count)))
    }

    /// How many different keys there are.
    pub fn len(&self) -> usize {
        match self {
            Multiset::Few(leaf) => leaf.entries().count(),
            Multiset::Many(tree) => tree.entries,
        }
    }

    /// Bytes beyond the struct itself.
    pub fn memory_bytes(&self) -> usize {
        match self {
            Multiset::Few(leaf) => leaf.0.capacity(),
            Multiset::Many(tree) => tree
                .leaves
                .iter()
                .map(|(bound, leaf)| {
                    bound.len() + leaf.0.capacity() + size_of::<Box<[u8]>>() + size_of::<Leaf>()
                })
                .sum(),
        }
    }
}

impl Tree {
    /// The leaf where a key is, if it is there.
    fn leaf_of(&self, key: &[u8]) -> Option<&Leaf> {
        let up_to_key = (Bound::Unbounded, Bound::Included(key));
        self.leaves
            .range::<[u8], _>(up_to_key)
            .next_back()
            .map(|(_, leaf)| leaf)
    }

    fn add(&mut self, key: &[u8], times: i64) {
        let up_to_key = (Bound::Unbounded, Bound::Included(key));
        let Some((bound, leaf)) = self.leaves.range_mut::<[u8], _>(up_to_key).next_back() else {
            return;
        };
        self.entries = self.entries.wrapping_add_signed(leaf.add(key, times));
        if let Some((bound, upper)) = leaf.split() {
            self.leaves.insert(bound, upper);
        } else if leaf.0.is_empty() && !bound.is_empty() {
            let bound = bound.clone();
            self.leaves.remove(&bound);
        }
    }
}

impl Leaf {
    fn entries(&self) -> impl Iterator<Item = Entry> {
        let mut position = 0;
        std::iter::from_fn(move || {
            (position < self.0.len()).then(|| {
                let start = position;
                let key_bytes = read_number(&self.0, &mut position) as usize;
                let key = position..position + key_bytes;
                position = key.end;
                let count = unzigzag(read_number(&self.0, &mut position));
                Entry {
                    bytes: start..position,
                    key,
                    count,
                }
            })
        })
    }

    /// Returns how many entries there are more.
    fn add(&mut self, key: &[u8], times: i64) -> isize {
        if times == 0 {
            return 0;
        }
        let mut place = self.0.len()..self.0.len();
        let mut count = times;
        let mut known = false;
        for entry in self.entries() {
            match self.0[entry.key].cmp(key) {
                std::cmp::Ordering::Less => continue,
                std::cmp::Ordering::Equal => {
                    count += entry.count;
                    known = true;
                    place = entry.bytes;
                }
                std::cmp::Ordering::Greater => place = entry.bytes.start..entry.bytes.start,
            }
            break;
        }
        let entry = if count == 0 { vec![] } else { encode(key, count) };
        // By a quarter: doubling would leave a third unused.
        let growth = entry.len().saturating_sub(place.len());
        if self.0.len() + growth > self.0.capacity() {
            self.0.reserve_exact(growth.max(self.0.len() / 4));
        }
        self.0.splice(place, entry);
        if self.0.len() * 4 < self.0.capacity() {
            self.0.shrink_to_fit();
        }
        match (known, count == 0) {
            (true, true) => -1,
            (false, false) => 1,
            _ => 0,
        }
    }

    /// If it is too large: the upper half of it, with its first key.
    fn split(&mut self) -> Option<(Box<[u8]>, Leaf)> {
        if self.0.len() <= LEAF_BYTES_MAX {
            return None;
        }
        let middle = self.0.len() / 2;
        let upper = self.entries().skip(1).find(|entry| entry.bytes.start >= middle);
        let upper = upper.or_else(|| self.entries().skip(1).last())?;
        let bound = self.0[upper.key].into();
        let bytes = self.0.split_off(upper.bytes.start);
        self.0.shrink_to_fit();
        Some((bound, Leaf(bytes)))
    }
}

fn encode(key: &[u8], count: i64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(key.len() + 4);
    write_number(&mut bytes, key.len() as u64);
    bytes.extend_from_slice(key);
    write_number(&mut bytes, zigzag(count));
    bytes
}

fn write_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn read_number(bytes: &[u8], position: &mut usize) -> u64 {
    let (mut number, mut shift) = (0, 0);
    loop {
        let byte = bytes[*position];
        *position += 1;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return number;
        }
        shift += 7;
    }
}

/// Small numbers of either sign as small numbers.
fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    #[test]
    fn random_changes_equal_a_map() {
        for seed in 0..20 {
            let mut random = StdRng::seed_from_u64(seed);
            let mut multiset = Multiset::default();
            let mut model: BTreeMap<Vec<u8>, i64> = BTreeMap::new();
            let keys = 10_usize.pow(random.random_range(1..4));
            for step in 0..6_000 {
                let number = random.random_range(0..keys);
                // Of all lengths, the empty one and those of two-byte lengths included.
                let key = vec![b'a' + (number % 7) as u8; number % 300];
                let times = match random.random_range(0..4) {
                    0 => -model.get(&key).copied().unwrap_or(0),
                    1 => 1_000,
                    2 => -1,
                    _ => 1,
                };
                multiset.add(&key, times);
                *model.entry(key).or_default() += times;
                if step % 100 == 0 || step > 5_950 {
                    model.retain(|_, count| *count != 0);
                    let shown: Vec<_> = multiset
                        .iter()
                        .map(|(key, count)| (key.to_vec(), count))
                        .collect();
                    assert_eq!(
                        shown,
                        model.clone().into_iter().collect::<Vec<_>>(),
                        "seed {seed}"
                    );
                    assert_eq!(multiset.len(), model.len(), "seed {seed}");
                    assert_eq!(multiset.first(), model.keys().next().map(Vec::as_slice));
                    let last = model
                        .last_key_value()
                        .map(|(key, count)| (key.as_slice(), *count));
                    assert_eq!(multiset.last_entry(), last);
                    let key = vec![b'a' + (number % 7) as u8; number % 300];
                    assert_eq!(multiset.count_of(&key), model.get(&key).copied().unwrap_or(0));
                }
            }
            for (key, count) in &model {
                multiset.add(key, -count);
            }
            assert!(multiset.first().is_none() && multiset.is_empty());
        }
    }

    #[test]
    fn a_value_costs_little_more_than_its_bytes() {
        for values in [10_u64, 100_000] {
            let mut multiset = Multiset::default();
            for value in 0..values {
                multiset.add(&value.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes(), 1);
            }
            let bytes = multiset.memory_bytes() as u64 / values;
            assert!(bytes < 18, "{bytes} bytes for eight");
        }
    }
}
