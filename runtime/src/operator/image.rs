//! Operators' state for the checkpoint store: of each operator of a tree its parts, in the order of the tree.
//!
//! State is Arrow data: tables by their chunks, which are shared, everything else as columns. Restoring gives operators that
//! go on exactly as the first ones would have.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Int64Array, LargeBinaryBuilder, RecordBatch, RecordBatchOptions, UInt32Array,
};
use arrow::compute::concat;
use arrow::datatypes::{Field, Int64Type, Schema, UInt32Type};

use super::OperatorInstance;
use crate::error::{Result, RuntimeError};
use crate::spill::{SpillWriter, SpilledRows};
use crate::state::TableImage;
use crate::state::row_table::{Tags, arrow_error};

/// One part of an operator's state.
#[derive(Debug, Clone)]
pub(crate) enum Part {
    Table(TableImage),
    Columns(Vec<ArrayRef>),
    /// Columns that are on disk.
    Away(Vec<AwaySet>),
}

/// Columns of one length that are on disk, in slices.
#[derive(Debug, Clone)]
pub(crate) struct AwaySet {
    pub columns: usize,
    pub slices: Vec<SpilledRows>,
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct OperatorImage {
    parts: Vec<Part>,
    waits: OperatorWaits,
}

/// What operators wait for beside input.
#[derive(Debug, Clone, Default)]
pub(crate) struct OperatorWaits {
    /// See [`OperatorInstance::due`].
    pub due: Option<i64>,
    is_idle: bool,
    /// For each operator of the tree, whether it has put off what it is to put out once the view is filled.
    put_off: Vec<bool>,
}

impl OperatorWaits {
    /// See [`OperatorInstance::idle_without_input`].
    pub fn idle_without_input(&self, is_bulk: bool) -> bool {
        is_bulk || self.is_idle
    }
}

impl OperatorImage {
    pub(crate) fn new(parts: Vec<Part>) -> Self {
        OperatorImage {
            parts,
            waits: OperatorWaits::default(),
        }
    }

    pub(crate) fn waits(&self) -> &OperatorWaits {
        &self.waits
    }

    /// Whether some of it is on disk.
    pub(crate) fn is_away(&self) -> bool {
        self.parts.iter().any(|part| match part {
            Part::Table(table) => table.is_away(),
            Part::Columns(_) => false,
            Part::Away(_) => true,
        })
    }

    /// Writes all of it to a file; what is left refers to that.
    ///
    /// # Errors
    /// The disk is full, or out of order.
    pub(crate) async fn leave(self, writer: &mut SpillWriter) -> Result<OperatorImage> {
        let mut parts = vec![];
        for part in self.parts {
            parts.push(match part {
                Part::Table(table) => {
                    let mut chunks = vec![];
                    for (chunk, alive) in table.chunks() {
                        let chunk = match chunk.away() {
                            Some(_) => Arc::clone(chunk),
                            None => {
                                let away = writer.put(&chunk.rows).await?;
                                Arc::new(chunk.leave(away, 0).map_err(arrow_error)?)
                            }
                        };
                        chunks.push((chunk, alive.cloned()));
                    }
                    let tags = match table.tags() {
                        Some(Tags::Here(tags)) => {
                            let mut slices = vec![];
                            for rows in sliced(&[tag_column(tags)])? {
                                slices.push(writer.put(&rows).await?);
                            }
                            Some(Tags::Away(slices))
                        }
                        away => away.cloned(),
                    };
                    Part::Table(TableImage::new(chunks, tags))
                }
                Part::Columns(columns) => {
                    let mut sets = vec![];
                    for columns in columns.chunk_by(|one, next| one.len() == next.len()) {
                        let mut slices = vec![];
                        for rows in sliced(columns)? {
                            slices.push(writer.put(&rows).await?);
                        }
                        sets.push(AwaySet {
                            columns: columns.len(),
                            slices,
                        });
                    }
                    Part::Away(sets)
                }
                Part::Away(sets) => Part::Away(sets),
            });
        }
        let waits = self.waits;
        Ok(OperatorImage { parts, waits })
    }

    /// The same in memory.
    ///
    /// # Errors
    /// What is on disk cannot be read.
    pub(crate) async fn load(&self) -> Result<OperatorImage> {
        let mut parts = vec![];
        for part in &self.parts {
            parts.push(match part {
                Part::Table(table) => {
                    let mut chunks = vec![];
                    for (chunk, alive) in table.chunks() {
                        let chunk = match chunk.away() {
                            None => Arc::clone(chunk),
                            Some(away) => Arc::new(chunk.come_back(away.load().await?)),
                        };
                        chunks.push((chunk, alive.cloned()));
                    }
                    let tags = match table.tags() {
                        Some(Tags::Away(away)) => {
                            let mut slices = vec![];
                            for slice in away {
                                slices.push(slice.load().await?);
                            }
                            Some(Tags::Here(tags_of(&joined(&slices, 1)?[0])?))
                        }
                        here => here.cloned(),
                    };
                    Part::Table(TableImage::new(chunks, tags))
                }
                Part::Columns(columns) => Part::Columns(columns.clone()),
                Part::Away(sets) => {
                    let mut columns = vec![];
                    for set in sets {
                        let mut slices = vec![];
                        for slice in &set.slices {
                            slices.push(slice.load().await?);
                        }
                        columns.extend(joined(&slices, set.columns)?);
                    }
                    Part::Columns(columns)
                }
            });
        }
        let waits = self.waits.clone();
        Ok(OperatorImage { parts, waits })
    }

