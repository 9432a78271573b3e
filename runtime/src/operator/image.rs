//! Operators' state for the checkpoint store: of each operator of a tree its parts, in the order of the tree.
//!
//! State is Arrow data: tables by their chunks, which are shared, everything else as columns. Restoring gives operators that
//! go on exactly as the first ones would have.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, LargeBinaryBuilder};
use arrow::datatypes::Int64Type;

use super::OperatorInstance;
use crate::error::{Result, RuntimeError};
use crate::state::TableImage;

/// One part of an operator's state.
#[derive(Debug, Clone)]
pub(crate) enum Part {
    Table(TableImage),
    Columns(Vec<ArrayRef>),
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct OperatorImage {
    parts: Vec<Part>,
}

impl OperatorImage {
    pub(crate) fn new(parts: Vec<Part>) -> Self {
        OperatorImage { parts }
    }

    pub(crate) fn parts(&self) -> &[Part] {
        &self.parts
    }
}

/// The parts of an image, to be taken in the order in which they were put in.
pub(super) struct Parts(VecDeque<Part>);

impl Parts {
    pub fn table(&mut self) -> Result<TableImage> {
        match self.0.pop_front() {
            Some(Part::Table(table)) => Ok(table),
            _ => Err(mismatch()),
        }
    }

    pub fn columns(&mut self, count: usize) -> Result<Vec<ArrayRef>> {
        match self.0.pop_front() {
            Some(Part::Columns(columns)) if columns.len() == count => Ok(columns),
            _ => Err(mismatch()),
        }
    }
}

fn mismatch() -> RuntimeError {
    RuntimeError::Internal("a checkpoint is not one of this plan".into())
}

pub(super) fn numbers(values: impl Iterator<Item = i64>) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(values))
}

pub(super) fn bytes<'a>(values: impl Iterator<Item = &'a [u8]>) -> ArrayRef {
    // Arrow asks iterators for a bound of their length, which those over nested maps have not.
    let mut column = LargeBinaryBuilder::new();
    values.for_each(|value| column.append_value(value));
    Arc::new(column.finish())
}

pub(super) fn number_at(column: &ArrayRef, row: usize) -> i64 {
    column.as_primitive::<Int64Type>().value(row)
}

pub(super) fn bytes_at(column: &ArrayRef, row: usize) -> &[u8] {
    column.as_binary::<i64>().value(row)
}

impl OperatorInstance {
    /// The state of the tree now.
    ///
    /// # Errors
    /// An aggregate's state cannot be made columns of.
    pub fn image(&mut self) -> Result<OperatorImage> {
        let mut parts = vec![];
        self.add_parts(&mut parts)?;
        Ok(OperatorImage { parts })
    }

    fn add_parts(&mut self, parts: &mut Vec<Part>) -> Result<()> {
        match self {
            OperatorInstance::Aggregate { aggregate, .. } => aggregate.add_parts(parts)?,
            OperatorInstance::Join { join, .. } => join.add_parts(parts),
            OperatorInstance::GenericJoin { join, .. } => join.add_parts(parts)?,
            OperatorInstance::Recompute { recompute, .. } => recompute.add_parts(parts),
            OperatorInstance::TemporalFilter { filter, .. } => filter.add_parts(parts),
            OperatorInstance::Sliding { sliding, .. } => sliding.add_parts(parts)?,
            OperatorInstance::Session { session, .. } => session.add_parts(parts),
            OperatorInstance::Emit { emit, .. } => emit.add_parts(parts),
            OperatorInstance::TopN { top, .. } => top.add_parts(parts),
            OperatorInstance::Recursion { recursion, .. } => recursion.add_parts(parts),
            OperatorInstance::LookupJoin { join, .. } => join.add_parts(parts),
            OperatorInstance::AsofJoin { join, .. } => join.add_parts(parts),
            // These keep nothing.
            OperatorInstance::Source { .. }
            | OperatorInstance::Values { .. }
            | OperatorInstance::Exchange { .. }
            | OperatorInstance::WorkingTable
            | OperatorInstance::Filter { .. }
            | OperatorInstance::Project { .. }
            | OperatorInstance::PartialAggregate { .. }
            | OperatorInstance::Expand { .. }
            | OperatorInstance::Unnest { .. } => {}
        }
        self.inputs_mut()
            .into_iter()
            .try_for_each(|input| input.add_parts(parts))
    }

