//! The rows of the relations that name our objects.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use millrace_catalog::sequence::Takes;
use millrace_catalog::temporary::is_temporary;
use millrace_catalog::{CatalogSnapshot, ColumnDef, Definition, Object};
use millrace_planner::RelationKind;
use millrace_postgres::types;
use millrace_storage::{ObjectId, ObjectKind};
use postgres_types::Type;

use crate::pg_catalog::constraints::{Index, indexes};
use crate::pg_catalog::procs::{JAVASCRIPT_OID, SQL_OID};
use crate::pg_catalog::table::Row;
use crate::pg_catalog::types as own_types;
use crate::pg_catalog::{
    DEFAULT_OID, OWNER, SYSTEM_OID, SystemRelation, constraints, definitions, namespace_oid, oid, roles,
    sequences,
};

/// The oid of the foreign server that external tables and sinks belong to: the machine's files.
const FILES_OID: i64 = 13_100;

/// The oid of the tablespace that everything is in: `pg_default`, as in PostgreSQL.
const TABLESPACE_OID: i64 = 1663;

/// The extensions that are there without being made, all in `pg_catalog`: oid, name, version.
const EXTENSIONS: [(i64, &str, &str); 2] =
    [(13_561, "plpgsql", "1.0"), (13_562, "pg_stat_statements", "1.10")];

/// Languages of functions: oid, name, whether somebody can make functions in it, and whether everybody can. PostgreSQL's own are as there.
const LANGUAGES: [(i64, &str, bool, bool); 5] = [
    (12, "internal", false, false),
    (13, "c", false, false),
    (SQL_OID, "sql", false, true),
    (13_560, "plpgsql", true, true),
    (JAVASCRIPT_OID, "javascript", true, false),
];

fn pg_language((oid, name, is_procedural, is_trusted): (i64, &str, bool, bool)) -> Row {
    let flag = |is_so: bool| if is_so { "t" } else { "f" }.to_owned();
    Row::from([
        ("oid", oid.to_string()),
        ("lanname", name.to_owned()),
        ("lanowner", OWNER.to_string()),
        ("lanispl", flag(is_procedural)),
        ("lanpltrusted", flag(is_trusted)),
        ("lanplcallfoid", "0".to_owned()),
        ("laninline", "0".to_owned()),
        ("lanvalidator", "0".to_owned()),
    ])
}

fn pg_extension((oid, name, version): (i64, &str, &str)) -> Row {
    Row::from([
        ("oid", oid.to_string()),
        ("extname", name.to_owned()),
        ("extowner", OWNER.to_string()),
        ("extnamespace", "11".to_owned()),
        ("extrelocatable", "f".to_owned()),
        ("extversion", version.to_owned()),
    ])
}

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
        "pg_index" => constraints::pg_index(catalog, database),
        "pg_constraint" => constraints::pg_constraint(catalog, database),
        "pg_attrdef" => pg_attrdef(catalog, database),
        "pg_description" => pg_description(catalog, database),
        "pg_tables" => pg_tables(catalog, database),
        "pg_views" => pg_views(catalog, database),
        "pg_matviews" => pg_matviews(catalog, database),
        "pg_indexes" => constraints::pg_indexes(catalog, database),
        "pg_foreign_table" => pg_foreign_table(catalog, database),
        "pg_enum" => own_types::pg_enum(catalog, database),
        "pg_sequence" => sequences::pg_sequence(catalog, database),
        "pg_extension" => EXTENSIONS.map(pg_extension).into(),
        "pg_language" => LANGUAGES.map(pg_language).into(),
        "pg_foreign_server" => vec![Row::from([
            ("oid", FILES_OID.to_string()),
            ("srvname", "files".to_string()),
            ("srvowner", OWNER.to_string()),
        ])],
        _ => return roles::rows(catalog, name),
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

