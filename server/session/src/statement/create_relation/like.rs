//! `CREATE TABLE t (LIKE relation INCLUDING ..)`: the columns of another relation, as if they were written.

use std::sync::Arc;

use arrow::datatypes::Field;
use datafusion::sql::sqlparser::ast;
use millrace_catalog::rights::Privileges;
use millrace_catalog::scope::Scope;
use millrace_catalog::sequence::Takes;
use millrace_catalog::{ColumnDef, Definition, Object};
use millrace_parser::ast::{ColumnDefinition, CreateTable, LikePart, Statement, TableLike};
use millrace_parser::quote_identifier;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::types::enumeration::EnumType;
use millrace_postgres::types::{self, element};
use millrace_storage::ObjectId;

use crate::names;
use crate::query::schema_of;
use crate::session::Session;
use crate::statement::{create_index, select};

/// An index that the new table is to get as well: its columns by name.
pub(super) struct Wanted {
    columns: Vec<String>,
    is_unique: bool,
}

/// Puts the columns and constraints in the place of each LIKE, and returns the indexes that are to be made then.
///
/// # Errors
/// There is no such relation, or whoever acts may not read it; a second primary key comes with it.
pub(super) fn expand(session: &Session, create: &mut CreateTable) -> SqlResult<Vec<Wanted>> {
    let mut indexes = vec![];
    let scope = session.scope();
    // From the last one on, so that the places of the others stay.
    for like in std::mem::take(&mut create.like).into_iter().rev() {
        let object = names::resolve(session, &scope, &like.relation)?;
        scope.check_any(&object, Privileges::SELECT)?;
        object.check_up()?;
        let text = format!(
            "CREATE TABLE t ({})",
            elements(session, &scope, &object, &like)?.join(", ")
        );
        let Some(Statement::CreateTable(of)) = millrace_parser::parse(&text)?.pop().map(|one| one.statement)
        else {
            return Err(SqlError::internal(
                "LIKE: this relation's columns cannot be used in a table",
            ));
        };
        let mut of = *of;
        comments(&object, &like, &mut of.columns);
        create.columns.splice(like.at..like.at, of.columns);
        create.constraints.extend(of.constraints);
        if !of.primary_key.is_empty() {
            if !create.primary_key.is_empty() {
                return Err(SqlError::new(
                    SqlState::InvalidTableDefinition,
                    format!(
                        "multiple primary keys for table \"{}\" are not allowed",
                        create.name
                    ),
                ));
            }
            create.primary_key = of.primary_key;
        }
        if like.including.contains(&LikePart::Indexes)
            && let Some(relation) = object.relation()
        {
            let others = scope.catalog.indexes_of(object.id);
            indexes.extend(
                others
                    .filter(|(_, index)| !index.is_constraint)
                    .map(|(_, index)| Wanted {
                        columns: names_at(&relation.columns, &index.columns),
                        is_unique: index.is_unique,
                    }),
            );
        }
    }
    Ok(indexes)
}

/// Makes the indexes of the new table.
///
/// # Errors
/// As CREATE INDEX.
pub(super) async fn make_indexes(
    session: &Arc<Session>,
    table: &ast::ObjectName,
    wanted: Vec<Wanted>,
) -> SqlResult<()> {
    for Wanted { columns, is_unique } in wanted {
        let unique = if is_unique { "UNIQUE " } else { "" };
        let text = format!("CREATE {unique}INDEX ON {table} ({})", columns.join(", "));
        let parsed = millrace_parser::parse(&text)?.pop().map(|one| one.statement);
        if let Some(Statement::Sql(statement)) = parsed
            && let ast::Statement::CreateIndex(create) = *statement
        {
            create_index::execute(session, create, &text).await?;
        }
    }
    Ok(())
}

