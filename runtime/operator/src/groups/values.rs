//! Aggregates that need their values: `min` and `max` under deletion, DISTINCT, medians, ordered ones.
//!
//! Each group keeps an ordered multiset of argument rows (ORDER BY columns first, as comparable bytes). A minimum is its
//! first entry, `count(DISTINCT)` its size; any other aggregate of DataFusion's is computed by its own accumulator from
//! the values of the groups that an epoch touched.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Int64Array, LargeBinaryBuilder, RecordBatch, UInt64Array, new_empty_array,
};
use arrow::compute::SortOptions;
use arrow::datatypes::{Int64Type, UInt64Type};
use arrow::row::{RowConverter, SortField};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Accumulator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::Literal;
use hashbrown::HashMap;
use millrace_planner::stage::aggregation::{AggregateCall, AggregateForm};

use super::extremum::Extremum;
use super::state::{GroupState, each, least, resize, retain_positions};
use crate::error::{OperatorError, Result, is_for_memory};
use crate::expression::ErrorCounter;
use crate::multiset::Multiset;

pub(super) struct Values {
    function: Arc<AggregateFunctionExpr>,
    answer: Answer,
    descending: bool,
    distinct: bool,
    /// Rows in which the only argument is NULL do not count.
    skips_nulls: bool,
    order_by: Vec<usize>,
    /// The arguments that are not literals.
    arguments: Vec<Arc<dyn PhysicalExpr>>,
    converter: RowConverter,
    groups: Vec<Multiset>,
    /// By group that is a pane: the state of an accumulator over its values, once a window has asked for it.
    pane_states: HashMap<usize, Vec<ScalarValue>>,
}

/// How the answer is found in the multiset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    First,
    Size,
    Accumulator,
}

impl Values {
    pub fn new(call: &AggregateCall) -> Result<Self> {
        let arguments: Vec<_> = call
            .function
            .expressions()
            .into_iter()
            .filter(|argument| argument.downcast_ref::<Literal>().is_none())
            .collect();
        let schema = Arc::clone(&call.input_schema);
        let mut fields = vec![];
        for (column, options) in &call.order_by {
            fields.push(SortField::new_with_options(
                schema.field(*column).data_type().clone(),
                *options,
            ));
        }
        let descending = call.form == AggregateForm::Max;
        for argument in &arguments {
            let data_type = argument.data_type(&schema)?;
            fields.push(SortField::new_with_options(
                data_type,
                SortOptions {
                    descending,
                    nulls_first: false,
                },
            ));
        }
        let answer = match call.form {
            AggregateForm::Min | AggregateForm::Max => Answer::First,
            AggregateForm::Count if call.distinct && arguments.len() == 1 => Answer::Size,
            _ => Answer::Accumulator,
        };
        Ok(Values {
            function: Arc::clone(&call.function),
            answer,
            descending,
            distinct: call.distinct,
            skips_nulls: answer != Answer::Accumulator,
            order_by: call.order_by.iter().map(|(column, _)| *column).collect(),
            arguments,
            converter: RowConverter::new(fields)?,
            groups: vec![],
            pane_states: HashMap::new(),
        })
    }

    fn first(&self, groups: &[usize]) -> Result<ArrayRef> {
        let parser = self.converter.parser();
        let firsts: Vec<_> = groups.iter().map(|group| self.groups[*group].first()).collect();
        let present = firsts.iter().flatten().map(|bytes| parser.parse(bytes));
        let columns = self.converter.convert_rows(present)?;
        let values = columns
            .last()
            .ok_or_else(|| OperatorError::Internal("a minimum without an argument".into()))?;
        let mut next = 0;
        let positions: arrow::array::UInt32Array = firsts
            .iter()
            .map(|first| {
                first.map(|_| {
                    next += 1;
                    next - 1
                })
            })
            .collect();
        arrow::compute::take(values, &positions, None).map_err(OperatorError::from)
    }

