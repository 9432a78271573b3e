//! `tables`, `columns`, `views`, `schemata`, `foreign_tables`, and what there is one of in a database.

use millrace_catalog::role::BOOTSTRAP;
use millrace_catalog::sequence::Takes;
use millrace_catalog::temporary::is_temporary;
use millrace_catalog::{ColumnDef, Definition, Object, SYSTEM_SCHEMAS};
use millrace_storage::ObjectKind;

use super::{Asked, OF_TABLE, OF_UDT, fields, put, put_type, yes};
use crate::pg_catalog::relations::default_of;
use crate::pg_catalog::table::Row;

const OF_SERVER: [&str; 2] = ["foreign_server_catalog", "foreign_server_name"];
/// What reads the files of foreign tables.
const SERVER: &str = "files";

/// The rows of a relation; `None`: it is another's.
pub(super) fn rows(asked: &Asked<'_>, name: &str) -> Option<Vec<Row>> {
    Some(match name {
        "tables" => asked.relations().map(|object| table(asked, object)).collect(),
        "columns" => columns(asked),
        "views" => views(asked),
        "schemata" => schemata(asked),
        "foreign_tables" => foreign_tables(asked),
        "foreign_servers" => vec![of_server(asked)],
        "information_schema_catalog_name" => {
            vec![Row::from([("catalog_name", asked.database.to_owned())])]
        }
        "character_sets" => {
            let mut row = asked.three(
                [
                    "default_collate_catalog",
                    "default_collate_schema",
                    "default_collate_name",
                ],
                "pg_catalog",
                "C.UTF-8",
            );
            row.extend([
                ("character_set_name", "UTF8".to_owned()),
                ("character_repertoire", "UCS".to_owned()),
                ("form_of_use", "UTF8".to_owned()),
            ]);
            vec![row]
        }
        _ => return None,
    })
}

fn table(asked: &Asked<'_>, object: &Object) -> Row {
    let kind = match object.kind {
        ObjectKind::View => "VIEW",
        ObjectKind::MaterializedView => "MATERIALIZED VIEW",
        ObjectKind::ExternalTable => "FOREIGN",
        _ if is_temporary(&object.schema) => "LOCAL TEMPORARY",
        _ => "BASE TABLE",
    };
    let mut row = asked.named(OF_TABLE, object);
    row.insert("table_type", kind.to_owned());
    row.insert("is_insertable_into", yes(takes_rows(object)));
    row.insert("is_typed", yes(false));
    row
}

fn takes_rows(object: &Object) -> bool {
    matches!(object.kind, ObjectKind::Stream | ObjectKind::Table)
}

fn columns(asked: &Asked<'_>) -> Vec<Row> {
    let mut rows = vec![];
    for object in asked.relations() {
        let columns = object.relation().map(|relation| relation.columns.as_slice());
        for (index, field) in fields(object).into_iter().enumerate() {
            let mut row = asked.named(OF_TABLE, object);
            row.insert("column_name", field.name().clone());
            row.insert("ordinal_position", (index + 1).to_string());
            row.insert("dtd_identifier", (index + 1).to_string());
            row.insert("is_nullable", yes(field.is_nullable()));
            put_type(asked, &mut row, &field, OF_UDT);
            row.insert("is_self_referencing", yes(false));
            row.insert("is_identity", yes(false));
            row.insert("identity_cycle", yes(false));
            row.insert("is_generated", "NEVER".to_owned());
            row.insert("is_updatable", yes(object.kind == ObjectKind::Table));
            if let Some(column) = columns.and_then(|columns| columns.get(index)) {
                put_column(asked, &mut row, column);
            }
            rows.push(row);
        }
    }
    rows
}

/// What fills a column, and the domain that it is of.
fn put_column(asked: &Asked<'_>, row: &mut Row, column: &ColumnDef) {
    if let Some(domain) = column.domain.and_then(|id| asked.catalog.object(id)) {
        let names = ["domain_catalog", "domain_schema", "domain_name"];
        row.extend(asked.named(names, domain));
    }
    if let Some(expression) = &column.generated {
        row.insert("is_generated", "ALWAYS".to_owned());
        row.insert("generation_expression", expression.to_string());
        return;
    }
    let identity = column.sequence.and_then(|sequence| {
        let how = match sequence.takes {
            Takes::IdentityAlways => "ALWAYS",
            Takes::IdentityByDefault => "BY DEFAULT",
            Takes::Default => return None,
        };
        Some((how, asked.catalog.object(sequence.id)?))
    });
    if let Some((how, sequence)) = identity {
        row.insert("is_identity", yes(true));
        row.insert("identity_generation", how.to_owned());
        if let Definition::Sequence(of) = &sequence.definition {
            row.insert("identity_start", of.start.to_string());
            row.insert("identity_increment", of.increment.to_string());
            row.insert("identity_maximum", of.max.to_string());
            row.insert("identity_minimum", of.min.to_string());
            row.insert("identity_cycle", yes(of.cycles));
        }
        return;
    }
    put(row, "column_default", default_of(column));
}

fn views(asked: &Asked<'_>) -> Vec<Row> {
    let mut rows = vec![];
    for object in asked.relations() {
        let Definition::View(query) = &object.definition else {
            continue;
        };
        let mut row = asked.named(OF_TABLE, object);
        put(
            &mut row,
            "view_definition",
            asked.owns(object).then_some(&query.text),
        );
        row.insert("check_option", "NONE".to_owned());
        for column in [
            "is_updatable",
            "is_insertable_into",
            "is_trigger_updatable",
            "is_trigger_deletable",
            "is_trigger_insertable_into",
        ] {
            row.insert(column, yes(false));
        }
        rows.push(row);
    }
    rows
}

fn schemata(asked: &Asked<'_>) -> Vec<Row> {
    let (catalog, database) = (asked.catalog, asked.database);
    let own = catalog
        .schemas(database)
        .filter(|schema| asked.sees(schema))
        .map(|schema| (schema.name.as_str(), schema.rights.owner()));
    let system = SYSTEM_SCHEMAS.into_iter().map(|name| (name, BOOTSTRAP));
    let mut all: Vec<_> = own.chain(system).collect();
    all.sort_unstable_by_key(|(name, _)| *name);
    let row = |(name, owner): (&str, _)| {
        Row::from([
            ("catalog_name", database.to_owned()),
            ("schema_name", name.to_owned()),
            ("schema_owner", catalog.role_name(owner)),
        ])
    };
    all.into_iter().map(row).collect()
}

fn of_server(asked: &Asked<'_>) -> Row {
    let values = [asked.database, SERVER].map(ToOwned::to_owned);
    let mut row: Row = OF_SERVER.into_iter().zip(values).collect();
    row.insert("authorization_identifier", asked.catalog.role_name(BOOTSTRAP));
    row
}

fn foreign_tables(asked: &Asked<'_>) -> Vec<Row> {
    let foreign = asked
        .relations()
        .filter(|object| object.kind == ObjectKind::ExternalTable);
    let names = [
        "foreign_table_catalog",
        "foreign_table_schema",
        "foreign_table_name",
    ];
    foreign
        .map(|object| {
            let mut row = asked.named(names, object);
            row.extend(
                of_server(asked)
                    .into_iter()
                    .filter(|(column, _)| OF_SERVER.contains(column)),
            );
            row
        })
        .collect()
}
