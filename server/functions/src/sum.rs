//! `sum` of integers and numerics that does not wrap around: a sum that is no bigint, or has more digits than a numeric, is an
//! error.
//!
//! The sums are kept in 128 bits, so that a sum may leave the range of bigint on its way and come back. Everything else
//! is DataFusion's `sum`, under the same name, so that optimizer and planner see what they know.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Decimal128Array, Int64Array};
use arrow::datatypes::{DataType, Decimal128Type, Field, FieldRef, Int64Type};
use datafusion::common::Result;
use datafusion::functions_aggregate::sum::sum_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, AggregateFunctionSimplification, StateFieldsArgs};
use datafusion::logical_expr::utils::format_state_name;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, ReversedUDAF, SetMonotonicity,
    Signature,
};
use datafusion::scalar::ScalarValue;
use millrace_postgres::error::{SqlError, SqlState};
use millrace_postgres::types::NUMERIC_PRECISION;

use crate::digits::{plus, too_many_digits};
use crate::float_frames::over_frame;
use crate::grouped::{counts, each};
use crate::interval_sum::{self, is_interval};

/// The type of the sums while they are made.
fn state_type(of: &DataType) -> DataType {
    match of {
        DataType::Decimal128(..) => of.clone(),
        _ => DataType::Decimal128(38, 0),
    }
}

