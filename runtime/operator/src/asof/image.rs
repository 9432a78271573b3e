//! Both sides of an ASOF join for the checkpoint store.

use arrow::array::Array;

use super::{AsofJoinInstance, InTime, add};
use crate::error::Result;
use crate::image::{Part, Parts, bytes, bytes_at, number_at, numbers};

/// A row with its key and time, and how often it is there.
type Placed<'a> = (&'a [u8], &'a [u8], &'a [u8], i64);

impl AsofJoinInstance {
    pub(super) fn add_parts(&self, parts: &mut Vec<Part>) {
        for is_left in [true, false] {
            let mut rows: Vec<Placed<'_>> = vec![];
            for (key, one) in &self.keys {
                let side: &InTime = if is_left { &one.left } else { &one.right };
                rows.extend(
                    side.iter()
                        .map(|((time, row), count)| (key.as_ref(), time.as_ref(), row.as_ref(), *count)),
                );
            }
            parts.push(Part::Columns(vec![
                bytes(rows.iter().map(|(key, ..)| *key)),
                bytes(rows.iter().map(|(_, time, ..)| *time)),
                bytes(rows.iter().map(|(_, _, row, _)| *row)),
                numbers(rows.iter().map(|(.., count)| *count)),
            ]));
        }
    }

    pub(super) fn take_parts(&mut self, parts: &mut Parts) -> Result<()> {
        for is_left in [true, false] {
            let columns = parts.columns(4)?;
            for row in 0..columns[0].len() {
                let one = self.keys.entry(bytes_at(&columns[0], row).into()).or_default();
                let side = if is_left { &mut one.left } else { &mut one.right };
                let entry = (
                    bytes_at(&columns[1], row).into(),
                    bytes_at(&columns[2], row).into(),
                );
                add(side, entry, number_at(&columns[3], row), &mut self.bytes);
            }
        }
        Ok(())
    }
}