/// What would define the columns and the constraints that are taken over.
fn elements(session: &Session, scope: &Scope, object: &Object, like: &TableLike) -> SqlResult<Vec<String>> {
    let has = |part| like.including.contains(&part);
    let Some(relation) = object.relation() else {
        let mut query = millrace_parser::parse(&format!("SELECT * FROM {}", like.relation))?;
        let Some(Statement::Sql(mut statement)) = query.pop().map(|one| one.statement) else {
            return Err(SqlError::internal("a query of a relation is none"));
        };
        let (plan, output) = select::bind(session, scope, &mut statement, select::Purpose::Describe)?;
        let schema = output.applied(&schema_of(&plan));
        let columns = schema.fields().iter();
        return Ok(columns
            .map(|field| format!("{} {}", quote_identifier(field.name()), type_of(field)))
            .collect());
    };
    let mut elements: Vec<String> = relation
        .columns
        .iter()
        .map(|column| {
            let data_type = match column.domain.and_then(|domain| domain_name(scope, domain)) {
                Some(domain) => domain,
                None => type_of(&column.field),
            };
            let mut text = format!("{} {data_type}", quote_identifier(column.field.name()));
            if !column.field.is_nullable() {
                text.push_str(" NOT NULL");
            }
            let sequence = column.sequence.filter(|_| has(LikePart::Identity));
            let when = match sequence.map(|sequence| sequence.takes) {
                Some(Takes::IdentityAlways) => Some("ALWAYS"),
                Some(Takes::IdentityByDefault) => Some("BY DEFAULT"),
                Some(Takes::Default) | None => None,
            };
            if let Some(when) = when {
                let object = sequence.and_then(|sequence| scope.catalog.object(sequence.id));
                let options = match object.map(|object| &object.definition) {
                    Some(Definition::Sequence(sequence)) => format!(" ({})", sequence.clause().trim()),
                    _ => String::new(),
                };
                text.push_str(&format!(" GENERATED {when} AS IDENTITY{options}"));
            }
            if let Some(default) = column.default.as_ref().filter(|_| has(LikePart::Defaults)) {
                text.push_str(&format!(" DEFAULT {default}"));
            }
            if let Some(generated) = column.generated.as_ref().filter(|_| has(LikePart::Generated)) {
                text.push_str(&format!(" GENERATED ALWAYS AS ({generated}) STORED"));
            }
            text
        })
        .collect();
    if has(LikePart::Constraints) {
        elements.extend(relation.checks.iter().map(|check| {
            let name = quote_identifier(&check.name);
            format!("CONSTRAINT {name} CHECK ({})", check.expression)
        }));
    }
    if has(LikePart::Indexes) {
        let key = names_at(&relation.columns, relation.key());
        // The groups of a view are no primary key.
        if !key.is_empty() && relation.query.is_none() {
            elements.push(format!("PRIMARY KEY ({})", key.join(", ")));
        }
        let uniques = scope.catalog.indexes_of(object.id);
        elements.extend(
            uniques
                .filter(|(_, index)| index.is_constraint)
                .map(|(_, index)| {
                    let columns = names_at(&relation.columns, &index.columns);
                    format!("UNIQUE ({})", columns.join(", "))
                }),
        );
    }
    Ok(elements)
}

/// The names of columns, as statements write them.
fn names_at(columns: &[ColumnDef], positions: &[usize]) -> Vec<String> {
    let columns = positions.iter().filter_map(|position| columns.get(*position));
    columns
        .map(|column| quote_identifier(column.field.name()).to_string())
        .collect()
}

fn qualified(schema: &str, name: &str) -> String {
    format!("{}.{}", quote_identifier(schema), quote_identifier(name))
}

fn domain_name(scope: &Scope, domain: ObjectId) -> Option<String> {
    let object = scope.catalog.object(domain)?;
    Some(qualified(&object.schema, &object.name))
}

/// A column's type, as statements write it.
fn type_of(field: &Field) -> String {
    let of_array = element(field);
    match EnumType::of(of_array.as_deref().unwrap_or(field)) {
        Some(known) => {
            let array = if of_array.is_some() { "[]" } else { "" };
            format!("{}{array}", qualified(&known.schema, &known.name))
        }
        None => types::sql_name(field),
    }
}

/// Gives the columns the comments that those of the relation have.
fn comments(object: &Object, like: &TableLike, columns: &mut [ColumnDefinition]) {
    if let Some(relation) = object.relation()
        && like.including.contains(&LikePart::Comments)
    {
        for (column, of) in columns.iter_mut().zip(&relation.columns) {
            column.comment.clone_from(&of.comment);
        }
    }
}
