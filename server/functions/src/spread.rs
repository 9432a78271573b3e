//! Variances and standard deviations: sums and sums of squares to twice the precision of doubles ([`FloatSum`]), from which the values of
//! frames that move are taken away again. DataFusion's lose digits where values are far from zero, and give NaN for 0 where a frame moves.
//! Everything else is DataFusion's, under the same names.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Float64Array, Int64Array};
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type, Int64Type};
use datafusion::common::Result;
use datafusion::functions_aggregate::stddev::{stddev_pop_udaf, stddev_udaf};
use datafusion::functions_aggregate::variance::{var_pop_udaf, var_samp_udaf};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::format_state_name;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, ReversedUDAF, Signature,
};
use datafusion::scalar::ScalarValue;
use millrace_sql::float_sum::FloatSum;

use crate::digits::range;

/// The functions.
pub fn udafs() -> [Arc<AggregateUDF>; 4] {
    let kinds = [
        (var_samp_udaf(), true, false),
        (var_pop_udaf(), false, false),
        (stddev_udaf(), true, true),
        (stddev_pop_udaf(), false, true),
    ];
    kinds.map(|(inner, of_sample, is_root)| {
        let kind = Kind { of_sample, is_root };
        Arc::new(AggregateUDF::from(Spread { inner, kind }))
    })
}

/// Which of the four.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Kind {
    /// Over one value less than there are.
    of_sample: bool,
    /// A standard deviation, and no variance.
    is_root: bool,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Spread {
    inner: Arc<AggregateUDF>,
    kind: Kind,
}

/// What a state is made of.
const STATE: [(&str, DataType); 8] = [
    ("count", DataType::Int64),
    ("high", DataType::Float64),
    ("low", DataType::Float64),
    ("nan", DataType::Int64),
    ("infinity", DataType::Int64),
    ("negative_infinity", DataType::Int64),
    ("squares_high", DataType::Float64),
    ("squares_low", DataType::Float64),
];

impl AggregateUDFImpl for Spread {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(arg_types)
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        if args.is_distinct {
            return self.inner.state_fields(args);
        }
        let field =
            |(part, of): (&str, DataType)| Arc::new(Field::new(format_state_name(args.name, part), of, true));
        Ok(STATE.into_iter().map(field).collect())
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match args.is_distinct {
            true => self.inner.accumulator(args),
            false => Ok(Box::new(One(Spreads::new(self.kind, 1)))),
        }
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        self.accumulator(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        !args.is_distinct
    }

    fn create_groups_accumulator(&self, _: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(Spreads::new(self.kind, 0)))
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn order_sensitivity(&self) -> datafusion::logical_expr::utils::AggregateOrderSensitivity {
        self.inner.order_sensitivity()
    }
}

/// What each group needs.
#[derive(Debug)]
struct Spreads {
    kind: Kind,
    counts: Vec<i64>,
    sums: Vec<FloatSum>,
    squares: Vec<FloatSum>,
}

impl Spreads {
    fn new(kind: Kind, groups: usize) -> Self {
        let mut spreads = Spreads {
            kind,
            counts: vec![],
            sums: vec![],
            squares: vec![],
        };
        spreads.resize(groups);
        spreads
    }

    fn resize(&mut self, groups: usize) {
        let groups = groups.max(self.counts.len());
        self.counts.resize(groups, 0);
        self.sums.resize_with(groups, FloatSum::default);
        self.squares.resize_with(groups, FloatSum::default);
    }

    fn add(&mut self, group: usize, value: f64, weight: i64) {
        self.counts[group] += weight;
        self.sums[group].add(value, weight);
        self.squares[group].add_square(value, weight);
        if self.counts[group] == 0 {
            (self.sums[group], self.squares[group]) = Default::default();
        }
    }

    fn value(&self, count: i64, sum: &FloatSum, squares: &FloatSum) -> Result<Option<f64>> {
        let divisor = count - i64::from(self.kind.of_sample);
        if divisor <= 0 {
            return Ok(None);
        }
        let distances = sum.squared_distances(squares, count);
        if !squares.high.is_finite() || distances.is_infinite() {
            return Err(range("overflow").into());
        }
        #[expect(clippy::cast_precision_loss, reason = "so many values there are not")]
        let variance = distances / divisor as f64;
        Ok(Some(if self.kind.is_root {
            variance.sqrt()
        } else {
            variance
        }))
    }

