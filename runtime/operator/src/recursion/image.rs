//! The rows of a recursion for the checkpoint store: in which iteration each is there, and how often it is a candidate of
//! each. Between epochs nothing is pending.

use arrow::array::Array;

use super::RecursionInstance;
use crate::error::Result;
use crate::image::{Part, Parts, bytes, bytes_at, number_at, numbers};

/// For a row that is in no iteration.
const NO_MEMBER: i64 = -1;

impl RecursionInstance {
    pub(super) fn add_parts(&self, parts: &mut Vec<Part>) {
        let (mut rows, mut members) = (vec![], vec![]);
        let (mut of_rows, mut iterations, mut counts) = (vec![], vec![], vec![]);
        for (row, kept) in self.rows.iter() {
            for (iteration, count) in kept.candidates() {
                of_rows.push(rows.len() as i64);
                iterations.push(iteration);
                counts.push(count);
            }
            rows.push(row);
            members.push(kept.member().unwrap_or(NO_MEMBER));
        }
        parts.push(Part::Columns(vec![
            bytes(rows.into_iter()),
            numbers(members.into_iter()),
        ]));
        parts.push(Part::Columns(vec![
            numbers(of_rows.into_iter()),
            numbers(iterations.into_iter()),
            numbers(counts.into_iter()),
        ]));
    }

    pub(super) fn take_parts(&mut self, parts: &mut Parts) -> Result<()> {
        let rows = parts.columns(2)?;
        let mut ids = vec![];
        for row in 0..rows[0].len() {
            let id = self.rows.intern(bytes_at(&rows[0], row));
            let member = number_at(&rows[1], row);
            self.rows
                .kept(id)
                .set_member((member != NO_MEMBER).then_some(member));
            ids.push(id);
        }
        let candidates = parts.columns(3)?;
        for row in 0..candidates[0].len() {
            let id = ids[number_at(&candidates[0], row) as usize];
            let (iteration, count) = (number_at(&candidates[1], row), number_at(&candidates[2], row));
            self.rows.kept(id).count(iteration, count)?;
        }
        self.rows.forget(self.distinct);
        Ok(())
    }
}
