//! Whether two answers are the same multiset of rows.
//!
//! Everything is compared exactly, types included, with two exceptions: the last digits of floating-point numbers depend
//! on the order of addition, and how many digits a decimal may have at most depends on how an optimizer splits sums. Neither
//! side promises those.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, UInt32Array};
use arrow::compute::{cast, concat, take_record_batch};
use arrow::datatypes::{DataType, Float32Type, Float64Type};
use arrow::error::ArrowError;
use arrow::row::{RowConverter, SortField};
use arrow::util::display::{ArrayFormatter, FormatOptions};

/// By how much of its size a float may differ.
const FLOAT_TOLERANCE: f64 = 1e-9;
/// Below this a float is nothing but what rounding left of a difference.
const FLOAT_NOTHING: f64 = 1e-9;
/// Rows of each side that a difference names.
const ROWS_SHOWN_MAX: usize = 8;

/// What tells two multisets of rows apart; `None` if they are equal.
///
/// # Errors
/// A type cannot be compared.
pub fn difference(shown: &[RecordBatch], expected: &[RecordBatch]) -> Result<Option<String>, ArrowError> {
    let (shown, expected) = match (Columns::of(shown)?, Columns::of(expected)?) {
        (None, None) => return Ok(None),
        (Some(shown), None) => return Ok(shown.only("unexpected")),
        (None, Some(expected)) => return Ok(expected.only("missing")),
        (Some(shown), Some(expected)) => (shown, expected),
    };
    let types = |columns: &Columns| {
        let types = columns.columns.iter().map(|column| column.data_type().clone());
        types.collect::<Vec<_>>()
    };
    let (shown_types, expected_types) = (types(&shown), types(&expected));
    let same_types = shown_types.len() == expected_types.len()
        && shown_types
            .iter()
            .zip(&expected_types)
            .all(|(left, right)| left.equals_datatype(right));
    if !same_types {
        return Ok(Some(format!(
            "the columns are of types {shown_types:?} instead of {expected_types:?}"
        )));
    }
    if shown.columns.is_empty() {
        let (left, right) = (shown.rows, expected.rows);
        return Ok((left != right).then(|| format!("{left} rows instead of {right}")));
    }
    // One converter, so that equal rows have equal bytes.
    let fields = shown_types.into_iter().map(SortField::new).collect();
    let converter = RowConverter::new(fields)?;
    let (left, right) = (
        converter.convert_columns(&shown.columns)?,
        converter.convert_columns(&expected.columns)?,
    );
    let mut counts: BTreeMap<&[u8], (i64, usize, usize)> = BTreeMap::new();
    for (index, row) in left.iter().enumerate() {
        let entry = counts.entry(row.data()).or_default();
        entry.0 += 1;
        entry.1 = index;
    }
    for (index, row) in right.iter().enumerate() {
        let entry = counts.entry(row.data()).or_default();
        entry.0 -= 1;
        entry.2 = index;
    }
    let (mut unexpected, mut missing) = (vec![], vec![]);
    for (count, in_shown, in_expected) in counts.into_values() {
        for _ in 0..count.max(0) {
            unexpected.push(in_shown);
        }
        for _ in 0..(-count).max(0) {
            missing.push(in_expected);
        }
    }
    // What is left may still differ by no more than floats may.
    unexpected.retain(|row| {
        let close = missing
            .iter()
            .position(|other| close(&shown.columns, *row, &expected.columns, *other));
        match close {
            Some(position) => {
                missing.swap_remove(position);
                false
            }
            None => true,
        }
    });
    if unexpected.is_empty() && missing.is_empty() {
        return Ok(None);
    }
    Ok(Some(format!(
        "{} unexpected rows\n{}{} missing rows\n{}",
        unexpected.len(),
        shown.text(&unexpected)?,
        missing.len(),
        expected.text(&missing)?
    )))
}

/// The same rows, the last first.
///
/// # Errors
/// A type cannot be taken by position.
pub fn reversed(rows: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let places = UInt32Array::from_iter_values((0..rows.num_rows() as u32).rev());
    take_record_batch(rows, &places)
}

/// The rows of several batches as whole columns.
struct Columns {
    columns: Vec<ArrayRef>,
    rows: usize,
}

impl Columns {
    /// `None` if there is no batch, and so no rows and no types.
    fn of(batches: &[RecordBatch]) -> Result<Option<Columns>, ArrowError> {
        let Some(first) = batches.first() else {
            return Ok(None);
        };
        let mut columns = vec![];
        for index in 0..first.num_columns() {
            let parts: Vec<&dyn Array> = batches.iter().map(|batch| batch.column(index).as_ref()).collect();
            let column = match parts.as_slice() {
                [_] => Arc::clone(first.column(index)),
                parts => concat(parts)?,
            };
            columns.push(match column.data_type() {
                DataType::Decimal128(_, scale) => cast(&column, &DataType::Decimal128(38, *scale))?,
                _ => column,
            });
        }
        let rows = batches.iter().map(RecordBatch::num_rows).sum();
        Ok(Some(Columns { columns, rows }))
    }

