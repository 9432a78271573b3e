//! Which rows of a batch count in an aggregate, and in which group.

use arrow::array::{Array, BooleanArray};
use datafusion::common::Result;

/// Whether FILTER lets a row count.
pub(crate) fn counts(filter: Option<&BooleanArray>, row: usize) -> bool {
    filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row))
}

/// Calls `add` with each row that counts and is not NULL, and with its group.
///
/// # Errors
/// As `add`.
pub(crate) fn each(
    values: &dyn Array,
    groups: &[usize],
    filter: Option<&BooleanArray>,
    mut add: impl FnMut(usize, usize) -> Result<()>,
) -> Result<()> {
    let is_all = values.null_count() == 0 && filter.is_none();
    for (row, group) in groups.iter().enumerate() {
        if is_all || (values.is_valid(row) && counts(filter, row)) {
            add(row, *group)?;
        }
    }
    Ok(())
}
