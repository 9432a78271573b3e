//! Quoted literals that are no input of the type that they take, refused when a statement is bound.
//!
//! PostgreSQL reads a literal where it is written, also if no row ever comes to it. Here a cast of one is a call as any other, which
//! would fail on the first row only, and in a view that is maintained be NULL.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs};
use datafusion::scalar::ScalarValue;
use millrace_postgres::error::{SqlError, SqlState};
use millrace_postgres::from_internal;

use crate::cast;

/// Checks the literals that are cast in an expression.
///
/// # Errors
/// Those of the type's input.
pub(super) fn check(expr: &Expr) -> Result<()> {
    expr.apply(|node| {
        if let Expr::ScalarFunction(call) = node
            && matches!(call.func.name(), cast::NAME | cast::ASSIGN)
            && let [Expr::Literal(ScalarValue::Utf8(Some(text)), _), ..] = call.args.as_slice()
            && let Some(error) = refused(call)
        {
            return Err(error.of_literal(text).into());
        }
        Ok(TreeNodeRecursion::Continue)
    })
    .map(|_| ())
}

/// Why the cast of a literal fails; `None`: it does not, or says so when it runs.
fn refused(call: &ScalarFunction) -> Option<SqlError> {
    let values = call.args.iter().map(|arg| match arg {
        Expr::Literal(value, _) => Some(value),
        _ => None,
    });
    let values = values.collect::<Option<Vec<&ScalarValue>>>()?;
    let schema = datafusion::common::DFSchema::empty();
    let fields = call.args.iter().map(|arg| {
        use datafusion::logical_expr::ExprSchemable;
        arg.to_field(&schema).ok().map(|(_, field)| field)
    });
    let fields = fields.collect::<Option<Vec<_>>>()?;
    let scalars: Vec<Option<&ScalarValue>> = values.iter().copied().map(Some).collect();
    let return_field = call
        .func
        .return_field_from_args(ReturnFieldArgs {
            arg_fields: &fields,
            scalar_arguments: &scalars,
        })
        .ok()?;
    let made = call.func.invoke_with_args(ScalarFunctionArgs {
        args: values.into_iter().cloned().map(ColumnarValue::Scalar).collect(),
        arg_fields: fields,
        number_rows: 1,
        return_field,
        config_options: Arc::new(ConfigOptions::default()),
    });
    let error = from_internal::datafusion(made.err()?);
    // What is too long for its column is said when a row has it.
    (error.code != SqlState::StringDataRightTruncation).then_some(error)
}
