//! Streams that are made with a relation: for the late rows of a stream, for what a connector brings and is no row, for the files that it
//! has read, and for rows on which an expression of a view fails.

use std::sync::Arc;

use arrow::datatypes::DataType;
use millrace_catalog::retention::Retention;
use millrace_catalog::scope::Scope;
use millrace_catalog::{ColumnDef, Definition, Object, Relation};
use millrace_database::clock::now_ms;
use millrace_database::database::ddl::DdlGuard;
use millrace_database::database::sources::{error_columns, file_columns};
use millrace_database::database::view_errors::view_error_columns;
use millrace_planner::RelationKind;
use millrace_postgres::error::SqlResult;
use millrace_postgres::types::{self, SqlType};
use millrace_storage::ObjectKind;

use super::check_columns;

/// The stream that keeps the late rows of another: its columns, and the watermark that a row missed.
pub(super) fn late_rows(
    scope: &Scope,
    guard: &DdlGuard<'_>,
    schema: &str,
    name: &str,
    columns: &[ColumnDef],
    keeping: Retention,
) -> SqlResult<Object> {
    let name = format!("{name}$late");
    let given = columns.iter().map(|column| ColumnDef {
        default: None,
        generated: None,
        sequence: None,
        domain: None,
        proctime: false,
        ..column.clone()
    });
    let watermark = ColumnDef {
        comment: Some("the watermark when the row arrived".into()),
        ..ColumnDef::plain(Arc::new(
            SqlType::plain(types::timestamptz()).field("watermark", true),
        ))
    };
    beside(
        scope,
        guard,
        schema,
        name,
        given.chain([watermark]).collect(),
        keeping,
    )
}

/// The stream that keeps what a connector brought to another and is no row: where it stands, its bytes, and why.
pub(super) fn bad_records(
    scope: &Scope,
    guard: &DdlGuard<'_>,
    schema: &str,
    name: &str,
) -> SqlResult<Object> {
    errors(scope, guard, schema, name, error_columns().into())
}

/// The stream that keeps the rows on which an expression of a view fails.
pub(in crate::statement) fn failed_rows(
    scope: &Scope,
    guard: &DdlGuard<'_>,
    schema: &str,
    name: &str,
) -> SqlResult<Object> {
    errors(scope, guard, schema, name, view_error_columns().into())
}

/// The stream that keeps which files were read, as long as the stream is there that they were read into.
pub(super) fn read_files(scope: &Scope, guard: &DdlGuard<'_>, schema: &str, name: &str) -> SqlResult<Object> {
    let columns = of_types(file_columns().into());
    let keeping = Retention::default();
    beside(scope, guard, schema, format!("{name}$files"), columns, keeping)
}

fn of_types(columns: Vec<(&str, DataType)>) -> Vec<ColumnDef> {
    let column = |(name, data_type)| ColumnDef::plain(Arc::new(SqlType::plain(data_type).field(name, true)));
    columns.into_iter().map(column).collect()
}

/// The stream of what is no row, bounded.
fn errors(
    scope: &Scope,
    guard: &DdlGuard<'_>,
    schema: &str,
    name: &str,
    columns: Vec<(&str, DataType)>,
) -> SqlResult<Object> {
    let columns = of_types(columns);
    let keeping = Retention::bounded();
    beside(scope, guard, schema, format!("{name}$errors"), columns, keeping)
}

/// A stream that is made with another.
fn beside(
    scope: &Scope,
    guard: &DdlGuard<'_>,
    schema: &str,
    name: String,
    columns: Vec<ColumnDef>,
    keeping: Retention,
) -> SqlResult<Object> {
    guard.check_free(&scope.database, schema, &name)?;
    check_columns(columns.iter().map(|column| column.field.name().as_str()))?;
    let id = guard.next_id()?;
    let relation = Relation::new(id, &name, RelationKind::Stream, columns, &[], true).with_keeping(keeping);
    let mut object = Object {
        id,
        kind: ObjectKind::Stream,
        database: scope.database.clone(),
        schema: schema.to_owned(),
        name,
        sql: String::new(),
        comment: None,
        created_at_ms: now_ms(),
        depends: vec![],
        definition: Definition::Relation(Box::new(relation)),
        rights: scope.rights_of_new(ObjectKind::Stream, schema),
    };
    object.restate();
    Ok(object)
}
