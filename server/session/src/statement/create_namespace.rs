//! CREATE SCHEMA and CREATE DATABASE.

use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{Ident, ObjectName, SchemaName};
use millrace_catalog::access::denied;
use millrace_catalog::rights::Rights;
use millrace_catalog::{DEFAULT_SCHEMA, Definition, Object};
use millrace_database::clock::now_ms;
use millrace_database::database::ddl::DdlGuard;
use millrace_parser::ast::RoleName;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_storage::ObjectKind;

use crate::names;
use crate::notice::Severity;
use crate::outcome::Outcome;
use crate::session::Session;
use crate::statement::{done, role};

fn object(
    guard: &DdlGuard<'_>,
    kind: ObjectKind,
    database: &str,
    name: &str,
    text: &str,
    rights: Rights,
) -> SqlResult<Object> {
    Ok(Object {
        id: guard.next_id()?,
        kind,
        database: database.to_string(),
        schema: String::new(),
        name: name.to_string(),
        sql: text.to_string(),
        comment: None,
        created_at_ms: now_ms(),
        depends: vec![],
        definition: Definition::Other,
        rights,
    })
}

/// CREATE SCHEMA.
pub async fn schema(
    session: &Arc<Session>,
    name: &SchemaName,
    if_not_exists: bool,
    text: &str,
) -> SqlResult<Outcome> {
    let guard = session.ddl().await?;
    let scope = session.scope();
    let role = |name: &Ident| role::named(session, &scope.catalog, &role_name(name));
    let (name, owner) = match name {
        SchemaName::Simple(name) => (names::last(name), None),
        SchemaName::NamedAuthorization(name, owner) => (names::last(name), Some(role(owner)?)),
        SchemaName::UnnamedAuthorization(user) => {
            let owner = role(user)?;
            (owner.name.clone(), Some(owner))
        }
    };
    if scope.catalog.has_schema(&scope.database, &name) {
        if if_not_exists {
            session.notice(
                Severity::Notice,
                format!("schema \"{name}\" already exists, skipping"),
            );
            return done("CREATE SCHEMA");
        }
        return Err(SqlError::new(
            SqlState::DuplicateSchema,
            format!("schema \"{name}\" already exists"),
        ));
    }
    if name.starts_with("pg_") {
        return Err(SqlError::new(
            SqlState::ReservedName,
            format!("unacceptable schema name \"{name}\""),
        )
        .with_detail("The prefix \"pg_\" is reserved for system schemas."));
    }
    let rights = match owner {
        None => scope.rights_of_new(ObjectKind::Schema, ""),
        Some(owner) => {
            if !scope.has_role(owner.id) {
                return Err(denied(format!("must be member of role \"{}\"", owner.name)));
            }
            Rights::of(owner.id)
        }
    };
    guard.put(object(
        &guard,
        ObjectKind::Schema,
        &scope.database,
        &name,
        text,
        rights,
    )?)?;
    done("CREATE SCHEMA")
}

/// The role that a word behind AUTHORIZATION means.
fn role_name(word: &Ident) -> RoleName {
    let is = |name: &str| word.quote_style.is_none() && word.value.eq_ignore_ascii_case(name);
    if is("current_user") || is("current_role") {
        RoleName::CurrentUser
    } else if is("session_user") {
        RoleName::SessionUser
    } else {
        RoleName::Named(word.clone())
    }
}

/// CREATE DATABASE.
pub async fn database(
    session: &Arc<Session>,
    name: &ObjectName,
    if_not_exists: bool,
    text: &str,
) -> SqlResult<Outcome> {
    let name = names::last(name);
    let guard = session.ddl().await?;
    if guard.catalog().database(&name).is_some() {
        if if_not_exists {
            session.notice(
                Severity::Notice,
                format!("database \"{name}\" already exists, skipping"),
            );
            return done("CREATE DATABASE");
        }
        return Err(SqlError::new(
            SqlState::DuplicateDatabase,
            format!("database \"{name}\" already exists"),
        ));
    }
    let rights = session.scope().rights_of_new(ObjectKind::Database, "");
    let of_schema = rights.clone();
    guard.put(object(&guard, ObjectKind::Database, "", &name, text, rights)?)?;
    guard.put(object(
        &guard,
        ObjectKind::Schema,
        &name,
        DEFAULT_SCHEMA,
        "CREATE SCHEMA public",
        of_schema,
    )?)?;
    done("CREATE DATABASE")
}
