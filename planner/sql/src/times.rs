//! Dates as timestamps and timestamps as dates, whose infinities stay what they are: Arrow takes them for numbers of days and microseconds,
//! which are out of range.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Date32Array, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Date32Type, TimeUnit, TimestampMicrosecondType};
use arrow::error::ArrowError;

const MICROS_PER_DAY: i64 = 86_400_000_000;

/// Whether values of the one type become those of the other here.
pub fn converts(from: &DataType, to: &DataType) -> bool {
    use DataType::{Date32, Timestamp};
    use TimeUnit::Microsecond;
    match (from, to) {
        (Date32, Timestamp(Microsecond, _)) | (Timestamp(Microsecond, _), Date32) => true,
        (Timestamp(Microsecond, None), Timestamp(Microsecond, Some(zone)))
        | (Timestamp(Microsecond, Some(zone)), Timestamp(Microsecond, None)) => zone.as_ref() == "UTC",
        _ => false,
    }
}

/// Dates as timestamps of their midnight in UTC, timestamps as the dates that they are in UTC, or with and without that zone.
///
/// # Errors
/// A date is beyond what a timestamp can be.
pub fn convert(values: &ArrayRef, to: &DataType) -> Result<ArrayRef, ArrowError> {
    if values.data_type() == &DataType::Date32 {
        let times: TimestampMicrosecondArray =
            values.as_primitive::<Date32Type>().try_unary(|day| match day {
                i32::MAX => Ok(i64::MAX),
                i32::MIN => Ok(i64::MIN),
                day => (i64::from(day).checked_mul(MICROS_PER_DAY))
                    .ok_or_else(|| ArrowError::CastError("date out of range for timestamp".to_owned())),
            })?;
        return Ok(Arc::new(times.with_data_type(to.clone())));
    }
    if to != &DataType::Date32 {
        let times = values.as_primitive::<TimestampMicrosecondType>().clone();
        return Ok(Arc::new(times.with_data_type(to.clone())));
    }
    let days: Date32Array =
        (values.as_primitive::<TimestampMicrosecondType>()).unary(|micros| match micros {
            i64::MAX => i32::MAX,
            i64::MIN => i32::MIN,
            // No more than a hundred million.
            micros => micros.div_euclid(MICROS_PER_DAY) as i32,
        });
    Ok(Arc::new(days))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn infinities_stay() {
        let zoned = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        let days: ArrayRef = Arc::new(Date32Array::from(vec![
            Some(i32::MAX),
            Some(i32::MIN),
            Some(-1),
            None,
        ]));
        let times = convert(&days, &zoned).unwrap();
        assert_eq!(times.data_type(), &zoned);
        let micros = times.as_primitive::<TimestampMicrosecondType>();
        assert_eq!(micros.values()[..3], [i64::MAX, i64::MIN, -MICROS_PER_DAY]);
        assert_eq!(&convert(&times, &DataType::Date32).unwrap(), &days);
        let local = DataType::Timestamp(TimeUnit::Microsecond, None);
        assert_eq!(
            &convert(&convert(&times, &local).unwrap(), &zoned).unwrap(),
            &times
        );
        let early: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![-1]));
        assert_eq!(
            convert(&early, &DataType::Date32)
                .unwrap()
                .as_primitive::<Date32Type>()
                .value(0),
            -1
        );
        let far: ArrayRef = Arc::new(Date32Array::from(vec![i32::MAX - 1]));
        assert!(convert(&far, &zoned).is_err());
    }
}
