//! `sum` and `avg` of intervals. DataFusion's sum wraps around, and it has no average: that is the sum, divided as an interval is by a
//! number.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::{
    DataType, Field, FieldRef, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType,
};
use datafusion::common::{Result, exec_err, not_impl_err};
use datafusion::logical_expr::Accumulator;
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::utils::format_state_name;
use datafusion::scalar::ScalarValue;

use crate::datetime::{INTERVAL, interval_out_of_range, scale_one};

/// What a state is made of: sum and count.
pub fn state_fields(name: &str) -> Vec<FieldRef> {
    let field = |part, of| Arc::new(Field::new(format_state_name(name, part), of, true));
    vec![field("sum", INTERVAL), field("count", DataType::Int64)]
}

/// Whether sums or averages of a type are these.
pub fn is_interval(result: &DataType) -> bool {
    matches!(result, DataType::Interval(_))
}

/// What sums up the intervals of a group, or of a frame, and divides.
///
/// # Errors
/// Each is to count once.
pub fn accumulator(args: &AccumulatorArgs, is_average: bool) -> Result<Box<dyn Accumulator>> {
    if args.is_distinct {
        return not_impl_err!("DISTINCT in sums of intervals beside other aggregates");
    }
    Ok(Box::new(OfIntervals {
        is_average,
        ..OfIntervals::default()
    }))
}

#[derive(Debug, Default)]
struct OfIntervals {
    is_average: bool,
    months: i32,
    days: i32,
    nanoseconds: i64,
    count: i64,
}

impl OfIntervals {
    fn add(&mut self, value: IntervalMonthDayNano, count: i64) -> Result<()> {
        let days = self.days.checked_add(value.days);
        let nanoseconds = self.nanoseconds.checked_add(value.nanoseconds);
        match (self.months.checked_add(value.months), days, nanoseconds) {
            (Some(months), Some(days), Some(nanoseconds)) => {
                (self.months, self.days, self.nanoseconds) = (months, days, nanoseconds);
                self.count += count;
                Ok(())
            }
            _ => Err(interval_out_of_range().into()),
        }
    }

    fn take(&mut self, value: IntervalMonthDayNano) -> Result<()> {
        let (days, nanoseconds) = (value.days.checked_neg(), value.nanoseconds.checked_neg());
        match (value.months.checked_neg(), days, nanoseconds) {
            (Some(months), Some(days), Some(nanoseconds)) => {
                self.add(IntervalMonthDayNano::new(months, days, nanoseconds), -1)
            }
            _ => Err(interval_out_of_range().into()),
        }
    }

    fn sum(&self) -> IntervalMonthDayNano {
        IntervalMonthDayNano::new(self.months, self.days, self.nanoseconds)
    }
}

impl Accumulator for OfIntervals {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = values[0].as_primitive::<IntervalMonthDayNanoType>();
        values.iter().flatten().try_for_each(|value| self.add(value, 1))
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = values[0].as_primitive::<IntervalMonthDayNanoType>();
        values.iter().flatten().try_for_each(|value| self.take(value))
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        if self.count == 0 {
            return Ok(ScalarValue::IntervalMonthDayNano(None));
        }
        #[expect(clippy::cast_precision_loss, reason = "no group has 2^53 rows")]
        let count = self.count as f64;
        let total = match self.is_average {
            true => scale_one(self.sum(), |part| part / count)?,
            false => self.sum(),
        };
        Ok(ScalarValue::IntervalMonthDayNano(Some(total)))
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![
            ScalarValue::IntervalMonthDayNano(Some(self.sum())),
            ScalarValue::Int64(Some(self.count)),
        ])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let [sums, counts] = states else {
            return exec_err!(
                "a total of intervals has a sum and a count, and not {} parts",
                states.len()
            );
        };
        let sums = sums.as_primitive::<IntervalMonthDayNanoType>();
        let counts = counts.as_primitive::<Int64Type>();
        for row in 0..sums.len() {
            self.add(sums.value(row), counts.value(row))?;
        }
        Ok(())
    }
}