    /// Gives a tree without state that of an image.
    ///
    /// # Errors
    /// The image is not one of this plan.
    pub fn restore(&mut self, image: &OperatorImage) -> Result<()> {
        let mut parts = Parts(image.parts.iter().cloned().collect());
        self.take_parts(&mut parts)?;
        if parts.0.is_empty() {
            Ok(())
        } else {
            Err(mismatch())
        }
    }

    fn take_parts(&mut self, parts: &mut Parts) -> Result<()> {
        match self {
            OperatorInstance::Aggregate { aggregate, .. } => aggregate.take_parts(parts)?,
            OperatorInstance::Join { join, .. } => join.take_parts(parts)?,
            OperatorInstance::GenericJoin { join, .. } => join.take_parts(parts)?,
            OperatorInstance::Recompute { recompute, .. } => recompute.take_parts(parts)?,
            OperatorInstance::TemporalFilter { filter, .. } => filter.take_parts(parts)?,
            OperatorInstance::Sliding { sliding, .. } => sliding.take_parts(parts)?,
            OperatorInstance::Session { session, .. } => session.take_parts(parts)?,
            OperatorInstance::Emit { emit, .. } => emit.take_parts(parts)?,
            OperatorInstance::TopN { top, .. } => top.take_parts(parts)?,
            OperatorInstance::Recursion { recursion, .. } => recursion.take_parts(parts)?,
            OperatorInstance::LookupJoin { join, .. } => join.take_parts(parts)?,
            OperatorInstance::AsofJoin { join, .. } => join.take_parts(parts)?,
            // These keep nothing.
            OperatorInstance::Source { .. }
            | OperatorInstance::Values { .. }
            | OperatorInstance::Exchange { .. }
            | OperatorInstance::WorkingTable
            | OperatorInstance::Filter { .. }
            | OperatorInstance::Project { .. }
            | OperatorInstance::PartialAggregate { .. }
            | OperatorInstance::Expand { .. }
            | OperatorInstance::Unnest { .. } => {}
        }
        self.inputs_mut()
            .into_iter()
            .try_for_each(|input| input.take_parts(parts))
    }

    fn inputs_mut(&mut self) -> Vec<&mut OperatorInstance> {
        match self {
            OperatorInstance::Source { .. }
            | OperatorInstance::Values { .. }
            | OperatorInstance::Exchange { .. }
            | OperatorInstance::WorkingTable => vec![],
            OperatorInstance::Filter { input, .. }
            | OperatorInstance::Project { input, .. }
            | OperatorInstance::PartialAggregate { input, .. }
            | OperatorInstance::Aggregate { input, .. }
            | OperatorInstance::Expand { input, .. }
            | OperatorInstance::Unnest { input, .. }
            | OperatorInstance::TopN { input, .. }
            | OperatorInstance::Recompute { input, .. }
            | OperatorInstance::TemporalFilter { input, .. }
            | OperatorInstance::Sliding { input, .. }
            | OperatorInstance::Session { input, .. }
            | OperatorInstance::Emit { input, .. } => vec![input],
            OperatorInstance::Join { left, right, .. }
            | OperatorInstance::LookupJoin { left, right, .. }
            | OperatorInstance::AsofJoin { left, right, .. } => vec![left, right],
            OperatorInstance::GenericJoin { inputs, .. } => inputs.iter_mut().collect(),
            OperatorInstance::Recursion { base, body, .. } => vec![base, body],
        }
    }
}
