//! Groups of rows with the states of their aggregates: what the halves of GROUP BY and overlapping windows are made of.
//!
//! Groups are numbered densely ([`GroupKeys`]); the state of one aggregate over all of them is a [`GroupState`], of which
//! there is one for each way in which an aggregate is maintained. A new one is a file here and a line in [`group_state`].

mod approx_distinct;
mod booleans;
mod count;
mod extremum;
mod float_sum;
mod image;
mod moments;
mod reduced;
mod registers;
mod state;
mod sum;
mod values;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::{Int64Type, SchemaRef};
use hashbrown::HashSet;
use millrace_planner::stage::aggregation::{AggregateCall, AggregateForm};
use millrace_state::compare::rows_equal;
use millrace_storage::ChangeBatch;

use super::batches::{batch_of, weights_of};
use super::expression::ErrorCounter;
use super::group_keys::GroupKeys;
use crate::error::{OperatorError, Result};
use approx_distinct::ApproxDistinct;
use booleans::Booleans;
use count::Count;
use extremum::Extremum;
use moments::Moments;
use reduced::Reduced;
pub(super) use state::slide;
use state::{GroupState, resize};
use sum::Sum;
use values::Values;

/// Groups that are gone are swept when there are more of them than live ones, and at least this many.
pub(crate) const SWEEP_GROUPS_MIN: usize = 1_024;
/// Groups that are emitted in one stretch of work, where many are.
pub(crate) const EMIT_GROUPS_STEP: usize = 8_192;

/// Keys, row counts and aggregate states of groups, by group number.
pub(crate) struct Groups {
    pub(crate) keys: GroupKeys,
    /// Rows in each group: the sum of weights.
    pub(crate) rows: Vec<i64>,
    pub(crate) states: Vec<Box<dyn GroupState>>,
}

impl Groups {
    pub fn new(keys: GroupKeys, calls: &[AggregateCall]) -> Result<Self> {
        Ok(Groups {
            keys,
            rows: vec![],
            states: calls.iter().map(group_state).collect::<Result<_>>()?,
        })
    }

    /// Group numbers of the rows; new groups get empty states.
    pub fn intern(&mut self, keys: &[ArrayRef], rows: usize) -> Result<Vec<usize>> {
        let ids = self.keys.intern(keys, rows)?;
        resize(&mut self.rows, self.keys.len(), || 0);
        for state in &mut self.states {
            state.resize(self.keys.len());
        }
        Ok(ids)
    }

    pub fn apply_rows(&mut self, batch: &ChangeBatch, calls: &[AggregateCall]) -> Result<()> {
        let group_columns = self.keys.columns();
        let ids = self.intern(&batch.rows.columns()[..group_columns], batch.num_rows())?;
        let weights = weights_of(batch);
        self.apply(&batch.rows, &ids, weights.values(), calls)
    }

    pub fn apply(
        &mut self,
        rows: &RecordBatch,
        ids: &[usize],
        weights: &[i64],
        calls: &[AggregateCall],
    ) -> Result<()> {
        for (id, weight) in ids.iter().zip(weights) {
            self.rows[*id] += weight;
        }
        for (state, call) in self.states.iter_mut().zip(calls) {
            match call.filter {
                None => state.apply(ids, rows, weights)?,
                Some(column) => {
                    let condition = rows.column(column).as_boolean();
                    let mask = match condition.nulls() {
                        Some(nulls) => BooleanArray::new(condition.values() & nulls.inner(), None),
                        None => condition.clone(),
                    };
                    let kept: Vec<usize> = mask.values().set_indices().collect();
                    let ids: Vec<usize> = kept.iter().map(|row| ids[*row]).collect();
                    let weights: Vec<i64> = kept.iter().map(|row| weights[*row]).collect();
                    let rows = arrow::compute::filter_record_batch(rows, &mask)?;
                    state.apply(&ids, &rows, &weights)?;
                }
            }
        }
        Ok(())
    }

    /// Merges partial states: group columns, row count, then each aggregate's state columns.
    pub fn merge(&mut self, rows: &RecordBatch, ids: &[usize], group_columns: usize) -> Result<()> {
        let counts = rows.column(group_columns).as_primitive::<Int64Type>();
        for (id, count) in ids.iter().zip(counts.values()) {
            self.rows[*id] += count;
        }
        let mut column = group_columns + 1;
        for state in &mut self.states {
            let width = state.partial_columns();
            state.merge(ids, &rows.columns()[column..column + width])?;
            column += width;
        }
        Ok(())
    }

