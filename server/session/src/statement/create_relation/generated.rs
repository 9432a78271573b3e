//! Generated columns: what their expressions may read and call.

use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::common::DFSchema;
use datafusion::common::tree_node::TreeNode;
use datafusion::logical_expr::{Expr, Volatility};
use datafusion::sql::sqlparser::ast;
use millrace_catalog::ColumnDef;
use millrace_catalog::scope::Scope;
use millrace_functions::sql::{named_types, rewrite};
use millrace_parser::walk::walk_expressions;
use millrace_planner::Binder;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::from_internal::df;

use crate::session::Session;

/// Refuses columns that are computed from what is not there yet, or would be another value each time.
///
/// # Errors
/// 42P17, and those of binding.
pub(in crate::statement) fn check(session: &Session, scope: &Scope, columns: &[ColumnDef]) -> SqlResult<()> {
    let reader = session.database().reader(scope);
    let binder = Binder::new(session.database().state(), &reader);
    let fields: Vec<_> = columns.iter().map(|column| Arc::clone(&column.field)).collect();
    let schema = df(DFSchema::try_from(Schema::new(fields)))?;
    for column in columns {
        let Some(generated) = &column.generated else {
            continue;
        };
        check_references(column, generated, columns)?;
        let mut generated = generated.clone();
        named_types::resolve(&mut generated, &reader)?;
        rewrite::expression(&mut generated)?;
        let bound = df(binder.expression(&generated, &schema))?;
        let changes = df(bound.exists(|part| {
            Ok(matches!(part, Expr::ScalarFunction(call) if call.func.signature().volatility != Volatility::Immutable))
        }))?;
        if changes {
            let message = "generation expression is not immutable";
            return Err(SqlError::new(SqlState::InvalidObjectDefinition, message)
                .with_hint("proctime() is when a row arrives; a DEFAULT may be anything."));
        }
    }
    Ok(())
}

/// A generated column is computed from given ones: one that reads another generated column would read nothing.
fn check_references(column: &ColumnDef, expression: &ast::Expr, columns: &[ColumnDef]) -> SqlResult<()> {
    let is_generated = |name: &str| {
        columns
            .iter()
            .any(|column| column.field.name() == name && column.generated.is_some())
    };
    let found = walk_expressions(expression, |expr| match expr {
        ast::Expr::Identifier(ident) if is_generated(&millrace_parser::fold(ident)) => {
            ControlFlow::Break(millrace_parser::fold(ident))
        }
        _ => ControlFlow::Continue(()),
    });
    match found {
        ControlFlow::Break(other) => Err(SqlError::new(
            SqlState::InvalidObjectDefinition,
            format!("cannot use generated column \"{other}\" in column generation expression"),
        )
        .with_detail(format!(
            "Column \"{}\" depends on a column that is itself generated.",
            column.field.name()
        ))),
        ControlFlow::Continue(()) => Ok(()),
    }
}
