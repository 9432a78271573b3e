//! The rows of the relations that name our objects.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use millrace_catalog::{CatalogSnapshot, DEFAULT_USER, Definition, Object, Relation};
use millrace_planner::RelationKind;
use millrace_postgres::types::{self, ANNOTATION};
use millrace_storage::ObjectKind;

use crate::pg_catalog::table::Row;
use crate::pg_catalog::{
    CONSTRAINT_OID, KEY_INDEX_OID, OWNER, SYSTEM_OID, SystemRelation, definitions, namespace_oid, oid,
};

/// The oid of the foreign server that external tables and sinks belong to: the machine's files.
const FILES_OID: i64 = 13_100;

/// The rows of a relation; `None`: it does not name our objects. `system`: the relations of `mr_catalog`.
pub fn rows(
    catalog: &CatalogSnapshot,
    system: &[SystemRelation],
    database: &str,
    name: &str,
) -> Option<Vec<Row>> {
    Some(match name {
        "pg_class" => pg_class(catalog, system, database),
        "pg_attribute" => pg_attribute(catalog, system, database),
        "pg_namespace" => pg_namespace(catalog, database),
        "pg_database" => pg_database(catalog),
        "pg_index" => pg_index(catalog, database),
        "pg_constraint" => pg_constraint(catalog, database),
        "pg_attrdef" => pg_attrdef(catalog, database),
        "pg_description" => pg_description(catalog, database),
        "pg_tables" => pg_tables(catalog, database),
        "pg_views" => pg_views(catalog, database),
        "pg_matviews" => pg_matviews(catalog, database),
        "pg_indexes" => pg_indexes(catalog, database),
        "pg_foreign_table" => pg_foreign_table(catalog, database),
        "pg_foreign_server" => vec![Row::from([
            ("oid", FILES_OID.to_string()),
            ("srvname", "files".to_string()),
            ("srvowner", OWNER.to_string()),
        ])],
        _ => return None,
    })
}

/// The columns of a relation that the crate does not have.
pub fn schema(name: &str) -> SchemaRef {
    let names: &[&str] = match name {
        "pg_indexes" => &["schemaname", "tablename", "indexname", "tablespace", "indexdef"],
        _ => &[],
    };
    Arc::new(Schema::new(
        names
            .iter()
            .map(|name| Field::new(*name, DataType::Utf8, true))
            .collect::<Vec<_>>(),
    ))
}

fn flag(value: bool) -> String {
    if value { "t" } else { "f" }.to_string()
}

/// The objects that have columns: relations and views with their fields.
fn with_columns<'a>(
    catalog: &'a CatalogSnapshot,
    database: &'a str,
) -> impl Iterator<Item = (&'a Arc<Object>, Vec<Arc<Field>>)> {
    catalog
        .relations(database)
        .filter_map(|object| match &object.definition {
            Definition::Relation(relation) => {
                Some((object, relation.schema().fields().iter().cloned().collect()))
            }
            // A view's columns are known once it was bound.
            Definition::View(query) => {
                let fields = query
                    .bound
                    .get()
                    .map(|provider| provider.schema().fields().iter().cloned().collect());
                Some((object, fields.unwrap_or_default()))
            }
            Definition::External(table) => Some((object, table.columns().fields().iter().cloned().collect())),
            Definition::FailedToLoad(_) => Some((object, vec![])),
            // The columns of its files, unless what it reads failed to load.
            Definition::Sink(sink) => {
                let relation = catalog.object(sink.relation).and_then(|from| from.relation());
                let schema = relation.map(|relation| sink.schema(relation.schema()));
                let fields = schema.map(|schema| schema.fields().iter().cloned().collect());
                Some((object, fields.unwrap_or_default()))
            }
            Definition::Function(_) | Definition::Index(_) | Definition::Sequence(_) | Definition::Other => {
                None
            }
        })
}

/// The tables with a primary key.
fn keyed<'a>(
    catalog: &'a CatalogSnapshot,
    database: &'a str,
) -> impl Iterator<Item = (&'a Arc<Object>, &'a Relation, &'a String)> {
    catalog.relations(database).filter_map(|object| {
        let relation = object.relation()?;
        Some((object, relation, relation.key_name.as_ref()?))
    })
}

fn key_oid(object: &Object, base: i64) -> i64 {
    base + i64::try_from(object.id.0).unwrap_or_default()
}