    pub fn evaluate(&self, groups: &[usize], errors: Option<&ErrorCounter>) -> Result<Vec<ArrayRef>> {
        self.states
            .iter()
            .map(|state| state.evaluate(groups, errors))
            .collect()
    }

    pub fn reset(&mut self, group: usize) {
        for state in &mut self.states {
            state.reset(group);
        }
    }

    /// Forgets the groups without rows.
    pub fn sweep(&mut self) -> Result<()> {
        self.keep(|_, rows| rows > 0)
    }

    /// Forgets the groups that are not to be kept, told by their number and their rows.
    pub fn keep(&mut self, is_kept: impl Fn(usize, i64) -> bool) -> Result<()> {
        let live: Vec<usize> = (0..self.rows.len())
            .filter(|group| is_kept(*group, self.rows[*group]))
            .collect();
        self.keys.retain(&live)?;
        self.rows = live.iter().map(|group| self.rows[*group]).collect();
        for state in &mut self.states {
            state.retain(&live);
        }
        Ok(())
    }

    pub fn memory_bytes(&self) -> usize {
        self.keys.memory_bytes()
            + self.rows.capacity() * 8
            + self.states.iter().map(|s| s.memory_bytes()).sum::<usize>()
    }
}

/// The state that a call's form asks for.
fn group_state(call: &AggregateCall) -> Result<Box<dyn GroupState>> {
    if call.distinct {
        return Ok(Box::new(Values::new(call)?));
    }
    Ok(match call.form {
        AggregateForm::Count => Box::new(Count::new(call)),
        AggregateForm::Sum | AggregateForm::Average => Box::new(Sum::new(call)?),
        AggregateForm::Variance { .. } | AggregateForm::StandardDeviation { .. } => {
            Box::new(Moments::new(call))
        }
        AggregateForm::BoolAnd | AggregateForm::BoolOr => Box::new(Booleans::new(call)),
        AggregateForm::MinAppendOnly | AggregateForm::MaxAppendOnly => Box::new(Extremum::new(call)?),
        AggregateForm::ApproxDistinct => Box::new(ApproxDistinct::new(call)),
        AggregateForm::Reducer { .. } => Box::new(Reduced::new(call)?),
        AggregateForm::Min | AggregateForm::Max | AggregateForm::Values => Box::new(Values::new(call)?),
    })
}

/// What differs between the old and the new rows of groups.
pub(crate) fn changes(
    schema: &SchemaRef,
    keys: &[ArrayRef],
    old: &[ArrayRef],
    new: &[ArrayRef],
    was_alive: &[bool],
    is_alive: &[bool],
) -> Result<Vec<ChangeBatch>> {
    let count = was_alive.len();
    let same = rows_equal(old, new, count)?;
    let pick = |alive: &[bool], other: &[bool]| {
        let positions = (0..count).filter(|i| alive[*i] && !(other[*i] && same.value(*i)));
        UInt32Array::from_iter_values(positions.map(|i| i as u32))
    };
    let rows_at = |values: &[ArrayRef], positions: &UInt32Array| -> Result<RecordBatch> {
        let columns = keys
            .iter()
            .chain(values)
            .map(|column| take(column, positions, None).map_err(OperatorError::from))
            .collect::<Result<Vec<_>>>()?;
        batch_of(schema, columns, positions.len())
    };
    let mut changes = vec![];
    let retracted = pick(was_alive, is_alive);
    if !retracted.is_empty() {
        let rows = rows_at(old, &retracted)?;
        changes.push(ChangeBatch {
            weights: Some(Int64Array::from(vec![-1; rows.num_rows()])),
            rows,
        });
    }
    let inserted = pick(is_alive, was_alive);
    if !inserted.is_empty() {
        changes.push(ChangeBatch::insertions(rows_at(new, &inserted)?));
    }
    Ok(changes)
}

/// The groups that an epoch touches, each once.
pub(crate) fn touched(ids: &[usize]) -> Vec<usize> {
    let mut seen = HashSet::with_capacity(ids.len());
    ids.iter().copied().filter(|group| seen.insert(*group)).collect()
}
