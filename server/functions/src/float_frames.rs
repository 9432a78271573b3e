//! `sum` and `avg` of floats over frames that move, from which values are taken away again.
//!
//! DataFusion subtracts what leaves a frame: after an infinity every sum is NaN, and after 1e20 the small values are forgotten.
//! Here NaN and the infinities are counted, and the rounding error of each step is carried along.

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::{DataType, Float64Type};
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::Accumulator;
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::scalar::ScalarValue;

use crate::digits::range;

/// What is computed over a frame that moves; `None`: DataFusion's own does.
pub(crate) fn over_frame(args: &AccumulatorArgs, is_average: bool) -> Option<Box<dyn Accumulator>> {
    if args.return_type() != &DataType::Float64 || args.is_distinct {
        return None;
    }
    Some(Box::new(Frame {
        is_average,
        ..Frame::default()
    }))
}

/// The values in a frame.
#[derive(Debug, Default)]
struct Frame {
    is_average: bool,
    /// The sum of the finite values, and what rounding took from it.
    sum: f64,
    error: f64,
    /// Values that are not NULL; of these NaN, infinity, -infinity.
    count: i64,
    nan: i64,
    infinite: i64,
    negative: i64,
}

impl Frame {
    fn change(&mut self, values: &ArrayRef, sign: i64) -> Result<()> {
        let wide = arrow::compute::cast(values, &DataType::Float64)?;
        for value in wide.as_primitive::<Float64Type>().iter().flatten() {
            self.count += sign;
            if value.is_nan() {
                self.nan += sign;
            } else if value == f64::INFINITY {
                self.infinite += sign;
            } else if value == f64::NEG_INFINITY {
                self.negative += sign;
            } else if sign > 0 {
                self.add(value)?;
            } else {
                self.add(-value)?;
            }
        }
        Ok(())
    }

    fn add(&mut self, value: f64) -> Result<()> {
        let sum = self.sum + value;
        if sum.is_infinite() {
            return Err(range("overflow").into());
        }
        let part = sum - self.sum;
        self.error += (self.sum - (sum - part)) + (value - part);
        self.sum = sum;
        if self.count == self.nan + self.infinite + self.negative {
            (self.sum, self.error) = (0.0, 0.0);
        }
        Ok(())
    }
}

impl Accumulator for Frame {
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
        if self.count == 0 {
            return Ok(ScalarValue::Float64(None));
        }
        let sum = match (self.infinite > 0, self.negative > 0) {
            _ if self.nan > 0 => f64::NAN,
            (true, true) => f64::NAN,
            (true, false) => f64::INFINITY,
            (false, true) => f64::NEG_INFINITY,
            (false, false) => self.sum + self.error,
        };
        #[expect(clippy::cast_precision_loss, reason = "no frame has 2^53 rows")]
        let count = self.count as f64;
        Ok(ScalarValue::Float64(Some(if self.is_average {
            sum / count
        } else {
            sum
        })))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        exec_err!("a frame is computed in one piece")
    }

    fn merge_batch(&mut self, _states: &[ArrayRef]) -> Result<()> {
        exec_err!("a frame is computed in one piece")
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}
