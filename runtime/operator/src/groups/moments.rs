//! Variance and standard deviation.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch};
use arrow::datatypes::Float64Type;
use millrace_planner::stage::aggregation::{AggregateCall, AggregateForm};
use millrace_sql::float_sum::FloatSum;

use super::count::{add_counts, counts_of};
use super::float_sum::{FLOAT_COLUMNS, float_columns, floats_of, merge_floats};
use super::state::{GroupState, each, resize, retain_positions};
use crate::error::Result;
use crate::expression::ErrorCounter;

/// Variance and standard deviation: count, sum and sum of squares.
pub(super) struct Moments {
    argument: usize,
    form: AggregateForm,
    counts: Vec<i64>,
    sums: Vec<FloatSum>,
    squares: Vec<FloatSum>,
}

impl Moments {
    pub fn new(call: &AggregateCall) -> Self {
        Moments {
            argument: call.arguments[0],
            form: call.form,
            counts: vec![],
            sums: vec![],
            squares: vec![],
        }
    }

    fn value(&self, group: usize) -> Option<f64> {
        let count = self.counts[group];
        let (sample, root) = match self.form {
            AggregateForm::StandardDeviation { sample } => (sample, true),
            AggregateForm::Variance { sample } => (sample, false),
            _ => return None,
        };
        let divisor = if sample { count - 1 } else { count };
        if count == 0 || divisor == 0 {
            return None;
        }
        let variance = self.sums[group].squared_distances(&self.squares[group], count) / divisor as f64;
        Some(if root { variance.sqrt() } else { variance })
    }
}

impl GroupState for Moments {
    fn resize(&mut self, groups: usize) {
        resize(&mut self.counts, groups, || 0);
        resize(&mut self.sums, groups, FloatSum::default);
        resize(&mut self.squares, groups, FloatSum::default);
    }

    fn apply(&mut self, ids: &[usize], rows: &RecordBatch, weights: &[i64]) -> Result<()> {
        let values = rows.column(self.argument).as_primitive::<Float64Type>();
        for (row, (id, weight)) in ids.iter().zip(weights).enumerate() {
            if values.is_valid(row) {
                self.counts[*id] += weight;
                self.sums[*id].add(values.value(row), *weight);
                self.squares[*id].add_square(values.value(row), *weight);
            }
        }
        Ok(())
    }

    fn partial_columns(&self) -> usize {
        1 + FLOAT_COLUMNS + 2
    }

    fn partial(&mut self) -> Result<Vec<ArrayRef>> {
        let mut columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(std::mem::take(&mut self.counts)))];
        columns.extend(float_columns(&std::mem::take(&mut self.sums)));
        columns.extend(
            float_columns(&std::mem::take(&mut self.squares))
                .into_iter()
                .take(2),
        );
        Ok(columns)
    }

    fn merge(&mut self, ids: &[usize], partial: &[ArrayRef]) -> Result<()> {
        add_counts(&mut self.counts, ids, &partial[0]);
        merge_floats(&mut self.sums, ids, &partial[1..]);
        let (high, low) = (&partial[1 + FLOAT_COLUMNS], &partial[2 + FLOAT_COLUMNS]);
        let (high, low) = (
            high.as_primitive::<Float64Type>(),
            low.as_primitive::<Float64Type>(),
        );
        for (row, id) in ids.iter().enumerate() {
            self.squares[*id].merge(&FloatSum {
                high: high.value(row),
                low: low.value(row),
                ..FloatSum::default()
            });
        }
        Ok(())
    }

    fn evaluate(&self, groups: &[usize], _: Option<&ErrorCounter>) -> Result<ArrayRef> {
        Ok(Arc::new(Float64Array::from_iter(
            groups.iter().map(|group| self.value(*group)),
        )))
    }

    fn reset(&mut self, group: usize) {
        self.counts[group] = 0;
        self.sums[group] = FloatSum::default();
        self.squares[group] = FloatSum::default();
    }

    fn retain(&mut self, groups: &[usize]) {
        retain_positions(&mut self.counts, groups);
        retain_positions(&mut self.sums, groups);
        retain_positions(&mut self.squares, groups);
    }

    fn memory_bytes(&self) -> usize {
        self.counts.capacity() * (8 + 2 * size_of::<FloatSum>())
    }

    fn windows(
        &mut self,
        panes: &[usize],
        ranges: &[Range<usize>],
        once: bool,
        errors: Option<&ErrorCounter>,
    ) -> Result<ArrayRef> {
        let windows = Moments {
            argument: self.argument,
            form: self.form,
            counts: counts_of(&self.counts, panes, ranges),
            sums: floats_of(&self.sums, panes, ranges, once),
            squares: floats_of(&self.squares, panes, ranges, once),
        };
        windows.evaluate(&each(ranges), errors)
    }
}
