//! The relations of `information_schema` that clients ask: tables, columns, views, schemata, constraints, privileges.

mod constraints;
mod domains;
mod privileges;

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, RecordBatch, StringArray};
use arrow::datatypes::{FieldRef, Schema};
use datafusion::catalog::{MemTable, TableProvider};
use millrace_catalog::role::BOOTSTRAP;
use millrace_catalog::scope::Acting;
use millrace_catalog::temporary::is_temporary;
use millrace_catalog::{CatalogSnapshot, Definition, Object, SYSTEM_SCHEMAS};
use millrace_postgres::error::SqlResult;
use millrace_postgres::from_internal::{self, df};
use millrace_postgres::types;
use millrace_storage::ObjectKind;

/// A relation by name; `None`: there is none.
///
/// # Errors
/// Its rows could not be put together.
pub fn relation(
    catalog: &CatalogSnapshot,
    database: &str,
    name: &str,
    viewer: Acting,
) -> SqlResult<Option<Arc<dyn TableProvider>>> {
    let columns = match name {
        "tables" => tables(catalog, database),
        "columns" => columns(catalog, database),
        "views" => views(catalog, database),
        "schemata" => schemata(catalog, database),
        "domains" => domains::domains(catalog, database),
        "domain_constraints" => domains::constraints(catalog, database),
        _ => {
            let of_privileges = privileges::relation(catalog, database, viewer, name);
            match of_privileges.or_else(|| constraints::relation(catalog, database, name)) {
                Some(columns) => columns,
                None => return Ok(None),
            }
        }
    };
    let batch = RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, array)| (name, array, true)),
    )
    .map_err(from_internal::arrow)?;
    let schema: Arc<Schema> = batch.schema();
    Ok(Some(Arc::new(df(MemTable::try_new(schema, vec![vec![batch]]))?)))
}

