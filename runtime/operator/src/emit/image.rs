//! Rows that are held back, for the checkpoint store.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, LargeBinaryArray};
use arrow::datatypes::Int64Type;

use super::{EmitInstance, When};
use crate::error::Result;
use crate::image::{Part, Parts};

impl EmitInstance {
    pub(super) fn add_parts(&self, parts: &mut Vec<Part>) {
        let rows: ArrayRef = Arc::new(LargeBinaryArray::from_iter_values(self.held.keys()));
        let weights: ArrayRef = Arc::new(Int64Array::from_iter_values(self.held.values().copied()));
        let next = match &self.when {
            When::Every { next, .. } => *next,
            When::Closed(_) => None,
        };
        parts.push(Part::Columns(vec![rows, weights]));
        parts.push(Part::Columns(vec![Arc::new(Int64Array::from(vec![next]))]));
    }

    pub(super) fn take_parts(&mut self, parts: &mut Parts) -> Result<()> {
        let held = parts.columns(2)?;
        let (rows, weights) = (held[0].as_binary::<i64>(), held[1].as_primitive::<Int64Type>());
        for row in 0..held[0].len() {
            self.add(rows.value(row).into(), weights.value(row));
        }
        let told = parts.columns(1)?;
        let told = told[0].as_primitive::<Int64Type>();
        if let When::Every { next, .. } = &mut self.when {
            *next = told.iter().next().flatten();
        }
        Ok(())
    }
}
