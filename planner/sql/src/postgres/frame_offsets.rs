//! Offsets of windows' frames that are expressions, computed: `ROWS 1 + 1 PRECEDING`, `RANGE CAST('1 day' AS interval) PRECEDING`.
//!
//! DataFusion takes literals only. What PostgreSQL refuses of an offset is refused here in its words.

use std::ops::ControlFlow;

use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::sql::sqlparser::ast::{
    Expr, Interval, NamedWindowExpr, Select, Statement, Value, VisitorMut, WindowFrameBound,
    WindowFrameUnits, WindowSpec, WindowType,
};
use millrace_parser::walk::{Walk, walk_expressions};

use crate::binding::Binding;
use crate::error::{Fault, Faulty};

/// Makes literals of the offsets of a statement.
///
/// # Errors
/// An offset is NULL, negative, of a type that its frame does not take, or names a column.
pub(crate) fn computed(statement: &mut Statement, binding: &dyn Binding) -> Result<()> {
    match statement.walk_mut(&mut Offsets { binding }) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(*error),
    }
}

struct Offsets<'a> {
    binding: &'a dyn Binding,
}

impl VisitorMut for Offsets<'_> {
    type Break = Box<DataFusionError>;

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<Self::Break> {
        for definition in &mut select.named_window {
            if let NamedWindowExpr::WindowSpec(window) = &mut definition.1 {
                self.window(window)?;
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        match expr {
            Expr::Function(function) => match &mut function.over {
                Some(WindowType::WindowSpec(window)) => self.window(window),
                _ => ControlFlow::Continue(()),
            },
            _ => ControlFlow::Continue(()),
        }
    }
}

impl Offsets<'_> {
    fn window(&self, window: &mut WindowSpec) -> ControlFlow<Box<DataFusionError>> {
        let Some(frame) = &mut window.window_frame else {
            return ControlFlow::Continue(());
        };
        let ends = [
            ("starting", Some(&mut frame.start_bound)),
            ("ending", frame.end_bound.as_mut()),
        ];
        for (end, bound) in ends {
            if let Some(WindowFrameBound::Preceding(Some(offset)) | WindowFrameBound::Following(Some(offset))) =
                bound
                && !is_literal(offset)
            {
                match self.literal(offset, frame.units, end) {
                    Ok(literal) => **offset = literal,
                    Err(error) => return ControlFlow::Break(Box::new(error)),
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn literal(&self, offset: &Expr, units: WindowFrameUnits, end: &str) -> Result<Expr> {
        let refused = |fault, message: String| Err(Faulty { fault, message }.into());
        if names_columns(offset) {
            let message = format!("argument of {units} must not contain variables");
            return refused(Fault::InvalidColumnReference, message);
        }
        let value = self.binding.constant(offset)?;
        if value.is_null() {
            let message = format!("frame {end} offset must not be null");
            return refused(Fault::NullNotAllowed, message);
        }
        let is_range = units == WindowFrameUnits::Range;
        if let ScalarValue::IntervalMonthDayNano(Some(length)) = value
            && is_range
        {
            let (months, days, nanos) = (length.months, length.days, length.nanoseconds);
            if months < 0 || days < 0 || nanos < 0 {
                let message = "invalid preceding or following size in window function".to_owned();
                return refused(Fault::InvalidFrameOffset, message);
            }
            let text = format!("{months} months {days} days {nanos} nanoseconds");
            return Ok(Expr::Interval(Interval {
                value: Box::new(Expr::value(Value::SingleQuotedString(text))),
                leading_field: None,
                leading_precision: None,
                last_field: None,
                fractional_seconds_precision: None,
            }));
        }
        let data_type = value.data_type();
        let text = match (is_range, value) {
            (_, value) if data_type.is_integer() || is_range && data_type.is_numeric() => value.to_string(),
            // Rows are counted.
            (false, value) if data_type.is_numeric() => match value.cast_to(&DataType::Float64)? {
                ScalarValue::Float64(Some(number)) if number.is_finite() => format!("{:.0}", number.round()),
                _ => {
                    return refused(
                        Fault::InvalidFrameOffset,
                        format!("argument of {units} is out of range"),
                    );
                }
            },
            (true, _) => {
                let message =
                    "RANGE with offset PRECEDING/FOLLOWING is not supported for this type of offset";
                return refused(Fault::DatatypeMismatch, message.to_owned());
            }
            (false, _) => {
                return refused(
                    Fault::DatatypeMismatch,
                    format!("argument of {units} must be type bigint"),
                );
            }
        };
        if text.starts_with('-') {
            let message = match is_range {
                true => "invalid preceding or following size in window function".to_owned(),
                false => format!("frame {end} offset must not be negative"),
            };
            return refused(Fault::InvalidFrameOffset, message);
        }
        Ok(Expr::value(Value::Number(text, false)))
    }
}

/// Whether DataFusion takes it as it is.
fn is_literal(offset: &Expr) -> bool {
    match offset {
        Expr::Value(value) => matches!(value.value, Value::Number(..) | Value::SingleQuotedString(_)),
        Expr::Interval(_) => true,
        _ => false,
    }
}

fn names_columns(offset: &Expr) -> bool {
    let found = walk_expressions(offset, |part| match part {
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    found.is_break()
}
