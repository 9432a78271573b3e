//! A join's state for the checkpoint store: its two tables.

use super::JoinInstance;
use crate::error::Result;
use crate::image::{Part, Parts};

impl JoinInstance {
    pub(super) fn add_parts(&mut self, parts: &mut Vec<Part>) {
        for side in &mut self.sides {
            parts.push(Part::Table(side.table.image()));
        }
    }

    pub(super) fn take_parts(&mut self, parts: &mut Parts) -> Result<()> {
        for side in &mut self.sides {
            // Who asks an index of a side brings it up to date.
            side.table.restore_rows(&parts.table()?)?;
        }
        Ok(())
    }
}
