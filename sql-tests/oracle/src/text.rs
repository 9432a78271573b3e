//! Answers as texts: what came over a wire against what plain DataFusion says.
//!
//! Types are not compared, because a wire has only their texts: numbers are equal by value, up to the digits that depend on the
//! order of addition.

use arrow::array::{Array, RecordBatch};
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};

/// By how much of its size a number may differ.
const TOLERANCE: f64 = 1e-9;
/// Rows of each side that a difference names.
const ROWS_SHOWN_MAX: usize = 5;

/// One row as PostgreSQL's simple protocol sends it; `None` is NULL.
pub type TextRow = Vec<Option<String>>;

/// Rows in PostgreSQL's notation, in their order.
///
/// # Errors
/// A type has no text.
pub fn rows(batches: &[RecordBatch]) -> Result<Vec<TextRow>, ArrowError> {
    let options = FormatOptions::default();
    let mut rows = vec![];
    for batch in batches {
        let columns = batch.columns().iter();
        let columns: Vec<_> = columns
            .map(|column| Ok((column, ArrayFormatter::try_new(column.as_ref(), &options)?)))
            .collect::<Result<_, ArrowError>>()?;
        for row in 0..batch.num_rows() {
            let text = |(column, text): &(&arrow::array::ArrayRef, ArrayFormatter<'_>)| {
                let text = (!column.is_null(row)).then(|| text.value(row).to_string())?;
                Some(match column.data_type() {
                    DataType::Boolean => text[..1].to_owned(),
                    DataType::Timestamp(..) => text.replace('T', " "),
                    _ => text,
                })
            };
            rows.push(columns.iter().map(text).collect());
        }
    }
    Ok(rows)
}

/// What tells two multisets of rows apart; `None` if they are equal.
pub fn difference(shown: Vec<TextRow>, expected: Vec<TextRow>) -> Option<String> {
    let (shown, expected) = (comparable(shown), comparable(expected));
    let same = |(shown, expected): (&TextRow, &TextRow)| {
        shown.len() == expected.len()
            && shown
                .iter()
                .zip(expected)
                .all(|(shown, expected)| is_same(shown, expected))
    };
    if shown.len() == expected.len() && shown.iter().zip(&expected).all(same) {
        return None;
    }
    let only = |one: &[TextRow], other: &[TextRow]| {
        let rows = one.iter().filter(|row| !other.contains(row));
        let rows = rows.take(ROWS_SHOWN_MAX);
        rows.map(|row| format!("\n  {row:?}")).collect::<String>()
    };
    Some(format!(
        "{} rows instead of {}; unexpected:{}\nmissing:{}",
        shown.len(),
        expected.len(),
        only(&shown, &expected),
        only(&expected, &shown)
    ))
}

/// Whether two values are equal: as texts, or as numbers up to the digits that depend on the order of addition.
pub fn is_same(shown: &Option<String>, expected: &Option<String>) -> bool {
    let number = |value: &Option<String>| value.as_ref().and_then(|text| text.parse::<f64>().ok());
    shown == expected
        || match (number(shown), number(expected)) {
            (Some(shown), Some(expected)) => {
                (shown - expected).abs() <= TOLERANCE * shown.abs().max(expected.abs())
            }
            _ => false,
        }
}

/// Sorted, numbers in one notation whatever their type, so that equal multisets are beside each other.
fn comparable(mut rows: Vec<TextRow>) -> Vec<TextRow> {
    for value in rows.iter_mut().flatten().flatten() {
        if let Ok(number) = value.parse::<f64>() {
            *value = number.to_string();
        }
    }
    rows.sort_unstable();
    rows
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, BooleanArray, Float64Array};

    use super::*;

    fn texts(values: &[&[&str]]) -> Vec<TextRow> {
        let row = |row: &&[&str]| row.iter().map(|value| Some((*value).to_owned())).collect();
        values.iter().map(row).collect()
    }

    #[test]
    fn order_and_notation_do_not_matter_but_values_do() {
        let shown = texts(&[&["b", "2.0"], &["a", "1e0"]]);
        let expected = texts(&[&["a", "1"], &["b", "2.0000000001"]]);
        assert_eq!(difference(shown.clone(), expected.clone()), None);
        let fewer = difference(shown[..1].to_vec(), expected.clone()).unwrap();
        assert!(fewer.starts_with("1 rows instead of 2"), "{fewer}");
        let mut nulls = shown.clone();
        nulls[0][1] = None;
        assert!(difference(nulls, expected.clone()).is_some());
        assert!(difference(texts(&[&["b", "2.1"], &["a", "1"]]), expected).is_some());
    }

    #[test]
    fn values_have_the_texts_of_postgresql() {
        let floats: ArrayRef = Arc::new(Float64Array::from(vec![Some(2.5), None]));
        let booleans: ArrayRef = Arc::new(BooleanArray::from(vec![true, false]));
        let batch = RecordBatch::try_from_iter([("f", floats), ("b", booleans)]).unwrap();
        let expected = [
            vec![Some("2.5".to_owned()), Some("t".to_owned())],
            vec![None, Some("f".to_owned())],
        ];
        assert_eq!(rows(&[batch]).unwrap(), expected);
    }
}
