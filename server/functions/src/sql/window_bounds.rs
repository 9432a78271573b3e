//! The bounds of windows' frames.

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::{self, WindowFrameBound, WindowFrameUnits};
use datafusion::sql::sqlparser::ast::{self, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Value};
use millrace_postgres::error::SqlError;
use millrace_postgres::types::plain_name;

use super::type_check::typed;

/// Refuses distances in frames by RANGE between values that have none, such as texts.
///
/// # Errors
/// 0A000.
pub(super) fn check_ranges(expr: &logical_expr::Expr, schema: &DFSchema) -> Result<()> {
    expr.apply(|node| {
        if let logical_expr::Expr::WindowFunction(call) = node
            && let frame = &call.params.window_frame
            && frame.units == WindowFrameUnits::Range
            && (is_distance(&frame.start_bound) || is_distance(&frame.end_bound))
            && let [by] = call.params.order_by.as_slice()
            && let Some(field) = typed(&by.expr, schema)
            && !has_distances(field.data_type())
        {
            let message = format!(
                "RANGE with offset PRECEDING/FOLLOWING is not supported for column type {}",
                plain_name(&field)
            );
            return Err(SqlError::unsupported(message).into());
        }
        Ok(TreeNodeRecursion::Continue)
    })
    .map(|_| ())
}

fn is_distance(bound: &WindowFrameBound) -> bool {
    match bound {
        WindowFrameBound::Preceding(value) | WindowFrameBound::Following(value) => !value.is_null(),
        WindowFrameBound::CurrentRow => false,
    }
}

fn has_distances(data_type: &DataType) -> bool {
    let is_time_of_day = matches!(data_type, DataType::Time32(_) | DataType::Time64(_));
    data_type.is_numeric() || data_type.is_temporal() && !is_time_of_day || data_type.is_null()
}

/// The bounds of a window's frame are literals to DataFusion, not expressions: an interval becomes a literal again.
pub(super) fn restore_bounds(window: &mut ast::WindowSpec) {
    let Some(frame) = &mut window.window_frame else {
        return;
    };
    for bound in [Some(&mut frame.start_bound), frame.end_bound.as_mut()]
        .into_iter()
        .flatten()
    {
        let (ast::WindowFrameBound::Preceding(Some(offset)) | ast::WindowFrameBound::Following(Some(offset))) =
            bound
        else {
            continue;
        };
        let Expr::Function(function) = offset.as_ref() else {
            continue;
        };
        let FunctionArguments::List(list) = &function.args else {
            continue;
        };
        if let [
            FunctionArg::Unnamed(FunctionArgExpr::Expr(value)),
            FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(of))),
        ] = list.args.as_slice()
            && of.value == Value::SingleQuotedString("interval".into())
        {
            **offset = Expr::Interval(ast::Interval {
                value: Box::new(value.clone()),
                leading_field: None,
                leading_precision: None,
                last_field: None,
                fractional_seconds_precision: None,
            });
        }
    }
}
