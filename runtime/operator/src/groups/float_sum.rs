//! Columns and windows of [`FloatSum`]s.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Float64Array, Int64Array};
use arrow::datatypes::{Float64Type, Int64Type};
use millrace_sql::float_sum::FloatSum;

use super::state::{slide, united};

/// What these panes' sums are over windows. A sum from which panes were taken away may have other last bits than one to which
/// panes were only added; and none is left of one that was out of range for a while.
pub(super) fn floats_of(
    sums: &[FloatSum],
    panes: &[usize],
    ranges: &[Range<usize>],
    once: bool,
) -> Vec<FloatSum> {
    let add = |sum: &mut FloatSum, pane: usize| sum.merge(&sums[panes[pane]]);
    if !once {
        return united(ranges, add);
    }
    let windows = slide(ranges, add, |sum, pane| sum.take_away(&sums[panes[pane]]));
    match windows.iter().all(|sum| sum.high.is_finite()) {
        true => windows,
        false => united(ranges, add),
    }
}

/// Columns of a [`FloatSum`] in a partial state.
pub(super) const FLOAT_COLUMNS: usize = 5;

pub(super) fn float_columns(sums: &[FloatSum]) -> Vec<ArrayRef> {
    let floats =
        |value: fn(&FloatSum) -> f64| Arc::new(Float64Array::from_iter_values(sums.iter().map(value)));
    let counts = |value: fn(&FloatSum) -> i64| Arc::new(Int64Array::from_iter_values(sums.iter().map(value)));
    vec![
        floats(|sum| sum.high),
        floats(|sum| sum.low),
        counts(|sum| sum.nan),
        counts(|sum| sum.infinity),
        counts(|sum| sum.negative_infinity),
    ]
}

pub(super) fn merge_floats(sums: &mut [FloatSum], ids: &[usize], partial: &[ArrayRef]) {
    let float = |column: usize| partial[column].as_primitive::<Float64Type>().values();
    let count = |column: usize| partial[column].as_primitive::<Int64Type>().values();
    for (row, id) in ids.iter().enumerate() {
        sums[*id].merge(&FloatSum {
            high: float(0)[row],
            low: float(1)[row],
            nan: count(2)[row],
            infinity: count(3)[row],
            negative_infinity: count(4)[row],
        });
    }
}
