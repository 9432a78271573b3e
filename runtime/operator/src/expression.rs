//! Evaluating expressions in a running view.
//!
//! A SELECT whose expression fails (a division by zero, a bad cast) is answered with the error. A view must go on: the
//! innermost expression that fails is NULL for its row, and what it stands in goes on with that NULL; the failure is counted
//! and shown with the view. The same row gives the same NULL when it is retracted, so the view stays consistent. Of a view that was
//! made with `on_error = 'skip'` such a row is left out instead, and with `'fail'` the view fails.
//!
//! The innermost, because the optimizer takes expressions apart and puts them together: `100/d IS NULL` must be the same
//! whether or not another column has `100/d` too, and is computed once for both.
//!
//! What depends on other rows is no failure of a row: where there is no memory for a function, or the values of all rows together
//! take too much, the view fails as one does that grows too large.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, new_null_array};
use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Literal;
use millrace_planner::OnError;
use millrace_resource::step;
use millrace_storage::column_bytes;
use parking_lot::Mutex;

use crate::error::{OperatorError, Result, is_for_memory};
use crate::failed_rows::{FailedRow, FailedRows, Failures};
use crate::words::logged;

/// What one expression makes for the rows of a batch at most, in bytes.
const MADE_BYTES_MAX: usize = 1 << 30;

/// Arrays smaller than this keep what is not filled of them.
const SLACK_BYTES_MIN: usize = 1 << 20;

/// How often an expression of a view failed, and what it said last.
#[derive(Debug, Default)]
pub struct ErrorCounter {
    rows: AtomicU64,
    last: Mutex<Option<String>>,
    on_error: OnError,
    /// The rows, if somebody keeps them.
    kept: Option<FailedRows>,
    /// What is counted here may not count, and is not told to anybody.
    is_of_a_step: bool,
}

impl ErrorCounter {
    /// One of a view for which this becomes of such rows. `keeps`: somebody is going to take them, see [`Self::take_rows`].
    pub fn new(on_error: OnError, keeps: bool) -> Self {
        ErrorCounter {
            on_error,
            kept: keeps.then(FailedRows::default),
            ..ErrorCounter::default()
        }
    }

    /// One for a step that may be tried again: [`Self::add`] what it has counted once it is through, [`Self::clear`] it before it is
    /// tried again.
    pub(super) fn of_a_step(&self) -> Self {
        ErrorCounter {
            is_of_a_step: true,
            ..ErrorCounter::new(self.on_error, self.kept.is_some())
        }
    }

    /// Counts rows on which an expression failed elsewhere.
    pub fn add_counted(&self, rows: u64, last: String) {
        self.count(rows, last);
    }

    /// Counts what a step has counted, which counts nothing then.
    pub(super) fn add(&self, step: &ErrorCounter) {
        let Some(message) = step.last.lock().take() else {
            return;
        };
        self.count(step.rows.swap(0, Ordering::Relaxed), message);
        if let Some(kept) = &self.kept {
            kept.append(step.take_rows());
        }
    }

    /// As if nothing had failed yet.
    pub(super) fn clear(&self) {
        self.rows.store(0, Ordering::Relaxed);
        *self.last.lock() = None;
        drop(self.take_rows());
    }

    /// Why the view is to fail, if it is.
    ///
    /// # Errors
    /// An expression failed on a row, and the view is not to go on then.
    pub fn check(&self) -> Result<()> {
        match (self.on_error, self.last()) {
            (OnError::Fail, Some(message)) => Err(OperatorError::ExpressionFailed(message)),
            _ => Ok(()),
        }
    }

    /// Counts the failure of an aggregate or window function.
    pub(super) fn note(&self, error: DataFusionError) {
        self.count(1, error.strip_backtrace());
        self.keep(|| FailedRow {
            expression: None,
            error,
            row: None,
        });
    }

    /// Counts the failure of an expression on a row of a batch.
    fn note_row(
        &self,
        expression: &dyn PhysicalExpr,
        error: DataFusionError,
        rows: &RecordBatch,
        row: usize,
    ) {
        self.count(1, error.strip_backtrace());
        self.keep(|| FailedRow::new(expression, error, rows, row));
    }

    fn keep(&self, row: impl FnOnce() -> FailedRow) {
        if let Some(kept) = &self.kept {
            kept.add(row);
        }
    }

    /// The rows that failed since this was asked.
    pub fn take_rows(&self) -> Failures {
        self.kept.as_ref().map(FailedRows::take).unwrap_or_default()
    }

