//! `table_constraints`, `key_column_usage`, `referential_constraints`, `constraint_column_usage`, `constraint_table_usage` and
//! `check_constraints`.

use std::sync::Arc;

use millrace_catalog::{CatalogSnapshot, Object};

use super::{Asked, OF_TABLE, put, yes};
use crate::pg_catalog::constraints::{self, IndexKind, domain_checks};
use crate::pg_catalog::definitions::checked_columns;
use crate::pg_catalog::oid;
use crate::pg_catalog::table::Row;

/// A constraint.
struct Constraint<'a> {
    name: String,
    on: &'a Arc<Object>,
    kind: &'static str,
    /// Its columns, by position.
    columns: Vec<usize>,
    /// Of a foreign key: the table that it refers to, and the columns there.
    referenced: Option<(&'a Arc<Object>, Vec<usize>)>,
    /// Of a CHECK.
    clause: Option<String>,
}

fn all<'a>(catalog: &'a CatalogSnapshot, database: &'a str) -> Vec<Constraint<'a>> {
    let mut all = vec![];
    for index in constraints::indexes(catalog, database) {
        let kind = match index.kind {
            IndexKind::PrimaryKey => "PRIMARY KEY",
            IndexKind::UniqueConstraint => "UNIQUE",
            IndexKind::Plain | IndexKind::Unique => continue,
        };
        all.push(Constraint {
            name: index.name.to_owned(),
            on: index.on,
            kind,
            columns: index.columns.to_vec(),
            referenced: None,
            clause: None,
        });
    }
    for (_, on, key) in constraints::foreign_keys(catalog, database) {
        all.push(Constraint {
            name: key.name.clone(),
            on,
            kind: "FOREIGN KEY",
            columns: key.columns.clone(),
            referenced: catalog
                .object(key.table)
                .map(|table| (table, key.referenced.clone())),
            clause: None,
        });
    }
    for (_, on, check) in constraints::checks(catalog, database) {
        all.push(Constraint {
            name: check.name.clone(),
            on,
            kind: "CHECK",
            columns: checked_columns(on, check),
            referenced: None,
            clause: Some(format!("(({}))", check.expression)),
        });
    }
    // NOT NULL is one as well, under a name that PostgreSQL makes up.
    for object in catalog.relations(database) {
        let is_stored = matches!(
            object.kind,
            millrace_storage::ObjectKind::Table | millrace_storage::ObjectKind::Stream
        );
        let Some(relation) = object.relation().filter(|_| is_stored) else {
            continue;
        };
        for (at, column) in relation.columns.iter().enumerate() {
            if !column.field.is_nullable() {
                all.push(Constraint {
                    name: format!("2200_{}_{}_not_null", oid(object.id), at + 1),
                    on: object,
                    kind: "CHECK",
                    columns: vec![],
                    referenced: None,
                    clause: Some(format!("{} IS NOT NULL", column.field.name())),
                });
            }
        }
    }
    all
}

fn column_name(object: &Object, position: usize) -> Option<String> {
    let column = object.relation()?.columns.get(position)?;
    Some(column.field.name().clone())
}

/// The rows of a relation; `None`: it is another's.
pub(super) fn rows(asked: &Asked<'_>, name: &str) -> Option<Vec<Row>> {
    let mut all = all(asked.catalog, asked.database);
    all.retain(|constraint| asked.sees(constraint.on));
    Some(match name {
        "table_constraints" => all.iter().map(|row| table_constraint(asked, row)).collect(),
        "key_column_usage" => key_column_usage(asked, &all),
        "referential_constraints" => referential_constraints(asked, &all),
        "constraint_column_usage" => constraint_column_usage(asked, &all),
        "constraint_table_usage" => constraint_table_usage(asked, &all),
        "check_constraints" => check_constraints(asked, &all),
        _ => return None,
    })
}

/// A row that begins with the names of a constraint.
fn named(asked: &Asked<'_>, constraint: &Constraint<'_>) -> Row {
    let names = ["constraint_catalog", "constraint_schema", "constraint_name"];
    asked.three(names, &constraint.on.schema, &constraint.name)
}

fn table_constraint(asked: &Asked<'_>, constraint: &Constraint<'_>) -> Row {
    let mut row = named(asked, constraint);
    row.extend(asked.named(OF_TABLE, constraint.on));
    row.insert("constraint_type", constraint.kind.to_owned());
    row.insert("is_deferrable", yes(false));
    row.insert("initially_deferred", yes(false));
    row.insert("enforced", yes(true));
    put(
        &mut row,
        "nulls_distinct",
        (constraint.kind == "UNIQUE").then_some("YES"),
    );
    row
}

