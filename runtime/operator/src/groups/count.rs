//! `count(*)` and `count(x)`, and counts of groups in general.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::datatypes::Int64Type;
use millrace_planner::stage::aggregation::AggregateCall;

use super::state::{GroupState, each, resize, retain_positions, slide};
use crate::error::Result;
use crate::expression::ErrorCounter;

/// `count(*)` and `count(x)`.
pub(super) struct Count {
    argument: Option<usize>,
    counts: Vec<i64>,
}

impl Count {
    pub fn new(call: &AggregateCall) -> Self {
        Count {
            argument: call.arguments.first().copied(),
            counts: vec![],
        }
    }
}

impl GroupState for Count {
    fn resize(&mut self, groups: usize) {
        resize(&mut self.counts, groups, || 0);
    }

    fn apply(&mut self, ids: &[usize], rows: &RecordBatch, weights: &[i64]) -> Result<()> {
        let nulls = self
            .argument
            .and_then(|column| rows.column(column).logical_nulls());
        for (row, (id, weight)) in ids.iter().zip(weights).enumerate() {
            if nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)) {
                self.counts[*id] += weight;
            }
        }
        Ok(())
    }

    fn partial_columns(&self) -> usize {
        1
    }

    fn partial(&mut self) -> Result<Vec<ArrayRef>> {
        Ok(vec![Arc::new(Int64Array::from(std::mem::take(&mut self.counts)))])
    }

    fn merge(&mut self, ids: &[usize], partial: &[ArrayRef]) -> Result<()> {
        add_counts(&mut self.counts, ids, &partial[0]);
        Ok(())
    }

    fn evaluate(&self, groups: &[usize], _: Option<&ErrorCounter>) -> Result<ArrayRef> {
        Ok(Arc::new(Int64Array::from_iter_values(
            groups.iter().map(|group| self.counts[*group]),
        )))
    }

    fn reset(&mut self, group: usize) {
        self.counts[group] = 0;
    }

    fn retain(&mut self, groups: &[usize]) {
        retain_positions(&mut self.counts, groups);
    }

    fn memory_bytes(&self) -> usize {
        self.counts.capacity() * 8
    }

    fn windows(
        &mut self,
        panes: &[usize],
        ranges: &[Range<usize>],
        _: bool,
        errors: Option<&ErrorCounter>,
    ) -> Result<ArrayRef> {
        let windows = Count {
            argument: self.argument,
            counts: counts_of(&self.counts, panes, ranges),
        };
        windows.evaluate(&each(ranges), errors)
    }
}

/// What these panes' counts are over windows.
pub(super) fn counts_of(counts: &[i64], panes: &[usize], ranges: &[Range<usize>]) -> Vec<i64> {
    slide(
        ranges,
        |sum, pane| *sum += counts[panes[pane]],
        |sum, pane| *sum -= counts[panes[pane]],
    )
}

pub(super) fn add_counts(counts: &mut [i64], ids: &[usize], partial: &ArrayRef) {
    for (id, count) in ids.iter().zip(partial.as_primitive::<Int64Type>().values()) {
        counts[*id] += count;
    }
}
