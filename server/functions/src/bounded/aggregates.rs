//! Aggregates whose values grow with the rows: `array_agg` and `string_agg`.
//!
//! Operators take memory for what an aggregate says that it has, after each batch. That leaves two gaps: the value is one, of
//! any size; and to hand it out takes as much again, of which nobody is told. Here a value that is too large is an error as soon
//! as it is, and what an aggregate says that it has includes the copy.
//!
//! The others were looked at: `min`, `max`, `first_value`, `last_value`, `any_value` and `nth_value` hold one value for each group,
//! `median`, `percentile_cont`, `percentile_disc`, `mode` and DISTINCT hold rows and say so; all the rest holds numbers.

use arrow::array::{ArrayRef, BooleanArray};
use datafusion::common::Result;
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};
use datafusion::scalar::ScalarValue;

use super::{VALUE_BYTES_MAX, too_large};

/// What it is handed out as is there beside what it is made of.
const COPIES: usize = 2;

/// An aggregate of one group.
#[derive(Debug)]
struct OneGroup {
    name: &'static str,
    inner: Box<dyn Accumulator>,
}

/// An aggregate whose value may not become too large.
pub fn of_one_group(name: &'static str, inner: Box<dyn Accumulator>) -> Box<dyn Accumulator> {
    Box::new(OneGroup { name, inner })
}

impl OneGroup {
    fn check(&self) -> Result<()> {
        // Buffers have up to twice the bytes that are in them.
        match self.inner.size() as u64 <= COPIES as u64 * VALUE_BYTES_MAX {
            true => Ok(()),
            false => Err(too_large(self.name, VALUE_BYTES_MAX, "for a value").into()),
        }
    }
}

impl Accumulator for OneGroup {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.inner.update_batch(values)?;
        self.check()
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.check()?;
        self.inner.evaluate()
    }

    fn size(&self) -> usize {
        self.inner.size().saturating_mul(COPIES)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.check()?;
        self.inner.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.inner.merge_batch(states)?;
        self.check()
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.inner.retract_batch(values)
    }

    fn supports_retract_batch(&self) -> bool {
        self.inner.supports_retract_batch()
    }
}

/// An aggregate of all groups.
struct AllGroups(Box<dyn GroupsAccumulator>);

/// An aggregate that says what it takes to hand out its values.
pub fn of_all_groups(inner: Box<dyn GroupsAccumulator>) -> Box<dyn GroupsAccumulator> {
    Box::new(AllGroups(inner))
}

impl GroupsAccumulator for AllGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.0
            .update_batch(values, group_indices, opt_filter, total_num_groups)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        self.0.evaluate(emit_to)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        self.0.state(emit_to)
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        self.0.merge_batch(values, group_indices, total_num_groups)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        opt_filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        self.0.convert_to_state(values, opt_filter)
    }

    fn size(&self) -> usize {
        self.0.size().saturating_mul(COPIES)
    }
}
