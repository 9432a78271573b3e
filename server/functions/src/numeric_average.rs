//! `avg` of numerics: the sum and the number of the values, divided as numerics are ([`crate::division`]). DataFusion cuts the quotient off
//! behind four more digits than the values have.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Decimal128Array, Int64Array};
use arrow::datatypes::{DataType, Decimal128Type, Field, FieldRef, Int64Type};
use datafusion::common::Result;
use datafusion::logical_expr::utils::format_state_name;
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};
use datafusion::scalar::ScalarValue;
use millrace_sql::numeric::quotient;

use crate::digits::{plus, too_many_digits};
use crate::division;
use crate::grouped::{counts, each};

/// The type of the average of values of a type; `None`: they are no numerics.
pub fn average_type(of: &DataType) -> Option<DataType> {
    match of {
        DataType::Decimal128(..) => division::quotient(of, &DataType::Int64),
        _ => None,
    }
}

/// What a state is made of: sum and count.
pub fn state_fields(name: &str, of: &DataType) -> Vec<FieldRef> {
    let scale = match of {
        DataType::Decimal128(_, scale) => *scale,
        _ => 0,
    };
    vec![
        Arc::new(Field::new(
            format_state_name(name, "sum"),
            DataType::Decimal128(38, scale),
            true,
        )),
        Arc::new(Field::new(
            format_state_name(name, "count"),
            DataType::Int64,
            true,
        )),
    ]
}

/// Averages, one for each group.
#[derive(Debug)]
pub struct Averages {
    scale: i8,
    precision: u8,
    target: i8,
    sums: Vec<i128>,
    counts: Vec<i64>,
}

impl Averages {
    /// Of values of a type to those of another; `None`: they are no numerics.
    pub fn of(values: &DataType, averages: &DataType) -> Option<Self> {
        match (values, averages) {
            (DataType::Decimal128(_, scale), DataType::Decimal128(precision, target)) => Some(Averages {
                scale: *scale,
                precision: *precision,
                target: *target,
                sums: vec![],
                counts: vec![],
            }),
            _ => None,
        }
    }

    fn resize(&mut self, groups: usize) {
        let groups = groups.max(self.sums.len());
        self.sums.resize(groups, 0);
        self.counts.resize(groups, 0);
    }

    fn add(&mut self, group: usize, sum: i128, count: i64) -> Result<()> {
        self.sums[group] = plus(self.sums[group], sum)?;
        self.counts[group] += count;
        Ok(())
    }

    fn average(&self, sum: i128, count: i64) -> Result<Option<i128>> {
        if count <= 0 {
            return Ok(None);
        }
        let shift = i32::from(self.target) - i32::from(self.scale);
        let average = quotient(sum, i128::from(count), shift);
        average.map(Some).ok_or_else(|| too_many_digits().into())
    }

    fn taken(&mut self, emit: EmitTo) -> (Vec<i128>, Vec<i64>) {
        (
            emit.take_needed(&mut self.sums),
            emit.take_needed(&mut self.counts),
        )
    }

    fn states(&self, sums: Vec<i128>, counts: Vec<i64>) -> Result<Vec<ArrayRef>> {
        let sums = Decimal128Array::from(sums).with_precision_and_scale(38, self.scale)?;
        Ok(vec![Arc::new(sums), Arc::new(Int64Array::from(counts))])
    }
}

impl GroupsAccumulator for Averages {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.resize(total_num_groups);
        let values = values[0].as_primitive::<Decimal128Type>();
        each(values, group_indices, opt_filter, |row, group| {
            self.add(group, values.value(row), 1)
        })
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        self.resize(total_num_groups);
        let sums = values[0].as_primitive::<Decimal128Type>();
        let counts = values[1].as_primitive::<Int64Type>();
        each(sums, group_indices, None, |row, group| {
            self.add(group, sums.value(row), counts.value(row))
        })
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let (sums, counts) = self.taken(emit_to);
        let pairs = sums.into_iter().zip(counts);
        let averages = pairs
            .map(|(sum, count)| self.average(sum, count))
            .collect::<Result<Decimal128Array>>()?;
        Ok(Arc::new(
            averages.with_precision_and_scale(self.precision, self.target)?,
        ))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let (sums, counts) = self.taken(emit_to);
        self.states(sums, counts)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        opt_filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let values = values[0].as_primitive::<Decimal128Type>();
        let counted = |row: usize| values.is_valid(row) && counts(opt_filter, row);
        let rows = 0..values.len();
        let sums = rows
            .clone()
            .map(|row| if counted(row) { values.value(row) } else { 0 });
        let counts = rows.map(|row| i64::from(counted(row)));
        self.states(sums.collect(), counts.collect())
    }

    fn size(&self) -> usize {
        self.sums.capacity() * size_of::<i128>() + self.counts.capacity() * size_of::<i64>()
    }
}

/// One average; values can be taken back, for frames that move.
#[derive(Debug)]
pub struct OneAverage {
    averages: Averages,
}

impl OneAverage {
    /// Of the only group.
    pub fn of(mut averages: Averages) -> Self {
        averages.resize(1);
        OneAverage { averages }
    }

    fn change(&mut self, values: &ArrayRef, sign: i64) -> Result<()> {
        for value in values.as_primitive::<Decimal128Type>().iter().flatten() {
            self.averages.add(0, value * i128::from(sign), sign)?;
        }
        Ok(())
    }
}

impl Accumulator for OneAverage {
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
        let averages = &self.averages;
        let average = averages.average(averages.sums[0], averages.counts[0])?;
        Ok(ScalarValue::Decimal128(
            average,
            averages.precision,
            averages.target,
        ))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let averages = &self.averages;
        Ok(vec![
            ScalarValue::Decimal128(Some(averages.sums[0]), 38, averages.scale),
            ScalarValue::Int64(Some(averages.counts[0])),
        ])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let groups = vec![0; states[0].len()];
        self.averages.merge_batch(states, &groups, 1)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.averages.size()
    }
}
