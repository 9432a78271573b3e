//! Sums and averages: what a row adds, its deletion takes away. Partial states merge by addition.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, Decimal128Array, Float64Array, Int64Array, PrimitiveArray,
    RecordBatch,
};
use arrow::datatypes::{DataType, Decimal128Type, Float64Type, Int64Type, UInt64Type};
use datafusion::error::DataFusionError;
use millrace_planner::stage::aggregation::{AggregateCall, AggregateForm};
use millrace_sql::float_sum::FloatSum;
use millrace_sql::numeric::quotient;

use super::count::{add_counts, counts_of};
use super::float_sum::{FLOAT_COLUMNS, float_columns, floats_of, merge_floats};
use super::state::{GroupState, each, resize, retain_positions, slide};
use crate::error::{OperatorError, Result};
use crate::expression::ErrorCounter;

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

/// Digits after the point from which on an average is one of PostgreSQL's, which is rounded.
const ROUNDED_SCALE: i8 = 16;
/// How many more of them DataFusion's has than the values, behind which it is cut off.
const CUT_DIGITS: i8 = 4;

/// An average of numerics, as the function computes it that was planned: its type tells which it is. None: it has too many digits.
fn average_of_digits(sum: i128, count: i128, scale: i8, target: i8) -> Option<i128> {
    let more = target - scale;
    match more == CUT_DIGITS && target < ROUNDED_SCALE {
        true => Some(sum.checked_mul(10_i128.pow(CUT_DIGITS.unsigned_abs().into()))? / count),
        false => quotient(sum, count, more.into()),
    }
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

    fn average(&self, groups: &[usize], errors: Option<&ErrorCounter>) -> Result<ArrayRef> {
        match (&self.sums, &self.argument_type, &self.output_type) {
            (Sums::Float(sums), _, _) => Ok(Arc::new(Float64Array::from_iter(groups.iter().map(|group| {
                let count = self.counts[*group];
                (count > 0).then(|| sums[*group].value() / count as f64)
            })))),
            (Sums::Exact(sums), DataType::Decimal128(_, scale), DataType::Decimal128(precision, target)) => {
                let values = groups.iter().map(|group| match self.counts[*group] {
                    count if count > 0 => {
                        let average = average_of_digits(sums[*group], i128::from(count), *scale, *target);
                        if average.is_none()
                            && let Some(errors) = errors
                        {
                            let message = "an average has more digits than a numeric".to_owned();
                            errors.note(DataFusionError::Execution(message));
                        }
                        average
                    }
                    _ => None,
                });
                let values: Decimal128Array = values.collect();
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
                errors.note(DataFusionError::Execution(format!(
                    "sum {} is out of range for {}",
                    sums[*group], self.output_type
                )));
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
            return self.average(groups, errors);
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
