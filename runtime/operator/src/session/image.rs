//! The rows of sessions, for the checkpoint store.

use super::{ENTRY_BYTES, Rows, SessionInstance};
use crate::error::Result;
use crate::image::{Part, Parts, bytes, bytes_at, number_at, numbers};

impl SessionInstance {
    pub(super) fn add_parts(&self, parts: &mut Vec<Part>) {
        let all = || {
            let keys = self.state.iter();
            keys.flat_map(|(key, rows)| rows.iter().map(move |row| (key, row)))
        };
        parts.push(Part::Columns(vec![
            bytes(all().map(|(key, _)| key.as_ref())),
            numbers(all().map(|(_, ((time, _), _))| *time)),
            bytes(all().map(|(_, ((_, row), _))| row.as_ref())),
            numbers(all().map(|(_, (_, weight))| *weight)),
        ]));
    }

    pub(super) fn take_parts(&mut self, parts: &mut Parts) -> Result<()> {
        let columns = parts.columns(4)?;
        for row in 0..columns[0].len() {
            let key = bytes_at(&columns[0], row);
            let of_key = self.state.entry(key.into()).or_insert_with(|| {
                self.bytes += key.len() + ENTRY_BYTES;
                Rows::new()
            });
            let row_bytes = bytes_at(&columns[2], row);
            self.rows += 1;
            self.bytes += row_bytes.len() + ENTRY_BYTES;
            let moment = (number_at(&columns[1], row), row_bytes.into());
            of_key.insert(moment, number_at(&columns[3], row));
        }
        Ok(())
    }
}
