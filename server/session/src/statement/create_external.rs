//! CREATE EXTERNAL TABLE: files that queries read where they are.

use std::sync::Arc;

use arrow::datatypes::Schema;
use millrace_catalog::external::{ExternalTable, Files};
use millrace_catalog::{ColumnDef, Definition, Object, lasting_columns};
use millrace_database::clock::now_ms;
use millrace_parser::ast::CreateExternalTable;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::types;
use millrace_postgres::types::enumeration::is_enum;
use millrace_storage::ObjectKind;

use crate::names;
use crate::outcome::Outcome;
use crate::session::Session;
use crate::statement::create_relation::{check_columns, columns};
use crate::statement::done;

/// Executes CREATE EXTERNAL TABLE.
pub async fn execute(session: &Arc<Session>, create: CreateExternalTable, text: &str) -> SqlResult<Outcome> {
    if create.or_replace {
        return Err(SqlError::unsupported(
            "CREATE OR REPLACE EXTERNAL TABLE is not supported",
        ));
    }
    if !create.partitioned_by.is_empty() {
        return Err(SqlError::unsupported("PARTITIONED BY is not supported"));
    }
    let options = create.options.0.iter();
    let files = Files {
        format: create.stored_as.clone(),
        location: create.location.clone(),
        options: options
            .map(|option| (option.name.value.to_lowercase(), option.value.clone()))
            .collect(),
    };
    files.check()?;
    let schema = if create.columns.is_empty() {
        let state = session.database().statement_state();
        lasting_columns(&files.infer_schema(&state).await?)?
    } else {
        let columns = columns(session, &create.columns, &[])?;
        let made = |column: &&ColumnDef| {
            let element = types::element(&column.field);
            column.domain.is_some() || is_enum(element.as_deref().unwrap_or(&column.field))
        };
        if let Some(column) = columns.iter().find(made) {
            return Err(SqlError::unsupported(format!(
                "column \"{}\" of an external table cannot be of a type that CREATE TYPE or CREATE DOMAIN made",
                column.field.name()
            ))
            .with_hint("Make it a text, and cast it in a view."));
        }
        let is_plain = |column: &millrace_catalog::ColumnDef| {
            column.default.is_none() && column.generated.is_none() && !column.proctime
        };
        if let Some(column) = columns.iter().find(|column| !is_plain(column)) {
            return Err(SqlError::new(
                SqlState::InvalidTableDefinition,
                format!(
                    "column \"{}\" of an external table can only have a type",
                    column.field.name()
                ),
            ));
        }
        Arc::new(Schema::new(
            columns.into_iter().map(|column| column.field).collect::<Vec<_>>(),
        ))
    };
    check_columns(schema.fields().iter().map(|field| field.name().as_str()))?;
    let guard = session.ddl().await?;
    let scope = session.scope();
    let (schema_name, name) = names::new_name(session, &scope, &create.name)?;
    if create.if_not_exists && names::is_there(session, &scope, &schema_name, &name) {
        return done("CREATE EXTERNAL TABLE");
    }
    guard.check_free(&scope.database, &schema_name, &name)?;
    let rights = scope.rights_of_new(ObjectKind::ExternalTable, &schema_name);
    guard.put(Object {
        id: guard.next_id()?,
        kind: ObjectKind::ExternalTable,
        database: scope.database.clone(),
        schema: schema_name,
        name,
        sql: text.to_string(),
        comment: None,
        created_at_ms: now_ms(),
        depends: vec![],
        definition: Definition::External(Arc::new(ExternalTable::new(files, schema)?)),
        rights,
    })?;
    done("CREATE EXTERNAL TABLE")
}
