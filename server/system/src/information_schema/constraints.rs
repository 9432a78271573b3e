//! `table_constraints`, `key_column_usage`, `referential_constraints`, `constraint_column_usage` and `check_constraints`.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array};
use millrace_catalog::{CatalogSnapshot, Object};

use super::{Columns, same, texts};
use crate::pg_catalog::constraints::{self, IndexKind};
use crate::pg_catalog::definitions::checked_columns;
use crate::pg_catalog::oid;

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

/// A relation by name; `None`: there is none.
pub(super) fn relation(catalog: &CatalogSnapshot, database: &str, name: &str) -> Option<Columns> {
    let all = all(catalog, database);
    Some(match name {
        "table_constraints" => table_constraints(&all, database),
        "key_column_usage" => key_column_usage(&all, database),
        "referential_constraints" => referential_constraints(catalog, &all, database),
        "constraint_column_usage" => constraint_column_usage(&all, database),
        "check_constraints" => check_constraints(&all, database),
        _ => return None,
    })
}

/// `constraint_catalog`, `constraint_schema` and `constraint_name`.
fn named<'a>(rows: impl Iterator<Item = &'a Constraint<'a>> + Clone, database: &str) -> Columns {
    vec![
        ("constraint_catalog", same(database, rows.clone().count())),
        (
            "constraint_schema",
            texts(rows.clone().map(|row| Some(row.on.schema.as_str()))),
        ),
        ("constraint_name", texts(rows.map(|row| Some(row.name.as_str())))),
    ]
}

/// `table_catalog`, `table_schema` and `table_name`.
fn of_table<'a>(rows: impl Iterator<Item = &'a Arc<Object>> + Clone, database: &str) -> Columns {
    vec![
        ("table_catalog", same(database, rows.clone().count())),
        (
            "table_schema",
            texts(rows.clone().map(|table| Some(table.schema.as_str()))),
        ),
        ("table_name", texts(rows.map(|table| Some(table.name.as_str())))),
    ]
}

fn table_constraints(all: &[Constraint<'_>], database: &str) -> Columns {
    let mut columns = named(all.iter(), database);
    columns.extend(of_table(all.iter().map(|row| row.on), database));
    let nulls_distinct = |row: &Constraint<'_>| (row.kind == "UNIQUE").then_some("YES");
    columns.extend([
        (
            "constraint_type",
            texts(all.iter().map(|row| Some(row.kind))) as ArrayRef,
        ),
        ("is_deferrable", same("NO", all.len())),
        ("initially_deferred", same("NO", all.len())),
        ("enforced", same("YES", all.len())),
        ("nulls_distinct", texts(all.iter().map(nulls_distinct))),
    ]);
    columns
}

fn key_column_usage(all: &[Constraint<'_>], database: &str) -> Columns {
    let keys = all.iter().filter(|row| row.kind != "CHECK");
    let rows: Vec<(&Constraint<'_>, usize)> = keys
        .flat_map(|row| (0..row.columns.len()).map(move |at| (row, at)))
        .collect();
    let mut columns = named(rows.iter().map(|(row, _)| *row), database);
    columns.extend(of_table(rows.iter().map(|(row, _)| row.on), database));
    let place = |at: usize| i32::try_from(at + 1).ok();
    // Where the column is among those of the key that is referred to.
    let of_unique = |(row, at): &(&Constraint<'_>, usize)| {
        let (table, referenced) = row.referenced.as_ref()?;
        let key = table.relation()?.key();
        let unique = all.iter().find(|unique| {
            unique.on.id == table.id
                && unique.kind != "CHECK"
                && unique.referenced.is_none()
                && unique.columns.len() == referenced.len()
                && unique.columns.iter().all(|column| referenced.contains(column))
        });
        let columns = unique.map_or(key, |unique| &unique.columns);
        place(columns.iter().position(|column| *column == referenced[*at])?)
    };
    columns.extend([
        (
            "column_name",
            texts(rows.iter().map(|(row, at)| column_name(row.on, row.columns[*at]))),
        ),
        (
            "ordinal_position",
            Arc::new(Int32Array::from_iter(rows.iter().map(|(_, at)| place(*at)))) as ArrayRef,
        ),
        (
            "position_in_unique_constraint",
            Arc::new(Int32Array::from_iter(rows.iter().map(of_unique))),
        ),
    ]);
    columns
}

fn referential_constraints(catalog: &CatalogSnapshot, all: &[Constraint<'_>], database: &str) -> Columns {
    let indexes = constraints::indexes(catalog, database);
    let keys: Vec<_> = constraints::foreign_keys(catalog, database).collect();
    let rows: Vec<&Constraint<'_>> = all.iter().filter(|row| row.kind == "FOREIGN KEY").collect();
    let unique = |at: usize| constraints::index_behind(&indexes, keys.get(at)?.2);
    let each = 0..rows.len();
    let mut columns = named(rows.iter().copied(), database);
    columns.extend([
        ("unique_constraint_catalog", same(database, rows.len())),
        (
            "unique_constraint_schema",
            texts(each.clone().map(|at| Some(unique(at)?.on.schema.as_str()))),
        ),
        (
            "unique_constraint_name",
            texts(each.clone().map(|at| Some(unique(at)?.name))),
        ),
        ("match_option", same("NONE", rows.len())),
        (
            "update_rule",
            texts(keys.iter().map(|(_, _, key)| Some(key.on_update.clause()))),
        ),
        (
            "delete_rule",
            texts(keys.iter().map(|(_, _, key)| Some(key.on_delete.clause()))),
        ),
    ]);
    columns
}

fn constraint_column_usage(all: &[Constraint<'_>], database: &str) -> Columns {
    let rows: Vec<(&Constraint<'_>, &Arc<Object>, usize)> = all
        .iter()
        .flat_map(|row| {
            let (table, columns) = match &row.referenced {
                Some((table, columns)) => (*table, columns),
                None => (row.on, &row.columns),
            };
            columns.iter().map(move |column| (row, table, *column))
        })
        .collect();
    let mut columns = of_table(rows.iter().map(|(_, table, _)| *table), database);
    columns.push((
        "column_name",
        texts(rows.iter().map(|(_, table, column)| column_name(table, *column))),
    ));
    columns.extend(named(rows.iter().map(|(row, ..)| *row), database));
    columns
}

fn check_constraints(all: &[Constraint<'_>], database: &str) -> Columns {
    let rows = all.iter().filter(|row| row.clause.is_some());
    let mut columns = named(rows.clone(), database);
    columns.push(("check_clause", texts(rows.map(|row| row.clause.clone()))));
    columns
}
