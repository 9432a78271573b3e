//! The rows of a temporal filter for the checkpoint store: those that have not entered, and those that will leave.

use arrow::array::Array;

use super::{TemporalInstance, add, add_pending};
use crate::error::Result;
use crate::image::{Part, Parts, bytes, bytes_at, number_at, numbers};

impl TemporalInstance {
    pub(super) fn add_parts(&self, parts: &mut Vec<Part>) {
        parts.push(Part::Columns(vec![
            numbers(self.pending.keys().map(|(moment, _)| *moment)),
            bytes(self.pending.keys().map(|(_, row)| row.as_ref())),
            numbers(self.pending.values().map(|(count, _)| *count)),
            numbers(self.pending.values().map(|(_, leaves)| *leaves)),
        ]));
        parts.push(Part::Columns(vec![
            numbers(self.present.keys().map(|(moment, _)| *moment)),
            bytes(self.present.keys().map(|(_, row)| row.as_ref())),
            numbers(self.present.values().copied()),
        ]));
    }

    pub(super) fn take_parts(&mut self, parts: &mut Parts) -> Result<()> {
        let pending = parts.columns(4)?;
        for row in 0..pending[0].len() {
            let bytes = bytes_at(&pending[1], row).into();
            let value = (
                number_at(&pending[0], row),
                bytes,
                number_at(&pending[2], row),
                number_at(&pending[3], row),
            );
            add_pending(&mut self.pending, &mut self.bytes, value);
        }
        let present = parts.columns(3)?;
        for row in 0..present[0].len() {
            let bytes = bytes_at(&present[1], row).into();
            let (moment, count) = (number_at(&present[0], row), number_at(&present[2], row));
            add(&mut self.present, &mut self.bytes, moment, bytes, count);
        }
        Ok(())
    }
}
