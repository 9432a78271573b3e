//! `sum` of integers that does not wrap around: a sum that is no bigint is an error.
//!
//! The sums are kept in 128 bits, so that a sum may leave the range of bigint on its way and come back. Everything but
//! integers is DataFusion's `sum`, under the same name, so that optimizer and planner see what they know.

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

/// The type of the sums while they are made.
const STATE: DataType = DataType::Decimal128(38, 0);

/// The function.
pub fn udaf() -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::from(Sum { inner: sum_udaf() }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Sum {
    inner: Arc<AggregateUDF>,
}

fn checked(return_type: &DataType, is_distinct: bool) -> bool {
    return_type == &DataType::Int64 && !is_distinct
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
            return Ok(Box::new(OneSum::default()));
        }
        self.inner.accumulator(args)
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        if checked(args.return_type(), args.is_distinct) {
            let name = format_state_name(args.name, "sum");
            return Ok(vec![Arc::new(Field::new(name, STATE, true))]);
        }
        self.inner.state_fields(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        if checked(args.return_type(), args.is_distinct) {
            return Ok(Box::new(GroupSums::default()));
        }
        self.inner.create_groups_accumulator(args)
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if checked(args.return_type(), args.is_distinct) {
            return Ok(Box::new(OneSum::default()));
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
#[derive(Debug, Default)]
struct OneSum {
    sum: i128,
    count: i64,
}

impl OneSum {
    fn change(&mut self, values: &ArrayRef, sign: i64) -> Result<()> {
        let values = arrow::compute::cast(values, &DataType::Int64)?;
        let values = values.as_primitive::<Int64Type>();
        let total: i128 = values.iter().flatten().map(i128::from).sum();
        let present = i64::try_from(values.len() - values.null_count()).unwrap_or(i64::MAX);
        self.sum += total * i128::from(sign);
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
        let sum = (self.count > 0).then(|| narrow(self.sum)).transpose()?;
        Ok(ScalarValue::Int64(sum))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let sum = (self.count > 0).then_some(self.sum);
        Ok(vec![ScalarValue::Decimal128(sum, 38, 0)])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for sum in states[0].as_primitive::<Decimal128Type>().iter().flatten() {
            self.sum += sum;
            self.count += 1;
        }
        Ok(())
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}

/// A sum for each group; `None` until the first value.
#[derive(Debug, Default)]
struct GroupSums {
    sums: Vec<Option<i128>>,
}

impl GroupSums {
    fn add(&mut self, group: usize, value: i128) {
        let sum = &mut self.sums[group];
        *sum = Some(sum.unwrap_or(0) + value);
    }

    fn each(
        &mut self,
        rows: usize,
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total: usize,
        value: impl Fn(usize) -> Option<i128>,
    ) {
        self.sums.resize(total.max(self.sums.len()), None);
        for (row, group) in (0..rows).zip(groups) {
            let taken = filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row));
            if taken && let Some(value) = value(row) {
                self.add(*group, value);
            }
        }
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
        let values = arrow::compute::cast(&values[0], &DataType::Int64)?;
        let values = values.as_primitive::<Int64Type>();
        if values.null_count() == 0 && opt_filter.is_none() {
            self.sums.resize(total_num_groups.max(self.sums.len()), None);
            for (value, group) in values.values().iter().zip(group_indices) {
                self.add(*group, i128::from(*value));
            }
            return Ok(());
        }
        let value = |row: usize| values.is_valid(row).then(|| i128::from(values.value(row)));
        self.each(values.len(), group_indices, opt_filter, total_num_groups, value);
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let sums = emit_to.take_needed(&mut self.sums);
        let out = sums
            .into_iter()
            .map(|sum| sum.map(narrow).transpose())
            .collect::<Result<Int64Array>>()?;
        Ok(Arc::new(out))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let sums = emit_to.take_needed(&mut self.sums);
        let out = Decimal128Array::from(sums).with_data_type(STATE);
        Ok(vec![Arc::new(out)])
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        let values = values[0].as_primitive::<Decimal128Type>();
        let value = |row: usize| values.is_valid(row).then(|| values.value(row));
        self.each(values.len(), group_indices, None, total_num_groups, value);
        Ok(())
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        opt_filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let values = arrow::compute::cast(&values[0], &DataType::Int64)?;
        let values = values.as_primitive::<Int64Type>();
        let sums: Decimal128Array = (0..values.len())
            .map(|row| {
                let taken = opt_filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row));
                (taken && values.is_valid(row)).then(|| i128::from(values.value(row)))
            })
            .collect();
        Ok(vec![Arc::new(sums.with_data_type(STATE))])
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
        let mut sum = OneSum::default();
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
        let mut sums = GroupSums::default();
        sums.update_batch(&[values], &[0, 1, 2, 0], Some(&filter), 3)
            .unwrap();
        let state = sums.state(EmitTo::All).unwrap();
        let mut merged = GroupSums::default();
        merged.merge_batch(&state, &[0, 0, 1], 2).unwrap();
        let out = merged.evaluate(EmitTo::All).unwrap();
        assert_eq!(
            out.as_primitive::<Int64Type>(),
            &Int64Array::from(vec![Some(3), None])
        );
    }
}