fn pg_foreign_table(catalog: &CatalogSnapshot, database: &str) -> Vec<Row> {
    let is_foreign =
        |object: &&Arc<Object>| matches!(object.kind, ObjectKind::ExternalTable | ObjectKind::Sink);
    let row = |object: &Arc<Object>| {
        Row::from([
            ("ftrelid", oid(object.id).to_string()),
            ("ftserver", FILES_OID.to_string()),
        ])
    };
    catalog.relations(database).filter(is_foreign).map(row).collect()
}

/// The relations of `mr_catalog` with their oids.
fn numbered(system: &[SystemRelation]) -> impl Iterator<Item = (i64, &SystemRelation)> {
    (SYSTEM_OID..).zip(system)
}

fn pg_class(catalog: &CatalogSnapshot, system: &[SystemRelation], database: &str) -> Vec<Row> {
    let row = |oid: i64, name: &str, schema: &str, kind: &str, columns: usize| {
        Row::from([
            ("oid", oid.to_string()),
            ("relname", name.to_string()),
            (
                "relnamespace",
                namespace_oid(catalog, database, schema).to_string(),
            ),
            ("relkind", kind.to_string()),
            ("relnatts", columns.to_string()),
            ("relowner", OWNER.to_string()),
            (
                "relam",
                if matches!(kind, "i") {
                    "403"
                } else if kind == "v" {
                    "0"
                } else {
                    "2"
                }
                .to_string(),
            ),
            ("relpersistence", "p".to_string()),
            ("relispopulated", flag(true)),
            ("relreplident", "d".to_string()),
            ("reltuples", "-1".to_string()),
        ])
    };
    let mut rows = vec![];
    for (object, fields) in with_columns(catalog, database) {
        let kind = match object.kind {
            ObjectKind::View => "v",
            ObjectKind::MaterializedView => "m",
            ObjectKind::ExternalTable | ObjectKind::Sink => "f",
            _ => "r",
        };
        let mut class = row(oid(object.id), &object.name, &object.schema, kind, fields.len());
        let indexed = catalog.indexes_of(object.id).next().is_some()
            || object
                .relation()
                .is_some_and(|relation| relation.key_name.is_some());
        class.insert("relhasindex", flag(indexed));
        class.insert("relhasrules", flag(kind == "v"));
        rows.push(class);
    }
    for object in catalog.relations(database) {
        if let Definition::Index(index) = &object.definition {
            rows.push(row(
                oid(object.id),
                &object.name,
                &object.schema,
                "i",
                index.columns.len(),
            ));
        }
    }
    for (oid, (name, schema)) in numbered(system) {
        rows.push(row(oid, name, "mr_catalog", "v", schema.fields().len()));
    }
    for (object, relation, name) in keyed(catalog, database) {
        rows.push(row(
            key_oid(object, KEY_INDEX_OID),
            name,
            &object.schema,
            "i",
            relation.key().len(),
        ));
    }
    rows
}

/// What PostgreSQL keeps of the length of varchar(n) and the digits of numeric(p, s).
fn type_modifier(field: &Field) -> i64 {
    if let Some((_, length)) = types::length_limit(field) {
        return i64::try_from(length).unwrap_or(i64::from(i32::MAX) - 4) + 4;
    }
    match field.data_type() {
        DataType::Decimal128(precision, scale) if !field.metadata().contains_key(ANNOTATION) => {
            (i64::from(*precision) << 16 | i64::from(*scale)) + 4
        }
        _ => -1,
    }
}

fn pg_attribute(catalog: &CatalogSnapshot, system: &[SystemRelation], database: &str) -> Vec<Row> {
    let mut rows = vec![];
    let mut add = |relid: i64, number: usize, field: &Field, default: bool, generated: bool| {
        let pg = types::pg_type(field);
        rows.push(Row::from([
            ("attrelid", relid.to_string()),
            ("attname", field.name().clone()),
            ("atttypid", pg.oid().to_string()),
            ("attstattarget", "-1".to_string()),
            ("attlen", "-1".to_string()),
            ("attnum", number.to_string()),
            ("attcacheoff", "-1".to_string()),
            ("atttypmod", type_modifier(field).to_string()),
            ("attbyval", flag(false)),
            ("attalign", "i".to_string()),
            ("attstorage", "p".to_string()),
            ("attnotnull", flag(!field.is_nullable())),
            ("atthasdef", flag(default || generated)),
            ("attgenerated", if generated { "s" } else { "" }.to_string()),
            ("attislocal", flag(true)),
            ("attcollation", "0".to_string()),
        ]));
    };
    for (object, fields) in with_columns(catalog, database) {
        let columns = object.relation().map(|relation| &relation.columns);
        for (index, field) in fields.iter().enumerate() {
            let column = columns.and_then(|columns| columns.get(index));
            let default = column.is_some_and(|column| column.default.is_some() || column.proctime);
            let generated = column.is_some_and(|column| column.generated.is_some());
            add(oid(object.id), index + 1, field, default, generated);
        }
    }
    for (oid, (_, schema)) in numbered(system) {
        for (index, field) in schema.fields().iter().enumerate() {
            add(oid, index + 1, field, false, false);
        }
    }
    for (relid, on, positions) in indexes(catalog, database) {
        let Some(relation) = on.relation() else { continue };
        for (index, position) in positions.iter().enumerate() {
            if let Some(column) = relation.columns.get(*position) {
                add(relid, index + 1, &column.field, false, false);
            }
        }
    }
    rows
}

