//! A partition in three zones: skipped, first, behind.
//!
//! ```text
//!  skipped (`skip` rows) | first (`last - skip` rows) | behind
//! ```
//! A zone is full before the next one has any. A row that comes or goes is put into or taken from its zone, and then each
//! border moves by as many rows: O(log n) for each.

use super::{Bounds, Changes, row_of};
use crate::multiset::Multiset;

/// An ordered multiset that knows its size.
#[derive(Debug, Default)]
struct Zone {
    rows: Multiset,
    count: i64,
}

impl Zone {
    fn add(&mut self, key: &[u8], count: i64) {
        self.count += count;
        self.rows.add(key, count);
    }

    /// Takes up to `count` copies of the last row.
    fn take_last(&mut self, count: i64) -> Option<(Vec<u8>, i64)> {
        let (key, copies) = self.rows.last_entry()?;
        let taken = (key.to_vec(), copies.min(count));
        self.add(&taken.0, -taken.1);
        Some(taken)
    }

    /// Takes up to `count` copies of the first row.
    fn take_first(&mut self, count: i64) -> Option<(Vec<u8>, i64)> {
        let (key, copies) = self.rows.first_entry()?;
        let taken = (key.to_vec(), copies.min(count));
        self.add(&taken.0, -taken.1);
        Some(taken)
    }

    /// Whether a row belongs before the last one, or is as it.
    fn reaches(&self, key: &[u8]) -> bool {
        self.rows.last_entry().is_some_and(|(last, _)| key <= last)
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Zones {
    /// Made when a row is skipped.
    skipped: Option<Box<Zone>>,
    first: Zone,
    behind: Zone,
}

impl Zones {
    pub fn is_empty(&self) -> bool {
        self.skipped().is_none_or(|zone| zone.rows.is_empty())
            && self.first.rows.is_empty()
            && self.behind.rows.is_empty()
    }

    /// The rows, with how often each is there.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], i64)> {
        let skipped = self.skipped().into_iter().flat_map(|zone| zone.rows.iter());
        skipped
            .chain(self.first.rows.iter())
            .chain(self.behind.rows.iter())
    }

    /// Bytes beyond the struct itself.
    pub fn memory_bytes(&self) -> usize {
        let skipped = self
            .skipped()
            .map_or(0, |zone| size_of::<Zone>() + zone.rows.memory_bytes());
        skipped + self.first.rows.memory_bytes() + self.behind.rows.memory_bytes()
    }

    fn skipped(&self) -> Option<&Zone> {
        self.skipped.as_deref()
    }

    fn skip(&mut self, key: &[u8], count: i64) {
        self.skipped.get_or_insert_default().add(key, count);
    }

    /// Adds `weight` copies of a row, and notes what enters and leaves the first rows.
    pub fn change(&mut self, key: &[u8], weight: i64, bounds: &Bounds, changes: &mut Changes) {
        if weight >= 0 {
            if self.skipped().is_some_and(|zone| zone.reaches(key)) {
                self.skip(key, weight);
            } else if self.first.reaches(key) || self.behind.rows.first().is_none_or(|next| key < next) {
                // What is too much moves on below.
                self.enter(key, weight, changes);
            } else {
                self.behind.add(key, weight);
            }
        } else {
            let mut left = -weight;
            let from_behind = self.behind.rows.count_of(key).min(left);
            if from_behind > 0 {
                self.behind.add(key, -from_behind);
                left -= from_behind;
            }
            let from_first = self.first.rows.count_of(key).min(left);
            if from_first > 0 {
                self.leave(key, from_first, changes);
                left -= from_first;
            }
            if left > 0 {
                self.skip(key, -left);
            }
        }
        self.balance(bounds, changes);
    }

    fn balance(&mut self, bounds: &Bounds, changes: &mut Changes) {
        let skip = i64::try_from(bounds.skip).unwrap_or(i64::MAX);
        let wanted = i64::try_from(bounds.last - bounds.skip).unwrap_or(i64::MAX);
        while let Some(zone) = &mut self.skipped
            && zone.count > skip
        {
            let Some((key, count)) = zone.take_last(zone.count - skip) else {
                break;
            };
            self.enter(&key, count, changes);
        }
        loop {
            let lacking = skip - self.skipped().map_or(0, |zone| zone.count);
            if lacking <= 0 {
                break;
            }
            if let Some((key, count)) = self.first.take_first(lacking) {
                note(&key, -count, changes);
                self.skip(&key, count);
            } else if let Some((key, count)) = self.behind.take_first(lacking) {
                self.skip(&key, count);
            } else {
                break;
            }
        }
        while self.first.count > wanted {
            let Some((key, count)) = self.first.take_last(self.first.count - wanted) else {
                break;
            };
            note(&key, -count, changes);
            if !bounds.append_only {
                self.behind.add(&key, count);
            }
        }
        while self.first.count < wanted {
            let Some((key, count)) = self.behind.take_first(wanted - self.first.count) else {
                break;
            };
            self.enter(&key, count, changes);
        }
    }

    fn enter(&mut self, key: &[u8], count: i64, changes: &mut Changes) {
        note(key, count, changes);
        self.first.add(key, count);
    }

    fn leave(&mut self, key: &[u8], count: i64, changes: &mut Changes) {
        note(key, -count, changes);
        self.first.add(key, -count);
    }
}

fn note(key: &[u8], weight: i64, changes: &mut Changes) {
    *changes.entry((row_of(key).into(), 0)).or_default() += weight;
}

#[cfg(test)]
mod tests {
    use millrace_planner::stage::top_n::Numbering;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::super::end_key;
    use super::*;

    /// A row of one byte, in its own order.
    fn key(row: u8) -> Vec<u8> {
        let mut key = vec![row];
        end_key(&mut key, 0);
        key
    }

    #[test]
    fn the_first_rows_are_those_of_a_sorted_list() {
        for seed in 0..200 {
            let mut random = StdRng::seed_from_u64(seed);
            let skip = random.random_range(0..4);
            let append_only = random.random_bool(0.3);
            let bounds = Bounds {
                skip,
                last: skip + random.random_range(0..5),
                numbering: Numbering::RowNumber,
                append_only,
            };
            let (mut zones, mut model, mut first) = (Zones::default(), Vec::<u8>::new(), Vec::<u8>::new());
            for step in 0..60 {
                let mut changes = Changes::new();
                for _ in 0..random.random_range(1..4) {
                    if !append_only && !model.is_empty() && random.random_bool(0.45) {
                        let gone = model.swap_remove(random.random_range(0..model.len()));
                        zones.change(&key(gone), -1, &bounds, &mut changes);
                    } else {
                        let (row, copies) = (random.random_range(0..10), random.random_range(1..4));
                        model.extend(std::iter::repeat_n(row, copies));
                        zones.change(&key(row), copies as i64, &bounds, &mut changes);
                    }
                }
                model.sort_unstable();
                for ((row, _), weight) in changes {
                    for _ in 0..weight.abs() {
                        if weight > 0 {
                            first.push(row[0]);
                        } else {
                            let position = first.iter().position(|known| *known == row[0]);
                            first.swap_remove(position.unwrap());
                        }
                    }
                }
                first.sort_unstable();
                let expected: Vec<u8> = model
                    .iter()
                    .skip(bounds.skip as usize)
                    .take((bounds.last - bounds.skip) as usize)
                    .copied()
                    .collect();
                assert_eq!(first, expected, "seed {seed}, step {step}");
            }
        }
    }
}
