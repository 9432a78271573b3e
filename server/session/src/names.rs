//! Names in statements: what they name, and what is left of them without their qualifiers.

use std::sync::Arc;

use datafusion::common::TableReference;
use datafusion::sql::sqlparser::ast::{
    self, Delete, FromTable, Insert, ObjectName, ObjectNamePart, TableFactor, TableObject, TableWithJoins,
};
use millrace_catalog::Object;
use millrace_catalog::access::denied;
use millrace_catalog::rights::Privileges;
use millrace_catalog::scope::Scope;
use millrace_catalog::temporary::{OWN_SCHEMA, schema_of};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};

use crate::notice::Severity;
use crate::session::Session;

/// The parts of a name, folded.
///
/// # Errors
/// It has more than three parts.
pub fn parts(name: &ObjectName) -> SqlResult<TableReference> {
    let mut parts: Vec<String> = name.0.iter().map(part).collect();
    match (parts.pop(), parts.pop(), parts.pop(), parts.is_empty()) {
        (Some(table), None, None, true) => Ok(TableReference::bare(table)),
        (Some(table), Some(schema), None, true) => Ok(TableReference::partial(schema, table)),
        (Some(table), Some(schema), Some(catalog), true) => Ok(TableReference::full(catalog, schema, table)),
        _ => Err(SqlError::new(
            SqlState::SyntaxError,
            format!("improper qualified name: {name}"),
        )),
    }
}

fn part(part: &ObjectNamePart) -> String {
    match part {
        ObjectNamePart::Identifier(ident) => millrace_parser::fold(ident),
        ObjectNamePart::Function(function) => function.to_string(),
    }
}

/// The last part of a name, folded.
pub fn last(name: &ObjectName) -> String {
    name.0.last().map(part).unwrap_or_default()
}

/// The last part of the name of what an INSERT inserts into.
pub fn last_of_table(table: &TableObject) -> String {
    match table {
        TableObject::TableName(name) => last(name),
        other => other.to_string(),
    }
}

/// The object that a name names.
///
/// # Errors
/// There is none; the nearest is suggested.
pub fn resolve(session: &Session, scope: &Scope, name: &ObjectName) -> SqlResult<Arc<Object>> {
    let reference = parts(name)?;
    let reader = session.database().reader(scope);
    let (schema, table) = reader.parts(&reference)?;
    if let Some(schema) = schema {
        scope.check_schema(schema)?;
    }
    reader
        .object(schema, table)
        .cloned()
        .ok_or_else(|| reader.undefined(schema, table))
}

/// The schema of this name.
///
/// # Errors
/// There is none.
pub fn schema(scope: &Scope, name: &str) -> SqlResult<Arc<Object>> {
    let found = scope.catalog.schema(&scope.database, name).cloned();
    found.ok_or_else(|| {
        SqlError::new(
            SqlState::InvalidSchemaName,
            format!("schema \"{name}\" does not exist"),
        )
    })
}

/// The database of this name.
///
/// # Errors
/// There is none.
pub fn database(scope: &Scope, name: &str) -> SqlResult<Arc<Object>> {
    scope.catalog.database(name).cloned().ok_or_else(|| {
        SqlError::new(
            SqlState::InvalidCatalogName,
            format!("database \"{name}\" does not exist"),
        )
    })
}

/// The function that a name names.
///
/// # Errors
/// There is none.
pub fn function(session: &Session, scope: &Scope, name: &ObjectName) -> SqlResult<Arc<Object>> {
    let reference = parts(name)?;
    let reader = session.database().reader(scope);
    let (schema, function) = reader.parts(&reference)?;
    reader.function_object(schema, function).cloned().ok_or_else(|| {
        SqlError::new(
            SqlState::UndefinedFunction,
            format!("function \"{name}\" does not exist"),
        )
    })
}

/// The type that a name names.
///
/// # Errors
/// There is none that somebody made.
pub fn user_type(session: &Session, scope: &Scope, name: &ObjectName) -> SqlResult<Arc<Object>> {
    let reader = session.database().reader(scope);
    reader.user_type(name)?.cloned().ok_or_else(|| {
        let known = (scope.catalog.user_types(&scope.database)).map(|object| object.name.as_str());
        SqlError::new(
            SqlState::UndefinedObject,
            format!("type \"{name}\" does not exist"),
        )
        .with_hint_opt(millrace_postgres::names::did_you_mean(&last(name), known))
    })
}

/// The secret that a name names.
///
/// # Errors
/// There is none; whoever acts may not look into its schema.
pub fn secret(session: &Session, scope: &Scope, name: &ObjectName) -> SqlResult<Arc<Object>> {
    let reference = parts(name)?;
    let reader = session.database().reader(scope);
    let (schema, secret) = reader.parts(&reference)?;
    if let Some(schema) = schema {
        scope.check_schema(schema)?;
    }
    let within = |schema: &str| scope.catalog.secret(&scope.database, schema, secret).cloned();
    let found = match schema {
        Some(schema) => within(schema),
        None => scope.search_path.iter().find_map(|schema| within(schema)),
    };
    found.ok_or_else(|| {
        let known = (scope.catalog.secrets(&scope.database)).map(|object| object.name.as_str());
        SqlError::new(
            SqlState::UndefinedObject,
            format!("secret \"{name}\" does not exist"),
        )
        .with_hint_opt(millrace_postgres::names::did_you_mean(secret, known))
    })
}