    /// What an accumulator answers, or NULL, counted, where it cannot: as an expression that fails is.
    fn answer(&self, answer: Result<ScalarValue>, errors: Option<&ErrorCounter>) -> Result<ScalarValue> {
        match answer {
            // What depends on other rows is no failure of these.
            Err(OperatorError::DataFusion(error)) if !is_for_memory(&error) => {
                if let Some(errors) = errors {
                    errors.note(error);
                }
                Ok(ScalarValue::try_from(self.function.field().data_type())?)
            }
            other => other,
        }
    }

    /// The answers over windows, from the states of their panes.
    fn merged(
        &mut self,
        panes: &[usize],
        ranges: &[Range<usize>],
        errors: Option<&ErrorCounter>,
    ) -> Result<ArrayRef> {
        for pane in panes {
            if !self.pane_states.contains_key(pane) {
                let state = self.accumulate(&self.groups[*pane])?.state()?;
                self.pane_states.insert(*pane, state);
            }
        }
        let over = |range: &Range<usize>| -> Result<ScalarValue> {
            let mut accumulator = self.function.create_accumulator()?;
            let states: Vec<&Vec<ScalarValue>> = panes[range.clone()]
                .iter()
                .map(|pane| &self.pane_states[pane])
                .collect();
            if let Some(first) = states.first() {
                let column = |column: usize| {
                    ScalarValue::iter_to_array(states.iter().map(|state| state[column].clone()))
                };
                let columns = (0..first.len())
                    .map(column)
                    .collect::<datafusion::error::Result<Vec<_>>>()?;
                accumulator.merge_batch(&columns)?;
            }
            Ok(accumulator.evaluate()?)
        };
        if ranges.is_empty() {
            return Ok(new_empty_array(self.function.field().data_type()));
        }
        let values = ranges.iter().map(|range| self.answer(over(range), errors));
        Ok(ScalarValue::iter_to_array(values.collect::<Result<Vec<_>>>()?)?)
    }

    /// DataFusion's own accumulator, with the values of one group, in order.
    fn accumulate(&self, group: &Multiset) -> Result<Box<dyn Accumulator>> {
        let mut accumulator = self.function.create_accumulator()?;
        let parser = self.converter.parser();
        let mut rows = vec![];
        for (bytes, count) in group.iter() {
            let times = if self.distinct { 1 } else { count };
            for _ in 0..times {
                rows.push(parser.parse(bytes));
            }
        }
        if rows.is_empty() {
            return Ok(accumulator);
        }
        let count = rows.len();
        let columns = if self.converter_is_empty() {
            vec![]
        } else {
            self.converter.convert_rows(rows)?
        };
        let (order_by, values) = columns.split_at(self.order_by.len());
        let mut values = values.iter();
        let mut inputs = vec![];
        for argument in self.function.expressions() {
            match argument.downcast_ref::<Literal>() {
                Some(literal) => inputs.push(literal.value().to_array_of_size(count)?),
                None => {
                    inputs.push(Arc::clone(values.next().ok_or_else(|| {
                        OperatorError::Internal("an argument was not stored".into())
                    })?))
                }
            }
        }
        inputs.extend(order_by.iter().cloned());
        accumulator.update_batch(&inputs)?;
        Ok(accumulator)
    }

    fn converter_is_empty(&self) -> bool {
        self.order_by.is_empty() && self.arguments.is_empty()
    }
}

impl GroupState for Values {
    fn resize(&mut self, groups: usize) {
        resize(&mut self.groups, groups, Multiset::default);
    }

