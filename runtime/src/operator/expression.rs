//! Evaluating expressions in a running view.
//!
//! A SELECT whose expression fails (a division by zero, a bad cast) is answered with the error. A view must go on: the
//! row that makes an expression fail gets NULL there, a condition that fails is not met, and the failure is counted and
//! shown with the view. The same row gives the same NULL when it is retracted, so the view stays consistent.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, new_null_array};
use arrow::datatypes::DataType;
use datafusion::physical_expr::PhysicalExpr;
use parking_lot::Mutex;

use crate::error::Result;
use crate::state::row_table::arrow_error;

/// How often an expression of a view failed, and what it said last.
#[derive(Debug, Default)]
pub struct ErrorCounter {
    rows: AtomicU64,
    last: Mutex<Option<String>>,
}

impl ErrorCounter {
    /// Counts a failure.
    pub(super) fn note(&self, message: String) {
        if self.rows.fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::warn!(%message, "an expression of a view fails on a row; it is NULL there");
        }
        *self.last.lock() = Some(message);
    }

    /// As many failed before.
    pub fn set_rows(&self, rows: u64) {
        self.rows.store(rows, Ordering::Relaxed);
    }

    /// Rows on which an expression failed, changes counted one by one.
    pub fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    /// The latest message.
    pub fn last(&self) -> Option<String> {
        self.last.lock().clone()
    }
}

/// The expression's column over a batch, NULL where it fails.
pub(super) fn evaluate(
    expression: &Arc<dyn PhysicalExpr>,
    rows: &RecordBatch,
    data_type: &DataType,
    errors: &ErrorCounter,
) -> Result<ArrayRef> {
    match expression
        .evaluate(rows)
        .and_then(|value| value.into_array(rows.num_rows()))
    {
        Ok(array) => conform(array, data_type),
        Err(_) => row_by_row(expression, rows, data_type, errors),
    }
}

/// The rows where a condition holds.
pub(super) fn evaluate_predicate(
    predicate: &Arc<dyn PhysicalExpr>,
    rows: &RecordBatch,
    errors: &ErrorCounter,
) -> Result<BooleanArray> {
    let values = evaluate(predicate, rows, &DataType::Boolean, errors)?;
    let values = values.as_boolean();
    Ok(match values.nulls() {
        Some(nulls) => BooleanArray::new(values.values() & nulls.inner(), None),
        None => values.clone(),
    })
}

/// A literal of a neighbouring type (a timestamp's unit, a view of a string) as the plan's type.
pub(super) fn conform(array: ArrayRef, data_type: &DataType) -> Result<ArrayRef> {
    if array.data_type() == data_type {
        return Ok(array);
    }
    arrow::compute::cast(&array, data_type).map_err(arrow_error)
}

fn row_by_row(
    expression: &Arc<dyn PhysicalExpr>,
    rows: &RecordBatch,
    data_type: &DataType,
    errors: &ErrorCounter,
) -> Result<ArrayRef> {
    let values = (0..rows.num_rows())
        .map(|row| {
            match expression
                .evaluate(&rows.slice(row, 1))
                .and_then(|value| value.into_array(1))
            {
                Ok(value) => conform(value, data_type),
                Err(error) => {
                    errors.note(error.strip_backtrace());
                    Ok(new_null_array(data_type, 1))
                }
            }
        })
        .collect::<Result<Vec<ArrayRef>>>()?;
    let values: Vec<&dyn Array> = values.iter().map(AsRef::as_ref).collect();
    arrow::compute::concat(&values).map_err(arrow_error)
}
