//! `approx_distinct` over rows that only arrive: the registers of a HyperLogLog sketch a group. The estimate is the one that
//! DataFusion's own accumulator gives, in whatever order rows come and states are merged.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, LargeBinaryBuilder, RecordBatch, UInt64Array};
use datafusion::common::hash_utils::{HLL_RANDOM_STATE, create_hashes};
use millrace_planner::stage::aggregation::AggregateCall;

use super::registers::Registers;
use super::state::{GroupState, joined, resize, retain_positions};
use crate::error::{OperatorError, Result};
use crate::expression::ErrorCounter;

pub(super) struct ApproxDistinct {
    argument: usize,
    groups: Vec<Registers>,
}

impl ApproxDistinct {
    pub fn new(call: &AggregateCall) -> Self {
        ApproxDistinct {
            argument: call.arguments[0],
            groups: vec![],
        }
    }
}

impl GroupState for ApproxDistinct {
    fn resize(&mut self, groups: usize) {
        resize(&mut self.groups, groups, Registers::default);
    }

    fn apply(&mut self, ids: &[usize], rows: &RecordBatch, weights: &[i64]) -> Result<()> {
        if weights.iter().any(|weight| *weight < 0) {
            return Err(OperatorError::Internal(
                "a deletion reached a sketch that only grows".into(),
            ));
        }
        let values = rows.column(self.argument);
        let mut hashes = vec![0; values.len()];
        create_hashes([values], &HLL_RANDOM_STATE, &mut hashes)?;
        let nulls = values.logical_nulls();
        for (row, (id, hash)) in ids.iter().zip(hashes).enumerate() {
            if nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)) {
                self.groups[*id].add(hash);
            }
        }
        Ok(())
    }

    fn partial_columns(&self) -> usize {
        1
    }

    fn partial(&mut self) -> Result<Vec<ArrayRef>> {
        let (mut column, mut bytes) = (LargeBinaryBuilder::new(), vec![]);
        for group in std::mem::take(&mut self.groups) {
            bytes.clear();
            group.write(&mut bytes);
            column.append_value(&bytes);
        }
        Ok(vec![Arc::new(column.finish())])
    }

    fn merge(&mut self, ids: &[usize], partial: &[ArrayRef]) -> Result<()> {
        for (id, written) in ids.iter().zip(partial[0].as_binary::<i64>()) {
            self.groups[*id].merge_written(written.unwrap_or_default());
        }
        Ok(())
    }

    fn evaluate(&self, groups: &[usize], _: Option<&ErrorCounter>) -> Result<ArrayRef> {
        let estimates = groups.iter().map(|group| self.groups[*group].estimate());
        Ok(Arc::new(UInt64Array::from_iter_values(estimates)))
    }

    fn reset(&mut self, group: usize) {
        self.groups[group] = Registers::default();
    }

    fn retain(&mut self, groups: &[usize]) {
        retain_positions(&mut self.groups, groups);
    }

    fn memory_bytes(&self) -> usize {
        self.groups.capacity() * size_of::<Registers>()
            + self.groups.iter().map(Registers::memory_bytes).sum::<usize>()
    }

    fn windows(
        &mut self,
        panes: &[usize],
        ranges: &[Range<usize>],
        _: bool,
        _: Option<&ErrorCounter>,
    ) -> Result<ArrayRef> {
        let estimates = joined(
            ranges,
            |all: &mut Registers, pane| all.merge(&self.groups[panes[pane]]),
            |all, others| all.merge(others),
            Registers::estimate,
        );
        Ok(Arc::new(UInt64Array::from(estimates)))
    }
}
