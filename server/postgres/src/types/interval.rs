//! Columns of lengths of time.

use arrow::array::{Array, ArrayRef, AsArray, IntervalMonthDayNanoArray};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, DurationMicrosecondType, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit, TimeUnit,
};
use datafusion::common::Result;

use crate::types::parse::datetime::MICROS_PER_DAY;

/// Intervals; the difference of two timestamps has days of 24 hours.
///
/// # Errors
/// The values are no lengths of time.
pub fn intervals(values: &ArrayRef) -> Result<IntervalMonthDayNanoArray> {
    if matches!(values.data_type(), DataType::Duration(_)) {
        let micros = cast(values, &DataType::Duration(TimeUnit::Microsecond))?;
        let micros = micros.as_primitive::<DurationMicrosecondType>();
        return Ok(micros
            .iter()
            .map(|value| {
                value.map(|micros| {
                    let days = i32::try_from(micros / MICROS_PER_DAY).unwrap_or(i32::MAX);
                    IntervalMonthDayNano::new(0, days, micros % MICROS_PER_DAY * 1000)
                })
            })
            .collect());
    }
    Ok(cast(values, &DataType::Interval(IntervalUnit::MonthDayNano))?
        .as_primitive::<IntervalMonthDayNanoType>()
        .clone())
}
