//! What PostgreSQL's clients say of locks and of upkeep: LOCK TABLE, SELECT .. FOR UPDATE, VACUUM and ANALYZE.
//!
//! There is one lock of a table, that of who changes it: others read it meanwhile, and nobody else changes it until the end of the
//! transaction. It stands for every lock that excludes no readers. Rows are not locked one by one: FOR UPDATE locks their table.

use std::sync::Arc;

use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::sqlparser::ast::{self, Lock, LockClause, LockTableMode, NonBlock, ObjectName};
use millrace_catalog::Object;
use millrace_planner::RelationKind;
use millrace_planner::relation::relations;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::from_internal::df;
use millrace_storage::ObjectId;

use crate::names;
use crate::outcome::Outcome;
use crate::session::Session;
use crate::statement::done;
use crate::transaction::{Transaction, read_only};

fn in_block(session: &Session) -> bool {
    matches!(&*session.transaction.lock(), Transaction::Active(active) if !active.implicit)
}

/// LOCK TABLE.
pub(crate) async fn table(session: &Arc<Session>, lock: &Lock) -> SqlResult<Outcome> {
    if !in_block(session) {
        return Err(SqlError::new(
            SqlState::NoActiveSqlTransaction,
            "LOCK TABLE can only be used in transaction blocks",
        ));
    }
    if lock.nowait {
        return Err(SqlError::unsupported("LOCK TABLE .. NOWAIT is not supported"));
    }
    let mode = lock.lock_mode.clone().unwrap_or(LockTableMode::AccessExclusive);
    if mode == LockTableMode::AccessExclusive {
        return Err(
            SqlError::unsupported("LOCK TABLE .. IN ACCESS EXCLUSIVE MODE is not supported")
                .with_detail("Nothing keeps others from reading a table.")
                .with_hint("IN EXCLUSIVE MODE keeps them from changing it."),
        );
    }
    let scope = session.scope();
    for target in &lock.tables {
        let object = names::resolve(session, &scope, &target.name)?;
        let relation = crate::write::table(&object, "lock")?;
        // Those who read exclude nobody here.
        if mode != LockTableMode::AccessShare {
            session.hold_table(relation).await?;
        }
    }
    done("LOCK TABLE")
}

/// What FOR UPDATE and its like lock: the tables of the query, until the end of the transaction.
///
/// # Errors
/// The clause has a part that is not supported, or reads what nobody can lock.
pub(crate) async fn rows(
    session: &Arc<Session>,
    clauses: &[LockClause],
    plan: &LogicalPlan,
) -> SqlResult<()> {
    if let (Some(clause), true) = (clauses.first(), session.is_read_only()) {
        return Err(read_only(&format!("SELECT FOR {}", clause.lock_type)));
    }
    for clause in clauses {
        match clause.nonblock {
            Some(NonBlock::Nowait) => {
                return Err(SqlError::unsupported("FOR UPDATE NOWAIT is not supported"));
            }
            Some(NonBlock::SkipLocked) => {
                return Err(SqlError::unsupported("FOR UPDATE SKIP LOCKED is not supported"));
            }
            None => {}
        }
    }
    if clauses.is_empty() {
        return Ok(());
    }
    let catalog = session.catalog();
    let mut tables: Vec<Arc<Object>> = vec![];
    for id in df(relations(plan))? {
        let Some(object) = catalog.object(ObjectId(id.0)) else {
            continue;
        };
        let kind = object.relation().map(|relation| relation.info.kind);
        if kind != Some(RelationKind::Table) {
            return Err(SqlError::new(
                SqlState::WrongObjectType,
                format!("cannot lock rows in {}", object.described()),
            ));
        }
        tables.push(Arc::clone(object));
    }
    // Outside of a transaction the statement is one, which ends with its rows.
    if in_block(session) {
        for relation in tables.iter().filter_map(|object| object.relation()) {
            session.hold_table(relation).await?;
        }
    }
    Ok(())
}

/// VACUUM and ANALYZE: what they name has to be there. Nothing needs them: what was deleted goes by itself, and so do counts of rows.
///
/// # Errors
/// It is not there, or VACUUM is in a transaction.
pub(crate) fn upkeep(session: &Session, statement: &ast::Statement) -> SqlResult<Option<Outcome>> {
    let named = |name: &ObjectName| names::resolve(session, &session.scope(), name);
    match statement {
        ast::Statement::Vacuum(vacuum) => {
            if !matches!(*session.transaction.lock(), Transaction::Idle) {
                return Err(SqlError::new(
                    SqlState::ActiveSqlTransaction,
                    "VACUUM cannot run inside a transaction block",
                ));
            }
            vacuum.table_name.as_ref().map(named).transpose()?;
            done("VACUUM").map(Some)
        }
        ast::Statement::Analyze(analyze) => {
            let object = analyze.table_name.as_ref().map(named).transpose()?;
            let relation = object.as_ref().and_then(|object| object.relation());
            for column in &analyze.columns {
                let name = millrace_parser::fold(column);
                if relation.is_some_and(|relation| relation.schema().index_of(&name).is_err()) {
                    return Err(SqlError::new(
                        SqlState::UndefinedColumn,
                        format!("column \"{name}\" does not exist"),
                    ));
                }
            }
            done("ANALYZE").map(Some)
        }
        _ => Ok(None),
    }
}
