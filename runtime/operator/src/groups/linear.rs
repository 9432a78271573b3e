//! Aggregates that form a group: what a row adds, its deletion takes away. Partial states merge by addition.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, Decimal128Array, Float64Array, Int64Array,
    PrimitiveArray, RecordBatch,
};
use arrow::datatypes::{DataType, Decimal128Type, Float64Type, Int64Type, UInt64Type};
use datafusion_functions_aggregate_common::utils::DecimalAverager;
use millrace_planner::stage::{AggregateCall, AggregateForm};

use super::float_sum::FloatSum;
use super::state::{GroupState, each, resize, retain_positions, slide, united};
use crate::error::{OperatorError, Result};
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
fn counts_of(counts: &[i64], panes: &[usize], ranges: &[Range<usize>]) -> Vec<i64> {
    slide(
        ranges,
        |sum, pane| *sum += counts[panes[pane]],
        |sum, pane| *sum -= counts[panes[pane]],
    )
}

/// What these panes' sums are over windows. A sum from which panes were taken away may have other last bits than one to which
/// panes were only added; and none is left of one that was out of range for a while.
fn floats_of(sums: &[FloatSum], panes: &[usize], ranges: &[Range<usize>], once: bool) -> Vec<FloatSum> {
    let add = |sum: &mut FloatSum, pane: usize| sum.merge(&sums[panes[pane]]);
    if !once {
        return united(ranges, add);
    }
    let windows = slide(ranges, add, |sum, pane| sum.take_away(&sums[panes[pane]]));
    match windows.iter().all(|sum| sum.high.is_finite()) {
        true => windows,
        false => united(ranges, add),
    }
}

fn add_counts(counts: &mut [i64], ids: &[usize], partial: &ArrayRef) {
    for (id, count) in ids.iter().zip(partial.as_primitive::<Int64Type>().values()) {
        counts[*id] += count;
    }
}

/// `sum(x)` and `avg(x)`.
pub(super) struct Sum {
    argument: usize,
    average: bool,
    argument_type: DataType,
    output_type: DataType,
    /// Values that are not NULL.
    counts: Vec<i64>,
    sums: Sums,
}

enum Sums {
    /// Of integers and decimals, in units of the scale.
    Exact(Vec<i128>),
    Float(Vec<FloatSum>),
}

impl Sum {
    pub fn new(call: &AggregateCall) -> Result<Self> {
        let argument_type = call.input_schema.field(call.arguments[0]).data_type().clone();
        let sums = match argument_type {
            DataType::Int64 | DataType::UInt64 | DataType::Decimal128(_, _) => Sums::Exact(vec![]),
            DataType::Float64 => Sums::Float(vec![]),
            other => {
                return Err(OperatorError::Internal(format!(
                    "a sum over {other} has no linear form"
                )));
            }
        };
        Ok(Sum {
            argument: call.arguments[0],
            average: call.form == AggregateForm::Average,
            argument_type,
            output_type: call.function.field().data_type().clone(),
            counts: vec![],
            sums,
        })
    }

    fn average(&self, groups: &[usize]) -> Result<ArrayRef> {
        match (&self.sums, &self.argument_type, &self.output_type) {
            (Sums::Float(sums), _, _) => Ok(Arc::new(Float64Array::from_iter(groups.iter().map(|group| {
                let count = self.counts[*group];
                (count > 0).then(|| sums[*group].value() / count as f64)
            })))),
            (Sums::Exact(sums), DataType::Decimal128(_, scale), DataType::Decimal128(precision, target)) => {
                let averager = DecimalAverager::<Decimal128Type>::try_new(*scale, *precision, *target)?;
                let values = groups
                    .iter()
                    .map(|group| match self.counts[*group] {
                        count if count > 0 => Ok(Some(averager.avg(sums[*group], i128::from(count))?)),
                        _ => Ok(None),
                    })
                    .collect::<Result<Decimal128Array>>()?;
                Ok(Arc::new(values.with_precision_and_scale(*precision, *target)?))
            }
            _ => Err(OperatorError::Internal(format!(
                "no average over {}",
                self.argument_type
            ))),
        }
    }

