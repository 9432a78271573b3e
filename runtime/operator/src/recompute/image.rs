//! The rows of a window for the checkpoint store.

use super::RecomputeInstance;
use crate::error::Result;
use crate::image::{Part, Parts};

impl RecomputeInstance {
    pub(super) fn add_parts(&mut self, parts: &mut Vec<Part>) {
        parts.push(Part::Table(self.rows.image()));
    }

    pub(super) fn take_parts(&mut self, parts: &mut Parts) -> Result<()> {
        Ok(self.rows.restore(&parts.table()?)?)
    }
}