    fn apply(&mut self, ids: &[usize], rows: &RecordBatch, weights: &[i64]) -> Result<()> {
        let mut columns: Vec<ArrayRef> = self
            .order_by
            .iter()
            .map(|column| Arc::clone(rows.column(*column)))
            .collect();
        for argument in &self.arguments {
            columns.push(argument.evaluate(rows)?.into_array(rows.num_rows())?);
        }
        let nulls = if self.skips_nulls {
            columns.last().and_then(|column| column.logical_nulls())
        } else {
            None
        };
        let keys = if columns.is_empty() {
            None
        } else {
            Some(self.converter.convert_columns(&columns)?)
        };
        if !self.pane_states.is_empty() {
            ids.iter().for_each(|id| drop(self.pane_states.remove(id)));
        }
        for (row, (id, weight)) in ids.iter().zip(weights).enumerate() {
            if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
                continue;
            }
            let key: &[u8] = keys.as_ref().map_or(&[], |keys| keys.row(row).data());
            self.groups[*id].add(key, *weight);
        }
        Ok(())
    }

    fn partial_columns(&self) -> usize {
        0
    }

    fn partial(&mut self) -> Result<Vec<ArrayRef>> {
        Err(OperatorError::Internal(
            "this aggregate has no partial state".into(),
        ))
    }

    fn merge(&mut self, _ids: &[usize], _partial: &[ArrayRef]) -> Result<()> {
        Err(OperatorError::Internal(
            "this aggregate has no partial state".into(),
        ))
    }

    fn evaluate(&self, groups: &[usize], errors: Option<&ErrorCounter>) -> Result<ArrayRef> {
        match self.answer {
            Answer::First => self.first(groups),
            Answer::Size => Ok(Arc::new(Int64Array::from_iter_values(
                groups.iter().map(|group| self.groups[*group].len() as i64),
            ))),
            Answer::Accumulator if groups.is_empty() => {
                Ok(new_empty_array(self.function.field().data_type()))
            }
            Answer::Accumulator => {
                let values = groups.iter().map(|group| {
                    let accumulator = self.accumulate(&self.groups[*group]);
                    self.answer(accumulator.and_then(|mut all| Ok(all.evaluate()?)), errors)
                });
                Ok(ScalarValue::iter_to_array(values.collect::<Result<Vec<_>>>()?)?)
            }
        }
    }

    fn reset(&mut self, group: usize) {
        self.groups[group] = Multiset::default();
        self.pane_states.remove(&group);
    }

    fn retain(&mut self, groups: &[usize]) {
        retain_positions(&mut self.groups, groups);
        let states = groups.iter().enumerate().filter_map(|(number, group)| {
            let state = self.pane_states.remove(group)?;
            Some((number, state))
        });
        self.pane_states = states.collect();
    }

    fn memory_bytes(&self) -> usize {
        let states = self.pane_states.values().flatten().map(ScalarValue::size);
        self.groups.capacity() * size_of::<Multiset>()
            + self.groups.iter().map(Multiset::memory_bytes).sum::<usize>()
            + states.sum::<usize>()
    }

    /// Of a minimum or a maximum: the best of the panes' bests. Of any other: what its accumulator tells that merges the states of
    /// those of the panes, in the order of time.
    fn windows(
        &mut self,
        panes: &[usize],
        ranges: &[Range<usize>],
        _: bool,
        errors: Option<&ErrorCounter>,
    ) -> Result<ArrayRef> {
        if self.answer == Answer::Accumulator {
            return self.merged(panes, ranges, errors);
        }
        let first = |pane: usize| self.groups[panes[pane]].first();
        let best = least(ranges, first)
            .into_iter()
            .map(|pane| pane.and_then(first).map(Into::into));
        let data_type = self.function.field().data_type().clone();
        Extremum::of(0, data_type, self.descending, best.collect())?.evaluate(&each(ranges), errors)
    }

    fn image_columns(&self) -> usize {
        3
    }

    /// A row for each value of each group: the group, the value's bytes, how often it is there.
    fn image(&mut self, _groups: usize) -> Result<Vec<ArrayRef>> {
        let (mut groups, mut keys, mut counts) = (vec![], LargeBinaryBuilder::new(), vec![]);
        for (number, group) in self.groups.iter().enumerate() {
            for (key, count) in group.iter() {
                groups.push(number as u64);
                keys.append_value(key);
                counts.push(count);
            }
        }
        Ok(vec![
            Arc::new(UInt64Array::from(groups)),
            Arc::new(keys.finish()),
            Arc::new(Int64Array::from(counts)),
        ])
    }

    fn restore(&mut self, image: &[ArrayRef]) -> Result<()> {
        let groups = image[0].as_primitive::<UInt64Type>();
        let keys = image[1].as_binary::<i64>();
        let counts = image[2].as_primitive::<Int64Type>();
        for row in 0..groups.len() {
            self.groups[groups.value(row) as usize].add(keys.value(row), counts.value(row));
        }
        Ok(())
    }
}