type Columns = Vec<(&'static str, ArrayRef)>;

fn texts<T: Into<String>>(values: impl Iterator<Item = Option<T>>) -> ArrayRef {
    let array: StringArray = values.map(|value| value.map(Into::into)).collect();
    Arc::new(array)
}

fn same(value: &str, rows: usize) -> ArrayRef {
    texts((0..rows).map(|_| Some(value)))
}

fn relations<'a>(catalog: &'a CatalogSnapshot, database: &'a str) -> Vec<&'a Arc<Object>> {
    catalog
        .relations(database)
        .filter(|object| {
            !matches!(
                object.kind,
                ObjectKind::Index | ObjectKind::Sink | ObjectKind::Subscription | ObjectKind::Sequence
            )
        })
        .collect()
}

fn tables(catalog: &CatalogSnapshot, database: &str) -> Columns {
    let objects = relations(catalog, database);
    let kind = |object: &Object| match object.kind {
        ObjectKind::View => "VIEW",
        ObjectKind::MaterializedView => "MATERIALIZED VIEW",
        ObjectKind::ExternalTable => "FOREIGN",
        _ if is_temporary(&object.schema) => "LOCAL TEMPORARY",
        _ => "BASE TABLE",
    };
    let insertable = |object: &Object| {
        if matches!(object.kind, ObjectKind::Stream | ObjectKind::Table) {
            "YES"
        } else {
            "NO"
        }
    };
    vec![
        ("table_catalog", same(database, objects.len())),
        (
            "table_schema",
            texts(objects.iter().map(|object| Some(object.schema.as_str()))),
        ),
        (
            "table_name",
            texts(objects.iter().map(|object| Some(object.name.as_str()))),
        ),
        (
            "table_type",
            texts(objects.iter().map(|object| Some(kind(object)))),
        ),
        (
            "is_insertable_into",
            texts(objects.iter().map(|object| Some(insertable(object)))),
        ),
    ]
}

/// The columns of what is read; those of a view are known once it was bound.
fn fields(object: &Object) -> Vec<FieldRef> {
    match &object.definition {
        Definition::Relation(relation) => relation.schema().fields().iter().cloned().collect(),
        Definition::View(query) => query
            .bound
            .get()
            .map(|bound| bound.provider.schema().fields().iter().cloned().collect())
            .unwrap_or_default(),
        Definition::External(table) => table.columns().fields().iter().cloned().collect(),
        _ => vec![],
    }
}

fn columns(catalog: &CatalogSnapshot, database: &str) -> Columns {
    let mut rows = vec![];
    for object in relations(catalog, database) {
        for (index, field) in fields(object).into_iter().enumerate() {
            let default = object.relation().and_then(|relation| {
                relation
                    .columns
                    .get(index)?
                    .default
                    .as_ref()
                    .map(ToString::to_string)
            });
            rows.push((object, index, field, default));
        }
    }
    vec![
        ("table_catalog", same(database, rows.len())),
        (
            "table_schema",
            texts(rows.iter().map(|(object, ..)| Some(object.schema.as_str()))),
        ),
        (
            "table_name",
            texts(rows.iter().map(|(object, ..)| Some(object.name.as_str()))),
        ),
        (
            "column_name",
            texts(rows.iter().map(|(_, _, field, _)| Some(field.name().as_str()))),
        ),
        (
            "ordinal_position",
            Arc::new(Int32Array::from_iter(
                rows.iter().map(|(_, index, ..)| i32::try_from(index + 1).ok()),
            )),
        ),
        (
            "column_default",
            texts(rows.iter().map(|(_, _, _, default)| default.clone())),
        ),
        (
            "is_nullable",
            texts(
                rows.iter()
                    .map(|(_, _, field, _)| Some(if field.is_nullable() { "YES" } else { "NO" })),
            ),
        ),
        (
            "data_type",
            texts(rows.iter().map(|(_, _, field, _)| Some(bare_type_name(field)))),
        ),
        (
            "character_maximum_length",
            Arc::new(Int32Array::from_iter(rows.iter().map(|(_, _, field, _)| {
                types::length_limit(field).and_then(|(_, length)| i32::try_from(length).ok())
            }))),
        ),
        (
            "datetime_precision",
            Arc::new(Int32Array::from_iter(
                rows.iter().map(|(_, _, field, _)| types::digits::told(field)),
            )),
        ),
        (
            "interval_type",
            texts(
                rows.iter()
                    .map(|(_, _, field, _)| types::digits::fields_told(field)),
            ),
        ),
        (
            "udt_name",
            texts(
                rows.iter()
                    .map(|(_, _, field, _)| Some(types::pg_type(field).name().to_string())),
            ),
        ),
    ]
}

/// The type's name without lengths; every array is `ARRAY`.
fn bare_type_name(field: &arrow::datatypes::Field) -> String {
    let name = types::type_name(field);
    if name.ends_with("[]") {
        return "ARRAY".to_string();
    }
    if types::enumeration::is_enum(field) {
        return "USER-DEFINED".to_string();
    }
    types::plain_name(field)
}

fn views(catalog: &CatalogSnapshot, database: &str) -> Columns {
    let objects: Vec<_> = relations(catalog, database)
        .into_iter()
        .filter(|object| object.kind == ObjectKind::View)
        .collect();
    let text = |object: &Object| match &object.definition {
        Definition::View(query) => Some(query.text.clone()),
        _ => None,
    };
    vec![
        ("table_catalog", same(database, objects.len())),
        (
            "table_schema",
            texts(objects.iter().map(|object| Some(object.schema.as_str()))),
        ),
        (
            "table_name",
            texts(objects.iter().map(|object| Some(object.name.as_str()))),
        ),
        (
            "view_definition",
            texts(objects.iter().map(|object| text(object))),
        ),
    ]
}

fn schemata(catalog: &CatalogSnapshot, database: &str) -> Columns {
    let mut names: Vec<&str> = catalog
        .schemas(database)
        .map(|object| object.name.as_str())
        .chain(SYSTEM_SCHEMAS)
        .collect();
    names.sort_unstable();
    let owner = |name: &str| {
        let schema = catalog.schema(database, name);
        catalog.role_name(schema.map_or(BOOTSTRAP, |schema| schema.rights.owner()))
    };
    vec![
        ("catalog_name", same(database, names.len())),
        ("schema_name", texts(names.iter().map(|name| Some(*name)))),
        ("schema_owner", texts(names.iter().map(|name| Some(owner(name))))),
    ]
}
