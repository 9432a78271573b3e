//! Rows with their lists, one row for each element: several lists of one row are read side by side, the shorter ones continued with
//! NULL. Where there is one list, its elements are emitted as they lie in memory; where that list would be a text cut into pieces, it
//! is not made. An expansion is an iterator: it makes no more rows than are asked for (Faucet, section 4), and fewer where what is
//! kept of a row would be many copies of something large.

use std::ops::Range;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, ListArray, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::{Int64Type, SchemaRef};
use datafusion::common::NullHandling;
use millrace_planner::stage::unnest::UnnestColumn;
use millrace_state::width::{COPIED_BYTES_MAX, Widths};
use millrace_storage::ChangeBatch;

use super::lists::{as_list, elements, length, of_one_list};
use crate::batches::batch_of;
use crate::error::{OperatorError, Result};

/// How far an expansion is: the elements of its rows that were not emitted yet begin here.
#[derive(Debug, Default)]
struct At {
    row: usize,
    position: usize,
}

/// Some rows with all of their elements, or some elements of one row.
#[derive(Debug, PartialEq, Eq)]
struct Piece {
    rows: Range<usize>,
    positions: Range<usize>,
}

/// See the module.
pub struct Expansion {
    batch: ChangeBatch,
    lists: Lists,
    /// By row: how many rows it makes.
    lengths: Vec<usize>,
    /// Of what is kept.
    kept: Widths,
    at: At,
}

enum Lists {
    /// The elements of all rows, one behind the other.
    One { elements: ArrayRef, starts: Vec<usize> },
    /// By column of the output.
    Several(Vec<Option<ListArray>>),
}

impl Expansion {
    /// Of rows with these lists, and what is kept of the rows.
    ///
    /// # Errors
    /// A column is no list.
    pub fn of(batch: ChangeBatch, columns: &[UnnestColumn], null_handling: NullHandling) -> Result<Self> {
        let is_kept = columns.iter().filter_map(|column| match column {
            UnnestColumn::Kept(index) => Some(*index),
            _ => None,
        });
        let kept = Widths::of(&batch.rows.schema(), is_kept);
        if null_handling == NullHandling::Drop
            && let Some((elements, ends)) = of_one_list(&batch, columns)?
        {
            let first = ends[0];
            return Ok(Expansion {
                batch,
                lengths: ends.lengths().collect(),
                lists: Lists::One {
                    elements,
                    starts: ends.iter().map(|end| (end - first) as usize).collect(),
                },
                kept,
                at: At::default(),
            });
        }
        let lists = columns
            .iter()
            .map(|column| match column {
                UnnestColumn::Elements(index) => as_list(batch.rows.column(*index)).map(Some),
                UnnestColumn::Kept(_) => Ok(None),
                UnnestColumn::Pieces { .. } => Err(OperatorError::Internal(
                    "a text is split next to other lists".into(),
                )),
            })
            .collect::<Result<Vec<Option<ListArray>>>>()?;
        let longest = |row: usize| {
            let lengths = lists.iter().flatten();
            let lengths = lengths.map(|list| length(list, row, null_handling));
            lengths.max().unwrap_or(0)
        };
        Ok(Expansion {
            lengths: (0..batch.num_rows()).map(longest).collect(),
            batch,
            lists: Lists::Several(lists),
            kept,
            at: At::default(),
        })
    }

    /// The next rows, so many at most; there may be none in a batch of them. `columns` as they were given at the beginning.
    ///
    /// # Errors
    /// The rows do not fit the schema.
    pub fn next(
        &mut self,
        columns: &[UnnestColumn],
        schema: &SchemaRef,
        rows_max: usize,
    ) -> Result<Option<ChangeBatch>> {
        let piece = self.next_piece(rows_max);
        piece.map(|piece| self.rows(piece, columns, schema)).transpose()
    }

    /// What makes the next rows, so many at most.
    fn next_piece(&mut self, rows_max: usize) -> Option<Piece> {
        let At { row, position: from } = self.at;
        let length = *self.lengths.get(row)?;
        let copied = |row: usize| self.kept.row_bytes(&self.batch.rows, row);
        let fit = rows_max.min(COPIED_BYTES_MAX / copied(row)).max(1);
        if length > fit {
            let to = length.min(from + fit);
            self.at = match to == length {
                true => At {
                    row: row + 1,
                    position: 0,
                },
                false => At { row, position: to },
            };
            return Some(Piece {
                rows: row..row + 1,
                positions: from..to,
            });
        }
        let (mut made, mut bytes, mut end) = (0, 0, row);
        while let Some(length) = self.lengths.get(end) {
            let copies = length.saturating_mul(copied(end));
            if made + length > rows_max || (end > row && bytes + copies > COPIED_BYTES_MAX) {
                break;
            }
            (made, bytes, end) = (made + length, bytes + copies, end + 1);
        }
        self.at.row = end;
        Some(Piece {
            rows: row..end,
            positions: 0..rows_max,
        })
    }

    /// The rows that a piece makes.
    fn rows(&self, piece: Piece, columns: &[UnnestColumn], schema: &SchemaRef) -> Result<ChangeBatch> {
        let Piece { rows, positions } = piece;
        let positions_of = |row: usize| positions.start..self.lengths[row].min(positions.end);
        let made = rows.clone().map(|row| positions_of(row).len()).sum::<usize>();
        // Which row each element is of; where nothing else of it is needed, that is not looked at.
        let is_kept = |column: &UnnestColumn| matches!(column, UnnestColumn::Kept(_));
        let is_needed = self.batch.weights.is_some()
            || columns.iter().any(is_kept)
            || matches!(self.lists, Lists::Several(_));
        let taken: UInt32Array = match is_needed {
            true => (rows.clone())
                .flat_map(|row| std::iter::repeat_n(row as u32, positions_of(row).len()))
                .collect(),
            false => UInt32Array::from(Vec::<u32>::new()),
        };
        let positions: Vec<u32> = match &self.lists {
            Lists::Several(_) => (rows.clone())
                .flat_map(|row| positions_of(row).map(|position| position as u32))
                .collect(),
            Lists::One { .. } => vec![],
        };
        let column = |(number, column): (usize, &UnnestColumn)| match (column, &self.lists) {
            (UnnestColumn::Kept(index), _) => {
                take(self.batch.rows.column(*index), &taken, None).map_err(OperatorError::from)
            }
            (_, Lists::One { elements, starts }) => {
                let first = positions_of(rows.start).start;
                Ok(elements.slice(starts[rows.start] + first, made))
            }
            (_, Lists::Several(lists)) => match &lists[number] {
                Some(list) => elements(list, taken.values(), &positions),
                None => Err(OperatorError::Internal("a list was not looked at".into())),
            },
        };
        let output = columns.iter().enumerate().map(column);
        let output = output.collect::<Result<Vec<ArrayRef>>>()?;
        Ok(ChangeBatch {
            rows: batch_of(schema, output, made)?,
            weights: weights_at(&self.batch, &taken)?,
        })
    }
}

/// The weights of these rows.
fn weights_at(batch: &ChangeBatch, rows: &UInt32Array) -> Result<Option<Int64Array>> {
    let Some(weights) = &batch.weights else {
        return Ok(None);
    };
    let weights = take(weights, rows, None)?;
    Ok(Some(weights.as_primitive::<Int64Type>().clone()))
}

#[cfg(test)]
mod tests;
