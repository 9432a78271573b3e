//! A lookup join's state for the checkpoint store: the right side, what left rows were joined with, and those that wait.

use arrow::array::Array;

use super::LookupJoinInstance;
use crate::error::Result;
use crate::image::{Part, Parts, bytes, bytes_at, number_at, numbers};

impl LookupJoinInstance {
    pub(super) fn add_parts(&mut self, parts: &mut Vec<Part>) {
        parts.push(Part::Table(self.right.image()));
        // A left row once for each time that it came, the first one first; what it gave then, by its position.
        let (mut rows, mut of_rows, mut given) = (vec![], vec![], vec![]);
        for (row, times) in self.memory.iter().flat_map(|memory| &memory.given) {
            for pairs in times {
                of_rows.extend(std::iter::repeat_n(rows.len() as i64, pairs.len()));
                given.extend(pairs.iter().map(AsRef::as_ref));
                rows.push(row.as_ref());
            }
        }
        parts.push(Part::Columns(vec![bytes(rows.into_iter())]));
        parts.push(Part::Columns(vec![
            numbers(of_rows.into_iter()),
            bytes(given.into_iter()),
        ]));
        let waiting = &self.waiting.rows;
        parts.push(Part::Columns(vec![
            bytes(waiting.keys().map(AsRef::as_ref)),
            numbers(waiting.values().copied()),
        ]));
    }

    pub(super) fn take_parts(&mut self, parts: &mut Parts) -> Result<()> {
        self.right.restore(&parts.table()?)?;
        let rows = parts.columns(1)?;
        let pairs = parts.columns(2)?;
        if let Some(memory) = &mut self.memory {
            let mut given = vec![vec![]; rows[0].len()];
            for pair in 0..pairs[0].len() {
                let row = bytes_at(&pairs[1], pair);
                memory.bytes += row.len();
                given[number_at(&pairs[0], pair) as usize].push(row.into());
            }
            for (position, given) in given.into_iter().enumerate() {
                let row = bytes_at(&rows[0], position);
                memory.bytes += row.len();
                memory.given.entry(row.into()).or_default().push_back(given);
            }
        }
        let waiting = parts.columns(2)?;
        for row in 0..waiting[0].len() {
            let count = number_at(&waiting[1], row);
            self.waiting.rows.insert(bytes_at(&waiting[0], row).into(), count);
        }
        Ok(())
    }
}
