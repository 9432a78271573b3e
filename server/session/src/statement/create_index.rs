//! CREATE INDEX on a table or a materialized view.

use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{CreateIndex, Expr};
use millrace_catalog::{Definition, IndexDef, Object};
use millrace_database::clock::now_ms;
use millrace_database::database::rows::positions;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_storage::ObjectKind;

use crate::names;
use crate::notice::Severity;
use crate::outcome::Outcome;
use crate::session::Session;
use crate::statement::done;

/// Executes CREATE INDEX.
pub async fn execute(session: &Arc<Session>, create: CreateIndex, text: &str) -> SqlResult<Outcome> {
    if create.unique {
        return Err(SqlError::unsupported("UNIQUE indexes are not supported").with_hint("Use a primary key."));
    }
    if create.predicate.is_some() {
        return Err(SqlError::unsupported("partial indexes are not supported"));
    }
    if !create.include.is_empty() {
        return Err(SqlError::unsupported("INCLUDE is not supported")
            .with_hint("An index look-up returns whole rows, so INCLUDE is not needed."));
    }
    let guard = session.ddl().await?;
    let scope = session.scope();
    let on = names::resolve(session, &scope, &create.table_name)?;
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
        None => free_name(&scope.catalog, &on, &columns),
    };
    if create.if_not_exists
        && scope
            .catalog
            .relation(&scope.database, &on.schema, &name)
            .is_some()
    {
        session.notice(
            Severity::Notice,
            format!("relation \"{name}\" already exists, skipping"),
        );
        return done("CREATE INDEX");
    }
    guard.check_free(&scope.database, &on.schema, &name)?;
    session.database().jobs().check_unlocked(&[on.id])?;
    let object = Object {
        id: guard.next_id()?,
        kind: ObjectKind::Index,
        database: scope.database.clone(),
        schema: on.schema.clone(),
        name,
        sql: text.to_string(),
        comment: None,
        created_at_ms: now_ms(),
        depends: vec![on.id],
        definition: Definition::Index(IndexDef {
            relation: on.id,
            columns: positions,
        }),
    };
    guard.create(object).await?;
    done("CREATE INDEX")
}

/// `table_column_idx`, with a number if that is taken.
fn free_name(catalog: &millrace_catalog::CatalogSnapshot, on: &Object, columns: &[String]) -> String {
    let base = format!("{}_{}_idx", on.name, columns.join("_"));
    let mut name = base.clone();
    let mut number = 0;
    while catalog.relation(&on.database, &on.schema, &name).is_some() {
        number += 1;
        name = format!("{base}{number}");
    }
    name
}
