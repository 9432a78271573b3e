//! Queries that do more than read: by the functions that they call.

use std::ops::ControlFlow;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Expr as Bound, LogicalPlan};
use datafusion::sql::sqlparser::ast::Expr;
use millrace_functions::syntax::name_of;
use millrace_parser::ast::{ExplainTarget, Statement};
use millrace_parser::walk::walk_expressions;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::from_internal::df;

/// Functions that change something, or what another session does.
const ACTING: [&str; 7] = [
    "nextval",
    "setval",
    "set_config",
    "pg_notify",
    "pg_cancel_backend",
    "pg_terminate_backend",
    "pg_stat_statements_reset",
];

/// What advisory locks are taken and given back by begins so.
const ADVISORY: [&str; 2] = ["pg_advisory_", "pg_try_advisory_"];

/// The first function that a query calls, or the query that an EXPLAIN is of, which does more than read.
pub fn acting_function(statement: &Statement) -> Option<String> {
    match statement {
        Statement::Sql(statement) => {
            let found = walk_expressions(&**statement, |expr| match expr {
                Expr::Function(function) => match name_of(function).filter(|name| acts(name)) {
                    Some(name) => ControlFlow::Break(name),
                    None => ControlFlow::Continue(()),
                },
                _ => ControlFlow::Continue(()),
            });
            found.break_value()
        }
        Statement::Explain(explain) => match &explain.target {
            ExplainTarget::Statement(inner) => acting_function(inner),
            _ => None,
        },
        _ => None,
    }
}

/// Refuses a plan in which such a function is called, by whatever view or function of SQL: the others are refused there anyway.
///
/// # Errors
/// 25006.
pub(crate) fn check_plan(plan: &LogicalPlan) -> SqlResult<()> {
    let mut found = None;
    df(plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|expr| match expr {
                Bound::ScalarFunction(call) if acts(call.name()) => {
                    found = Some(call.name().to_owned());
                    Ok(TreeNodeRecursion::Stop)
                }
                _ => Ok(TreeNodeRecursion::Continue),
            })
        })
    }))?;
    match found {
        Some(function) => Err(refused(&function)),
        None => Ok(()),
    }
}

/// The error of a function that does more than read, where a request may only read: a GET over HTTP.
pub fn refused(function: &str) -> SqlError {
    let message = format!("GET does not support {function}(), which does more than read");
    SqlError::new(SqlState::ReadOnlySqlTransaction, message)
        .with_hint("Send the statement to /api/sql with POST.")
}

fn acts(name: &str) -> bool {
    ACTING.contains(&name) || ADVISORY.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_that_act_are_found_wherever_they_stand() {
        let found = |sql: &str| acting_function(&millrace_parser::parse(sql).unwrap().remove(0).statement);
        for (sql, name) in [
            ("SELECT nextval('q')", "nextval"),
            ("SELECT 1 + pg_catalog.SETVAL('q', 7)", "setval"),
            (
                "WITH x AS (SELECT pg_notify('a', 'b')) SELECT * FROM x",
                "pg_notify",
            ),
            (
                "SELECT 1 WHERE EXISTS (SELECT pg_terminate_backend(pid) FROM pg_stat_activity)",
                "pg_terminate_backend",
            ),
            ("EXPLAIN ANALYZE SELECT pg_cancel_backend(1)", "pg_cancel_backend"),
            ("SELECT pg_try_advisory_xact_lock(1)", "pg_try_advisory_xact_lock"),
            ("SELECT 1 ORDER BY pg_advisory_lock(1)", "pg_advisory_lock"),
            ("VALUES (set_config('role', 'ann', false))", "set_config"),
        ] {
            assert_eq!(found(sql).as_deref(), Some(name), "{sql}");
        }
        for sql in [
            "SELECT currval('q')",
            "SELECT now(), lower('x')",
            "SHOW ALL",
            "SELECT \"nextval\" FROM t",
        ] {
            assert_eq!(found(sql), None, "{sql}");
        }
    }
}
