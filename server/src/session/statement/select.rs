//! SELECT: bind, take a snapshot, plan, run.

use std::ops::ControlFlow;
use std::sync::{Arc, LazyLock};

use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::sqlparser::ast::{self, ObjectName, Visit, Visitor};
use datafusion_pg_catalog::sql::PostgresCompatibilityParser;

use crate::catalog::SYSTEM_SCHEMAS;
use crate::error::{SqlError, SqlResult, SqlState, from_internal};
use crate::functions::{column_names, rewrite};
use crate::session::query::Providers;
use crate::session::statement::names;
use crate::session::{CommandTag, Outcome, Running, Scope, Session, constants, parameters};

/// Why a query is bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To be run.
    Run,
    /// To learn its parameters and columns: nothing is done.
    Describe,
}

static COMPATIBILITY: LazyLock<PostgresCompatibilityParser> = LazyLock::new(PostgresCompatibilityParser::new);

/// Executes a SELECT.
pub(crate) async fn execute(
    session: &Arc<Session>,
    statement: &mut ast::Statement,
    text: &str,
    running: Running,
) -> SqlResult<Outcome> {
    let written = statement.clone();
    let mut has_slept = false;
    loop {
        let scope = session.scope();
        let Bound { plan, names, effects } =
            bind_with_effects(session, &scope, statement, text, Purpose::Run)?;
        if !effects.sleep.is_zero() && !has_slept {
            tokio::time::sleep(effects.sleep).await;
            has_slept = true;
        }
        let tag = CommandTag::sent("SELECT");
        match run(session, plan, &names, running.clone(), tag).await {
            // A view was replaced between binding and reading: what has its name now is read.
            Err(error)
                if error.code == SqlState::UndefinedTable
                    && session.database().catalog().version != scope.catalog.version =>
            {
                statement.clone_from(&written);
            }
            outcome => return outcome,
        }
    }
}

/// Runs a bound query for its rows.
pub(crate) async fn run(
    session: &Arc<Session>,
    plan: LogicalPlan,
    names: &[String],
    running: Running,
    tag: CommandTag,
) -> SqlResult<Outcome> {
    let physical = session.physical_plan(plan, &Providers::new()).await?;
    let stream = session.start(physical)?;
    let (schema, stream) = session.guarded(stream, names, running);
    Ok(Outcome::Rows { schema, stream, tag })
}

/// A bound query.
struct Bound {
    plan: LogicalPlan,
    /// What its columns are called, if that is not what the plan says.
    names: Vec<String>,
    effects: constants::Effects,
}

/// Binds a query. Its columns are to be called by the names beside the plan, if there are any.
///
/// # Errors
/// Names, types or constructs that do not bind.
pub(crate) fn bind(
    session: &Session,
    scope: &Scope,
    statement: &mut ast::Statement,
    text: &str,
    purpose: Purpose,
) -> SqlResult<(LogicalPlan, Vec<String>)> {
    bind_with_effects(session, scope, statement, text, purpose).map(|bound| (bound.plan, bound.names))
}

