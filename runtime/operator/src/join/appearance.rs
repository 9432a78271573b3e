//! How rows come out of a join: as pairs, and by themselves where they have a match, or none.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Int64Array, RecordBatch, new_null_array};
use millrace_storage::ChangeBatch;

use super::side::Appearance;
use super::{JoinInstance, LEFT};
use crate::batches::{batch_of, take_columns};
use crate::error::Result;

impl JoinInstance {
    /// How rows that come (or go) appear by themselves.
    pub(super) fn appear(
        &self,
        side: usize,
        rows: &RecordBatch,
        weight: i64,
        matches: &[u32],
        output: &mut Vec<ChangeBatch>,
    ) -> Result<()> {
        let pick = |wanted: bool| -> Vec<u32> {
            (0..matches.len())
                .filter(|row| (matches[*row] > 0) == wanted)
                .map(|row| row as u32)
                .collect()
        };
        let width = self.sides[side].width;
        let marks: &[bool] = match self.sides[side].appearance {
            Appearance::Paired => &[],
            Appearance::NullExtended | Appearance::Unmatched => &[false],
            Appearance::Matched => &[true],
            Appearance::Marked => &[false, true],
        };
        for mark in marks {
            let picked = pick(*mark);
            let columns = take_columns(rows, width, &picked)?;
            self.emit_alone(side, columns, picked.len(), *mark, weight, output)?;
        }
        Ok(())
    }

    /// How rows whose count of matches changed appear now.
    pub(super) fn reappear(
        &self,
        side: usize,
        touched: &[(u32, u32)],
        output: &mut Vec<ChangeBatch>,
    ) -> Result<()> {
        let table = &self.sides[side].table;
        let (mut gained, mut lost) = (vec![], vec![]);
        for (row, before) in touched {
            match (*before > 0, table.tag(*row) > 0) {
                (false, true) => gained.push(*row),
                (true, false) => lost.push(*row),
                _ => {}
            }
        }
        let columns: Vec<usize> = (0..self.sides[side].width).collect();
        for (rows, has_match) in [(gained, true), (lost, false)] {
            if rows.is_empty() {
                continue;
            }
            let values = table.gather(&rows, &columns)?;
            let rows = rows.len();
            match self.sides[side].appearance {
                Appearance::Paired => {}
                Appearance::NullExtended | Appearance::Unmatched => {
                    self.emit_alone(side, values, rows, false, if has_match { -1 } else { 1 }, output)?;
                }
                Appearance::Matched => {
                    self.emit_alone(side, values, rows, true, if has_match { 1 } else { -1 }, output)?;
                }
                Appearance::Marked => {
                    self.emit_alone(side, values.clone(), rows, !has_match, -1, output)?;
                    self.emit_alone(side, values, rows, has_match, 1, output)?;
                }
            }
        }
        Ok(())
    }

    /// Rows of one side in the form of the output. They are counted, because there may be no column.
    fn emit_alone(
        &self,
        side: usize,
        columns: Vec<ArrayRef>,
        rows: usize,
        mark: bool,
        weight: i64,
        output: &mut Vec<ChangeBatch>,
    ) -> Result<()> {
        if rows == 0 {
            return Ok(());
        }
        let columns = match self.sides[side].appearance {
            Appearance::NullExtended => {
                let width = self.sides[LEFT].width;
                let others = if side == LEFT {
                    width..self.joined.fields().len()
                } else {
                    0..width
                };
                let nulls: Vec<ArrayRef> = others
                    .map(|column| new_null_array(self.joined.field(column).data_type(), rows))
                    .collect();
                if side == LEFT {
                    [columns, nulls].concat()
                } else {
                    [nulls, columns].concat()
                }
            }
            Appearance::Marked => {
                let marks: ArrayRef = Arc::new(BooleanArray::from(vec![mark; rows]));
                [columns, vec![marks]].concat()
            }
            _ => columns,
        };
        self.emit(columns, rows, weight, output)
    }

    pub(super) fn emit(
        &self,
        columns: Vec<ArrayRef>,
        rows: usize,
        weight: i64,
        output: &mut Vec<ChangeBatch>,
    ) -> Result<()> {
        let weights = (weight != 1).then(|| Int64Array::from(vec![weight; rows]));
        output.push(ChangeBatch {
            rows: batch_of(&self.schema, columns, rows)?,
            weights,
        });
        Ok(())
    }
}
