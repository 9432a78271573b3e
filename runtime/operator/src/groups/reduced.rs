//! Reducers of a program's own: a state for each group, which is given what changed of it.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BinaryArray, RecordBatch, UInt32Array};
use arrow::compute::take;
use datafusion::common::ScalarValue;
use millrace_planner::reducer::{Reducer, ReducerState, reducer_of};
use millrace_planner::stage::aggregation::AggregateCall;

use super::state::{GroupState, resize, retain_positions};
use crate::error::{OperatorError, Result};
use crate::expression::ErrorCounter;

pub(super) struct Reduced {
    reducer: Arc<dyn Reducer>,
    arguments: Vec<usize>,
    /// `None`: there were no values.
    states: Vec<Option<Box<dyn ReducerState>>>,
}

impl Reduced {
    pub fn new(call: &AggregateCall) -> Result<Self> {
        let reducer = reducer_of(call.function.fun())
            .ok_or_else(|| OperatorError::Internal(format!("{} is not a reducer", call.function.name())))?;
        Ok(Reduced {
            reducer: Arc::clone(reducer),
            arguments: call.arguments.clone(),
            states: vec![],
        })
    }

    fn state(&mut self, group: usize) -> &mut Box<dyn ReducerState> {
        let reducer = &self.reducer;
        self.states[group].get_or_insert_with(|| reducer.init())
    }

    /// Adds or takes away rows, of which `ids` tells the groups: the rows of each group at once.
    fn give(
        &mut self,
        ids: &[usize],
        rows: &RecordBatch,
        mut positions: Vec<u32>,
        retracts: bool,
    ) -> Result<()> {
        positions.sort_by_key(|row| ids[*row as usize]);
        for of_group in positions.chunk_by(|a, b| ids[*a as usize] == ids[*b as usize]) {
            let group = ids[of_group[0] as usize];
            let of_group = UInt32Array::from(of_group.to_vec());
            let values = (self.arguments.iter())
                .map(|column| take(rows.column(*column), &of_group, None).map_err(OperatorError::from))
                .collect::<Result<Vec<ArrayRef>>>()?;
            let state = self.state(group);
            match retracts {
                false => state.reduce(&values)?,
                true => state.retract(&values)?,
            }
        }
        Ok(())
    }
}

impl GroupState for Reduced {
    fn resize(&mut self, groups: usize) {
        resize(&mut self.states, groups, || None);
    }

    fn apply(&mut self, ids: &[usize], rows: &RecordBatch, weights: &[i64]) -> Result<()> {
        let repeated = |is_wanted: &dyn Fn(i64) -> bool| -> Vec<u32> {
            let rows = weights
                .iter()
                .enumerate()
                .filter(|(_, weight)| is_wanted(**weight));
            rows.flat_map(|(row, weight)| (0..weight.unsigned_abs()).map(move |_| row as u32))
                .collect()
        };
        let (added, gone) = (repeated(&|weight| weight > 0), repeated(&|weight| weight < 0));
        self.give(ids, rows, added, false)?;
        self.give(ids, rows, gone, true)
    }

    fn partial_columns(&self) -> usize {
        1
    }

    fn partial(&mut self) -> Result<Vec<ArrayRef>> {
        let saved = std::mem::take(&mut self.states)
            .into_iter()
            .map(|state| state.map(|state| state.save()).transpose());
        let saved = saved.collect::<datafusion::error::Result<Vec<Option<Vec<u8>>>>>()?;
        Ok(vec![Arc::new(BinaryArray::from_iter(saved))])
    }

    fn merge(&mut self, ids: &[usize], partial: &[ArrayRef]) -> Result<()> {
        for (group, saved) in ids.iter().zip(partial[0].as_binary::<i32>()) {
            if let Some(saved) = saved {
                self.state(*group).merge(saved)?;
            }
        }
        Ok(())
    }

    fn evaluate(&self, groups: &[usize], _: Option<&ErrorCounter>) -> Result<ArrayRef> {
        let values = groups.iter().map(|group| match &self.states[*group] {
            Some(state) => state.value(),
            None => self.reducer.init().value(),
        });
        let values = values.collect::<datafusion::error::Result<Vec<ScalarValue>>>()?;
        Ok(ScalarValue::iter_to_array(values)?)
    }

    fn on_timer(&mut self, groups: &[usize], now: i64) -> Result<()> {
        if self.reducer.is_timed() {
            for group in groups {
                self.state(*group).on_timer(now)?;
            }
        }
        Ok(())
    }

    fn reset(&mut self, group: usize) {
        self.states[group] = None;
    }

    fn retain(&mut self, groups: &[usize]) {
        retain_positions(&mut self.states, groups);
    }

    fn memory_bytes(&self) -> usize {
        // What a state keeps is its own affair; what it saves tells how much that is, and the first ones how much all.
        const SAMPLE: usize = 16;
        let sample: Vec<usize> = (self.states.iter().flatten().take(SAMPLE))
            .map(|state| state.save().map_or(0, |saved| saved.len()))
            .collect();
        let mean = sample.iter().sum::<usize>() / sample.len().max(1);
        self.states.capacity() * (size_of::<Option<Box<dyn ReducerState>>>() + mean)
    }

    fn windows(
        &mut self,
        _: &[usize],
        _: &[Range<usize>],
        _: bool,
        _: Option<&ErrorCounter>,
    ) -> Result<ArrayRef> {
        Err(OperatorError::Internal("a reducer was cut into panes".into()))
    }
}
