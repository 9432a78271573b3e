//! `bool_and` and `bool_or`.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch};
use millrace_planner::stage::aggregation::{AggregateCall, AggregateForm};

use super::count::{add_counts, counts_of};
use super::state::{GroupState, each, resize, retain_positions};
use crate::error::Result;
use crate::expression::ErrorCounter;

/// `bool_and` and `bool_or`: how many are true and how many false.
pub(super) struct Booleans {
    argument: usize,
    all: bool,
    yes: Vec<i64>,
    no: Vec<i64>,
}

impl Booleans {
    pub fn new(call: &AggregateCall) -> Self {
        Booleans {
            argument: call.arguments[0],
            all: call.form == AggregateForm::BoolAnd,
            yes: vec![],
            no: vec![],
        }
    }
}

impl GroupState for Booleans {
    fn resize(&mut self, groups: usize) {
        resize(&mut self.yes, groups, || 0);
        resize(&mut self.no, groups, || 0);
    }

    fn apply(&mut self, ids: &[usize], rows: &RecordBatch, weights: &[i64]) -> Result<()> {
        let values = rows.column(self.argument).as_boolean();
        for (row, (id, weight)) in ids.iter().zip(weights).enumerate() {
            if values.is_valid(row) {
                let counts = if values.value(row) {
                    &mut self.yes
                } else {
                    &mut self.no
                };
                counts[*id] += weight;
            }
        }
        Ok(())
    }

    fn partial_columns(&self) -> usize {
        2
    }

    fn partial(&mut self) -> Result<Vec<ArrayRef>> {
        Ok(vec![
            Arc::new(Int64Array::from(std::mem::take(&mut self.yes))),
            Arc::new(Int64Array::from(std::mem::take(&mut self.no))),
        ])
    }

    fn merge(&mut self, ids: &[usize], partial: &[ArrayRef]) -> Result<()> {
        add_counts(&mut self.yes, ids, &partial[0]);
        add_counts(&mut self.no, ids, &partial[1]);
        Ok(())
    }

    fn evaluate(&self, groups: &[usize], _: Option<&ErrorCounter>) -> Result<ArrayRef> {
        let value = |group: &usize| {
            let (yes, no) = (self.yes[*group], self.no[*group]);
            (yes + no > 0).then_some(if self.all { no == 0 } else { yes > 0 })
        };
        Ok(Arc::new(groups.iter().map(value).collect::<BooleanArray>()))
    }

    fn reset(&mut self, group: usize) {
        self.yes[group] = 0;
        self.no[group] = 0;
    }

    fn retain(&mut self, groups: &[usize]) {
        retain_positions(&mut self.yes, groups);
        retain_positions(&mut self.no, groups);
    }

    fn memory_bytes(&self) -> usize {
        self.yes.capacity() * 16
    }

    fn windows(
        &mut self,
        panes: &[usize],
        ranges: &[Range<usize>],
        _: bool,
        errors: Option<&ErrorCounter>,
    ) -> Result<ArrayRef> {
        let windows = Booleans {
            argument: self.argument,
            all: self.all,
            yes: counts_of(&self.yes, panes, ranges),
            no: counts_of(&self.no, panes, ranges),
        };
        windows.evaluate(&each(ranges), errors)
    }
}
