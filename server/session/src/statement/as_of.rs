//! `v FOR SYSTEM_TIME AS OF e`, for short `v AS OF e`: a materialized view as it was, where it has a history.
//!
//! The rows are put together before the statement is bound, and stand in it under a name that nothing else can have.

use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::datasource::MemTable;
use datafusion::sql::sqlparser::ast::{
    self, Expr, Ident, ObjectName, ObjectNamePart, TableAlias, TableFactor, TableVersion, VisitorMut,
};
use millrace_catalog::Object;
use millrace_catalog::scope::Scope;
use millrace_database::database::subscriptions::Begin;
use millrace_functions::syntax::name_of;
use millrace_parser::walk::{Walk, walk_expressions};
use millrace_planner::RelationId;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::from_internal::{self, df};

use crate::names;
use crate::session::Session;
use crate::statement::subscribe::from_expression;

/// A relation as of a time, and the name under which it stands in the statement.
struct Wanted {
    stands_as: String,
    name: ObjectName,
    time: Expr,
}

/// Puts the rows of views as they were in the place of their names.
///
/// # Errors
/// A view has no history, or not back to then.
pub(crate) async fn resolve(
    session: &Arc<Session>,
    scope: &mut Scope,
    statement: &mut ast::Statement,
) -> SqlResult<()> {
    for wanted in take(statement, true) {
        let object = names::resolve(session, scope, &wanted.name)?;
        scope.check_read(&object)?;
        let history = scope.catalog.history_of(object.id).cloned();
        let history = history.ok_or_else(|| no_history(&object))?;
        let epoch = match from_expression(session, &wanted.time).await? {
            Begin::Epoch(epoch) => Some(epoch),
            Begin::Now => None,
            _ => {
                return Err(SqlError::new(
                    SqlState::InvalidParameterValue,
                    format!("AS OF takes an epoch or a timestamp, not {}", wanted.time),
                ));
            }
        };
        let after = session.read_after(&[RelationId(object.id.0)]);
        let found = session
            .database()
            .rows_as_of(&history, epoch, after.as_ref())
            .await
            .map_err(|error| match error.code {
                SqlState::SnapshotTooOld => not_back_to(&object, &history, &wanted.time),
                _ => error,
            })?;
        let relation = object.relation().ok_or_else(|| no_history(&object))?;
        let schema = Arc::clone(relation.schema());
        let batches = found.batches.iter();
        let batches = batches
            .map(|batch| RecordBatch::try_new(Arc::clone(&schema), batch.columns().to_vec()))
            .collect::<Result<Vec<_>, _>>()
            .map_err(from_internal::arrow)?;
        let table = df(MemTable::try_new(schema, vec![batches]))?;
        scope.given.insert(wanted.stands_as, Arc::new(table));
    }
    Ok(())
}

/// Lets views stand for themselves as they are: to learn the columns of a statement.
pub(crate) fn forget(statement: &mut ast::Statement) {
    take(statement, false);
}

fn no_history(object: &Object) -> SqlError {
    SqlError::new(
        SqlState::ObjectNotInPrerequisiteState,
        format!("{} has no history", object.described()),
    )
    .with_hint("Only a materialized view that was created WITH (history = '1 hour') can be read as it was.")
}

fn not_back_to(object: &Object, history: &Object, time: &ast::Expr) -> SqlError {
    SqlError::new(
        SqlState::SnapshotTooOld,
        format!("{} has no history back to {time}", object.described()),
    )
    .with_hint(format!(
        "SELECT oldest_epoch FROM mr_catalog.subscriptions WHERE name = '{}' tells how far it goes back.",
        history.name
    ))
}

/// Takes the times out of a statement; `renames`: the relations stand under other names from now on.
fn take(statement: &mut ast::Statement, renames: bool) -> Vec<Wanted> {
    let mut taker = Taker {
        renames,
        wanted: vec![],
    };
    let _ = statement.walk_mut(&mut taker);
    taker.wanted
}

struct Taker {
    renames: bool,
    wanted: Vec<Wanted>,
}

impl VisitorMut for Taker {
    type Break = ();

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        let TableFactor::Table {
            name, alias, version, ..
        } = factor
        else {
            return ControlFlow::Continue(());
        };
        let Some(TableVersion::ForSystemTimeAsOf(time)) = &*version else {
            return ControlFlow::Continue(());
        };
        if !is_moment(time) {
            return ControlFlow::Continue(());
        }
        let time = time.clone();
        *version = None;
        let stands_as = format!("{name} as of {time}");
        let wanted = Wanted {
            stands_as: stands_as.clone(),
            name: name.clone(),
            time,
        };
        if self.renames {
            if alias.is_none()
                && let Some(ObjectNamePart::Identifier(last)) = name.0.last()
            {
                *alias = Some(TableAlias {
                    explicit: true,
                    name: last.clone(),
                    columns: vec![],
                    at: None,
                });
            }
            *name = ObjectName::from(vec![Ident::with_quote('"', stands_as)]);
        }
        self.wanted.push(wanted);
        ControlFlow::Continue(())
    }
}

/// Whether it is one moment for all rows: no column, and not the time at which a row arrives.
fn is_moment(time: &Expr) -> bool {
    let depends = |expr: &Expr| match expr {
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) => ControlFlow::Break(()),
        Expr::Function(function) if name_of(function).as_deref() == Some("proctime") => {
            ControlFlow::Break(())
        }
        _ => ControlFlow::Continue(()),
    };
    !walk_expressions(time, depends).is_break()
}
