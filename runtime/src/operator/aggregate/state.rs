//! The state of one aggregate over all groups of a partition.

use arrow::array::{Array, ArrayRef, RecordBatch};
use millrace_planner::stage::{AggregateCall, AggregateForm};

use super::extremum::Extremum;
use super::linear::{Booleans, Count, Moments, Sum};
use super::values::Values;
use crate::error::Result;
use crate::operator::ErrorCounter;

/// Groups are numbered densely. Methods are handed rows already filtered by the call's FILTER.
pub(super) trait GroupState: Send {
    /// Makes room for groups up to `groups - 1`; new ones are empty.
    fn resize(&mut self, groups: usize);

    /// Adds each row `weights[i]` times to group `ids[i]` (takes it away for a negative weight).
    fn apply(&mut self, ids: &[usize], rows: &RecordBatch, weights: &[i64]) -> Result<()>;

    /// How many columns a partial state has; 0 if this form has none.
    fn partial_columns(&self) -> usize;

    /// The state of every group as columns; leaves nothing.
    fn partial(&mut self) -> Result<Vec<ArrayRef>>;

    /// Merges partial states into groups.
    fn merge(&mut self, ids: &[usize], partial: &[ArrayRef]) -> Result<()>;

    /// The aggregate's value for each of these groups. One that cannot be told is NULL, and counted if a counter is given.
    fn evaluate(&self, groups: &[usize], errors: Option<&ErrorCounter>) -> Result<ArrayRef>;

    /// Empties a group.
    fn reset(&mut self, group: usize);

    /// Keeps these groups, renumbered in the order given.
    fn retain(&mut self, groups: &[usize]);

    fn memory_bytes(&self) -> usize;

    /// How many columns an image has.
    fn image_columns(&self) -> usize {
        self.partial_columns()
    }

    /// The state of every group as columns, for the checkpoint store; leaves it as it is.
    fn image(&mut self, groups: usize) -> Result<Vec<ArrayRef>> {
        let columns = self.partial()?;
        self.resize(groups);
        self.restore(&columns)?;
        Ok(columns)
    }

    /// Gives empty groups the state of an image.
    fn restore(&mut self, image: &[ArrayRef]) -> Result<()> {
        let groups = image.first().map_or(0, |column| column.len());
        self.merge(&(0..groups).collect::<Vec<_>>(), image)
    }
}

/// The state that a call's form asks for.
pub(super) fn group_state(call: &AggregateCall) -> Result<Box<dyn GroupState>> {
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
        AggregateForm::Min | AggregateForm::Max | AggregateForm::Values => Box::new(Values::new(call)?),
    })
}

/// Moves the kept elements to the front.
pub(super) fn retain_positions<T: Default>(values: &mut Vec<T>, groups: &[usize]) {
    *values = groups
        .iter()
        .map(|group| std::mem::take(&mut values[*group]))
        .collect();
}

/// Makes room for so many groups: by an eighth at a time, since doubling leaves a third of the memory unused.
pub(super) fn resize<T>(values: &mut Vec<T>, groups: usize, empty: impl FnMut() -> T) {
    if groups > values.capacity() {
        values.reserve_exact((groups - values.len()).max(values.len() / 8));
    }
    values.resize_with(groups, empty);
}
