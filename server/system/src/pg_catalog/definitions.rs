//! What `pg_get_indexdef`, `pg_get_viewdef`, `pg_get_constraintdef` and the description functions answer.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::sql::sqlparser::ast::Expr;
use millrace_catalog::{Action, CatalogSnapshot, CheckDef, Definition, ForeignKeyDef, Object};
use millrace_parser::quote_identifier;
use millrace_parser::walk::walk_expressions;
use millrace_storage::ObjectId;

use crate::pg_catalog::{
    CHECK_OID, CONSTRAINT_OID, DOMAIN_CHECK_OID, FIRST_OID, FOREIGN_KEY_OID, KEY_INDEX_OID, constraints,
};

/// The object of an oid.
pub fn object(catalog: &CatalogSnapshot, oid: i64) -> Option<&Arc<Object>> {
    catalog.object(ObjectId(u64::try_from(oid.checked_sub(FIRST_OID)?).ok()?))
}

/// The relation of an oid, which may be that of its key's index.
pub fn relation(catalog: &CatalogSnapshot, oid: i64) -> Option<&Arc<Object>> {
    match oid >= KEY_INDEX_OID {
        true => catalog.object(ObjectId(u64::try_from(oid - KEY_INDEX_OID).ok()?)),
        false => object(catalog, oid),
    }
}

fn columns(object: &Object, positions: &[usize]) -> Vec<String> {
    let relation = object.relation();
    positions
        .iter()
        .filter_map(|position| relation?.columns.get(*position))
        .map(|column| quote_identifier(column.field.name()).to_string())
        .collect()
}

/// The name of the index behind a primary key.
pub fn index_name(catalog: &CatalogSnapshot, oid: i64) -> Option<String> {
    let table = catalog.object(ObjectId(u64::try_from(oid.checked_sub(KEY_INDEX_OID)?).ok()?))?;
    Some(quote_identifier(table.relation()?.key_name.as_ref()?))
}

/// The definition of an index, or of one of its columns (the first is 1).
pub fn index(catalog: &CatalogSnapshot, oid: i64, column: i64) -> Option<String> {
    let (name, on, positions, unique) = if oid >= KEY_INDEX_OID {
        let table = catalog.object(ObjectId(u64::try_from(oid - KEY_INDEX_OID).ok()?))?;
        let relation = table.relation()?;
        (
            relation.key_name.clone()?,
            table,
            relation.key().to_vec(),
            "UNIQUE ",
        )
    } else {
        let index = object(catalog, oid)?;
        let Definition::Index(definition) = &index.definition else {
            return None;
        };
        (
            index.name.clone(),
            catalog.object(definition.relation)?,
            definition.columns.clone(),
            if definition.is_unique { "UNIQUE " } else { "" },
        )
    };
    let columns = columns(on, &positions);
    if column > 0 {
        return columns.get(usize::try_from(column - 1).ok()?).cloned();
    }
    Some(format!(
        "CREATE {unique}INDEX {} ON {}.{} USING btree ({})",
        quote_identifier(&name),
        quote_identifier(&on.schema),
        quote_identifier(&on.name),
        columns.join(", ")
    ))
}

/// The query of a view.
pub fn view(catalog: &CatalogSnapshot, oid: i64) -> Option<String> {
    let object = object(catalog, oid)?;
    let text = match &object.definition {
        Definition::View(query) => &query.text,
        Definition::Relation(relation) => &relation.query.as_ref()?.text,
        _ => return None,
    };
    Some(format!(" {};", text.trim()))
}

/// The definition of a constraint, with fewer parentheses if it is to be pretty. `name` says how a table is called.
pub fn constraint(
    (catalog, database): (&CatalogSnapshot, &str),
    oid: i64,
    is_pretty: bool,
    name: &dyn Fn(&Object) -> String,
) -> Option<String> {
    if oid >= FOREIGN_KEY_OID {
        let mut keys = constraints::foreign_keys(catalog, database);
        let (_, table, key) = keys.find(|(known, ..)| *known == oid)?;
        return foreign_key(catalog, table, key, name);
    }
    if oid >= DOMAIN_CHECK_OID {
        let place = usize::try_from(oid - DOMAIN_CHECK_OID).ok()?;
        let (_, check) = constraints::domain_checks(catalog, database).nth(place)?;
        return Some(check_clause(&check.expression, is_pretty));
    }
    if oid >= CHECK_OID {
        let mut checks = constraints::checks(catalog, database);
        let (_, _, check) = checks.find(|(known, ..)| *known == oid)?;
        return Some(check_clause(&check.expression, is_pretty));
    }
    let object = catalog.object(ObjectId(u64::try_from(oid.checked_sub(CONSTRAINT_OID)?).ok()?))?;
    Some(match &object.definition {
        Definition::Index(index) => {
            let on = catalog.object(index.relation)?;
            format!("UNIQUE ({})", columns(on, &index.columns).join(", "))
        }
        _ => format!(
            "PRIMARY KEY ({})",
            columns(object, object.relation()?.key()).join(", ")
        ),
    })
}

fn check_clause(condition: &Expr, is_pretty: bool) -> String {
    match is_pretty {
        true => format!("CHECK ({condition})"),
        false => format!("CHECK (({condition}))"),
    }
}

fn foreign_key(
    catalog: &CatalogSnapshot,
    table: &Object,
    key: &ForeignKeyDef,
    name: &dyn Fn(&Object) -> String,
) -> Option<String> {
    let parent = catalog.object(key.table)?;
    let mut text = format!(
        "FOREIGN KEY ({}) REFERENCES {}({})",
        columns(table, &key.columns).join(", "),
        name(parent),
        columns(parent, &key.referenced).join(", ")
    );
    for (what, action) in [("UPDATE", key.on_update), ("DELETE", key.on_delete)] {
        if action != Action::NoAction {
            text.push_str(&format!(" ON {what} {}", action.clause()));
        }
    }
    Some(text)
}

/// The positions of the columns that a CHECK names.
pub fn checked_columns(table: &Object, check: &CheckDef) -> Vec<usize> {
    let mut named = BTreeSet::new();
    let Some(relation) = table.relation() else {
        return vec![];
    };
    let _ = walk_expressions(&check.expression, |expr: &Expr| {
        let name = match expr {
            Expr::Identifier(name) => Some(name),
            Expr::CompoundIdentifier(names) => names.last(),
            _ => None,
        };
        let name = name.map(millrace_parser::fold);
        named.extend((relation.columns.iter()).position(|column| Some(column.field.name()) == name.as_ref()));
        ControlFlow::<()>::Continue(())
    });
    named.into_iter().collect()
}

/// The comment on an object, or on one of its columns (the first is 1).
pub fn comment(catalog: &CatalogSnapshot, oid: i64, column: i64) -> Option<String> {
    let object = object(catalog, oid)?;
    if column == 0 {
        return object.comment.clone();
    }
    object
        .relation()?
        .columns
        .get(usize::try_from(column - 1).ok()?)?
        .comment
        .clone()
}