pub(super) fn flag(value: bool) -> String {
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
                    .map(|bound| bound.provider.schema().fields().iter().cloned().collect());
                Some((object, fields.unwrap_or_default()))
            }
            Definition::External(table) => Some((object, table.columns().fields().iter().cloned().collect())),
            Definition::FailedToLoad(_) => Some((object, vec![])),
            // The columns of its files, unless what it reads failed to load.
            Definition::Sink(sink) => {
                let relation = catalog.object(sink.relation).and_then(|from| from.relation());
                let schema = relation.map(|relation| sink.shown(relation.schema()));
                let fields = schema.map(|schema| schema.fields().iter().cloned().collect());
                Some((object, fields.unwrap_or_default()))
            }
            Definition::Function(_)
            | Definition::Index(_)
            | Definition::Sequence(_)
            | Definition::Role(_)
            | Definition::Secret(_)
            | Definition::Type(_)
            | Definition::Other => None,
        })
}

fn pg_foreign_table(catalog: &CatalogSnapshot, database: &str) -> Vec<Row> {
    let is_foreign = |object: &&Arc<Object>| {
        matches!(
            object.kind,
            ObjectKind::ExternalTable | ObjectKind::Sink | ObjectKind::Subscription
        )
    };
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
                } else if matches!(kind, "v" | "S" | "f" | "c") {
                    "0"
                } else {
                    "2"
                }
                .to_string(),
            ),
            (
                "relpersistence",
                if is_temporary(schema) { "t" } else { "p" }.to_string(),
            ),
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
            ObjectKind::ExternalTable | ObjectKind::Sink | ObjectKind::Subscription => "f",
            _ => "r",
        };
        let mut class = row(oid(object.id), &object.name, &object.schema, kind, fields.len());
        owned(catalog, object, &mut class, "relowner", "relacl");
        let indexed = catalog.indexes_of(object.id).next().is_some()
            || object
                .relation()
                .is_some_and(|relation| relation.key_name.is_some());
        class.insert("relhasindex", flag(indexed));
        class.insert("relhasrules", flag(kind == "v"));
        // PostgreSQL checks foreign keys by triggers, and psql asks for the keys only where there are some.
        let has_keys = object
            .relation()
            .is_some_and(|relation| !relation.foreign_keys.is_empty())
            || catalog.references_to(object.id).next().is_some();
        class.insert("relhastriggers", flag(has_keys));
        let checks = object.relation().map_or(0, |relation| relation.checks.len());
        class.insert("relchecks", checks.to_string());
        rows.push(class);
    }
    for Index {
        oid,
        name,
        on,
        columns,
        ..
    } in indexes(catalog, database)
    {
        let mut class = row(oid, name, &on.schema, "i", columns.len());
        class.insert("relowner", roles::owner_oid(on));
        rows.push(class);
    }
    for (object, fields) in own_types::composites(catalog, database) {
        let mut class = row(oid(object.id), &object.name, &object.schema, "c", fields.len());
        owned(catalog, object, &mut class, "relowner", "relacl");
        class.insert("reltype", oid(object.id).to_string());
        rows.push(class);
    }
    for (object, _) in sequences::all(catalog, database) {
        let mut class = row(oid(object.id), &object.name, &object.schema, "S", 3);
        owned(catalog, object, &mut class, "relowner", "relacl");
        rows.push(class);
    }
    for (oid, (name, schema)) in numbered(system) {
        rows.push(row(oid, name, "mr_catalog", "v", schema.fields().len()));
    }
    rows
}

/// Puts the owner and the privileges of an object into its row.
pub(super) fn owned(
    catalog: &CatalogSnapshot,
    object: &Object,
    row: &mut Row,
    owner: &'static str,
    acl: &'static str,
) {
    row.insert(owner, roles::owner_oid(object));
    if let Some(items) = roles::acl_of(catalog, object) {
        row.insert(acl, items);
    }
}