/// Every index: its oid, its relation and its columns; those behind primary keys included.
fn indexes<'a>(catalog: &'a CatalogSnapshot, database: &'a str) -> Vec<(i64, &'a Arc<Object>, Vec<usize>)> {
    let made = catalog
        .relations(database)
        .filter_map(|object| match &object.definition {
            Definition::Index(index) => Some((
                oid(object.id),
                catalog.object(index.relation)?,
                index.columns.clone(),
            )),
            _ => None,
        });
    let keys = keyed(catalog, database)
        .map(|(object, relation, _)| (key_oid(object, KEY_INDEX_OID), object, relation.key().to_vec()));
    made.chain(keys).collect()
}

fn pg_namespace(catalog: &CatalogSnapshot, database: &str) -> Vec<Row> {
    let own = catalog.schemas(database).map(|object| object.name.clone());
    let system = millrace_catalog::SYSTEM_SCHEMAS
        .iter()
        .map(|name| (*name).to_string());
    own.chain(system)
        .map(|name| {
            Row::from([
                ("oid", namespace_oid(catalog, database, &name).to_string()),
                ("nspname", name),
                ("nspowner", OWNER.to_string()),
            ])
        })
        .collect()
}

fn pg_database(catalog: &CatalogSnapshot) -> Vec<Row> {
    catalog
        .databases()
        .map(|object| {
            Row::from([
                ("oid", oid(object.id).to_string()),
                ("datname", object.name.clone()),
                ("datdba", OWNER.to_string()),
                ("encoding", "6".to_string()),
                ("datlocprovider", "c".to_string()),
                ("datistemplate", flag(false)),
                ("datallowconn", flag(true)),
                ("datconnlimit", "-1".to_string()),
                ("datcollate", "C.UTF-8".to_string()),
                ("datctype", "C.UTF-8".to_string()),
            ])
        })
        .collect()
}

fn pg_index(catalog: &CatalogSnapshot, database: &str) -> Vec<Row> {
    indexes(catalog, database)
        .into_iter()
        .map(|(index, on, positions)| {
            let primary = index >= KEY_INDEX_OID;
            let numbers: Vec<String> = positions
                .iter()
                .map(|position| (position + 1).to_string())
                .collect();
            let zeros = vec!["0"; positions.len()].join(",");
            Row::from([
                ("indexrelid", index.to_string()),
                ("indrelid", oid(on.id).to_string()),
                ("indnatts", positions.len().to_string()),
                ("indnkeyatts", positions.len().to_string()),
                ("indisunique", flag(primary)),
                ("indisprimary", flag(primary)),
                ("indimmediate", flag(true)),
                ("indisvalid", flag(true)),
                ("indisready", flag(true)),
                ("indislive", flag(true)),
                ("indkey", format!("{{{}}}", numbers.join(","))),
                ("indcollation", format!("{{{zeros}}}")),
                ("indclass", format!("{{{zeros}}}")),
                ("indoption", format!("{{{zeros}}}")),
            ])
        })
        .collect()
}

fn pg_constraint(catalog: &CatalogSnapshot, database: &str) -> Vec<Row> {
    keyed(catalog, database)
        .map(|(object, relation, name)| {
            let numbers: Vec<String> = relation
                .key()
                .iter()
                .map(|position| (position + 1).to_string())
                .collect();
            Row::from([
                ("oid", key_oid(object, CONSTRAINT_OID).to_string()),
                ("conname", name.clone()),
                (
                    "connamespace",
                    namespace_oid(catalog, database, &object.schema).to_string(),
                ),
                ("contype", "p".to_string()),
                ("convalidated", flag(true)),
                ("conrelid", oid(object.id).to_string()),
                ("conindid", key_oid(object, KEY_INDEX_OID).to_string()),
                ("conislocal", flag(true)),
                ("conkey", format!("{{{}}}", numbers.join(","))),
            ])
        })
        .collect()
}

