//! An expression of a view as one writes it: `(10 / (v - 1))::text`, which is `pg_cast(divide(10, int_subtract(v, 1)), text)` inside.

use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::physical_expr::expressions::{BinaryExpr, CastExpr, IsNotNullExpr, IsNullExpr, Literal};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_expr_common::physical_expr::fmt_sql;
use millrace_planner::stage::readable::OPERATORS;

/// What of a function's name is ours: the function without it is the one that was written.
const AROUND_NAMES: (&str, &str) = ("pg_", "_by_pattern");

/// The expression as one writes it.
pub(crate) fn written(expression: &dyn PhysicalExpr) -> String {
    if let Some(call) = expression.downcast_ref::<ScalarFunctionExpr>() {
        return function(call);
    }
    if let Some(literal) = expression.downcast_ref::<Literal>() {
        return constant(literal.value());
    }
    if let Some(binary) = expression.downcast_ref::<BinaryExpr>() {
        return format!(
            "{} {} {}",
            inner(binary.left()),
            binary.op(),
            inner(binary.right())
        );
    }
    // One that was written is a function of ours.
    if let Some(cast) = expression.downcast_ref::<CastExpr>() {
        return written(cast.expr().as_ref());
    }
    if let Some(is_null) = expression.downcast_ref::<IsNullExpr>() {
        return format!("{} IS NULL", inner(is_null.arg()));
    }
    if let Some(is_not_null) = expression.downcast_ref::<IsNotNullExpr>() {
        return format!("{} IS NOT NULL", inner(is_not_null.arg()));
    }
    fmt_sql(expression).to_string()
}

fn function(call: &ScalarFunctionExpr) -> String {
    let (name, arguments) = (call.fun().name(), call.args());
    let operator = OPERATORS.iter().find(|(function, _)| *function == name);
    match (operator, name, arguments) {
        (Some((_, operator)), _, [left, right]) => format!("{} {operator} {}", inner(left), inner(right)),
        (_, "pg_cast" | "pg_assign", [value, of_type, ..]) => {
            format!("{}::{}", inner(value), text(of_type.as_ref()))
        }
        (_, "pg_extract", [field, from]) => {
            format!(
                "extract({} FROM {})",
                text(field.as_ref()),
                written(from.as_ref())
            )
        }
        _ => {
            let (before, behind) = AROUND_NAMES;
            let plain = name.strip_prefix(before).unwrap_or(name);
            let plain = plain.strip_suffix(behind).unwrap_or(plain);
            let arguments: Vec<String> = arguments
                .iter()
                .map(|argument| written(argument.as_ref()))
                .collect();
            format!("{plain}({})", arguments.join(", "))
        }
    }
}

/// As a part of another expression: in parentheses, if it is an operation itself.
fn inner(expression: &Arc<dyn PhysicalExpr>) -> String {
    let text = written(expression.as_ref());
    match is_operation(expression.as_ref()) {
        true => format!("({text})"),
        false => text,
    }
}

fn is_operation(expression: &dyn PhysicalExpr) -> bool {
    if let Some(cast) = expression.downcast_ref::<CastExpr>() {
        return is_operation(cast.expr().as_ref());
    }
    if let Some(call) = expression.downcast_ref::<ScalarFunctionExpr>() {
        return OPERATORS.iter().any(|(name, _)| *name == call.fun().name());
    }
    expression.downcast_ref::<BinaryExpr>().is_some()
        || expression.downcast_ref::<IsNullExpr>().is_some()
        || expression.downcast_ref::<IsNotNullExpr>().is_some()
}

/// A name that is a constant of the function.
fn text(expression: &dyn PhysicalExpr) -> String {
    let literal = expression.downcast_ref::<Literal>();
    match literal.and_then(|literal| literal.value().try_as_str().flatten()) {
        Some(text) => text.to_owned(),
        None => written(expression),
    }
}

fn constant(value: &ScalarValue) -> String {
    match value.try_as_str().flatten() {
        Some(text) => format!("'{}'", text.replace('\'', "''")),
        None => value.to_string(),
    }
}
