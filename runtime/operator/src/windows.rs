//! How much window functions make. They put a value beside each row, which may be a copy of any that they read in its frame, or all of
//! these together: of 4,000 rows with texts of a megabyte, 4 GB.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, RecordBatch};
use arrow::datatypes::Schema;
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, WindowFrame, WindowFrameBound, WindowFrameUnits};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::window::{
    PlainAggregateWindowExpr, SlidingAggregateWindowExpr, StandardWindowExpr, WindowExpr,
};
use datafusion::scalar::ScalarValue;
use millrace_state::width::{differs_in_size, largest};
use millrace_storage::column_bytes;

/// Copies of what a function makes that are there at a time: value by value, and as a column.
const COPIES: usize = 2;

/// Aggregates whose value is one of those that they read.
const PICKING: [&str; 5] = ["min", "max", "first_value", "last_value", "nth_value"];
/// Functions that have each value that they read for one row.
const SHIFTING: [&str; 2] = ["lag", "lead"];

/// Rows behind a row for which its value may wait without being one of many that are made at once.
const BEHIND_MAX: usize = 8_192;

/// How the values that a function makes follow from those that it reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Makes {
    /// Each of them once.
    Each,
    /// Any of them for every row.
    Any,
    /// All of them together for every row.
    All,
}

/// A window function whose values differ in size.
#[derive(Debug)]
pub struct WideFunction {
    /// Of its values, in the output.
    pub column: usize,
    makes: Makes,
    arguments: Vec<Arc<dyn PhysicalExpr>>,
    /// Rows of a frame at most, and of these the ones behind the row whose value it is.
    frame: usize,
    behind: usize,
}

/// Bytes of values that a function reads.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sizes {
    widest: usize,
    all: usize,
}

impl WideFunction {
    /// Those of these functions whose values differ in size. Their values follow the other columns of the output's schema.
    pub fn of(functions: &[Arc<dyn WindowExpr>], schema: &Schema) -> Vec<WideFunction> {
        let before = schema.fields().len() - functions.len();
        let wide = (before..).zip(functions);
        wide.filter(|(column, _)| differs_in_size(schema.field(*column).data_type()))
            .map(|(column, function)| {
                let (frame, behind) = frame_rows(function.get_window_frame());
                WideFunction {
                    column,
                    makes: makes(function.as_ref()),
                    arguments: function.expressions(),
                    frame,
                    behind,
                }
            })
            .collect()
    }

    /// Whether values wait for so many rows behind theirs that many of them are made at once.
    pub fn waits(&self) -> bool {
        self.behind > BEHIND_MAX
    }

    /// The values that it reads: a constant as such, whatever the rows.
    ///
    /// # Errors
    /// An argument cannot be computed.
    pub fn reads(&self, rows: &RecordBatch) -> Result<Vec<ColumnarValue>> {
        let arguments = self.arguments.iter();
        arguments.map(|argument| argument.evaluate(rows)).collect()
    }

    /// Bytes that it takes at most for so many rows of one frame: its arguments, and what it makes.
    pub fn bytes(&self, rows: usize, read: Sizes) -> usize {
        let made = match self.makes {
            Makes::Each => read.all,
            Makes::Any => read.widest.saturating_mul(rows),
            Makes::All => {
                let in_frame = read.all.min(read.widest.saturating_mul(self.frame));
                in_frame.saturating_mul(rows)
            }
        };
        made.saturating_mul(COPIES).saturating_add(read.all)
    }

    /// Bytes that it makes for some of these rows as they come, after it has made values of `made` bytes.
    pub fn next_bytes(&self, rows: usize, of: usize, read: Sizes, made: usize) -> usize {
        let widest = made.max(read.widest);
        let grown = match self.makes {
            Makes::All => read.all / of.max(1) * rows,
            Makes::Each | Makes::Any => 0,
        };
        widest.saturating_add(grown).saturating_mul(rows)
    }
}

impl Sizes {
    /// Of the arguments of a function for some rows, from one on.
    pub fn of(values: &[ColumnarValue], range: Range<usize>) -> Result<Sizes> {
        let mut sizes = Sizes::default();
        for values in values {
            let (widest, all) = match values {
                ColumnarValue::Array(values) => {
                    let values = values.slice(range.start, range.len());
                    (largest(values.as_ref()), column_bytes(values.as_ref()))
                }
                ColumnarValue::Scalar(value) => {
                    let bytes = largest(value.to_array()?.as_ref());
                    (bytes, bytes.saturating_mul(range.len()))
                }
            };
            sizes.widest = sizes.widest.saturating_add(widest);
            sizes.all = sizes.all.saturating_add(all);
        }
        Ok(sizes)
    }

    /// These and further ones of the same frame.
    pub fn add(&mut self, more: Sizes) {
        self.widest = self.widest.max(more.widest);
        self.all = self.all.saturating_add(more.all);
    }
}

/// The most rows of a frame, and those of them behind the current one; [`usize::MAX`] where values say it.
fn frame_rows(frame: &WindowFrame) -> (usize, usize) {
    let bound = |bound: &WindowFrameBound| match bound {
        WindowFrameBound::CurrentRow => (0, 0),
        WindowFrameBound::Preceding(ScalarValue::UInt64(Some(rows))) => {
            (usize::try_from(*rows).unwrap_or(usize::MAX), 0)
        }
        WindowFrameBound::Following(ScalarValue::UInt64(Some(rows))) => {
            (0, usize::try_from(*rows).unwrap_or(usize::MAX))
        }
        WindowFrameBound::Preceding(_) => (usize::MAX, 0),
        WindowFrameBound::Following(_) => (0, usize::MAX),
    };
    let (start, end) = (bound(&frame.start_bound), bound(&frame.end_bound));
    let are_rows = matches!(frame.units, WindowFrameUnits::Rows);
    match (are_rows, end.1) {
        (true, behind) => (start.0.saturating_add(behind).saturating_add(1), behind),
        // Rows that are equal to the current one are in its frame, and come with it.
        (false, 0) => (usize::MAX, 0),
        (false, _) => (usize::MAX, usize::MAX),
    }
}

fn makes(function: &dyn WindowExpr) -> Makes {
    let any = function.as_any();
    if any.is::<StandardWindowExpr>() {
        let is_shifting = SHIFTING.iter().any(|name| function.name().starts_with(name));
        return if is_shifting { Makes::Each } else { Makes::Any };
    }
    let plain = any.downcast_ref::<PlainAggregateWindowExpr>();
    let sliding = any.downcast_ref::<SlidingAggregateWindowExpr>();
    let aggregate = plain
        .map(PlainAggregateWindowExpr::get_aggregate_expr)
        .or(sliding.map(SlidingAggregateWindowExpr::get_aggregate_expr));
    match aggregate {
        Some(aggregate) if PICKING.contains(&aggregate.fun().name()) => Makes::Any,
        _ => Makes::All,
    }
}
