//! A partition as one ordered map, whose first rows are numbered when they are asked for.

use millrace_planner::stage::top_n::Numbering;

use super::{Bounds, Key, order_of, row_of};
use crate::multiset::Multiset;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Prefix {
    rows: Multiset,
}

impl Prefix {
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The rows, with how often each is there.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], i64)> {
        self.rows.iter()
    }

    /// Bytes beyond the struct itself.
    pub fn memory_bytes(&self) -> usize {
        self.rows.memory_bytes()
    }

    /// Adds `weight` copies of a row.
    pub fn change(&mut self, key: &[u8], weight: i64) {
        self.rows.add(key, weight);
    }

    /// The first rows, each copy by itself, with their numbers.
    pub fn first(&self, bounds: &Bounds) -> Vec<(Key, u64)> {
        let mut first = vec![];
        self.numbered(bounds, |key, number| {
            if number > bounds.skip {
                first.push((row_of(key).into(), number));
            }
        });
        first
    }

    /// Where nothing ever goes, drops the rows behind the first ones.
    pub fn forget_behind(&mut self, bounds: &Bounds) {
        if !bounds.append_only {
            return;
        }
        if let Some(behind) = self.numbered(bounds, |_, _| {}) {
            let mut kept = Multiset::default();
            for (key, count) in self.rows.iter().take_while(|(key, _)| *key < &*behind) {
                kept.add(key, count);
            }
            self.rows = kept;
        }
    }

    /// Visits each copy of a row up to the last number wanted; returns the first row of which none is.
    fn numbered(&self, bounds: &Bounds, mut visit: impl FnMut(&[u8], u64)) -> Option<Key> {
        let mut rows_before = 0;
        let mut number = 0;
        let mut previous: Option<&[u8]> = None;
        for (key, count) in self.rows.iter() {
            let order = order_of(key);
            if previous != Some(order) {
                previous = Some(order);
                match bounds.numbering {
                    Numbering::RowNumber => {}
                    Numbering::Rank => number = rows_before + 1,
                    Numbering::DenseRank => number += 1,
                }
            }
            for copy in 0..count {
                if bounds.numbering == Numbering::RowNumber {
                    number = rows_before + 1;
                }
                if number > bounds.last {
                    return if copy == 0 { Some(key.into()) } else { None };
                }
                visit(key, number);
                rows_before += 1;
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::end_key;
    use super::*;

    fn first(numbering: Numbering, skip: u64, last: u64) -> Vec<(u8, u64)> {
        let mut rows = Prefix::default();
        // The order is the first byte.
        for row in [[1, 10], [1, 11], [2, 20], [2, 20], [3, 30], [4, 40]] {
            let mut key = row.to_vec();
            end_key(&mut key, 1);
            rows.change(&key, 1);
        }
        let bounds = Bounds {
            skip,
            last,
            numbering,
            append_only: true,
        };
        let first = rows
            .first(&bounds)
            .iter()
            .map(|(row, number)| (row[0], *number))
            .collect();
        rows.forget_behind(&bounds);
        let again: Vec<(u8, u64)> = rows
            .first(&bounds)
            .iter()
            .map(|(row, number)| (row[0], *number))
            .collect();
        assert_eq!(again, first);
        first
    }

    #[test]
    fn rows_are_numbered_as_sql_numbers_them() {
        assert_eq!(first(Numbering::RowNumber, 0, 3), [(10, 1), (11, 2), (20, 3)]);
        assert_eq!(first(Numbering::RowNumber, 3, 5), [(20, 4), (30, 5)]);
        assert_eq!(first(Numbering::Rank, 0, 3), [(10, 1), (11, 1), (20, 3), (20, 3)]);
        assert_eq!(first(Numbering::Rank, 0, 4), [(10, 1), (11, 1), (20, 3), (20, 3)]);
        assert_eq!(first(Numbering::DenseRank, 1, 3), [(20, 2), (20, 2), (30, 3)]);
        assert_eq!(first(Numbering::Rank, 0, 0), []);
    }
}
