//! Rows on which expressions of a view failed, until somebody takes them to keep them.
//!
//! There is room for [`ROWS_MAX`] of them and [`BYTES_MAX`]; what fails beyond that is only counted, so that a view over rows that
//! all fail goes on as fast as it can and takes no more memory.

use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use datafusion::error::DataFusionError;
use datafusion::physical_expr::PhysicalExpr;
use millrace_storage::rows_bytes;
use parking_lot::Mutex;

use crate::written::written;

/// So many rows wait at most.
const ROWS_MAX: usize = 1_000;
/// So many bytes of them.
const BYTES_MAX: usize = 1 << 20;
/// A row that is larger is told without what it consists of.
const ROW_BYTES_MAX: usize = 64 << 10;
/// So many letters of an expression are told.
const EXPRESSION_LETTERS_MAX: usize = 1_000;

/// A row on which an expression failed.
#[derive(Debug)]
pub struct FailedRow {
    /// The expression; `None`: it is an aggregate or window function, which failed over many rows.
    pub expression: Option<String>,
    pub error: DataFusionError,
    /// The row that the expression was computed over, alone in its batch; `None`: it is too large, or there is no one row.
    pub row: Option<RecordBatch>,
}

impl FailedRow {
    /// What there is to tell of a row of a batch.
    pub(crate) fn new(
        expression: &dyn PhysicalExpr,
        error: DataFusionError,
        rows: &RecordBatch,
        row: usize,
    ) -> FailedRow {
        let one = rows.slice(row, 1);
        // A copy, since a slice would hold the whole batch.
        let copied = || take_record_batch(&one, &UInt32Array::from(vec![0])).ok();
        let expression = written(expression);
        FailedRow {
            expression: Some(expression.chars().take(EXPRESSION_LETTERS_MAX).collect()),
            error,
            row: (rows_bytes(&one) <= ROW_BYTES_MAX).then(copied).flatten(),
        }
    }
}

/// What failed since somebody asked.
#[derive(Debug, Default)]
pub struct Failures {
    pub rows: Vec<FailedRow>,
    /// So many more failed for which there was no room.
    pub more: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct FailedRows {
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    failures: Failures,
    bytes: usize,
}

impl FailedRows {
    /// Keeps a row, if there is room.
    pub fn add(&self, row: impl FnOnce() -> FailedRow) {
        let mut waiting = self.waiting.lock();
        if waiting.failures.rows.len() == ROWS_MAX || waiting.bytes >= BYTES_MAX {
            waiting.failures.more += 1;
            return;
        }
        let row = row();
        waiting.bytes += row.row.as_ref().map_or(0, rows_bytes);
        waiting.bytes += row.expression.as_ref().map_or(0, String::len);
        waiting.failures.rows.push(row);
    }

    /// Keeps what others have kept, as far as there is room.
    pub fn append(&self, failures: Failures) {
        failures.rows.into_iter().for_each(|row| self.add(|| row));
        self.waiting.lock().failures.more += failures.more;
    }

    /// What waits; then nothing does.
    pub fn take(&self) -> Failures {
        std::mem::take(&mut *self.waiting.lock()).failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure() -> FailedRow {
        FailedRow {
            expression: Some("1 / v".to_owned()),
            error: DataFusionError::Execution("no".to_owned()),
            row: None,
        }
    }

    #[test]
    fn what_there_is_no_room_for_is_counted() {
        let failed = FailedRows::default();
        (0..ROWS_MAX + 7).for_each(|_| failed.add(failure));
        let taken = failed.take();
        assert_eq!((taken.rows.len(), taken.more), (ROWS_MAX, 7));
        failed.add(failure);
        let taken = failed.take();
        assert_eq!((taken.rows.len(), taken.more), (1, 0));
        (0..ROWS_MAX - 1).for_each(|_| failed.add(failure));
        let others = FailedRows::default();
        (0..ROWS_MAX + 7).for_each(|_| others.add(failure));
        failed.append(others.take());
        let taken = failed.take();
        assert_eq!((taken.rows.len(), taken.more as usize), (ROWS_MAX, ROWS_MAX + 6));
    }

    #[test]
    fn many_bytes_are_as_many_rows() {
        let failed = FailedRows::default();
        let text = "x".repeat(1 << 10);
        for _ in 0..ROWS_MAX + 100 {
            failed.add(|| FailedRow {
                expression: Some(text.repeat(8)),
                ..failure()
            });
        }
        let taken = failed.take();
        assert_eq!(taken.rows.len(), BYTES_MAX >> 13);
        assert_eq!(taken.more as usize, ROWS_MAX + 100 - (BYTES_MAX >> 13));
    }
}
