//! Groups for the checkpoint store: the keys as a table, and columns with a row for each group.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array};
use arrow::datatypes::Int64Type;

use super::Groups;
use crate::error::Result;
use crate::image::{Part, Parts};

impl Groups {
    pub(crate) fn add_parts(&mut self, parts: &mut Vec<Part>) -> Result<()> {
        parts.push(Part::Table(self.keys.image()));
        let rows: ArrayRef = Arc::new(Int64Array::from(self.rows.clone()));
        parts.push(Part::Columns(vec![rows]));
        for state in &mut self.states {
            parts.push(Part::Columns(state.image(self.rows.len())?));
        }
        Ok(())
    }

    /// Gives groups without state that of an image.
    pub(crate) fn take_parts(&mut self, parts: &mut Parts) -> Result<()> {
        self.keys.restore(&parts.table()?)?;
        let rows = parts.columns(1)?;
        self.rows = rows[0].as_primitive::<Int64Type>().values().to_vec();
        for state in &mut self.states {
            let columns = parts.columns(state.image_columns())?;
            state.resize(self.rows.len());
            state.restore(&columns)?;
        }
        Ok(())
    }
}
