//! The functions that the rewritten window functions call. Their lengths are constants in microseconds.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, TimestampMicrosecondArray};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, TimeUnit, TimestampMicrosecondType};
use datafusion::common::{Result, ScalarValue, exec_datafusion_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::error::{Fault, Faulty};

/// Windows that one row may be in.
pub(super) const WINDOWS_MAX: i64 = 10_000;

/// The functions that mark the two columns of a session.
pub const START: &str = "$session_start";
pub const END: &str = "$session_end";

/// What a function tells of a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Told {
    /// `(time, size, offset, shift)`: the start of its window, later by `shift`.
    Window,
    /// `(time, shift)`: the time itself, later by `shift`.
    Shift,
    /// `(time, slide, size, offset)`: the starts of its windows, a list.
    Hop,
    /// `(time, step, size, offset)`: the ends of its windows, a list.
    Cumulate,
}

const FUNCTIONS: [(&str, Told); 6] = [
    ("$window", Told::Window),
    ("$shift", Told::Shift),
    // As `$shift`, to be recognised.
    (START, Told::Shift),
    (END, Told::Shift),
    ("$hop", Told::Hop),
    ("$cumulate", Told::Cumulate),
];

/// The function of a name, if it is one of these.
pub fn function(name: &str) -> Option<Arc<ScalarUDF>> {
    let (name, told) = *FUNCTIONS.iter().find(|(known, _)| *known == name)?;
    Some(Arc::new(ScalarUDF::from(WindowTime {
        name,
        told,
        signature: Signature::variadic_any(Volatility::Immutable),
    })))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct WindowTime {
    name: &'static str,
    told: Told,
    signature: Signature,
}

impl WindowTime {
    fn is_list(&self) -> bool {
        matches!(self.told, Told::Hop | Told::Cumulate)
    }

    /// What it tells of one time, put to the end of `out`.
    fn tell(&self, time: i64, lengths: &[i64], out: &mut Vec<i64>) -> Option<()> {
        match (self.told, lengths) {
            (Told::Window, [size, offset, shift]) => {
                out.push(start(time, *size, *offset)?.checked_add(*shift)?);
            }
            (Told::Shift, [shift]) => out.push(time.checked_add(*shift)?),
            (Told::Hop, [slide, size, offset]) => {
                let last = start(time, *slide, *offset)?;
                // The first that has not ended: its start is later than the time minus the size.
                let first = start(time.checked_sub(*size)?, *slide, *offset)?.checked_add(*slide)?;
                let mut window = first;
                while window <= last {
                    out.push(window);
                    window = window.checked_add(*slide)?;
                }
            }
            (Told::Cumulate, [step, size, offset]) => {
                let from = start(time, *size, *offset)?;
                let to = from.checked_add(*size)?;
                let mut end = start(time, *step, *offset)?.checked_add(*step)?;
                while end <= to {
                    out.push(end);
                    end = end.checked_add(*step)?;
                }
            }
            _ => return None,
        }
        Some(())
    }
}

/// The last multiple of `step`, plus `offset`, that is not later than the time.
fn start(time: i64, step: i64, offset: i64) -> Option<i64> {
    let since = time.checked_sub(offset)?;
    since.checked_sub(since.rem_euclid(step))?.checked_add(offset)
}

impl ScalarUDFImpl for WindowTime {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        let time = match arg_types.first() {
            Some(DataType::Timestamp(_, zone)) => DataType::Timestamp(TimeUnit::Microsecond, zone.clone()),
            Some(DataType::Date32) => DataType::Timestamp(TimeUnit::Microsecond, None),
            _ => {
                return Err(Faulty {
                    fault: Fault::DatatypeMismatch,
                    message: "the time column of a window must be a timestamp or a date".into(),
                }
                .into());
            }
        };
        Ok(match self.is_list() {
            true => DataType::new_list(time, true),
            false => time,
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let [time, lengths @ ..] = args.args.as_slice() else {
            return Err(exec_datafusion_err!("{} takes a time", self.name));
        };
        let lengths = lengths
            .iter()
            .map(|length| match length {
                ColumnarValue::Scalar(ScalarValue::Int64(Some(length))) => Ok(*length),
                ColumnarValue::Scalar(ScalarValue::Int32(Some(length))) => Ok(i64::from(*length)),
                _ => Err(exec_datafusion_err!("{} takes constant lengths", self.name)),
            })
            .collect::<Result<Vec<i64>>>()?;
        let element = match args.return_field.data_type() {
            DataType::List(field) => field.data_type().clone(),
            other => other.clone(),
        };
        let time: ArrayRef = arrow::compute::cast(&time.to_array(rows)?, &element)?;
        let times = time.as_primitive::<TimestampMicrosecondType>();
        let mut told = Vec::with_capacity(rows);
        let mut counts = Vec::with_capacity(rows);
        for row in 0..rows {
            let before = told.len();
            if times.is_valid(row) {
                self.tell(times.value(row), &lengths, &mut told).ok_or_else(|| {
                    datafusion::error::DataFusionError::from(Faulty {
                        fault: Fault::DatetimeOverflow,
                        message: "timestamp out of range".into(),
                    })
                })?;
            } else if !self.is_list() {
                told.push(0);
            }
            counts.push(told.len() - before);
        }
        if !self.is_list() {
            let values = TimestampMicrosecondArray::new(told.into(), times.nulls().cloned());
            return Ok(ColumnarValue::Array(Arc::new(values.with_data_type(element))));
        }
        let values = TimestampMicrosecondArray::new(told.into(), None).with_data_type(element.clone());
        let list = ListArray::try_new(
            Arc::new(Field::new_list_field(element, true)),
            OffsetBuffer::from_lengths(counts),
            Arc::new(values),
            times.nulls().cloned().map(|nulls: NullBuffer| nulls),
        )?;
        Ok(ColumnarValue::Array(Arc::new(list)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(name: &str, time: i64, lengths: &[i64]) -> Option<Vec<i64>> {
        let (name, told) = *FUNCTIONS.iter().find(|(known, _)| *known == name)?;
        let function = WindowTime {
            name,
            told,
            signature: Signature::variadic_any(Volatility::Immutable),
        };
        let mut out = vec![];
        function.tell(time, lengths, &mut out).map(|()| out)
    }

    #[test]
    fn windows_begin_at_multiples_of_their_length() {
        assert_eq!(told("$window", 19, &[10, 0, 0]), Some(vec![10]));
        assert_eq!(told("$window", 20, &[10, 0, 10]), Some(vec![30]));
        assert_eq!(told("$window", -1, &[10, 0, 0]), Some(vec![-10]));
        assert_eq!(told("$window", 12, &[10, 3, 0]), Some(vec![3]));
        assert_eq!(told("$window", i64::MIN, &[10, 3, 0]), None);
    }

    #[test]
    fn a_time_is_in_every_window_that_has_begun_and_not_ended() {
        assert_eq!(told("$hop", 11, &[2, 6, 0]), Some(vec![6, 8, 10]));
        assert_eq!(told("$hop", 10, &[2, 6, 0]), Some(vec![6, 8, 10]));
        // A size that is no multiple of the slide: sometimes one more.
        assert_eq!(told("$hop", 10, &[2, 5, 0]), Some(vec![6, 8, 10]));
        assert_eq!(told("$hop", 11, &[2, 5, 0]), Some(vec![8, 10]));
        assert_eq!(told("$cumulate", 25, &[10, 60, 0]), Some(vec![30, 40, 50, 60]));
        assert_eq!(
            told("$cumulate", 60, &[10, 60, 0]),
            Some(vec![70, 80, 90, 100, 110, 120])
        );
    }
}