/// The function.
pub fn udaf() -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::from(Sum { inner: sum_udaf() }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Sum {
    inner: Arc<AggregateUDF>,
}

fn checked(return_type: &DataType, is_distinct: bool) -> bool {
    matches!(return_type, DataType::Int64 | DataType::Decimal128(..)) && !is_distinct
}

/// A sum of numerics, if a numeric can be so large.
fn fits(sum: i128) -> Result<i128> {
    let limit = 10_u128.pow(u32::from(NUMERIC_PRECISION));
    match sum.unsigned_abs() < limit {
        true => Ok(sum),
        false => Err(too_many_digits().into()),
    }
}

/// The digits of values, whose number of digits after the point is that of their sum.
fn digits(values: &ArrayRef) -> Result<Decimal128Array> {
    Ok(match values.data_type() {
        DataType::Decimal128(..) => values.as_primitive::<Decimal128Type>().clone(),
        _ => {
            let wide = arrow::compute::cast(values, &DataType::Int64)?;
            let wide = wide.as_primitive::<Int64Type>();
            wide.unary::<_, Decimal128Type>(i128::from)
        }
    })
}

fn narrow(sum: i128) -> Result<i64> {
    i64::try_from(sum).map_err(|_| {
        SqlError::new(SqlState::NumericValueOutOfRange, "bigint out of range")
            .with_detail("The sum of the integers does not fit into bigint.")
            .with_hint("Cast the argument of sum to numeric.")
            .into()
    })
}

impl AggregateUDFImpl for Sum {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(arg_types)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if checked(args.return_type(), args.is_distinct) {
            return Ok(Box::new(OneSum::of(args.return_type())));
        }
        if is_interval(args.return_type()) {
            return interval_sum::accumulator(&args, false);
        }
        self.inner.accumulator(args)
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        if checked(args.return_type(), args.is_distinct) {
            let name = format_state_name(args.name, "sum");
            let state = state_type(args.return_type());
            return Ok(vec![Arc::new(Field::new(name, state, true))]);
        }
        if is_interval(args.return_type()) {
            return Ok(interval_sum::state_fields(args.name));
        }
        self.inner.state_fields(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        !is_interval(args.return_type()) && self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        if checked(args.return_type(), args.is_distinct) {
            return Ok(Box::new(GroupSums::of(args.return_type())));
        }
        self.inner.create_groups_accumulator(args)
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if checked(args.return_type(), args.is_distinct) {
            return Ok(Box::new(OneSum::of(args.return_type())));
        }
        if is_interval(args.return_type()) {
            return interval_sum::accumulator(&args, false);
        }
        if let Some(frame) = over_frame(&args, false) {
            return Ok(frame);
        }
        self.inner.create_sliding_accumulator(args)
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn simplify(&self) -> Option<AggregateFunctionSimplification> {
        self.inner.simplify()
    }

    fn order_sensitivity(&self) -> datafusion::logical_expr::utils::AggregateOrderSensitivity {
        self.inner.order_sensitivity()
    }

    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        self.inner.inner().set_monotonicity(data_type)
    }
}

/// One sum; values can be taken back, for frames that move.
#[derive(Debug)]
struct OneSum {
    target: DataType,
    sum: i128,
    count: i64,
}

impl OneSum {
    fn of(target: &DataType) -> Self {
        OneSum {
            target: target.clone(),
            sum: 0,
            count: 0,
        }
    }

    fn change(&mut self, values: &ArrayRef, sign: i64) -> Result<()> {
        let values = digits(values)?;
        for value in values.iter().flatten() {
            self.sum = plus(self.sum, if sign < 0 { -value } else { value })?;
        }
        let present = i64::try_from(values.len() - values.null_count()).unwrap_or(i64::MAX);
        self.count += present * sign;
        Ok(())
    }
}

impl Accumulator for OneSum {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.change(&values[0], 1)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.change(&values[0], -1)
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let sum = (self.count > 0).then_some(self.sum);
        Ok(match &self.target {
            DataType::Decimal128(precision, scale) => {
                ScalarValue::Decimal128(sum.map(fits).transpose()?, *precision, *scale)
            }
            _ => ScalarValue::Int64(sum.map(narrow).transpose()?),
        })
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let sum = (self.count > 0).then_some(self.sum);
        Ok(vec![match state_type(&self.target) {
            DataType::Decimal128(precision, scale) => ScalarValue::Decimal128(sum, precision, scale),
            _ => ScalarValue::Decimal128(sum, 38, 0),
        }])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for sum in states[0].as_primitive::<Decimal128Type>().iter().flatten() {
            self.sum = plus(self.sum, sum)?;
            self.count += 1;
        }
        Ok(())
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}

/// A sum for each group; `None` until the first value.
#[derive(Debug)]
struct GroupSums {
    target: DataType,
    sums: Vec<Option<i128>>,
}

impl GroupSums {
    fn of(target: &DataType) -> Self {
        GroupSums {
            target: target.clone(),
            sums: vec![],
        }
    }

    fn add(&mut self, group: usize, value: i128) -> Result<()> {
        let sum = &mut self.sums[group];
        *sum = Some(plus(sum.unwrap_or(0), value)?);
        Ok(())
    }

    fn each(
        &mut self,
        values: &Decimal128Array,
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total: usize,
    ) -> Result<()> {
        self.sums.resize(total.max(self.sums.len()), None);
        each(values, groups, filter, |row, group| {
            self.add(group, values.value(row))
        })
    }
}

impl GroupsAccumulator for GroupSums {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.each(&digits(&values[0])?, group_indices, opt_filter, total_num_groups)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let sums = emit_to.take_needed(&mut self.sums).into_iter();
        Ok(match &self.target {
            target @ DataType::Decimal128(..) => {
                let out = sums
                    .map(|sum| sum.map(fits).transpose())
                    .collect::<Result<Decimal128Array>>()?;
                Arc::new(out.with_data_type(target.clone()))
            }
            _ => {
                let out = sums.map(|sum| sum.map(narrow).transpose());
                Arc::new(out.collect::<Result<Int64Array>>()?)
            }
        })
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let sums = emit_to.take_needed(&mut self.sums);
        let out = Decimal128Array::from(sums).with_data_type(state_type(&self.target));
        Ok(vec![Arc::new(out)])
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        self.each(&digits(&values[0])?, group_indices, None, total_num_groups)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        opt_filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let values = digits(&values[0])?;
        let sums: Decimal128Array = (0..values.len())
            .map(|row| (values.is_valid(row) && counts(opt_filter, row)).then(|| values.value(row)))
            .collect();
        Ok(vec![Arc::new(sums.with_data_type(state_type(&self.target)))])
    }

    fn size(&self) -> usize {
        self.sums.capacity() * size_of::<Option<i128>>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_may_leave_the_range_and_come_back() {
        let values: ArrayRef = Arc::new(Int64Array::from(vec![Some(i64::MAX), Some(1), None]));
        let mut sum = OneSum::of(&DataType::Int64);
        assert_eq!(sum.evaluate().unwrap(), ScalarValue::Int64(None));
        sum.update_batch(&[ArrayRef::clone(&values)]).unwrap();
        assert!(sum.evaluate().is_err());
        let one: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        sum.retract_batch(&[one]).unwrap();
        assert_eq!(sum.evaluate().unwrap(), ScalarValue::Int64(Some(i64::MAX)));
    }

    #[test]
    fn groups_are_summed_apart_and_merged() {
        let values: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), Some(2), None, Some(4)]));
        let filter = BooleanArray::from(vec![Some(true), Some(true), Some(true), None]);
        let mut sums = GroupSums::of(&DataType::Int64);
        sums.update_batch(&[values], &[0, 1, 2, 0], Some(&filter), 3)
            .unwrap();
        let state = sums.state(EmitTo::All).unwrap();
        let mut merged = GroupSums::of(&DataType::Int64);
        merged.merge_batch(&state, &[0, 0, 1], 2).unwrap();
        let out = merged.evaluate(EmitTo::All).unwrap();
        assert_eq!(
            out.as_primitive::<Int64Type>(),
            &Int64Array::from(vec![Some(3), None])
        );
    }
}