    /// The sums in the output's type; NULL, and counted, where one is out of its range.
    fn exact<T: ArrowPrimitiveType>(
        &self,
        groups: &[usize],
        sums: &[i128],
        narrow: impl Fn(i128) -> Option<T::Native>,
        errors: Option<&ErrorCounter>,
    ) -> ArrayRef {
        let values = groups.iter().map(|group| {
            if self.counts[*group] == 0 {
                return None;
            }
            let value = narrow(sums[*group]);
            if value.is_none()
                && let Some(errors) = errors
            {
                errors.note(format!(
                    "sum {} is out of range for {}",
                    sums[*group], self.output_type
                ));
            }
            value
        });
        Arc::new(PrimitiveArray::<T>::from_iter(values).with_data_type(self.output_type.clone()))
    }
}

/// `sums[id] += value * weight` for the values that are not NULL.
fn add_weighted<T: ArrowPrimitiveType>(
    sums: &mut [i128],
    counts: &mut [i64],
    ids: &[usize],
    values: &PrimitiveArray<T>,
    weights: &[i64],
) where
    T::Native: Into<i128>,
{
    for (row, (id, weight)) in ids.iter().zip(weights).enumerate() {
        if values.is_valid(row) {
            counts[*id] += weight;
            sums[*id] = sums[*id].wrapping_add(values.value(row).into().wrapping_mul(i128::from(*weight)));
        }
    }
}

impl GroupState for Sum {
    fn resize(&mut self, groups: usize) {
        resize(&mut self.counts, groups, || 0);
        match &mut self.sums {
            Sums::Exact(sums) => resize(sums, groups, || 0),
            Sums::Float(sums) => resize(sums, groups, FloatSum::default),
        }
    }

    fn apply(&mut self, ids: &[usize], rows: &RecordBatch, weights: &[i64]) -> Result<()> {
        let column = rows.column(self.argument);
        let counts = &mut self.counts;
        match &mut self.sums {
            Sums::Exact(sums) => match self.argument_type {
                DataType::Int64 => {
                    add_weighted(sums, counts, ids, column.as_primitive::<Int64Type>(), weights)
                }
                DataType::UInt64 => {
                    add_weighted(sums, counts, ids, column.as_primitive::<UInt64Type>(), weights)
                }
                _ => add_weighted(
                    sums,
                    counts,
                    ids,
                    column.as_primitive::<Decimal128Type>(),
                    weights,
                ),
            },
            Sums::Float(sums) => {
                let values = column.as_primitive::<Float64Type>();
                for (row, (id, weight)) in ids.iter().zip(weights).enumerate() {
                    if values.is_valid(row) {
                        counts[*id] += weight;
                        sums[*id].add(values.value(row), *weight);
                    }
                }
            }
        }
        Ok(())
    }

    fn partial_columns(&self) -> usize {
        1 + if matches!(self.sums, Sums::Float(_)) {
            FLOAT_COLUMNS
        } else {
            1
        }
    }