/// What a column has where no value is given.
#[derive(Debug, Clone, Copy, Default)]
struct Filled {
    default: bool,
    generated: bool,
    /// `pg_attribute.attidentity`.
    identity: &'static str,
    /// The domain that it is of.
    domain: Option<ObjectId>,
}

impl Filled {
    fn of(column: &ColumnDef) -> Self {
        Filled {
            default: column.default.is_some() || column.proctime,
            generated: column.generated.is_some(),
            domain: column.domain,
            identity: match column.sequence.map(|sequence| sequence.takes) {
                Some(Takes::IdentityAlways) => "a",
                Some(Takes::IdentityByDefault) => "d",
                Some(Takes::Default) | None => "",
            },
        }
    }
}

/// The length of a type's values (-1: any), whether they are passed by value, their alignment and their storage.
pub(super) fn layout(pg: &Type) -> (i16, bool, &'static str, &'static str) {
    match *pg {
        Type::BOOL | Type::CHAR => (1, true, "c", "p"),
        Type::INT2 => (2, true, "s", "p"),
        Type::INT4 | Type::FLOAT4 | Type::DATE | Type::OID => (4, true, "i", "p"),
        Type::INT8 | Type::FLOAT8 | Type::TIME | Type::TIMESTAMP | Type::TIMESTAMPTZ => (8, true, "d", "p"),
        Type::INTERVAL => (16, false, "d", "p"),
        Type::UUID => (16, false, "c", "p"),
        Type::NAME => (64, false, "c", "p"),
        Type::NUMERIC => (-1, false, "i", "m"),
        _ if matches!(pg.kind(), postgres_types::Kind::Enum(_)) => (4, true, "i", "p"),
        _ => (-1, false, "i", "x"),
    }
}

/// The collation of a type: the default one of texts, C of names.
pub(super) fn collation(pg: &Type) -> i64 {
    match *pg {
        Type::TEXT | Type::VARCHAR | Type::BPCHAR => 100,
        Type::TEXT_ARRAY | Type::VARCHAR_ARRAY | Type::BPCHAR_ARRAY => 100,
        Type::NAME => 950,
        _ => 0,
    }
}

fn pg_attribute(catalog: &CatalogSnapshot, system: &[SystemRelation], database: &str) -> Vec<Row> {
    let mut rows = vec![];
    let mut add = |relid: i64, number: usize, field: &Field, filled: Filled| {
        let pg = types::pg_type(field);
        let (length, by_value, alignment, storage) = layout(&pg);
        rows.push(Row::from([
            ("attrelid", relid.to_string()),
            ("attname", field.name().clone()),
            (
                "atttypid",
                filled.domain.map_or(i64::from(pg.oid()), oid).to_string(),
            ),
            ("attstattarget", "-1".to_string()),
            ("attlen", length.to_string()),
            ("attnum", number.to_string()),
            ("attcacheoff", "-1".to_string()),
            ("atttypmod", types::modifier(field).to_string()),
            ("attbyval", flag(by_value)),
            ("attalign", alignment.to_string()),
            ("attstorage", storage.to_string()),
            ("attnotnull", flag(!field.is_nullable())),
            ("atthasdef", flag(filled.default || filled.generated)),
            (
                "attgenerated",
                if filled.generated { "s" } else { "" }.to_string(),
            ),
            ("attidentity", filled.identity.to_string()),
            ("attislocal", flag(true)),
            ("attcollation", collation(&pg).to_string()),
        ]));
    };
    for (object, fields) in with_columns(catalog, database) {
        let columns = object.relation().map(|relation| &relation.columns);
        for (index, field) in fields.iter().enumerate() {
            let column = columns.and_then(|columns| columns.get(index));
            let filled = column.map(Filled::of).unwrap_or_default();
            // Of a view PostgreSQL does not say it.
            match matches!(object.kind, ObjectKind::View | ObjectKind::MaterializedView) {
                true => {
                    let field = field.as_ref().clone().with_nullable(true);
                    add(oid(object.id), index + 1, &field, filled);
                }
                false => add(oid(object.id), index + 1, field, filled),
            }
        }
    }
    for (object, fields) in own_types::composites(catalog, database) {
        for (index, field) in fields.iter().enumerate() {
            add(oid(object.id), index + 1, field, Filled::default());
        }
    }
    for (oid, (_, schema)) in numbered(system) {
        for (index, field) in schema.fields().iter().enumerate() {
            add(oid, index + 1, field, Filled::default());
        }
    }
    for Index { oid, on, columns, .. } in indexes(catalog, database) {
        let Some(relation) = on.relation() else { continue };
        for (index, position) in columns.iter().enumerate() {
            if let Some(column) = relation.columns.get(*position) {
                add(oid, index + 1, &column.field, Filled::default());
            }
        }
    }
    for (object, _) in sequences::all(catalog, database) {
        for (index, (name, data_type)) in sequences::COLUMNS.iter().enumerate() {
            let field = Field::new(*name, data_type.clone(), false);
            add(oid(object.id), index + 1, &field, Filled::default());
        }
    }
    rows
}

