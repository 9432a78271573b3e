//! `min` and `max` over rows that only arrive: the best value so far, as comparable bytes.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, new_null_array};
use arrow::compute::SortOptions;
use arrow::datatypes::DataType;
use arrow::row::{RowConverter, SortField};
use millrace_planner::stage::aggregation::{AggregateCall, AggregateForm};

use super::state::{GroupState, each, least, resize, retain_positions};
use crate::error::{OperatorError, Result};
use crate::expression::ErrorCounter;

pub(super) struct Extremum {
    argument: usize,
    data_type: DataType,
    descending: bool,
    converter: RowConverter,
    /// Ascending for a minimum, descending for a maximum: the smallest bytes win.
    best: Vec<Option<Box<[u8]>>>,
}

impl Extremum {
    pub fn new(call: &AggregateCall) -> Result<Self> {
        let data_type = call.input_schema.field(call.arguments[0]).data_type().clone();
        let descending = call.form == AggregateForm::MaxAppendOnly;
        Extremum::of(call.arguments[0], data_type, descending, vec![])
    }

    /// With these values as bytes: ascending for a minimum, descending for a maximum.
    pub fn of(
        argument: usize,
        data_type: DataType,
        descending: bool,
        best: Vec<Option<Box<[u8]>>>,
    ) -> Result<Self> {
        let options = SortOptions {
            descending,
            nulls_first: false,
        };
        let field = SortField::new_with_options(data_type.clone(), options);
        Ok(Extremum {
            argument,
            data_type,
            descending,
            converter: RowConverter::new(vec![field])?,
            best,
        })
    }

    fn offer(&mut self, ids: &[usize], values: &ArrayRef) -> Result<()> {
        let rows = self.converter.convert_columns(&[Arc::clone(values)])?;
        let nulls = values.logical_nulls();
        for (row, id) in ids.iter().enumerate() {
            if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
                continue;
            }
            let value = rows.row(row);
            let best = &mut self.best[*id];
            if best.as_ref().is_none_or(|best| value.as_ref() < best.as_ref()) {
                *best = Some(value.as_ref().into());
            }
        }
        Ok(())
    }

    fn values(&self, best: &[Option<&[u8]>]) -> Result<ArrayRef> {
        let parser = self.converter.parser();
        let present: Vec<_> = best.iter().flatten().map(|bytes| parser.parse(bytes)).collect();
        if present.is_empty() {
            return Ok(new_null_array(&self.data_type, best.len()));
        }
        let values = self.converter.convert_rows(present)?.remove(0);
        if values.len() == best.len() {
            return Ok(values);
        }
        let mut next = 0;
        let positions: arrow::array::UInt32Array = best
            .iter()
            .map(|value| {
                value.map(|_| {
                    next += 1;
                    next - 1
                })
            })
            .collect();
        arrow::compute::take(&values, &positions, None).map_err(OperatorError::from)
    }
}

impl GroupState for Extremum {
    fn resize(&mut self, groups: usize) {
        resize(&mut self.best, groups, || None);
    }

    fn apply(&mut self, ids: &[usize], rows: &RecordBatch, weights: &[i64]) -> Result<()> {
        if weights.iter().any(|weight| *weight < 0) {
            return Err(OperatorError::Internal(
                "a deletion reached a minimum that only grows".into(),
            ));
        }
        self.offer(ids, rows.column(self.argument))
    }

    fn partial_columns(&self) -> usize {
        1
    }

    fn partial(&mut self) -> Result<Vec<ArrayRef>> {
        let best = std::mem::take(&mut self.best);
        Ok(vec![self.values(
            &best.iter().map(Option::as_deref).collect::<Vec<_>>(),
        )?])
    }

    fn merge(&mut self, ids: &[usize], partial: &[ArrayRef]) -> Result<()> {
        self.offer(ids, &partial[0])
    }

    fn evaluate(&self, groups: &[usize], _: Option<&ErrorCounter>) -> Result<ArrayRef> {
        self.values(
            &groups
                .iter()
                .map(|group| self.best[*group].as_deref())
                .collect::<Vec<_>>(),
        )
    }

    fn reset(&mut self, group: usize) {
        self.best[group] = None;
    }

    fn retain(&mut self, groups: &[usize]) {
        retain_positions(&mut self.best, groups);
    }

    fn memory_bytes(&self) -> usize {
        self.best.capacity() * 16
            + self
                .best
                .iter()
                .flatten()
                .map(|bytes| bytes.len() + 8)
                .sum::<usize>()
    }

    fn windows(
        &mut self,
        panes: &[usize],
        ranges: &[Range<usize>],
        _: bool,
        errors: Option<&ErrorCounter>,
    ) -> Result<ArrayRef> {
        let found = least(ranges, |pane| self.best[panes[pane]].as_deref());
        let best = found
            .into_iter()
            .map(|pane| pane.and_then(|pane| self.best[panes[pane]].clone()));
        let data_type = self.data_type.clone();
        let windows = Extremum::of(self.argument, data_type, self.descending, best.collect())?;
        windows.evaluate(&each(ranges), errors)
    }
}
