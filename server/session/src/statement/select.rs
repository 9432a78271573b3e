//! SELECT: bind, take a snapshot, plan, run.

use std::sync::Arc;

use datafusion::execution::SendableRecordBatchStream;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::sqlparser::ast;
use millrace_catalog::scope::Scope;
use millrace_database::running::Running;
use millrace_functions::sql::{column_names, output_types, rewrite};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::from_internal;

use crate::constants;
use crate::forecasting::Followed;
use crate::object_names;
use crate::outcome::{CommandTag, Outcome};
use crate::output_columns::OutputColumns;
use crate::session::Session;
use crate::statement::{as_of, constant_row, lock};

/// Why a query is bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To be run.
    Run,
    /// To learn its parameters and columns: nothing is done.
    Describe,
}

/// Executes a SELECT.
pub async fn execute(
    session: &Arc<Session>,
    statement: &mut ast::Statement,
    running: Running,
) -> SqlResult<Outcome> {
    let written = statement.clone();
    let mut has_slept = false;
    loop {
        let mut scope = session.scope();
        object_names::shown(statement);
        as_of::resolve(session, &mut scope, statement).await?;
        let locks = match statement {
            ast::Statement::Query(query) => std::mem::take(&mut query.locks),
            _ => vec![],
        };
        let Bound {
            plan,
            columns,
            effects,
        } = bind_with_effects(session, &scope, statement, Purpose::Run)?;
        if !effects.sleep.is_zero() && !has_slept {
            tokio::time::sleep(effects.sleep).await;
            has_slept = true;
        }
        for lock in effects.locks {
            lock.take(session).await?;
        }
        lock::rows(session, &locks, &plan).await?;
        let tag = CommandTag::sent("SELECT");
        match run(session, &scope, plan, &columns, running.clone(), tag).await {
            // A view was replaced between binding and reading: what has its name now is read.
            Err(error)
                if error.code == SqlState::UndefinedTable
                    && session.catalog().version != scope.catalog.version =>
            {
                statement.clone_from(&written);
            }
            outcome => return outcome,
        }
    }
}

/// Runs a bound query for its rows.
pub async fn run(
    session: &Arc<Session>,
    scope: &Scope,
    plan: LogicalPlan,
    columns: &OutputColumns,
    running: Running,
    tag: CommandTag,
) -> SqlResult<Outcome> {
    let stream: SendableRecordBatchStream = match constant_row::answer(session, &plan)? {
        Some(row) => row,
        None => {
            let physical = session.physical_plan(plan, &scope.before).await?;
            let stream = session.start(Arc::clone(&physical))?;
            Box::pin(Followed::new(session, scope.acting.role, physical, stream))
        }
    };
    let (schema, stream) = session.guarded(stream, columns, running);
    Ok(Outcome::Rows { schema, stream, tag })
}

/// A bound query.
struct Bound {
    plan: LogicalPlan,
    columns: OutputColumns,
    effects: constants::Effects,
}

/// Binds a query. Its answer has the columns beside the plan.
///
/// # Errors
/// Names, types or constructs that do not bind.
pub fn bind(
    session: &Session,
    scope: &Scope,
    statement: &mut ast::Statement,
    purpose: Purpose,
) -> SqlResult<(LogicalPlan, OutputColumns)> {
    let bound = bind_with_effects(session, scope, statement, purpose)?;
    bound.effects.check_locks()?;
    Ok((bound.plan, bound.columns))
}

fn bind_with_effects(
    session: &Session,
    scope: &Scope,
    statement: &mut ast::Statement,
    purpose: Purpose,
) -> SqlResult<Bound> {
    let names = match statement {
        ast::Statement::Query(query) => column_names::output_names(query),
        _ => vec![],
    };
    let effects = match purpose {
        Purpose::Run => constants::replace(session, statement)?,
        Purpose::Describe => {
            as_of::forget(statement);
            // What `set_config` would do happens when the query runs.
            constants::replace_for_description(session, statement)?;
            constants::Effects::default()
        }
    };
    rewrite::statement(statement)?;
    let ast::Statement::Query(query) = statement else {
        return Err(SqlError::new(SqlState::SyntaxError, "expected a query"));
    };
    if purpose == Purpose::Run && !query.locks.is_empty() {
        return Err(
            SqlError::unsupported("FOR UPDATE is supported only in a SELECT by itself")
                .with_hint("LOCK TABLE .. IN EXCLUSIVE MODE locks a table."),
        );
    }
    query.locks.clear();
    let reader = session.database().reader(scope);
    let plan = reader.bind_query(query)?;
    let notes = output_types::of_plan(&plan);
    Ok(Bound {
        plan,
        columns: OutputColumns { names, notes },
        effects,
    })
}

/// The text of a query, parsed.
///
/// # Errors
/// It is not one query.
pub(crate) fn parse_query(text: &str) -> SqlResult<ast::Statement> {
    let mut parsed = millrace_parser::parse(text).map_err(from_internal::parse)?;
    match parsed.pop().map(|parsed| parsed.statement) {
        Some(millrace_parser::ast::Statement::Sql(sql)) if parsed.is_empty() => Ok(*sql),
        _ => Err(SqlError::internal(format!("not one query: {text}"))),
    }
}

/// Replaces the session's functions and PostgreSQL's spellings in a statement.
pub(crate) fn prepare_sql(session: &Session, sql: &mut ast::Statement) -> SqlResult<constants::Effects> {
    let effects = constants::replace(session, sql)?;
    effects.check_locks()?;
    rewrite::statement(sql)?;
    Ok(effects)
}

/// Prepares a statement's expressions for binding.
pub fn prepare(session: &Session, statement: &mut ast::Statement) -> SqlResult<()> {
    prepare_sql(session, statement).map(|_| ())
}