fn bind_with_effects(
    session: &Session,
    scope: &Scope,
    statement: &mut ast::Statement,
    text: &str,
    purpose: Purpose,
) -> SqlResult<Bound> {
    if names_system_relations(scope, statement)
        && let Some(compatible) = compatible(statement, text)
    {
        *statement = compatible;
    }
    let names = match statement {
        ast::Statement::Query(query) => column_names::output_names(query),
        _ => vec![],
    };
    let effects = match purpose {
        Purpose::Run => constants::replace(session, statement)?,
        Purpose::Describe => {
            // What `set_config` would do happens when the query runs.
            constants::replace_for_description(session, statement)?;
            constants::Effects::default()
        }
    };
    rewrite::statement(statement)?;
    let ast::Statement::Query(query) = statement else {
        return Err(SqlError::new(SqlState::SyntaxError, "a query is expected"));
    };
    if let ast::SetExpr::Select(select) = query.body.as_ref()
        && let Some(into) = &select.into
    {
        return Err(
            SqlError::unsupported(format!("SELECT .. {into} is not supported"))
                .with_hint("Use CREATE TABLE .. AS SELECT .."),
        );
    }
    if !query.locks.is_empty() {
        return Err(SqlError::unsupported("SELECT .. FOR UPDATE is not supported")
            .with_hint("A table is locked by the first statement of a transaction that changes it."));
    }
    let reader = scope.reader(session.database());
    let plan = reader.bind_query(query)?;
    Ok(Bound { plan, names, effects })
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

/// The query as the relations of pg_catalog want it: rewritten by the rules that come with them.
fn compatible(statement: &ast::Statement, text: &str) -> Option<ast::Statement> {
    // The text has parameters where the statement has values; with parameters, the statement is printed instead.
    let mut statement = statement.clone();
    let asks_defaults = ask_defaults(&mut statement);
    let printed;
    let text = if text.contains('$') || asks_defaults {
        printed = statement.to_string();
        &printed
    } else {
        text
    };
    let mut statements = COMPATIBILITY.parse(text).ok()?;
    match (statements.pop(), statements.is_empty()) {
        (Some(mut statement @ ast::Statement::Query(_)), true) => {
            let _: ControlFlow<()> = ast::visit_expressions_mut(&mut statement, |expr| {
                // `ARRAY(SELECT ..)` has no counterpart; where clients use it, on roles, the answer is always empty.
                if let ast::Expr::Function(function) = expr
                    && matches!(function.args, ast::FunctionArguments::Subquery(_))
                    && names::last(&function.name) == "array"
                {
                    *expr = rewrite::text("{}");
                }
                // Relations have no storage options, and nothing else that clients make a text of in this way.
                if let ast::Expr::Function(function) = expr
                    && names::last(&function.name) == "array_to_string"
                    && (function.args.to_string().contains("reloptions")
                        || function.args.to_string().starts_with("('{}'"))
                {
                    *expr = rewrite::text("");
                }
                ControlFlow::Continue(())
            });
            Some(statement)
        }
        _ => None,
    }
}

/// Replaces `(SELECT .. FROM pg_attrdef ..)` in a select list by a function of the column: the rules drop subqueries
/// there. Clients call the relation of columns `a`, all of them. Returns whether there was one.
fn ask_defaults(statement: &mut ast::Statement) -> bool {
    let mut found = false;
    let _: ControlFlow<()> = ast::visit_expressions_mut(statement, |expr| {
        if let ast::Expr::Subquery(query) = expr
            && let ast::SetExpr::Select(select) = query.body.as_ref()
            && let [from] = select.from.as_slice()
            && let ast::TableFactor::Table { name, .. } = &from.relation
            && names::last(name) == "pg_attrdef"
        {
            let column =
                |name: &str| ast::Expr::CompoundIdentifier(vec![ast::Ident::new("a"), ast::Ident::new(name)]);
            *expr = rewrite::call("pg_column_default", vec![column("attrelid"), column("attnum")]);
            found = true;
        }
        ControlFlow::Continue(())
    });
    found
}

/// Whether a query reads from the system's schemas.
fn names_system_relations(scope: &Scope, statement: &ast::Statement) -> bool {
    struct Names<'a>(&'a Scope);
    impl Visitor for Names<'_> {
        type Break = ();

        fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<()> {
            let Ok(name) = names::parts(relation) else {
                return ControlFlow::Continue(());
            };
            let system = match name.schema() {
                Some(schema) => SYSTEM_SCHEMAS.contains(&schema) && schema != "mr_catalog",
                None => {
                    name.table().starts_with("pg_")
                        && !self.0.search_path.iter().any(|schema| {
                            self.0
                                .catalog
                                .relation(&self.0.database, schema, name.table())
                                .is_some()
                        })
                }
            };
            if system {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        }
    }
    statement.visit(&mut Names(scope)).is_break()
}

/// Prepares a statement's expressions for binding.
pub(crate) fn prepare(session: &Session, statement: &mut ast::Statement) -> SqlResult<()> {
    parameters::prepare_sql(session, statement).map(|_| ())
}
