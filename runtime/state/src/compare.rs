//! Equality of rows, column by column.

use arrow::array::{Array, ArrayRef, BooleanArray};
use arrow::buffer::BooleanBuffer;
use arrow::compute::SortOptions;
use arrow::compute::kernels::cmp::not_distinct;
use arrow::error::ArrowError;

/// For each position, whether `left` and `right` hold the same value in every column; NULL equals NULL, NaN equals NaN.
/// All arrays have `rows` values.
pub fn rows_equal(left: &[ArrayRef], right: &[ArrayRef], rows: usize) -> Result<BooleanArray, ArrowError> {
    let mut equal = BooleanBuffer::new_set(rows);
    for (l, r) in left.iter().zip(right) {
        let column = if l.data_type().is_nested() {
            nested(l, r)?
        } else {
            not_distinct(l, r)?.values().clone()
        };
        equal = &equal & &column;
    }
    Ok(BooleanArray::new(equal, None))
}

/// Lists and structs, which the comparison kernels leave out.
fn nested(left: &ArrayRef, right: &ArrayRef) -> Result<BooleanBuffer, ArrowError> {
    let compare = arrow::array::make_comparator(left, right, SortOptions::default())?;
    Ok(BooleanBuffer::collect_bool(left.len(), |row| {
        compare(row, row).is_eq()
    }))
}
