//! `pg_index`, `pg_constraint` and `pg_indexes`: primary keys, UNIQUE, CHECK, FOREIGN KEY, and the indexes that were made by themselves.

use std::sync::Arc;

use millrace_catalog::{CatalogSnapshot, CheckDef, Definition, ForeignKeyDef, Object, Relation};

use crate::pg_catalog::relations::flag;
use crate::pg_catalog::table::Row;
use crate::pg_catalog::types;
use crate::pg_catalog::{
    CHECK_OID, CONSTRAINT_OID, DOMAIN_CHECK_OID, FIRST_OID, FOREIGN_KEY_OID, KEY_INDEX_OID, definitions,
    namespace_oid, oid,
};

/// An index, as `pg_index` has it.
pub(crate) struct Index<'a> {
    /// Its oid.
    pub oid: i64,
    /// Its name.
    pub name: &'a str,
    /// The relation.
    pub on: &'a Arc<Object>,
    /// Its columns, by position.
    pub columns: &'a [usize],
    /// What it is for.
    pub kind: IndexKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IndexKind {
    /// Made by CREATE INDEX.
    Plain,
    /// Made by CREATE UNIQUE INDEX.
    Unique,
    /// Of a UNIQUE constraint.
    UniqueConstraint,
    PrimaryKey,
}

impl Index<'_> {
    /// The oid of the constraint that it is for, if it is for one.
    fn constraint(&self) -> Option<i64> {
        match self.kind {
            IndexKind::Plain | IndexKind::Unique => None,
            IndexKind::UniqueConstraint => Some(CONSTRAINT_OID + (self.oid - FIRST_OID)),
            IndexKind::PrimaryKey => Some(CONSTRAINT_OID + (self.oid - KEY_INDEX_OID)),
        }
    }
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

/// Every index; those behind primary keys included.
pub(crate) fn indexes<'a>(catalog: &'a CatalogSnapshot, database: &'a str) -> Vec<Index<'a>> {
    let made = catalog.relations(database).filter_map(|object| {
        let Definition::Index(index) = &object.definition else {
            return None;
        };
        Some(Index {
            oid: oid(object.id),
            name: &object.name,
            on: catalog.object(index.relation)?,
            columns: &index.columns,
            kind: match (index.is_unique, index.is_constraint) {
                (true, true) => IndexKind::UniqueConstraint,
                (true, false) => IndexKind::Unique,
                (false, _) => IndexKind::Plain,
            },
        })
    });
    let keys = keyed(catalog, database).map(|(object, relation, name)| Index {
        oid: KEY_INDEX_OID + i64::try_from(object.id.0).unwrap_or_default(),
        name,
        on: object,
        columns: relation.key(),
        kind: IndexKind::PrimaryKey,
    });
    made.chain(keys).collect()
}

/// CHECK constraints with their oids, in one order.
pub(crate) fn checks<'a>(
    catalog: &'a CatalogSnapshot,
    database: &'a str,
) -> impl Iterator<Item = (i64, &'a Arc<Object>, &'a CheckDef)> {
    let tables = catalog.relations(database);
    let all = tables.flat_map(|object| {
        let checks = object.relation().map(|relation| relation.checks.as_slice());
        checks
            .unwrap_or_default()
            .iter()
            .map(move |check| (object, check))
    });
    (CHECK_OID..)
        .zip(all)
        .map(|(oid, (object, check))| (oid, object, check))
}

/// FOREIGN KEY constraints with their oids, in one order.
pub(crate) fn foreign_keys<'a>(
    catalog: &'a CatalogSnapshot,
    database: &'a str,
) -> impl Iterator<Item = (i64, &'a Arc<Object>, &'a ForeignKeyDef)> {
    let tables = catalog.relations(database);
    let all = tables.flat_map(|object| {
        let keys = object.relation().map(|relation| relation.foreign_keys.as_slice());
        keys.unwrap_or_default().iter().map(move |key| (object, key))
    });
    (FOREIGN_KEY_OID..)
        .zip(all)
        .map(|(oid, (object, key))| (oid, object, key))
}

/// The index by which the columns are unique to which a foreign key refers.
pub(crate) fn index_behind<'a>(indexes: &'a [Index<'a>], key: &ForeignKeyDef) -> Option<&'a Index<'a>> {
    let is_behind = |index: &&Index<'_>| {
        index.on.id == key.table
            && index.kind != IndexKind::Plain
            && index.columns.len() == key.referenced.len()
            && index.columns.iter().all(|column| key.referenced.contains(column))
    };
    indexes.iter().find(is_behind)
}

fn numbers(positions: &[usize]) -> String {
    let numbers: Vec<String> = positions
        .iter()
        .map(|position| (position + 1).to_string())
        .collect();
    format!("{{{}}}", numbers.join(","))
}

