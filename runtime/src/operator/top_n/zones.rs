//! A partition in three zones: skipped, first, behind.
//!
//! ```text
//!  skipped (`skip` rows) | first (`last - skip` rows) | behind
//! ```
//! A zone is full before the next one has any. A row that comes or goes is put into or taken from its zone, and then each
//! border moves by as many rows: O(log n) for each.

use std::collections::BTreeMap;

use super::{Bounds, Changes, Entry, Key, map_bytes, row_of};

/// An ordered multiset.
#[derive(Debug, Default)]
struct Zone {
    rows: BTreeMap<Key, Entry>,
    count: i64,
}

impl Zone {
    fn add(&mut self, key: &[u8], entry: Entry) {
        self.count += entry.count;
        match self.rows.get_mut(key) {
            Some(known) => {
                known.count += entry.count;
                if known.count == 0 {
                    self.rows.remove(key);
                }
            }
            None => {
                self.rows.insert(key.into(), entry);
            }
        }
    }

    /// Takes up to `count` copies of the last row.
    fn take_last(&mut self, count: i64) -> Option<(Key, Entry)> {
        let (key, entry) = self.rows.last_key_value()?;
        let taken = Entry {
            count: entry.count.min(count),
            ..*entry
        };
        let key = key.clone();
        self.add(
            &key,
            Entry {
                count: -taken.count,
                ..taken
            },
        );
        Some((key, taken))
    }

    /// Takes up to `count` copies of the first row.
    fn take_first(&mut self, count: i64) -> Option<(Key, Entry)> {
        let (key, entry) = self.rows.first_key_value()?;
        let taken = Entry {
            count: entry.count.min(count),
            ..*entry
        };
        let key = key.clone();
        self.add(
            &key,
            Entry {
                count: -taken.count,
                ..taken
            },
        );
        Some((key, taken))
    }

    fn count_of(&self, key: &[u8]) -> i64 {
        self.rows.get(key).map_or(0, |entry| entry.count)
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Zones {
    skipped: Zone,
    first: Zone,
    behind: Zone,
}

impl Zones {
    pub fn is_empty(&self) -> bool {
        self.skipped.rows.is_empty() && self.first.rows.is_empty() && self.behind.rows.is_empty()
    }

    pub fn bytes(&self) -> usize {
        [&self.skipped, &self.first, &self.behind]
            .iter()
            .map(|zone| map_bytes(zone.rows.keys()))
            .sum()
    }

    /// Adds `weight` copies of a row, and notes what enters and leaves the first rows.
    pub fn change(
        &mut self,
        key: &[u8],
        weight: i64,
        order_length: usize,
        bounds: &Bounds,
        changes: &mut Changes,
    ) {
        let entry = |count: i64| Entry {
            count,
            order_length: order_length as u32,
        };
        if weight >= 0 {
            let precedes = |zone: &Zone| {
                zone.rows
                    .last_key_value()
                    .is_some_and(|(last, _)| key <= last.as_ref())
            };
            if precedes(&self.skipped) {
                self.skipped.add(key, entry(weight));
            } else if precedes(&self.first)
                || self
                    .behind
                    .rows
                    .first_key_value()
                    .is_none_or(|(next, _)| key < next.as_ref())
            {
                // What is too much moves on below.
                self.enter(key, entry(weight), changes);
            } else {
                self.behind.add(key, entry(weight));
            }
        } else {
            let mut left = -weight;
            let from_behind = self.behind.count_of(key).min(left);
            if from_behind > 0 {
                self.behind.add(key, entry(-from_behind));
                left -= from_behind;
            }
            let from_first = self.first.count_of(key).min(left);
            if from_first > 0 {
                self.leave(key, entry(from_first), changes);
                left -= from_first;
            }
            if left > 0 {
                self.skipped.add(key, entry(-left));
            }
        }
        self.balance(bounds, changes);
    }

    fn balance(&mut self, bounds: &Bounds, changes: &mut Changes) {
        let skip = i64::try_from(bounds.skip).unwrap_or(i64::MAX);
        let wanted = i64::try_from(bounds.last - bounds.skip).unwrap_or(i64::MAX);
        while self.skipped.count > skip {
            let Some((key, entry)) = self.skipped.take_last(self.skipped.count - skip) else {
                break;
            };
            self.enter(&key, entry, changes);
        }
        while self.skipped.count < skip {
            let lacking = skip - self.skipped.count;
            if let Some((key, entry)) = self.first.take_first(lacking) {
                note(&key, &entry, -entry.count, changes);
                self.skipped.add(&key, entry);
            } else if let Some((key, entry)) = self.behind.take_first(lacking) {
                self.skipped.add(&key, entry);
            } else {
                break;
            }
        }
        while self.first.count > wanted {
            let Some((key, entry)) = self.first.take_last(self.first.count - wanted) else {
                break;
            };
            note(&key, &entry, -entry.count, changes);
            if !bounds.append_only {
                self.behind.add(&key, entry);
            }
        }
        while self.first.count < wanted {
            let Some((key, entry)) = self.behind.take_first(wanted - self.first.count) else {
                break;
            };
            self.enter(&key, entry, changes);
        }
    }

    fn enter(&mut self, key: &[u8], entry: Entry, changes: &mut Changes) {
        note(key, &entry, entry.count, changes);
        self.first.add(key, entry);
    }

    fn leave(&mut self, key: &[u8], entry: Entry, changes: &mut Changes) {
        note(key, &entry, -entry.count, changes);
        self.first.add(
            key,
            Entry {
                count: -entry.count,
                ..entry
            },
        );
    }
}

fn note(key: &[u8], entry: &Entry, weight: i64, changes: &mut Changes) {
    *changes.entry((row_of(key, entry), 0)).or_default() += weight;
}

#[cfg(test)]
mod tests {
    use millrace_planner::stage::Numbering;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

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
                        zones.change(&[gone], -1, 0, &bounds, &mut changes);
                    } else {
                        let (row, copies) = (random.random_range(0..10), random.random_range(1..4));
                        model.extend(std::iter::repeat_n(row, copies));
                        zones.change(&[row], copies as i64, 0, &bounds, &mut changes);
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
