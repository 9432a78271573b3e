//! CREATE INDEX on a table or a materialized view.

use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{CreateIndex, Expr};
use millrace_catalog::rights::Rights;
use millrace_catalog::scope::Scope;
use millrace_catalog::{Definition, IndexDef, Object};
use millrace_database::clock::now_ms;
use millrace_database::database::ddl::DdlGuard;
use millrace_database::database::rows::positions;
use millrace_engine::TableLocks;
use millrace_functions::sql::equality;
use millrace_parser::quote_identifier;
use millrace_planner::RelationId;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_storage::ObjectKind;

use crate::names;
use crate::notice::Severity;
use crate::outcome::Outcome;
use crate::query::Providers;
use crate::session::Session;
use crate::statement::{done, select};

/// Executes CREATE INDEX.
pub async fn execute(session: &Arc<Session>, create: CreateIndex, text: &str) -> SqlResult<Outcome> {
    if create.predicate.is_some() {
        return Err(SqlError::unsupported("partial indexes are not supported"));
    }
    if create.nulls_distinct == Some(false) {
        return Err(SqlError::unsupported("NULLS NOT DISTINCT is not supported"));
    }
    // The rows must be unique when the index is made, and nobody may change that meanwhile.
    let locked = match names::resolve(session, &session.scope(), &create.table_name) {
        Ok(on)
            if create.unique && on.kind == ObjectKind::Table && session.scope().check_owner(&on).is_ok() =>
        {
            Some((on.id, lock(session, &on).await?))
        }
        _ => None,
    };
    let guard = session.ddl().await?;
    let scope = session.scope();
    let on = names::resolve(session, &scope, &create.table_name)?;
    scope.check_owner(&on)?;
    on.check_up()?;
    let relation = match (on.kind, on.relation()) {
        (ObjectKind::Table | ObjectKind::MaterializedView, Some(relation)) => relation,
        _ => {
            return Err(SqlError::new(
                SqlState::WrongObjectType,
                format!("cannot create an index on {}", on.described()),
            )
            .with_hint("Indexes are supported on tables and materialized views."));
        }
    };
    if create.unique && relation.connector.is_some() {
        return Err(
            SqlError::unsupported(format!("a unique index on {} is not supported", on.described()))
                .with_detail("Its rows come from a connector, and are taken as they are."),
        );
    }
    if !create.include.is_empty() {
        let included: Vec<String> = create.include.iter().map(millrace_parser::fold).collect();
        positions(relation, &included)?;
        let message = "INCLUDE has no effect: an index always finds whole rows";
        session.notice(Severity::Notice, message);
    }
    let columns = create
        .columns
        .iter()
        .map(|column| match &column.column.expr {
            Expr::Identifier(name) => Ok(millrace_parser::fold(name)),
            other => Err(SqlError::unsupported(format!(
                "an index on the expression {other} is not supported"
            ))),
        })
        .collect::<SqlResult<Vec<String>>>()?;
    let positions = positions(relation, &columns)?;
    let name = match &create.name {
        Some(name) => names::last(name),
        None => {
            let is_taken = |name: &str| {
                scope
                    .catalog
                    .relation(&scope.database, &on.schema, name)
                    .is_some()
            };
            names::free(&format!("{}_{}_idx", on.name, columns.join("_")), is_taken)
        }
    };
    if create.if_not_exists && names::is_there(session, &scope, &on.schema, &name) {
        return done("CREATE INDEX");
    }
    guard.check_free(&scope.database, &on.schema, &name)?;
    session.database().jobs().check_unlocked(&[on.id])?;
    if create.unique {
        if locked.as_ref().is_none_or(|(locked, _)| *locked != on.id) {
            return Err(SqlError::unsupported(format!(
                "a unique index on {} is not supported",
                on.described()
            ))
            .with_hint("Unique indexes are supported on tables."));
        }
        for position in &positions {
            equality::check_key(relation.schema().field(*position))?;
        }
        check_rows(session, &scope, &on, &name, &columns).await?;
    }
    let definition = IndexDef {
        relation: on.id,
        columns: positions,
        is_unique: create.unique,
        is_constraint: false,
    };
    let object = index(&guard, &on, name, text.to_string(), definition)?;
    guard.create(object).await?;
    done("CREATE INDEX")
}

/// Locks a table for the statement; in a transaction, which may have locked it already, until its end.
async fn lock(session: &Arc<Session>, table: &Object) -> SqlResult<Option<TableLocks>> {
    match table.relation() {
        Some(relation) if session.transaction_is_open() => {
            session.hold_table(relation).await?;
            Ok(None)
        }
        _ => Ok(Some(session.lock_table(RelationId(table.id.0)).await?)),
    }
}

/// Refuses rows of a table that have the same values.
async fn check_rows(
    session: &Arc<Session>,
    scope: &Scope,
    table: &Object,
    index: &str,
    columns: &[String],
) -> SqlResult<()> {
    let columns: Vec<String> = columns
        .iter()
        .map(|column| quote_identifier(column).to_string())
        .collect();
    let are_there: Vec<String> = columns
        .iter()
        .map(|column| format!("{column} IS NOT NULL"))
        .collect();
    let text = format!(
        "SELECT 1 FROM {}.{} WHERE {} GROUP BY {} HAVING count(*) > 1 LIMIT 1",
        quote_identifier(&table.schema),
        quote_identifier(&table.name),
        are_there.join(" AND "),
        columns.join(", ")
    );
    let mut statement = select::parse_query(&text)?;
    let (plan, _) = select::bind(session, scope, &mut statement, select::Purpose::Run)?;
    let found = session.collect(plan, &Providers::new()).await?;
    match found.iter().all(|batch| batch.num_rows() == 0) {
        true => Ok(()),
        false => Err(SqlError::new(
            SqlState::UniqueViolation,
            format!("could not create unique index \"{index}\""),
        )
        .with_detail("Some values are there twice.")),
    }
}

/// An index of a relation.
///
/// # Errors
/// The catalog cannot be written.
pub(super) fn index(
    guard: &DdlGuard<'_>,
    on: &Object,
    name: String,
    sql: String,
    definition: IndexDef,
) -> SqlResult<Object> {
    Ok(Object {
        id: guard.next_id()?,
        kind: ObjectKind::Index,
        database: on.database.clone(),
        schema: on.schema.clone(),
        name,
        sql,
        comment: None,
        created_at_ms: now_ms(),
        depends: vec![on.id],
        definition: Definition::Index(definition),
        rights: Rights::of(on.rights.owner()),
    })
}