    /// The difference from nothing.
    fn only(&self, what: &str) -> Option<String> {
        (self.rows > 0).then(|| format!("{} {what} rows, and none on the other side", self.rows))
    }

    fn text(&self, rows: &[usize]) -> Result<String, ArrowError> {
        let options = FormatOptions::default().with_null("NULL");
        let formatters = self.columns.iter();
        let formatters = formatters
            .map(|column| ArrayFormatter::try_new(column.as_ref(), &options))
            .collect::<Result<Vec<_>, _>>()?;
        let mut text = String::new();
        for row in rows.iter().take(ROWS_SHOWN_MAX) {
            let values: Vec<String> = formatters
                .iter()
                .map(|column| column.value(*row).to_string())
                .collect();
            text.push_str(&format!("  {}\n", values.join(" | ")));
        }
        if rows.len() > ROWS_SHOWN_MAX {
            text.push_str("  ...\n");
        }
        Ok(text)
    }
}

/// Whether two rows differ in nothing but the last digits of floats.
fn close(left: &[ArrayRef], left_row: usize, right: &[ArrayRef], right_row: usize) -> bool {
    left.iter().zip(right).all(|(left, right)| {
        if left.is_null(left_row) || right.is_null(right_row) {
            return left.is_null(left_row) && right.is_null(right_row);
        }
        match left.data_type() {
            DataType::Float64 => close_floats(
                left.as_primitive::<Float64Type>().value(left_row),
                right.as_primitive::<Float64Type>().value(right_row),
            ),
            DataType::Float32 => close_floats(
                f64::from(left.as_primitive::<Float32Type>().value(left_row)),
                f64::from(right.as_primitive::<Float32Type>().value(right_row)),
            ),
            _ => left.slice(left_row, 1).to_data() == right.slice(right_row, 1).to_data(),
        }
    })
}

fn close_floats(left: f64, right: f64) -> bool {
    let difference = (left - right).abs();
    left == right
        || (left.is_nan() && right.is_nan())
        || difference <= FLOAT_NOTHING
        || difference <= FLOAT_TOLERANCE * left.abs().max(right.abs())
}

#[cfg(test)]
mod tests {
    use arrow::array::{Float64Array, Int64Array, StringArray};

    use super::*;

    fn batch(numbers: &[Option<f64>], texts: &[&str]) -> RecordBatch {
        let numbers: ArrayRef = Arc::new(Float64Array::from(numbers.to_vec()));
        let texts: ArrayRef = Arc::new(StringArray::from(texts.to_vec()));
        RecordBatch::try_from_iter([("n", numbers), ("t", texts)]).unwrap()
    }

    #[test]
    fn rows_are_compared_as_multisets() {
        let one = batch(&[Some(1.0), None, Some(1.0)], &["a", "b", "a"]);
        let parts = [
            batch(&[None], &["b"]),
            batch(&[Some(1.0), Some(1.0 + 1e-13)], &["a", "a"]),
        ];
        assert_eq!(difference(std::slice::from_ref(&one), &parts).unwrap(), None);
        let fewer = difference(&[one.slice(0, 2)], std::slice::from_ref(&one))
            .unwrap()
            .unwrap();
        assert_eq!(fewer, "0 unexpected rows\n1 missing rows\n  1.0 | a\n");
        let other = batch(&[Some(1.0), Some(0.0), Some(1.0)], &["a", "b", "a"]);
        assert!(
            difference(&[other], &[one])
                .unwrap()
                .unwrap()
                .contains("1 unexpected rows\n  0.0 | b")
        );
    }

    #[test]
    fn types_and_empty_answers_are_told_apart() {
        let integers: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        let floats: ArrayRef = Arc::new(Float64Array::from(vec![1.0]));
        let integers = RecordBatch::try_from_iter([("n", integers)]).unwrap();
        let floats = RecordBatch::try_from_iter([("n", floats)]).unwrap();
        assert!(
            difference(std::slice::from_ref(&integers), &[floats])
                .unwrap()
                .is_some()
        );
        assert!(
            difference(&[], std::slice::from_ref(&integers))
                .unwrap()
                .is_some()
        );
        assert_eq!(difference(&[], &[integers.slice(0, 0)]).unwrap(), None);
    }
}