fn pg_attrdef(catalog: &CatalogSnapshot, database: &str) -> Vec<Row> {
    let mut rows = vec![];
    for object in catalog.relations(database) {
        let Some(relation) = object.relation() else {
            continue;
        };
        for (index, column) in relation.columns.iter().enumerate() {
            let text = match (&column.generated, &column.default, column.proctime) {
                (Some(expression), _, _) | (None, Some(expression), _) => expression.to_string(),
                (None, None, true) => "now()".to_string(),
                (None, None, false) => continue,
            };
            rows.push(Row::from([
                (
                    "oid",
                    (CONSTRAINT_OID + 200_000_000 + i64::try_from(rows.len()).unwrap_or_default())
                        .to_string(),
                ),
                ("adrelid", oid(object.id).to_string()),
                ("adnum", (index + 1).to_string()),
                ("adbin", text),
            ]));
        }
    }
    rows
}

fn pg_description(catalog: &CatalogSnapshot, database: &str) -> Vec<Row> {
    let mut rows = vec![];
    for object in catalog.relations(database) {
        let columns = object
            .relation()
            .map(|relation| relation.columns.as_slice())
            .unwrap_or_default();
        let of_columns = columns
            .iter()
            .enumerate()
            .map(|(index, column)| (index + 1, column.comment.as_ref()));
        for (number, comment) in std::iter::once((0, object.comment.as_ref())).chain(of_columns) {
            if let Some(comment) = comment {
                rows.push(Row::from([
                    ("objoid", oid(object.id).to_string()),
                    ("classoid", "1259".to_string()),
                    ("objsubid", number.to_string()),
                    ("description", comment.clone()),
                ]));
            }
        }
    }
    rows
}

fn pg_tables(catalog: &CatalogSnapshot, database: &str) -> Vec<Row> {
    let stored = catalog.relations(database).filter(|object| {
        object
            .relation()
            .is_some_and(|relation| relation.info.kind != RelationKind::View)
    });
    stored
        .map(|object| {
            let indexed = catalog.indexes_of(object.id).next().is_some();
            Row::from([
                ("schemaname", object.schema.clone()),
                ("tablename", object.name.clone()),
                ("tableowner", DEFAULT_USER.to_string()),
                (
                    "hasindexes",
                    flag(
                        indexed
                            || object
                                .relation()
                                .is_some_and(|relation| relation.key_name.is_some()),
                    ),
                ),
            ])
        })
        .collect()
}

fn pg_views(catalog: &CatalogSnapshot, database: &str) -> Vec<Row> {
    let views = catalog
        .relations(database)
        .filter(|object| object.kind == ObjectKind::View);
    views
        .map(|object| {
            Row::from([
                ("schemaname", object.schema.clone()),
                ("viewname", object.name.clone()),
                ("viewowner", DEFAULT_USER.to_string()),
                (
                    "definition",
                    definitions::view(catalog, oid(object.id)).unwrap_or_default(),
                ),
            ])
        })
        .collect()
}

fn pg_matviews(catalog: &CatalogSnapshot, database: &str) -> Vec<Row> {
    let views = catalog
        .relations(database)
        .filter(|object| object.kind == ObjectKind::MaterializedView);
    views
        .map(|object| {
            Row::from([
                ("schemaname", object.schema.clone()),
                ("matviewname", object.name.clone()),
                ("matviewowner", DEFAULT_USER.to_string()),
                ("hasindexes", flag(catalog.indexes_of(object.id).next().is_some())),
                ("ispopulated", flag(true)),
                (
                    "definition",
                    definitions::view(catalog, oid(object.id)).unwrap_or_default(),
                ),
            ])
        })
        .collect()
}

fn pg_indexes(catalog: &CatalogSnapshot, database: &str) -> Vec<Row> {
    indexes(catalog, database)
        .into_iter()
        .map(|(index, on, _)| {
            let name = definitions::object(catalog, index)
                .map(|object| object.name.clone())
                .or_else(|| on.relation().and_then(|relation| relation.key_name.clone()))
                .unwrap_or_default();
            Row::from([
                ("schemaname", on.schema.clone()),
                ("tablename", on.name.clone()),
                ("indexname", name),
                (
                    "indexdef",
                    definitions::index(catalog, index, 0).unwrap_or_default(),
                ),
            ])
        })
        .collect()
}