/// Whether there is a relation of this name, so that CREATE .. IF NOT EXISTS has nothing to do. The client is told so.
pub fn is_there(session: &Session, scope: &Scope, schema: &str, name: &str) -> bool {
    let is_there = scope.catalog.relation(&scope.database, schema, name).is_some();
    if is_there {
        let message = format!("relation \"{name}\" already exists, skipping");
        session.notice(Severity::Notice, message);
    }
    is_there
}

/// The schema and the name of an object that is to be made.
///
/// # Errors
/// The schema does not exist, or is the system's.
pub fn new_name(session: &Session, scope: &Scope, name: &ObjectName) -> SqlResult<(String, String)> {
    let reference = parts(name)?;
    let reader = session.database().reader(scope);
    let (schema, table) = reader.parts(&reference)?;
    let schema = match schema {
        Some(schema) => schema.to_string(),
        None => session.creation_schema(scope)?,
    };
    if millrace_catalog::SYSTEM_SCHEMAS.contains(&schema.as_str()) {
        return Err(SqlError::new(
            SqlState::InsufficientPrivilege,
            format!("permission denied to create \"{schema}.{table}\": it is a system schema"),
        ));
    }
    if scope.catalog.schema(&scope.database, &schema).is_none() {
        let known = scope
            .catalog
            .schemas(&scope.database)
            .map(|object| object.name.as_str());
        return Err(SqlError::new(
            SqlState::InvalidSchemaName,
            format!("schema \"{schema}\" does not exist"),
        )
        .with_hint_opt(millrace_postgres::names::did_you_mean(&schema, known)));
    }
    scope.check_create(&schema)?;
    Ok((schema, table.to_string()))
}

/// As [`new_name`], of a table, which may be temporary; whether it is.
///
/// # Errors
/// As [`new_name`]; a temporary table is to be in a schema that is none of temporary tables, or whoever acts may make none (42501).
pub fn new_table_name(
    session: &Session,
    scope: &Scope,
    name: &ObjectName,
    is_temporary: bool,
) -> SqlResult<(String, String, bool)> {
    let reference = parts(name)?;
    let is_own = reference.schema() == Some(OWN_SCHEMA);
    if !is_temporary && !is_own {
        let (schema, name) = new_name(session, scope, name)?;
        return Ok((schema, name, false));
    }
    let own = schema_of(session.id());
    match reference.schema() {
        None | Some(OWN_SCHEMA) => {}
        Some(schema) if schema == own => {}
        Some(_) => {
            return Err(SqlError::new(
                SqlState::InvalidTableDefinition,
                "cannot create temporary relation in non-temporary schema",
            ));
        }
    }
    if let Some(database) = scope.catalog.database(&scope.database)
        && !scope.may(database, Privileges::TEMPORARY)
    {
        return Err(denied(format!(
            "permission denied to create temporary tables in database \"{}\"",
            database.name
        )));
    }
    Ok((own, reference.table().to_string(), true))
}

/// The target of an INSERT.
///
/// # Errors
/// It is not a relation that exists.
pub fn insert_target(session: &Session, scope: &Scope, insert: &Insert) -> SqlResult<Arc<Object>> {
    match &insert.table {
        TableObject::TableName(name) => resolve(session, scope, name),
        other => Err(SqlError::unsupported(format!(
            "INSERT INTO {other} is not supported"
        ))),
    }
}

/// The name and alias of a table that stands alone.
///
/// # Errors
/// It is a join or something else than a table.
pub fn single_table(table: &TableWithJoins) -> SqlResult<(ObjectName, Option<String>)> {
    match table.joins.is_empty() {
        true => single_factor(&table.relation),
        false => Err(no_single_table()),
    }
}

/// The name and alias of a table.
///
/// # Errors
/// It is something else.
pub fn single_factor(table: &TableFactor) -> SqlResult<(ObjectName, Option<String>)> {
    match table {
        TableFactor::Table { name, alias, .. } => Ok((
            name.clone(),
            alias.as_ref().map(|alias| millrace_parser::fold(&alias.name)),
        )),
        _ => Err(no_single_table()),
    }
}

fn no_single_table() -> SqlError {
    SqlError::new(SqlState::SyntaxError, "expected a single table here")
        .with_hint("Join other tables in FROM or USING.")
}

/// The name and alias of what a DELETE deletes from.
///
/// # Errors
/// It is not one table.
pub fn delete_target(delete: &Delete) -> SqlResult<(ObjectName, Option<String>)> {
    let tables = match &delete.from {
        FromTable::WithFromKeyword(tables) | FromTable::WithoutKeyword(tables) => tables,
    };
    match tables.as_slice() {
        [table] => single_table(table),
        _ => Err(
            SqlError::new(SqlState::SyntaxError, "expected a single table here")
                .with_hint("Join other tables in USING."),
        ),
    }
}

/// A list of tables with their joins, as SQL.
pub fn joined(tables: &[ast::TableWithJoins]) -> String {
    tables
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}

/// The name, with a number behind it if that is taken.
pub fn free(base: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let mut name = base.to_string();
    let mut number = 0;
    while is_taken(&name) {
        number += 1;
        name = format!("{base}{number}");
    }
    name
}