fn pg_namespace(catalog: &CatalogSnapshot, database: &str) -> Vec<Row> {
    let own = catalog.schemas(database).map(|object| {
        let mut row = Row::from([
            ("oid", namespace_oid(catalog, database, &object.name).to_string()),
            ("nspname", object.name.clone()),
        ]);
        owned(catalog, object, &mut row, "nspowner", "nspacl");
        row
    });
    let relations = catalog.relations(database).map(|object| &object.schema);
    let temporary: BTreeSet<String> = relations.filter(|schema| is_temporary(schema)).cloned().collect();
    let system = millrace_catalog::SYSTEM_SCHEMAS
        .iter()
        .map(|name| (*name).to_string());
    let system = system.chain(temporary).map(|name| {
        Row::from([
            ("oid", namespace_oid(catalog, database, &name).to_string()),
            ("nspname", name),
            ("nspowner", OWNER.to_string()),
        ])
    });
    own.chain(system).collect()
}

fn pg_database(catalog: &CatalogSnapshot) -> Vec<Row> {
    catalog
        .databases()
        .map(|object| {
            let mut row = Row::from([
                ("oid", oid(object.id).to_string()),
                ("datname", object.name.clone()),
                ("encoding", "6".to_string()),
                ("datlocprovider", "c".to_string()),
                ("datistemplate", flag(false)),
                ("datallowconn", flag(true)),
                ("datconnlimit", "-1".to_string()),
                ("dattablespace", TABLESPACE_OID.to_string()),
                ("datcollate", "C.UTF-8".to_string()),
                ("datctype", "C.UTF-8".to_string()),
            ]);
            owned(catalog, object, &mut row, "datdba", "datacl");
            row
        })
        .collect()
}

/// What a column has where no value is given, if it is not generated.
pub(crate) fn default_of(column: &ColumnDef) -> Option<String> {
    let given = column.default.as_ref();
    let given = given.map(|expression| expression.to_string().replace("::REGCLASS", "::regclass"));
    given.or_else(|| column.proctime.then(|| "now()".to_owned()))
}

fn pg_attrdef(catalog: &CatalogSnapshot, database: &str) -> Vec<Row> {
    let mut rows = vec![];
    for object in catalog.relations(database) {
        let Some(relation) = object.relation() else {
            continue;
        };
        for (index, column) in relation.columns.iter().enumerate() {
            let generated = column.generated.as_ref().map(ToString::to_string);
            let Some(text) = generated.or_else(|| default_of(column)) else {
                continue;
            };
            rows.push(Row::from([
                (
                    "oid",
                    (DEFAULT_OID + i64::try_from(rows.len()).unwrap_or_default()).to_string(),
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
                ("tableowner", catalog.role_name(object.rights.owner())),
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
                ("viewowner", catalog.role_name(object.rights.owner())),
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
                ("matviewowner", catalog.role_name(object.rights.owner())),
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