    fn partial(&mut self) -> Result<Vec<ArrayRef>> {
        let mut columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(std::mem::take(&mut self.counts)))];
        match &mut self.sums {
            Sums::Exact(sums) => {
                let sums = PrimitiveArray::<Decimal128Type>::from_iter_values(std::mem::take(sums));
                let data_type = match &self.argument_type {
                    DataType::Int64 | DataType::UInt64 => DataType::Decimal128(38, 0),
                    other => other.clone(),
                };
                columns.push(Arc::new(sums.with_data_type(data_type)));
            }
            Sums::Float(sums) => columns.extend(float_columns(&std::mem::take(sums))),
        }
        Ok(columns)
    }

    fn merge(&mut self, ids: &[usize], partial: &[ArrayRef]) -> Result<()> {
        add_counts(&mut self.counts, ids, &partial[0]);
        match &mut self.sums {
            Sums::Exact(sums) => {
                for (id, value) in ids
                    .iter()
                    .zip(partial[1].as_primitive::<Decimal128Type>().values())
                {
                    sums[*id] = sums[*id].wrapping_add(*value);
                }
            }
            Sums::Float(sums) => merge_floats(sums, ids, &partial[1..]),
        }
        Ok(())
    }

    fn evaluate(&self, groups: &[usize], errors: Option<&ErrorCounter>) -> Result<ArrayRef> {
        if self.average {
            return self.average(groups);
        }
        Ok(match &self.sums {
            Sums::Exact(sums) => match self.output_type {
                DataType::Int64 => self.exact::<Int64Type>(groups, sums, |sum| sum.try_into().ok(), errors),
                DataType::UInt64 => self.exact::<UInt64Type>(groups, sums, |sum| sum.try_into().ok(), errors),
                _ => self.exact::<Decimal128Type>(groups, sums, Some, errors),
            },
            Sums::Float(sums) => Arc::new(Float64Array::from_iter(
                groups
                    .iter()
                    .map(|group| (self.counts[*group] > 0).then(|| sums[*group].value())),
            )),
        })
    }

    fn reset(&mut self, group: usize) {
        self.counts[group] = 0;
        match &mut self.sums {
            Sums::Exact(sums) => sums[group] = 0,
            Sums::Float(sums) => sums[group] = FloatSum::default(),
        }
    }

    fn retain(&mut self, groups: &[usize]) {
        retain_positions(&mut self.counts, groups);
        match &mut self.sums {
            Sums::Exact(sums) => retain_positions(sums, groups),
            Sums::Float(sums) => retain_positions(sums, groups),
        }
    }

    fn memory_bytes(&self) -> usize {
        let width = match &self.sums {
            Sums::Exact(_) => 16,
            Sums::Float(_) => size_of::<FloatSum>(),
        };
        self.counts.capacity() * (8 + width)
    }

    fn windows(
        &mut self,
        panes: &[usize],
        ranges: &[Range<usize>],
        once: bool,
        errors: Option<&ErrorCounter>,
    ) -> Result<ArrayRef> {
        let sums = match &self.sums {
            Sums::Exact(sums) => Sums::Exact(slide(
                ranges,
                |sum: &mut i128, pane| *sum = sum.wrapping_add(sums[panes[pane]]),
                |sum, pane| *sum = sum.wrapping_sub(sums[panes[pane]]),
            )),
            Sums::Float(sums) => Sums::Float(floats_of(sums, panes, ranges, once)),
        };
        let windows = Sum {
            argument: self.argument,
            average: self.average,
            argument_type: self.argument_type.clone(),
            output_type: self.output_type.clone(),
            counts: counts_of(&self.counts, panes, ranges),
            sums,
        };
        windows.evaluate(&each(ranges), errors)
    }
}

/// Columns of a [`FloatSum`] in a partial state.
const FLOAT_COLUMNS: usize = 5;

fn float_columns(sums: &[FloatSum]) -> Vec<ArrayRef> {
    let floats =
        |value: fn(&FloatSum) -> f64| Arc::new(Float64Array::from_iter_values(sums.iter().map(value)));
    let counts = |value: fn(&FloatSum) -> i64| Arc::new(Int64Array::from_iter_values(sums.iter().map(value)));
    vec![
        floats(|sum| sum.high),
        floats(|sum| sum.low),
        counts(|sum| sum.nan),
        counts(|sum| sum.infinity),
        counts(|sum| sum.negative_infinity),
    ]
}

fn merge_floats(sums: &mut [FloatSum], ids: &[usize], partial: &[ArrayRef]) {
    let float = |column: usize| partial[column].as_primitive::<Float64Type>().values();
    let count = |column: usize| partial[column].as_primitive::<Int64Type>().values();
    for (row, id) in ids.iter().enumerate() {
        sums[*id].merge(&FloatSum {
            high: float(0)[row],
            low: float(1)[row],
            nan: count(2)[row],
            infinity: count(3)[row],
            negative_infinity: count(4)[row],
        });
    }
}

/// Variance and standard deviation: count, sum and sum of squares.
pub(super) struct Moments {
    argument: usize,
    form: AggregateForm,
    counts: Vec<i64>,
    sums: Vec<FloatSum>,
    squares: Vec<FloatSum>,
}

