//! EXPLAIN of INSERT, UPDATE and DELETE: the plan of the query for the rows that change.

use std::sync::Arc;

use datafusion::sql::sqlparser::ast::Statement;
use millrace_parser::ast::{ExplainFormat, ExplainType};
use millrace_postgres::error::SqlResult;

use super::query;
use crate::access;
use crate::session::Session;
use crate::statement::{delete, insert, update};

pub(super) fn is_change(statement: &Statement) -> bool {
    matches!(
        statement,
        Statement::Insert(_) | Statement::Update(_) | Statement::Delete(_)
    )
}

/// The lines of the plan. Nothing is changed.
pub(super) async fn plan(
    session: &Arc<Session>,
    statement: Statement,
    plan_type: ExplainType,
    verbose: bool,
) -> SqlResult<Vec<String>> {
    let mut scope = session.scope();
    let (verb, table, rows) = match statement {
        Statement::Insert(insert) => {
            let (table, rows) = insert::query(session, &scope, insert)?;
            ("Insert", table, rows)
        }
        Statement::Update(update) => {
            let (table, rows) = update::query(session, &scope, &update)?;
            scope = access::changing(scope, table.id);
            ("Update", table, Some(rows))
        }
        Statement::Delete(delete) => {
            let (table, rows) = delete::query(session, &scope, &delete)?;
            scope = access::changing(scope, table.id);
            ("Delete", table, Some(rows))
        }
        _ => return Ok(vec![]),
    };
    let mut lines = vec![format!("{verb} on {}", table.name)];
    if let Some(mut rows) = rows {
        let plan = query(
            session,
            &scope,
            &mut rows,
            plan_type,
            ExplainFormat::Text,
            verbose,
        )
        .await?;
        lines.extend(plan.into_iter().map(|line| format!("  {line}")));
    }
    Ok(lines)
}
