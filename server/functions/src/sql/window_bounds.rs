//! The bounds of windows' frames.

use datafusion::sql::sqlparser::ast::{self, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Value};

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
