//! Operators' state for the checkpoint store: of each operator of a tree its parts, in the order of the tree. Each operator
//! makes its own, in an `image.rs` of its folder.
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
use millrace_resource::spill::state::{SpillWriter, SpilledRows};
use millrace_state::row_table::{TableImage, Tags};
use serde::{Deserialize, Serialize};

use crate::error::{OperatorError, Result};

/// One part of an operator's state.
#[derive(Debug, Clone)]
pub enum Part {
    Table(TableImage),
    Columns(Vec<ArrayRef>),
    /// Columns that are on disk.
    Away(Vec<SpilledSet>),
}

/// Columns of one length that are on disk, in slices.
#[derive(Debug, Clone)]
pub struct SpilledSet {
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
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct OperatorWaits {
    /// See [`super::OperatorInstance::due`].
    pub due: Option<i64>,
    pub(super) is_idle: bool,
    /// For each operator of the tree, whether it has postponed what it is to emit once the view is filled.
    pub(super) put_off: Vec<bool>,
}

impl OperatorWaits {
    /// See [`super::OperatorInstance::idle_without_input`].
    pub fn idle_without_input(&self, is_bulk: bool) -> bool {
        is_bulk || self.is_idle
    }
}

impl OperatorImage {
    pub fn new(parts: Vec<Part>) -> Self {
        OperatorImage {
            parts,
            waits: OperatorWaits::default(),
        }
    }

    /// One of operators that wait for this.
    pub fn with_waits(parts: Vec<Part>, waits: OperatorWaits) -> Self {
        OperatorImage { parts, waits }
    }

    pub fn waits(&self) -> &OperatorWaits {
        &self.waits
    }

    /// Whether some of it is on disk.
    pub fn is_spilled(&self) -> bool {
        self.parts.iter().any(|part| match part {
            Part::Table(table) => table.is_spilled(),
            Part::Columns(_) => false,
            Part::Away(_) => true,
        })
    }

    /// Writes all of it to a file; what is left refers to that.
    ///
    /// # Errors
    /// The disk is full, or out of order.
    pub async fn leave(self, writer: &mut SpillWriter) -> Result<OperatorImage> {
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
                                Arc::new(chunk.leave(away, 0)?)
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
                        sets.push(SpilledSet {
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
    pub async fn load(&self) -> Result<OperatorImage> {
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

    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Bytes that it has in memory of its own: chunks of rows are shared with the state that it is of.
    pub fn memory_bytes(&self) -> usize {
        let parts = self.parts.iter().map(|part| match part {
            Part::Table(table) => table.memory_bytes(),
            Part::Columns(columns) => columns.iter().map(|column| column.get_array_memory_size()).sum(),
            Part::Away(_) => 0,
        });
        parts.sum()
    }
}

/// The numbers of a table's rows as a column.
pub fn tag_column(tags: &[u32]) -> ArrayRef {
    Arc::new(UInt32Array::from(tags.to_vec()))
}

/// The numbers that [`tag_column`] made a column of.
///
/// # Errors
/// The column is of another type.
pub fn tags_of(column: &ArrayRef) -> Result<Vec<u32>> {
    let tags = column.as_primitive_opt::<UInt32Type>().ok_or_else(mismatch)?;
    Ok(tags.values().to_vec())
}

/// The parts of an image, to be taken in the order in which they were put in.
pub struct Parts(VecDeque<Part>);

impl Parts {
    pub(super) fn of(image: &OperatorImage) -> Self {
        Parts(image.parts.iter().cloned().collect())
    }

    /// All of them were taken.
    pub(super) fn end(self) -> Result<()> {
        match self.0.is_empty() {
            true => Ok(()),
            false => Err(mismatch()),
        }
    }

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
pub fn sliced(columns: &[ArrayRef]) -> Result<impl Iterator<Item = RecordBatch> + use<>> {
    let rows = columns.first().map_or(0, |column| column.len());
    let fields = columns
        .iter()
        .enumerate()
        .map(|(place, column)| Field::new(place.to_string(), column.data_type().clone(), true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let batch = RecordBatch::try_new_with_options(schema, columns.to_vec(), &options)?;
    let starts = (0..rows.max(1)).step_by(SLICE_ROWS);
    Ok(starts.map(move |first| batch.slice(first, SLICE_ROWS.min(rows - first))))
}

/// The columns that were sliced.
///
/// # Errors
/// A slice has another number of columns, or there is none.
pub fn joined(slices: &[RecordBatch], columns: usize) -> Result<Vec<ArrayRef>> {
    if slices.is_empty() || slices.iter().any(|slice| slice.num_columns() != columns) {
        return Err(mismatch());
    }
    (0..columns)
        .map(|column| {
            let slices = slices.iter().map(|slice| slice.column(column).as_ref());
            concat(&slices.collect::<Vec<&dyn Array>>()).map_err(OperatorError::from)
        })
        .collect()
}

fn mismatch() -> OperatorError {
    OperatorError::Internal("a checkpoint is not one of this plan".into())
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
