//! The panes of overlapping windows, for the checkpoint store.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray, Int64Array};
use arrow::datatypes::Int64Type;

use super::SlidingInstance;
use crate::error::Result;
use crate::image::{Part, Parts};

impl SlidingInstance {
    pub(super) fn add_parts(&mut self, parts: &mut Vec<Part>) -> Result<()> {
        let flags: ArrayRef = Arc::new(BooleanArray::from(vec![self.is_deferred]));
        let closed: ArrayRef = Arc::new(Int64Array::from(vec![self.last_closed]));
        parts.push(Part::Columns(vec![flags, closed]));
        self.groups.add_parts(parts)
    }

    pub(super) fn take_parts(&mut self, parts: &mut Parts) -> Result<()> {
        let columns = parts.columns(2)?;
        self.is_deferred = columns[0].as_boolean().value(0);
        self.last_closed = columns[1].as_primitive::<Int64Type>().iter().next().flatten();
        self.groups.take_parts(parts)?;
        let all: Vec<usize> = (0..self.groups.rows.len()).collect();
        self.index(&all)
    }
}
