//! The rows of a temporal filter for the checkpoint store: those that have not entered, and those that will leave.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, LargeBinaryArray};
use arrow::datatypes::Int64Type;

use super::{TemporalInstance, add, add_pending};
use crate::error::Result;
use crate::operator::image::{Part, Parts};

impl TemporalInstance {
    pub(in crate::operator) fn add_parts(&self, parts: &mut Vec<Part>) {
        let numbers = |numbers: Vec<i64>| -> ArrayRef { Arc::new(Int64Array::from(numbers)) };
        let bytes =
            |rows: Vec<&Box<[u8]>>| -> ArrayRef { Arc::new(LargeBinaryArray::from_iter_values(rows)) };
        parts.push(Part::Columns(vec![
            numbers(self.pending.keys().map(|(moment, _)| *moment).collect()),
            bytes(self.pending.keys().map(|(_, row)| row).collect()),
            numbers(self.pending.values().map(|(count, _)| *count).collect()),
            numbers(self.pending.values().map(|(_, leaves)| *leaves).collect()),
        ]));
        parts.push(Part::Columns(vec![
            numbers(self.present.keys().map(|(moment, _)| *moment).collect()),
            bytes(self.present.keys().map(|(_, row)| row).collect()),
            numbers(self.present.values().copied().collect()),
        ]));
    }

    pub(in crate::operator) fn take_parts(&mut self, parts: &mut Parts) -> Result<()> {
        let pending = parts.columns(4)?;
        let number = |column: &ArrayRef, row: usize| column.as_primitive::<Int64Type>().value(row);
        for row in 0..pending[0].len() {
            let bytes = pending[1].as_binary::<i64>().value(row).into();
            let value = (
                number(&pending[0], row),
                bytes,
                number(&pending[2], row),
                number(&pending[3], row),
            );
            add_pending(&mut self.pending, &mut self.bytes, value);
        }
        let present = parts.columns(3)?;
        for row in 0..present[0].len() {
            let bytes = present[1].as_binary::<i64>().value(row).into();
            let (moment, count) = (number(&present[0], row), number(&present[2], row));
            add(&mut self.present, &mut self.bytes, moment, bytes, count);
        }
        Ok(())
    }
}
