//! What `pg_get_indexdef`, `pg_get_viewdef`, `pg_get_constraintdef` and the description functions answer.

use std::sync::Arc;

use millrace_catalog::{CatalogSnapshot, Definition, Object};
use millrace_parser::quote_identifier;
use millrace_storage::ObjectId;

use crate::pg_catalog::{CONSTRAINT_OID, FIRST_OID, KEY_INDEX_OID};

/// The object of an oid.
pub fn object(catalog: &CatalogSnapshot, oid: i64) -> Option<&Arc<Object>> {
    catalog.object(ObjectId(u64::try_from(oid.checked_sub(FIRST_OID)?).ok()?))
}

/// The table whose key has this oid, as an index or as a constraint.
fn keyed(catalog: &CatalogSnapshot, oid: i64, base: i64) -> Option<&Arc<Object>> {
    catalog.object(ObjectId(u64::try_from(oid.checked_sub(base)?).ok()?))
}

fn columns(object: &Object, positions: &[usize]) -> Vec<String> {
    let relation = object.relation();
    positions
        .iter()
        .filter_map(|position| relation?.columns.get(*position))
        .map(|column| quote_identifier(column.field.name()).to_string())
        .collect()
}

/// The definition of an index, or of one of its columns (the first is 1).
pub fn index(catalog: &CatalogSnapshot, oid: i64, column: i64) -> Option<String> {
    let (name, on, positions, unique) = if oid >= KEY_INDEX_OID {
        let table = keyed(catalog, oid, KEY_INDEX_OID)?;
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
            "",
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

/// The definition of a constraint.
pub fn constraint(catalog: &CatalogSnapshot, oid: i64) -> Option<String> {
    let table = keyed(catalog, oid, CONSTRAINT_OID)?;
    Some(format!(
        "PRIMARY KEY ({})",
        columns(table, table.relation()?.key()).join(", ")
    ))
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