    fn states(counts: &[i64], sums: &[FloatSum], squares: &[FloatSum]) -> Vec<ArrayRef> {
        let floats = |of: &[FloatSum], part: fn(&FloatSum) -> f64| -> ArrayRef {
            Arc::new(Float64Array::from_iter_values(of.iter().map(part)))
        };
        let numbers = |part: fn(&FloatSum) -> i64| -> ArrayRef {
            Arc::new(Int64Array::from_iter_values(sums.iter().map(part)))
        };
        vec![
            Arc::new(Int64Array::from(counts.to_vec())),
            floats(sums, |sum| sum.high),
            floats(sums, |sum| sum.low),
            numbers(|sum| sum.nan),
            numbers(|sum| sum.infinity),
            numbers(|sum| sum.negative_infinity),
            floats(squares, |sum| sum.high),
            floats(squares, |sum| sum.low),
        ]
    }

    fn merge(&mut self, states: &[ArrayRef], group_of: impl Fn(usize) -> usize) {
        let float = |column: usize| states[column].as_primitive::<Float64Type>().values();
        let number = |column: usize| states[column].as_primitive::<Int64Type>().values();
        for row in 0..states[0].len() {
            let group = group_of(row);
            self.counts[group] += number(0)[row];
            self.sums[group].merge(&FloatSum {
                high: float(1)[row],
                low: float(2)[row],
                nan: number(3)[row],
                infinity: number(4)[row],
                negative_infinity: number(5)[row],
            });
            self.squares[group].merge(&FloatSum {
                high: float(6)[row],
                low: float(7)[row],
                ..FloatSum::default()
            });
        }
    }
}

impl GroupsAccumulator for Spreads {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.resize(total_num_groups);
        let values = values[0].as_primitive::<Float64Type>();
        let is_wanted =
            |row: usize| opt_filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row));
        for (row, group) in group_indices.iter().enumerate() {
            if values.is_valid(row) && is_wanted(row) {
                self.add(*group, values.value(row), 1);
            }
        }
        Ok(())
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        self.resize(total_num_groups);
        self.merge(values, |row| group_indices[row]);
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let counts = emit_to.take_needed(&mut self.counts);
        let sums = emit_to.take_needed(&mut self.sums);
        let squares = emit_to.take_needed(&mut self.squares);
        let each = counts.iter().zip(&sums).zip(&squares);
        let values = each.map(|((count, sum), squares)| self.value(*count, sum, squares));
        Ok(Arc::new(values.collect::<Result<Float64Array>>()?))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let counts = emit_to.take_needed(&mut self.counts);
        let sums = emit_to.take_needed(&mut self.sums);
        let squares = emit_to.take_needed(&mut self.squares);
        Ok(Spreads::states(&counts, &sums, &squares))
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        opt_filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let rows = values[0].len();
        let mut each = Spreads::new(self.kind, rows);
        let groups: Vec<usize> = (0..rows).collect();
        each.update_batch(values, &groups, opt_filter, rows)?;
        Ok(Spreads::states(&each.counts, &each.sums, &each.squares))
    }

    fn size(&self) -> usize {
        self.counts.capacity() * size_of::<i64>()
            + (self.sums.capacity() + self.squares.capacity()) * size_of::<FloatSum>()
    }
}

/// One group, from which values can be taken back.
#[derive(Debug)]
struct One(Spreads);

impl One {
    fn change(&mut self, values: &ArrayRef, sign: i64) {
        for value in values.as_primitive::<Float64Type>().iter().flatten() {
            self.0.add(0, value, sign);
        }
    }
}

impl Accumulator for One {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.change(&values[0], 1);
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.change(&values[0], -1);
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let Spreads {
            counts,
            sums,
            squares,
            ..
        } = &self.0;
        Ok(ScalarValue::Float64(self.0.value(
            counts[0],
            &sums[0],
            &squares[0],
        )?))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let states = Spreads::states(&self.0.counts, &self.0.sums, &self.0.squares);
        states
            .iter()
            .map(|column| ScalarValue::try_from_array(column, 0))
            .collect()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.0.merge(states, |_| 0);
        Ok(())
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.0.size()
    }
}
