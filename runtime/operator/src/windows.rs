//! How much window functions make. They put a value beside each row, which may be a copy of any that they read in its frame, or all of
//! these together: of 4,000 rows with texts of a megabyte, 4 GB.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, RecordBatch};
use arrow::datatypes::{DataType, Schema};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, WindowFrame, WindowFrameBound, WindowFrameUnits};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_expr::window::{
    PlainAggregateWindowExpr, SlidingAggregateWindowExpr, StandardWindowExpr, StandardWindowFunctionExpr,
    WindowExpr,
};
use datafusion::physical_plan::windows::WindowUDFExpr;
use datafusion::scalar::ScalarValue;
use millrace_state::width::{differs_in_size, largest};
use millrace_storage::column_bytes;

/// Copies of what a function makes that are there at a time: value by value, and as a column.
const COPIES: usize = 2;

/// Functions whose value is one of those that they read.
const PICKING: [&str; 5] = ["min", "max", "first_value", "last_value", "nth_value"];

/// Rows behind a row for which its value may wait before the values of all rows count as made at once.
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
    /// Bytes of a constant that may be the value of any row.
    constant: usize,
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
                let mut wide = WideFunction {
                    column,
                    makes: makes(function.as_ref()),
                    arguments: function.expressions(),
                    constant: 0,
                    frame,
                    behind,
                };
                if let Some(shift) = Shift::of(function.as_ref()) {
                    wide.makes = shift.makes;
                    wide.constant = shift.constant;
                    wide.behind = shift.behind;
                }
                wide
            })
            .collect()
    }

    /// Whether values wait for so many rows behind theirs that those of all rows may be made at once.
    pub fn waits(&self) -> bool {
        self.behind > BEHIND_MAX
    }

    /// Whether a value waits for any row behind its own.
    pub fn looks_ahead(&self) -> bool {
        self.behind > 0
    }

    /// Bytes that it takes at most for the rows whose values wait for rows behind theirs, of a frame of so many: they are made at
    /// once when the last one has come.
    pub fn waiting_bytes(&self, rows: usize, read: Sizes) -> usize {
        match self.behind {
            0 => 0,
            behind => self.made_bytes(rows.min(behind), read).saturating_mul(COPIES),
        }
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
        let made = self.made_bytes(rows, read);
        made.saturating_mul(COPIES).saturating_add(read.all)
    }

    /// Bytes of the values of so many rows of a frame.
    fn made_bytes(&self, rows: usize, read: Sizes) -> usize {
        let made = match self.makes {
            Makes::Each => read.all.min(read.widest.saturating_mul(rows)),
            Makes::Any => read.widest.saturating_mul(rows),
            Makes::All => {
                let in_frame = read.all.min(read.widest.saturating_mul(self.frame));
                in_frame.saturating_mul(rows)
            }
        };
        made.saturating_add(self.constant.saturating_mul(rows))
    }

    /// Bytes that it makes for some of these rows as they come, after it has made values of `made` bytes.
    pub fn next_bytes(&self, rows: usize, of: usize, read: Sizes, made: usize) -> usize {
        let widest = made.max(read.widest).max(self.constant);
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

/// The window function of its own that this is, if it is one.
fn own(function: &dyn WindowExpr) -> Option<&WindowUDFExpr> {
    let standard = function.as_any().downcast_ref::<StandardWindowExpr>()?;
    standard.get_standard_func_expr().as_any().downcast_ref()
}

fn makes(function: &dyn WindowExpr) -> Makes {
    let any = function.as_any();
    let plain = any.downcast_ref::<PlainAggregateWindowExpr>();
    let sliding = any.downcast_ref::<SlidingAggregateWindowExpr>();
    let aggregate = plain
        .map(PlainAggregateWindowExpr::get_aggregate_expr)
        .or(sliding.map(SlidingAggregateWindowExpr::get_aggregate_expr));
    let name = aggregate
        .map(|aggregate| aggregate.fun().name())
        .or_else(|| own(function).map(|own| own.fun().name()));
    // Behind the name of a function is which rows of its frame it leaves out.
    match name.and_then(|name| name.split(' ').next()) {
        Some(name) if PICKING.contains(&name) => Makes::Any,
        _ => Makes::All,
    }
}

/// What `lag` and `lead` do.
struct Shift {
    makes: Makes,
    /// Bytes of what is there for rows before the first and behind the last one.
    constant: usize,
    /// Rows for which a value waits.
    behind: usize,
}

impl Shift {
    fn of(function: &dyn WindowExpr) -> Option<Shift> {
        let own = own(function)?;
        if !matches!(own.fun().name(), "lag" | "lead") {
            return None;
        }
        let constant = |argument: usize| {
            let argument = own.args().get(argument)?;
            Some(argument.downcast_ref::<Literal>()?.value())
        };
        let offset = match constant(1) {
            None if own.args().len() < 2 => Some(1),
            offset => offset.and_then(|offset| match offset.cast_to(&DataType::Int64) {
                Ok(ScalarValue::Int64(offset)) => offset,
                _ => None,
            }),
        };
        // Only its description says it.
        let ignores_nulls = format!("{own:?}").contains("ignore_nulls: true");
        // Either looks ahead if its offset is negative, or if it was turned around.
        let looks_back = own
            .create_evaluator()
            .is_ok_and(|evaluator| evaluator.is_causal());
        let behind = match offset {
            _ if looks_back => 0,
            Some(offset) if !ignores_nulls => usize::try_from(offset.unsigned_abs()).unwrap_or(usize::MAX),
            _ => usize::MAX,
        };
        Some(Shift {
            // The same value is next to all the rows between which there are only nulls.
            makes: if ignores_nulls { Makes::Any } else { Makes::Each },
            constant: constant(2).map_or(0, ScalarValue::size),
            behind,
        })
    }
}
