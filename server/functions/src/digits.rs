//! Sums of the digits of numerics, and what is said when there are too many.

use datafusion::common::Result;
use millrace_postgres::error::{SqlError, SqlState};
use millrace_postgres::types::NUMERIC_PRECISION;

pub(crate) fn too_many_digits() -> SqlError {
    SqlError::new(SqlState::NumericValueOutOfRange, "value overflows numeric format")
        .with_detail(format!("A numeric has at most {NUMERIC_PRECISION} digits."))
}

/// A sum of sums, or of a sum and a value.
pub(crate) fn plus(left: i128, right: i128) -> Result<i128> {
    left.checked_add(right).ok_or_else(|| too_many_digits().into())
}

/// A float that is too large, or too near to zero.
pub(crate) fn range(how: &str) -> SqlError {
    SqlError::new(
        SqlState::NumericValueOutOfRange,
        format!("value out of range: {how}"),
    )
}