pub(super) fn pg_index(catalog: &CatalogSnapshot, database: &str) -> Vec<Row> {
    let row = |index: Index<'_>| {
        let zeros = format!("{{{}}}", vec!["0"; index.columns.len()].join(","));
        Row::from([
            ("indexrelid", index.oid.to_string()),
            ("indrelid", oid(index.on.id).to_string()),
            ("indnatts", index.columns.len().to_string()),
            ("indnkeyatts", index.columns.len().to_string()),
            ("indisunique", flag(index.kind != IndexKind::Plain)),
            ("indisprimary", flag(index.kind == IndexKind::PrimaryKey)),
            ("indimmediate", flag(true)),
            ("indisvalid", flag(true)),
            ("indisready", flag(true)),
            ("indislive", flag(true)),
            ("indkey", numbers(index.columns)),
            ("indcollation", zeros.clone()),
            ("indclass", zeros.clone()),
            ("indoption", zeros),
        ])
    };
    indexes(catalog, database).into_iter().map(row).collect()
}

pub(super) fn pg_constraint(catalog: &CatalogSnapshot, database: &str) -> Vec<Row> {
    let row = |oid_of: i64, name: &str, kind: &str, on: &Object| {
        Row::from([
            ("oid", oid_of.to_string()),
            ("conname", name.to_owned()),
            (
                "connamespace",
                namespace_oid(catalog, database, &on.schema).to_string(),
            ),
            ("contype", kind.to_owned()),
            ("convalidated", flag(true)),
            ("conrelid", oid(on.id).to_string()),
            ("conislocal", flag(true)),
        ])
    };
    let mut rows = vec![];
    for index in indexes(catalog, database) {
        let Some(constraint) = index.constraint() else {
            continue;
        };
        let kind = match index.kind {
            IndexKind::PrimaryKey => "p",
            _ => "u",
        };
        let mut of_index = row(constraint, index.name, kind, index.on);
        of_index.insert("conindid", index.oid.to_string());
        of_index.insert("conkey", numbers(index.columns));
        of_index.insert("connoinherit", flag(true));
        rows.push(of_index);
    }
    for (oid, on, check) in checks(catalog, database) {
        let mut of_check = row(oid, &check.name, "c", on);
        of_check.insert("conkey", numbers(&definitions::checked_columns(on, check)));
        of_check.insert("conbin", check.expression.to_string());
        rows.push(of_check);
    }
    for (number, (on, check)) in domain_checks(catalog, database).enumerate() {
        let number = i64::try_from(number).unwrap_or_default();
        let mut of_domain = row(DOMAIN_CHECK_OID + number, &check.name, "c", on);
        of_domain.insert("conrelid", "0".to_owned());
        of_domain.insert("contypid", oid(on.id).to_string());
        of_domain.insert("conbin", check.expression.to_string());
        rows.push(of_domain);
    }
    let indexes = indexes(catalog, database);
    for (oid_of, on, key) in foreign_keys(catalog, database) {
        let mut of_key = row(oid_of, &key.name, "f", on);
        let index = index_behind(&indexes, key).map_or(0, |index| index.oid);
        of_key.insert("conindid", index.to_string());
        of_key.insert("confrelid", oid(key.table).to_string());
        of_key.insert("confupdtype", key.on_update.letter().to_owned());
        of_key.insert("confdeltype", key.on_delete.letter().to_owned());
        of_key.insert("confmatchtype", "s".to_owned());
        of_key.insert("conkey", numbers(&key.columns));
        of_key.insert("confkey", numbers(&key.referenced));
        of_key.insert("connoinherit", flag(true));
        rows.push(of_key);
    }
    rows
}

/// The CHECK constraints of domains; the oid of each is [`DOMAIN_CHECK_OID`] and its place.
pub(crate) fn domain_checks<'a>(
    catalog: &'a CatalogSnapshot,
    database: &'a str,
) -> impl Iterator<Item = (&'a Arc<Object>, &'a CheckDef)> {
    types::domains(catalog, database)
        .flat_map(|(object, domain)| domain.checks.iter().map(move |check| (object, check)))
}

pub(super) fn pg_indexes(catalog: &CatalogSnapshot, database: &str) -> Vec<Row> {
    let row = |index: Index<'_>| {
        Row::from([
            ("schemaname", index.on.schema.clone()),
            ("tablename", index.on.name.clone()),
            ("indexname", index.name.to_owned()),
            (
                "indexdef",
                definitions::index(catalog, index.oid, 0).unwrap_or_default(),
            ),
        ])
    };
    indexes(catalog, database).into_iter().map(row).collect()
}
