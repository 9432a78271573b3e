//! `(a, b) OVERLAPS (c, d)` of dates, timestamps and times of day.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, TimeUnit, TimestampMicrosecondType};
use datafusion::common::Result;
use millrace_postgres::error::SqlResult;
use millrace_postgres::types::interval::intervals;
use millrace_postgres::types::parse::datetime::MICROS_PER_DAY;
use millrace_postgres::types::{is_text, parse};

use super::instants;
use crate::arguments::no_such;

const TIME: DataType = DataType::Time64(TimeUnit::Microsecond);

/// Refuses what are no two periods of one kind.
///
/// # Errors
/// 42883.
pub(crate) fn check(given: &[DataType]) -> SqlResult<()> {
    let is_time = |given: &DataType| matches!(given, DataType::Time32(_) | DataType::Time64(_));
    let is_day = |given: &DataType| matches!(given, DataType::Date32 | DataType::Timestamp(..));
    let is_open = |given: &DataType| given.is_null() || is_text(given);
    let fits = |kind: &dyn Fn(&DataType) -> bool| {
        given.iter().enumerate().all(|(place, given)| {
            let is_length = place % 2 == 1 && matches!(given, DataType::Interval(_));
            kind(given) || is_length || is_open(given)
        })
    };
    match fits(&is_time) || fits(&is_day) {
        true => Ok(()),
        false => Err(no_such("pg_catalog.overlaps", given)),
    }
}

/// Whether periods overlap, row by row.
///
/// # Errors
/// A text is no time; a time is out of range.
pub(crate) fn overlap(arrays: &[ArrayRef; 4]) -> Result<ArrayRef> {
    let is_time = arrays
        .iter()
        .any(|array| matches!(array.data_type(), DataType::Time32(_) | DataType::Time64(_)));
    let (start, end) = period(&arrays[0], &arrays[1], is_time)?;
    let (other_start, other_end) = period(&arrays[2], &arrays[3], is_time)?;
    let value = |side: &Int64Array, row: usize| side.is_valid(row).then(|| side.value(row));
    let overlap: BooleanArray = (0..start.len())
        .map(|row| {
            meet(
                (value(&start, row), value(&end, row)),
                (value(&other_start, row), value(&other_end, row)),
            )
        })
        .collect();
    Ok(Arc::new(overlap))
}

/// Half-open periods; one without length is the instant at which it begins. Where only one of its ends is known, that one is the
/// begin, and the answer is NULL where the other would decide.
fn meet(one: (Option<i64>, Option<i64>), other: (Option<i64>, Option<i64>)) -> Option<bool> {
    let (a, b) = in_order(one)?;
    let (c, d) = in_order(other)?;
    if a == c {
        return b.and(d).map(|_| true);
    }
    // The end of the one that begins first, and the begin of the other.
    let (end, begin, last) = if a < c { (b, c, d) } else { (d, a, b) };
    match end {
        Some(end) if begin < end => Some(true),
        None => None,
        Some(_) => last.map(|_| false),
    }
}

fn in_order(ends: (Option<i64>, Option<i64>)) -> Option<(i64, Option<i64>)> {
    Some(match ends {
        (Some(a), Some(b)) => (a.min(b), Some(a.max(b))),
        (Some(a), None) | (None, Some(a)) => (a, None),
        (None, None) => return None,
    })
}

/// Both ends of a period, which is given by both or by its begin and its length, in microseconds.
fn period(start: &ArrayRef, end: &ArrayRef, is_time: bool) -> Result<(Int64Array, Int64Array)> {
    let read = |side: &ArrayRef| match is_time {
        true => times(side),
        false => Ok(micros(&instants(side)?)),
    };
    if !matches!(end.data_type(), DataType::Interval(_)) {
        return Ok((read(start)?, read(end)?));
    }
    if !is_time {
        let start = instants(start)?;
        let sum = arrow::compute::kernels::numeric::add(&start, end)?;
        return Ok((micros(&start), micros(&instants(&sum)?)));
    }
    // A time of day goes on from midnight; days and months do not change it.
    let start = times(start)?;
    let lengths = intervals(end)?;
    let ends = start.iter().zip(lengths.iter()).map(|pair| match pair {
        (Some(start), Some(length)) => Some((start + length.nanoseconds / 1_000).rem_euclid(MICROS_PER_DAY)),
        _ => None,
    });
    let ends = ends.collect();
    Ok((start, ends))
}

fn micros(instants: &arrow::array::PrimitiveArray<TimestampMicrosecondType>) -> Int64Array {
    instants.reinterpret_cast::<Int64Type>()
}

/// Times of day in microseconds; texts are read.
fn times(values: &ArrayRef) -> Result<Int64Array> {
    let values = match is_text(values.data_type()) {
        true => {
            let field = arrow::datatypes::Field::new("time", TIME, true);
            let texts = cast(values, &DataType::Utf8)?;
            parse::column(&field, texts.as_string::<i32>()).map_err(|cell| *cell.error)?
        }
        false => cast(values, &TIME)?,
    };
    let micros = cast(&values, &DataType::Int64)?;
    Ok(micros.as_primitive::<Int64Type>().clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_that_is_not_known_decides_nothing() {
        let known = |a, b| (Some(a), Some(b));
        assert_eq!(meet(known(1, 3), known(2, 4)), Some(true));
        assert_eq!(meet(known(1, 2), known(2, 4)), Some(false));
        assert_eq!(meet(known(2, 2), known(2, 2)), Some(true));
        assert_eq!(meet(known(4, 2), known(1, 3)), Some(true));
        assert_eq!(meet((Some(1), None), known(1, 3)), None);
        assert_eq!(meet((Some(2), None), known(1, 3)), Some(true));
        assert_eq!(meet((Some(5), None), known(1, 3)), None);
        assert_eq!(meet((None, None), known(1, 3)), None);
    }
}