impl Moments {
    pub fn new(call: &AggregateCall) -> Self {
        Moments {
            argument: call.arguments[0],
            form: call.form,
            counts: vec![],
            sums: vec![],
            squares: vec![],
        }
    }

    fn value(&self, group: usize) -> Option<f64> {
        let count = self.counts[group];
        let (sample, root) = match self.form {
            AggregateForm::StandardDeviation { sample } => (sample, true),
            AggregateForm::Variance { sample } => (sample, false),
            _ => return None,
        };
        let divisor = if sample { count - 1 } else { count };
        if count == 0 || divisor == 0 {
            return None;
        }
        let variance = self.sums[group].squared_distances(&self.squares[group], count) / divisor as f64;
        Some(if root { variance.sqrt() } else { variance })
    }
}

impl GroupState for Moments {
    fn resize(&mut self, groups: usize) {
        resize(&mut self.counts, groups, || 0);
        resize(&mut self.sums, groups, FloatSum::default);
        resize(&mut self.squares, groups, FloatSum::default);
    }

    fn apply(&mut self, ids: &[usize], rows: &RecordBatch, weights: &[i64]) -> Result<()> {
        let values = rows.column(self.argument).as_primitive::<Float64Type>();
        for (row, (id, weight)) in ids.iter().zip(weights).enumerate() {
            if values.is_valid(row) {
                self.counts[*id] += weight;
                self.sums[*id].add(values.value(row), *weight);
                self.squares[*id].add_square(values.value(row), *weight);
            }
        }
        Ok(())
    }

    fn partial_columns(&self) -> usize {
        1 + FLOAT_COLUMNS + 2
    }

    fn partial(&mut self) -> Result<Vec<ArrayRef>> {
        let mut columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(std::mem::take(&mut self.counts)))];
        columns.extend(float_columns(&std::mem::take(&mut self.sums)));
        columns.extend(
            float_columns(&std::mem::take(&mut self.squares))
                .into_iter()
                .take(2),
        );
        Ok(columns)
    }

    fn merge(&mut self, ids: &[usize], partial: &[ArrayRef]) -> Result<()> {
        add_counts(&mut self.counts, ids, &partial[0]);
        merge_floats(&mut self.sums, ids, &partial[1..]);
        let (high, low) = (&partial[1 + FLOAT_COLUMNS], &partial[2 + FLOAT_COLUMNS]);
        let (high, low) = (
            high.as_primitive::<Float64Type>(),
            low.as_primitive::<Float64Type>(),
        );
        for (row, id) in ids.iter().enumerate() {
            self.squares[*id].merge(&FloatSum {
                high: high.value(row),
                low: low.value(row),
                ..FloatSum::default()
            });
        }
        Ok(())
    }

    fn evaluate(&self, groups: &[usize], _: Option<&ErrorCounter>) -> Result<ArrayRef> {
        Ok(Arc::new(Float64Array::from_iter(
            groups.iter().map(|group| self.value(*group)),
        )))
    }

    fn reset(&mut self, group: usize) {
        self.counts[group] = 0;
        self.sums[group] = FloatSum::default();
        self.squares[group] = FloatSum::default();
    }

    fn retain(&mut self, groups: &[usize]) {
        retain_positions(&mut self.counts, groups);
        retain_positions(&mut self.sums, groups);
        retain_positions(&mut self.squares, groups);
    }

    fn memory_bytes(&self) -> usize {
        self.counts.capacity() * (8 + 2 * size_of::<FloatSum>())
    }

    fn windows(
        &mut self,
        panes: &[usize],
        ranges: &[Range<usize>],
        once: bool,
        errors: Option<&ErrorCounter>,
    ) -> Result<ArrayRef> {
        let windows = Moments {
            argument: self.argument,
            form: self.form,
            counts: counts_of(&self.counts, panes, ranges),
            sums: floats_of(&self.sums, panes, ranges, once),
            squares: floats_of(&self.squares, panes, ranges, once),
        };
        windows.evaluate(&each(ranges), errors)
    }
}

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
