//! Aggregates whose values grow with the rows: `array_agg` and `string_agg`.
//!
//! Operators take memory for what an aggregate says that it has, after each batch. That leaves three gaps: the value is one, of
//! any size; what it grows by in a batch is there before anybody is asked; and to hand it out takes as much again, of which nobody
//! is told. Here a value that is too large is an error as soon as it is, rows that take much are asked for before they are taken
//! in, and what an aggregate says that it has includes the copy.
//!
//! The others were looked at: `min`, `max`, `first_value`, `last_value`, `any_value` and `nth_value` hold one value for each group,
//! `median`, `percentile_cont` and DISTINCT hold rows and say so; all the rest holds numbers. (`mode` and `percentile_disc` of ours hold
//! rows, which may be large texts, and copy them: they ask as well.)

use arrow::array::{ArrayRef, BooleanArray};
use datafusion::common::Result;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};
use datafusion::scalar::ScalarValue;

use super::work::is_wanted;
use super::{COPIES, MemoryBudget, VALUE_BYTES_MAX, sizes, too_large};

/// Its result is held beside its state. Operators hold as much.
const HELD: u64 = 2;

fn bytes(columns: &[ArrayRef]) -> u64 {
    let columns = columns.iter().map(|column| sizes::bytes(column, 0..column.len()));
    columns.fold(0, u64::saturating_add)
}

/// An aggregate of one group.
#[derive(Debug)]
struct OneGroup {
    name: &'static str,
    inner: Box<dyn Accumulator>,
    /// What it may have in all.
    bytes_max: u64,
    budget: MemoryBudget,
}

/// An aggregate whose value is made of all rows, and may not become too large.
pub fn of_one_group(
    name: &'static str,
    inner: Box<dyn Accumulator>,
    budget: MemoryBudget,
) -> Box<dyn Accumulator> {
    Box::new(OneGroup {
        name,
        inner,
        // Buffers have up to twice the bytes that are in them.
        bytes_max: HELD * VALUE_BYTES_MAX,
        budget,
    })
}

/// An aggregate that holds all rows, of which one is its value.
pub fn of_rows(
    name: &'static str,
    inner: Box<dyn Accumulator>,
    budget: MemoryBudget,
) -> Box<dyn Accumulator> {
    Box::new(OneGroup {
        name,
        inner,
        bytes_max: u64::MAX,
        budget,
    })
}

impl OneGroup {
    fn fits(&self, bytes: u64) -> Result<()> {
        match bytes <= self.bytes_max {
            true => Ok(()),
            false => Err(too_large(self.name, VALUE_BYTES_MAX, "for a value").into()),
        }
    }

    fn check(&self) -> Result<()> {
        self.fits(self.inner.size() as u64)
    }

    /// Takes memory for so many more bytes, and for what there is: it is all copied, into a larger buffer or into the result.
    fn ask(&self, more: u64) -> Result<Option<MemoryReservation>> {
        let there = self.inner.size() as u64;
        self.fits(there.saturating_add(more))?;
        self.budget
            .ask(self.name, more.saturating_add(there * HELD / COPIES as u64))
    }
}

impl Accumulator for OneGroup {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let _budget = self.ask(bytes(values))?;
        self.inner.update_batch(values)?;
        self.check()
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        // In a window, once for each row.
        is_wanted()?;
        self.check()?;
        let _budget = self.ask(0)?;
        self.inner.evaluate()
    }

    fn size(&self) -> usize {
        self.inner.size().saturating_mul(HELD as usize)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.check()?;
        let _budget = self.ask(0)?;
        self.inner.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let _budget = self.ask(bytes(states))?;
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
struct AllGroups {
    name: &'static str,
    inner: Box<dyn GroupsAccumulator>,
    budget: MemoryBudget,
}

/// An aggregate that says what it takes to hand out its values.
pub fn of_all_groups(
    name: &'static str,
    inner: Box<dyn GroupsAccumulator>,
    budget: MemoryBudget,
) -> Box<dyn GroupsAccumulator> {
    Box::new(AllGroups { name, inner, budget })
}

impl AllGroups {
    /// Takes memory for the rows of a batch, if they take much. Else nobody is asked: an operator that is told afterwards that
    /// there is no more spills its groups, and an error here would end the query.
    fn ask(&self, values: &[ArrayRef]) -> Result<Option<MemoryReservation>> {
        self.budget.ask(self.name, bytes(values))
    }
}

impl GroupsAccumulator for AllGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        let _budget = self.ask(values)?;
        self.inner
            .update_batch(values, group_indices, opt_filter, total_num_groups)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        self.inner.evaluate(emit_to)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        self.inner.state(emit_to)
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        let _budget = self.ask(values)?;
        self.inner.merge_batch(values, group_indices, total_num_groups)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        opt_filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let _budget = self.ask(values)?;
        self.inner.convert_to_state(values, opt_filter)
    }

    fn size(&self) -> usize {
        self.inner.size().saturating_mul(HELD as usize)
    }
}