    fn count(&self, rows: u64, message: String) {
        if self.rows.fetch_add(rows, Ordering::Relaxed) == 0 && !self.is_of_a_step {
            let on_error = self.on_error.name();
            tracing::warn!(
                error = logged(&message),
                on_error,
                "an expression of a view failed on a row"
            );
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

/// Rows of a batch on which an expression failed.
#[derive(Debug, Default)]
pub(super) struct Failed(Vec<usize>);

impl Failed {
    /// The rows of a batch that are to stay; none: all of them.
    pub fn kept(&self, rows: usize, errors: &ErrorCounter) -> Option<BooleanArray> {
        if self.0.is_empty() || errors.on_error != OnError::Skip {
            return None;
        }
        let mut kept = vec![true; rows];
        self.0.iter().for_each(|row| kept[*row] = false);
        Some(kept.into())
    }
}

/// The expression's column over a batch, NULL where it fails.
pub(super) fn evaluate(
    expression: &Arc<dyn PhysicalExpr>,
    rows: &RecordBatch,
    data_type: &DataType,
    errors: &ErrorCounter,
) -> Result<ArrayRef> {
    evaluate_noting(expression, rows, data_type, errors, &mut Failed::default())
}

/// The same, which notes on which rows it fails.
pub(super) fn evaluate_noting(
    expression: &Arc<dyn PhysicalExpr>,
    rows: &RecordBatch,
    data_type: &DataType,
    errors: &ErrorCounter,
    failed: &mut Failed,
) -> Result<ArrayRef> {
    match made(expression, rows) {
        Ok(array) => conform(array, data_type),
        Err(error) if is_for_memory(&error) => Err(error.into()),
        Err(_) => row_by_row(expression, rows, data_type, errors, failed),
    }
}

fn made(expression: &Arc<dyn PhysicalExpr>, rows: &RecordBatch) -> datafusion::error::Result<ArrayRef> {
    let value = expression.evaluate(rows)?;
    // One value for all rows is about to become one for each.
    if let ColumnarValue::Scalar(value) = &value {
        may_take(value.size().saturating_mul(rows.num_rows()), rows.num_rows())?;
    }
    let mut array = value.into_array(rows.num_rows())?;
    // What was reserved and not filled would be held, and not be charged, as long as the array is.
    if array.get_buffer_memory_size() > SLACK_BYTES_MIN
        && let Some(array) = Arc::get_mut(&mut array)
    {
        array.shrink_to_fit();
    }
    Ok(array)
}

fn may_take(bytes: usize, rows: usize) -> datafusion::error::Result<()> {
    if bytes <= MADE_BYTES_MAX && step::allows(bytes, rows) {
        return Ok(());
    }
    Err(DataFusionError::ResourcesExhausted(format!(
        "the results of an expression take too much for one batch of rows: {bytes} bytes"
    )))
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
    arrow::compute::cast(&array, data_type).map_err(OperatorError::from)
}

/// What an expression is over one row.
struct Evaluated {
    /// `None`: NULL of a type that is not known.
    value: Option<ScalarValue>,
    failed: bool,
}

/// The expression over one row, with NULL for the innermost of its parts that fail.
fn without_failures(expression: &Arc<dyn PhysicalExpr>, row: &RecordBatch) -> Evaluated {
    let over_row = |expression: &Arc<dyn PhysicalExpr>| {
        let value = expression.evaluate(row).and_then(|value| value.into_array(1));
        value
            .and_then(|value| ScalarValue::try_from_array(&value, 0))
            .ok()
    };
    if let Some(value) = over_row(expression) {
        return Evaluated {
            value: Some(value),
            failed: false,
        };
    }
    let data_type = expression.data_type(&row.schema()).ok();
    let null = data_type.and_then(|data_type| ScalarValue::try_from(&data_type).ok());
    let parts: Vec<Evaluated> = expression
        .children()
        .into_iter()
        .map(|part| without_failures(part, row))
        .collect();
    let mut value = None;
    if parts.iter().any(|part| part.failed) {
        let literals: Option<Vec<Arc<dyn PhysicalExpr>>> = parts
            .into_iter()
            .map(|part| {
                part.value
                    .map(|value| Arc::new(Literal::new(value)) as Arc<dyn PhysicalExpr>)
            })
            .collect();
        let with_nulls =
            literals.and_then(|literals| Arc::clone(expression).with_new_children(literals).ok());
        value = with_nulls.and_then(|with_nulls| over_row(&with_nulls));
    }
    Evaluated {
        value: value.or(null),
        failed: true,
    }
}

fn row_by_row(
    expression: &Arc<dyn PhysicalExpr>,
    rows: &RecordBatch,
    data_type: &DataType,
    errors: &ErrorCounter,
    failed: &mut Failed,
) -> Result<ArrayRef> {
    let mut bytes = 0_usize;
    let values = (0..rows.num_rows())
        .map(|row| match made(expression, &rows.slice(row, 1)) {
            Ok(value) => {
                bytes = bytes.saturating_add(column_bytes(&value));
                may_take(bytes, rows.num_rows())?;
                conform(value, data_type)
            }
            Err(error) if is_for_memory(&error) => Err(error.into()),
            Err(error) => {
                errors.note_row(expression.as_ref(), error, rows, row);
                failed.0.push(row);
                let value = without_failures(expression, &rows.slice(row, 1)).value;
                match value.and_then(|value| value.to_array().ok()) {
                    Some(value) => conform(value, data_type),
                    None => Ok(new_null_array(data_type, 1)),
                }
            }
        })
        .collect::<Result<Vec<ArrayRef>>>()?;
    let values: Vec<&dyn Array> = values.iter().map(AsRef::as_ref).collect();
    arrow::compute::concat(&values).map_err(OperatorError::from)
}