    pub(crate) fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Bytes that it has in memory of its own: chunks of rows are shared with the state that it is of.
    pub(crate) fn memory_bytes(&self) -> usize {
        let parts = self.parts.iter().map(|part| match part {
            Part::Table(table) => table.memory_bytes(),
            Part::Columns(columns) => columns.iter().map(|column| column.get_array_memory_size()).sum(),
            Part::Away(_) => 0,
        });
        parts.sum()
    }
}

/// The numbers of a table's rows as a column.
pub(crate) fn tag_column(tags: &[u32]) -> ArrayRef {
    Arc::new(UInt32Array::from(tags.to_vec()))
}

/// The numbers that [`tag_column`] made a column of.
///
/// # Errors
/// The column is of another type.
pub(crate) fn tags_of(column: &ArrayRef) -> Result<Vec<u32>> {
    let tags = column.as_primitive_opt::<UInt32Type>().ok_or_else(mismatch)?;
    Ok(tags.values().to_vec())
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

/// Rows of a slice of columns.
const SLICE_ROWS: usize = 8192;

/// Columns of one length in slices; at least one, so that their types are known.
///
/// # Errors
/// Arrow refuses a batch of them.
pub(crate) fn sliced(columns: &[ArrayRef]) -> Result<impl Iterator<Item = RecordBatch> + use<>> {
    let rows = columns.first().map_or(0, |column| column.len());
    let fields = columns
        .iter()
        .enumerate()
        .map(|(place, column)| Field::new(place.to_string(), column.data_type().clone(), true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let batch = RecordBatch::try_new_with_options(schema, columns.to_vec(), &options).map_err(arrow_error)?;
    let starts = (0..rows.max(1)).step_by(SLICE_ROWS);
    Ok(starts.map(move |first| batch.slice(first, SLICE_ROWS.min(rows - first))))
}

/// The columns that were sliced.
///
/// # Errors
/// A slice has another number of columns, or there is none.
pub(crate) fn joined(slices: &[RecordBatch], columns: usize) -> Result<Vec<ArrayRef>> {
    if slices.is_empty() || slices.iter().any(|slice| slice.num_columns() != columns) {
        return Err(mismatch());
    }
    (0..columns)
        .map(|column| {
            let slices = slices.iter().map(|slice| slice.column(column).as_ref());
            concat(&slices.collect::<Vec<&dyn Array>>()).map_err(arrow_error)
        })
        .collect()
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
        let mut put_off = vec![];
        self.note_put_off(&mut put_off);
        let waits = OperatorWaits {
            due: self.due(),
            is_idle: self.idle_without_input(false),
            put_off,
        };
        Ok(OperatorImage { parts, waits })
    }

    /// Whether its image says all that it waits for: it may leave memory, and nobody misses it until there is input, or a time has come.
    pub fn can_leave(&self) -> bool {
        let can = match self {
            // Watermarks let rows of these go.
            OperatorInstance::Emit { .. } | OperatorInstance::Sliding { .. } => false,
            // What waits in it is not told.
            OperatorInstance::LookupJoin { .. } => false,
            _ => true,
        };
        can && self.inputs().into_iter().all(OperatorInstance::can_leave)
    }

    fn note_put_off(&self, put_off: &mut Vec<bool>) {
        put_off.push(match self {
            OperatorInstance::Aggregate { aggregate, .. } => aggregate.puts_off(),
            OperatorInstance::Join { join, .. } => join.puts_off(),
            _ => false,
        });
        let inputs = self.inputs().into_iter();
        inputs.for_each(|input| input.note_put_off(put_off));
    }

    fn put_off(&mut self, is_put_off: &mut impl Iterator<Item = bool>) {
        if is_put_off.next().unwrap_or(false) {
            match self {
                OperatorInstance::Aggregate { aggregate, .. } => aggregate.put_off(),
                OperatorInstance::Join { join, .. } => join.put_off(),
                _ => {}
            }
        }
        let inputs = self.inputs_mut().into_iter();
        inputs.for_each(|input| input.put_off(is_put_off));
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
        self.put_off(&mut image.waits.put_off.iter().copied());
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
