//! ALTER .. SET (on_error = .., schema_change = ..): what becomes of records that are no rows, or have other columns. A source that has failed
//! because of one goes on with that.

use std::sync::Arc;

use millrace_catalog::connector::ConnectorDef;
use millrace_catalog::connector::postgres::Postgres;
use millrace_catalog::{Definition, Object};
use millrace_database::database::ddl::DdlGuard;
use millrace_parser::ast::Options;
use millrace_postgres::error::{SqlError, SqlResult};

use crate::session::Session;

fn connector(object: &Object) -> Option<&ConnectorDef> {
    object
        .relation()?
        .connector
        .as_ref()
        .filter(|connector| connector.is_read())
}

/// Whether options of what is read are such, and nothing else.
pub(super) fn is_one(object: &Object, options: &Options) -> bool {
    let is_policy = |name: &str| ConnectorDef::is_policy(&name.to_ascii_lowercase());
    connector(object).is_some()
        && !options.0.is_empty()
        && options.0.iter().all(|option| is_policy(&option.name.value))
}

/// Says them anew, and starts what is read again.
pub(super) async fn set(
    session: &Arc<Session>,
    guard: &DdlGuard<'_>,
    object: &Object,
    options: Options,
) -> SqlResult<()> {
    if guard.definitions().is_some() {
        return Err(SqlError::unsupported(
            "what becomes of records of a source cannot be altered inside a transaction",
        )
        .with_hint("Run it before BEGIN or after COMMIT."));
    }
    let mut new = object.clone();
    let (Some(before), Definition::Relation(relation)) = (connector(object), &mut new.definition) else {
        return Err(SqlError::internal("what was altered is not read from elsewhere"));
    };
    let policies =
        (options.0.into_iter()).map(|option| (option.name.value.to_ascii_lowercase(), option.value));
    let altered = before.clone().altered(policies);
    check(&altered, object)?;
    relation.connector = Some(altered);
    new.restate();
    session
        .database()
        .restart_source(object, async || guard.put(new))
        .await
}

/// Refuses what the connector does not have, or a value that it cannot have.
fn check(altered: &ConnectorDef, object: &Object) -> SqlResult<()> {
    if let Some(Postgres::Table(table)) = altered.postgres()? {
        return Err(
            SqlError::unsupported(format!("{} is read by its source", object.described()))
                .with_hint(format!("Alter {}.", table.source)),
        );
    }
    altered.stops_on_error()?;
    let relation = object
        .relation()
        .map(|relation| (&relation.columns, relation.source_key()));
    if let Some((columns, key)) = relation {
        altered.records(columns, key)?;
    }
    Ok(())
}
