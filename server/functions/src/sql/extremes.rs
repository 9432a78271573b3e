//! `min`, `max`, `greatest` and `least` of types that have no order.

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::Expr;
use millrace_postgres::error::{SqlError, SqlState};
use millrace_postgres::types::{ANNOTATION, plain_name};

use super::type_check::typed;

/// Refuses the least and the greatest of json and jsonb: texts hold them here, and would be compared.
pub(super) fn check(expr: &Expr, schema: &DFSchema) -> Result<()> {
    expr.apply(|node| {
        let (name, value) = match node {
            Expr::AggregateFunction(call) => (call.func.name(), call.params.args.first()),
            Expr::ScalarFunction(call) => (call.func.name(), call.args.first()),
            _ => return Ok(TreeNodeRecursion::Continue),
        };
        if matches!(name, "min" | "max" | "greatest" | "least")
            && let Some(field) = value.and_then(|value| typed(value, schema))
            && matches!(
                field.metadata().get(ANNOTATION).map(String::as_str),
                Some("json" | "jsonb")
            )
        {
            let message = format!("function {name}({}) does not exist", plain_name(&field));
            return Err(SqlError::new(SqlState::UndefinedFunction, message)
                .with_hint("You might need to add explicit type casts.")
                .into());
        }
        Ok(TreeNodeRecursion::Continue)
    })
    .map(|_| ())
}