fn key_column_usage(asked: &Asked<'_>, all: &[Constraint<'_>]) -> Vec<Row> {
    // Where the column is among those of the key that is referred to.
    let of_unique = |constraint: &Constraint<'_>, at: usize| {
        let (table, referenced) = constraint.referenced.as_ref()?;
        let key = table.relation()?.key();
        let unique = all.iter().find(|unique| {
            unique.on.id == table.id
                && unique.kind != "CHECK"
                && unique.referenced.is_none()
                && unique.columns.len() == referenced.len()
                && unique.columns.iter().all(|column| referenced.contains(column))
        });
        let columns = unique.map_or(key, |unique| &unique.columns);
        Some(columns.iter().position(|column| *column == referenced[at])? + 1)
    };
    let mut rows = vec![];
    for constraint in all.iter().filter(|row| row.kind != "CHECK") {
        for (at, column) in constraint.columns.iter().enumerate() {
            let mut row = named(asked, constraint);
            row.extend(asked.named(OF_TABLE, constraint.on));
            put(&mut row, "column_name", column_name(constraint.on, *column));
            row.insert("ordinal_position", (at + 1).to_string());
            put(
                &mut row,
                "position_in_unique_constraint",
                of_unique(constraint, at),
            );
            rows.push(row);
        }
    }
    rows
}

fn referential_constraints(asked: &Asked<'_>, all: &[Constraint<'_>]) -> Vec<Row> {
    let indexes = constraints::indexes(asked.catalog, asked.database);
    let names = [
        "unique_constraint_catalog",
        "unique_constraint_schema",
        "unique_constraint_name",
    ];
    let mut rows = vec![];
    for (_, on, key) in constraints::foreign_keys(asked.catalog, asked.database) {
        let is_it =
            |row: &&Constraint<'_>| row.referenced.is_some() && row.on.id == on.id && row.name == key.name;
        let Some(constraint) = all.iter().find(is_it) else {
            continue;
        };
        let mut row = named(asked, constraint);
        if let Some(unique) = constraints::index_behind(&indexes, key) {
            row.extend(asked.three(names, &unique.on.schema, unique.name));
        }
        row.insert("match_option", "NONE".to_owned());
        row.insert("update_rule", key.on_update.clause().to_owned());
        row.insert("delete_rule", key.on_delete.clause().to_owned());
        rows.push(row);
    }
    rows
}

/// The table that a constraint is about, and the columns there: of a foreign key those that it refers to.
fn used<'a>(constraint: &'a Constraint<'a>) -> (&'a Arc<Object>, &'a [usize]) {
    match &constraint.referenced {
        Some((table, columns)) => (table, columns),
        None => (constraint.on, &constraint.columns),
    }
}

fn constraint_column_usage(asked: &Asked<'_>, all: &[Constraint<'_>]) -> Vec<Row> {
    let mut rows = vec![];
    for constraint in all {
        let (table, columns) = used(constraint);
        for column in columns {
            let mut row = named(asked, constraint);
            row.extend(asked.named(OF_TABLE, table));
            put(&mut row, "column_name", column_name(table, *column));
            rows.push(row);
        }
    }
    rows
}

/// Of keys alone.
fn constraint_table_usage(asked: &Asked<'_>, all: &[Constraint<'_>]) -> Vec<Row> {
    let keys = all.iter().filter(|row| row.kind != "CHECK");
    keys.map(|constraint| {
        let mut row = named(asked, constraint);
        row.extend(asked.named(OF_TABLE, used(constraint).0));
        row
    })
    .collect()
}

fn check_constraints(asked: &Asked<'_>, all: &[Constraint<'_>]) -> Vec<Row> {
    let of_tables = all.iter().filter_map(|constraint| {
        let mut row = named(asked, constraint);
        row.insert("check_clause", constraint.clause.clone()?);
        Some(row)
    });
    let of_domains = domain_checks(asked.catalog, asked.database).map(|(domain, check)| {
        let names = ["constraint_catalog", "constraint_schema", "constraint_name"];
        let mut row = asked.three(names, &domain.schema, &check.name);
        row.insert("check_clause", format!("(({}))", check.expression));
        row
    });
    of_tables.chain(of_domains).collect()
}
