//! Between which values the columns of a stream lie: what a planner estimates joins and groups by.
//!
//! A stream is a log, and nobody reads a log to plan. Whoever writes rows, or reads its part of the log to the end, tells what was in them.
//! Of a column is something known once that was said of half of the rows; after a restart a query has to read them first.

use arrow::array::RecordBatch;
use millrace_state::bounds::{Range, are_known, range, union};
use parking_lot::Mutex;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct StreamValues {
    columns: Mutex<Vec<Column>>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Column {
    range: Option<Range>,
    /// Of so many rows; some may be counted more than once.
    rows: u64,
}

impl StreamValues {
    /// Rows of these columns were written, or read.
    pub fn note(&self, rows: &RecordBatch, columns: impl IntoIterator<Item = usize>) {
        for (column, values) in columns.into_iter().zip(rows.columns()) {
            if !are_known(values.data_type()) {
                continue;
            }
            self.add(
                column,
                Column {
                    range: range(values.as_ref()),
                    rows: values.len() as u64,
                },
            );
        }
    }

    /// What others have noted of other rows.
    pub fn merge(&self, others: &StreamValues) {
        let others = others.columns.lock().clone();
        for (column, other) in others.into_iter().enumerate() {
            self.add(column, other);
        }
    }

    fn add(&self, column: usize, other: Column) {
        let mut columns = self.columns.lock();
        if columns.len() <= column {
            columns.resize(column + 1, Column::default());
        }
        let known = &mut columns[column];
        known.range = match (known.range, other.range) {
            (Some(one), Some(other)) => Some(union(one, other)),
            (one, other) => one.or(other),
        };
        known.rows += other.rows;
    }

    /// Whether there is something to be learned of a stream of so many rows.
    pub fn is_short(&self, column: usize, rows: u64) -> bool {
        self.columns
            .lock()
            .get(column)
            .is_none_or(|known| known.rows < rows)
    }

    /// The least and the greatest value that a column has, in a stream of so many rows. Others may be there.
    pub fn range(&self, column: usize, rows: u64) -> Option<Range> {
        let columns = self.columns.lock();
        columns
            .get(column)
            .filter(|known| known.rows >= rows.div_ceil(2))?
            .range
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int32Array, StringArray};

    use super::*;

    #[test]
    fn half_of_the_rows_have_to_be_seen() {
        let values = StreamValues::default();
        let numbers = |from: i32, to: i32| {
            let numbers: ArrayRef = Arc::new(Int32Array::from_iter_values(from..to));
            let texts: ArrayRef = Arc::new(StringArray::from_iter_values((from..to).map(|n| n.to_string())));
            RecordBatch::try_from_iter([("t", texts), ("n", numbers)]).unwrap()
        };
        values.note(&numbers(-5, 5), [4, 2]);
        assert_eq!(values.range(2, 20), Some((-5, 4)));
        assert!(values.is_short(2, 20) && !values.is_short(2, 10));
        assert_eq!(
            (values.range(2, 21), values.range(4, 10), values.range(9, 0)),
            (None, None, None)
        );
        let others = StreamValues::default();
        others.note(&numbers(90, 100), [4, 2]);
        values.merge(&others);
        assert_eq!(values.range(2, 40), Some((-5, 99)));
    }
}
