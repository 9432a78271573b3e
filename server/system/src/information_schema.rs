//! The relations of `information_schema`: what the standard has of tables, columns, types, constraints, routines and privileges. Which there
//! are, with all columns of PostgreSQL's, says `relations.txt`.
//!
//! | relations of | file |
//! |---|---|
//! | tables, columns, views, schemas | [`columns`] |
//! | domains, composite types, what arrays are made of | [`own_types`] |
//! | functions and sequences | [`routines`] |
//! | constraints | [`constraints`] |
//! | roles and privileges | [`privileges`] |
//!
//! One is shown what one owns, or has a privilege on.

mod columns;
mod constraints;
mod own_types;
mod privileges;
mod routines;

use std::sync::Arc;

use arrow::datatypes::{Field, FieldRef};
use datafusion::catalog::TableProvider;
use millrace_catalog::scope::Acting;
use millrace_catalog::{CatalogSnapshot, Definition, Object};
use millrace_postgres::error::{SqlError, SqlResult};
use millrace_postgres::types;
use millrace_postgres::types::composite::CompositeType;
use millrace_postgres::types::enumeration::EnumType;
use millrace_storage::ObjectKind;
use postgres_types::Type;

use crate::listed;
use crate::pg_catalog::table::{self, Row};

const RELATIONS: &str = include_str!("information_schema/relations.txt");

/// What is never there here: triggers, what foreign servers need, and what bodies of functions depend on, which PostgreSQL 15 has of
/// SQL-standard bodies alone.
const EMPTY: [&str; 14] = [
    "column_options",
    "foreign_data_wrapper_options",
    "foreign_data_wrappers",
    "foreign_server_options",
    "foreign_table_options",
    "routine_column_usage",
    "routine_routine_usage",
    "routine_sequence_usage",
    "routine_table_usage",
    "transforms",
    "triggered_update_columns",
    "triggers",
    "user_mapping_options",
    "user_mappings",
];

/// Text of no length has as many bytes as PostgreSQL's longest.
const LONGEST_TEXT: &str = "1073741824";
/// The most bytes of a character.
const CHARACTER_BYTES: usize = 4;

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
    let Some(schema) = listed::schema(RELATIONS, name)? else {
        return Ok(None);
    };
    let asked = Asked {
        catalog,
        database,
        viewer,
    };
    let rows = columns::rows(&asked, name)
        .or_else(|| own_types::rows(&asked, name))
        .or_else(|| routines::rows(&asked, name))
        .or_else(|| constraints::rows(&asked, name))
        .or_else(|| privileges::rows(&asked, name))
        .or_else(|| EMPTY.contains(&name).then(Vec::new))
        .ok_or_else(|| SqlError::internal(format!("information_schema.{name} has no rows")))?;
    table::provider(&schema, &rows).map(Some)
}

/// Of what, and for whom.
struct Asked<'a> {
    catalog: &'a CatalogSnapshot,
    database: &'a str,
    viewer: Acting,
}

impl<'a> Asked<'a> {
    /// Whether one may know of an object.
    fn sees(&self, object: &Object) -> bool {
        let role = self.viewer.role;
        !self.viewer.is_checked
            || self.catalog.owns(role, object)
            || !self.catalog.privileges(role, object).is_empty()
    }

    /// Whether one may know what only the owner of an object may.
    fn owns(&self, object: &Object) -> bool {
        !self.viewer.is_checked || self.catalog.owns(self.viewer.role, object)
    }

    /// What is read as a table is, and what it is read into.
    fn relations(&self) -> impl Iterator<Item = &'a Arc<Object>> + '_ {
        self.catalog.relations(self.database).filter(|object| {
            let is_read = !matches!(
                object.kind,
                ObjectKind::Index | ObjectKind::Sink | ObjectKind::Subscription | ObjectKind::Sequence
            );
            is_read && self.sees(object)
        })
    }

    /// A row that begins with the three names of an object.
    fn named(&self, columns: [&'static str; 3], object: &Object) -> Row {
        self.three(columns, &object.schema, &object.name)
    }

    fn three(&self, columns: [&'static str; 3], schema: &str, name: &str) -> Row {
        let names = [self.database, schema, name].map(ToOwned::to_owned);
        columns.into_iter().zip(names).collect()
    }
}

const OF_TABLE: [&str; 3] = ["table_catalog", "table_schema", "table_name"];
const OF_UDT: [&str; 3] = ["udt_catalog", "udt_schema", "udt_name"];

fn yes(is: bool) -> String {
    if is { "YES" } else { "NO" }.to_owned()
}

/// Values of a row that may be missing.
fn put(row: &mut Row, column: &'static str, value: Option<impl ToString>) {
    if let Some(value) = value {
        row.insert(column, value.to_string());
    }
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

/// What is said of a type wherever one is: its name without lengths, and these by themselves. `udt`: the columns of its own name.
fn put_type(asked: &Asked<'_>, row: &mut Row, field: &Field, udt: [&'static str; 3]) {
    put_plain_type(row, field);
    let (schema, name) = own_name(field);
    row.extend(asked.three(udt, &schema, &name));
}

fn put_plain_type(row: &mut Row, field: &Field) {
    let pg = types::pg_type(field);
    row.insert("data_type", bare_type_name(field));
    let length = types::length_limit(field).map(|(_, length)| length);
    put(row, "character_maximum_length", length);
    if matches!(pg, Type::TEXT | Type::VARCHAR | Type::BPCHAR) {
        let bytes = length.map_or_else(
            || LONGEST_TEXT.to_owned(),
            |length| (length * CHARACTER_BYTES).to_string(),
        );
        row.insert("character_octet_length", bytes);
    }
    let (precision, radix, scale) = number(&pg, types::modifier(field));
    put(row, "numeric_precision", precision);
    put(row, "numeric_precision_radix", radix);
    put(row, "numeric_scale", scale);
    put(row, "datetime_precision", types::digits::told(field));
    put(row, "interval_type", types::digits::fields_told(field));
}

/// How many digits a number has, to which base, and how many of them are behind the point.
fn number(pg: &Type, modifier: i32) -> (Option<i32>, Option<i32>, Option<i32>) {
    /// PostgreSQL counts the header of a variable-length value.
    const HEADER_BYTES: i32 = 4;
    match *pg {
        Type::INT2 => (Some(16), Some(2), Some(0)),
        Type::INT4 => (Some(32), Some(2), Some(0)),
        Type::INT8 => (Some(64), Some(2), Some(0)),
        Type::FLOAT4 => (Some(24), Some(2), None),
        Type::FLOAT8 => (Some(53), Some(2), None),
        Type::NUMERIC if modifier >= HEADER_BYTES => {
            let digits = modifier - HEADER_BYTES;
            (Some(digits >> 16), Some(10), Some(digits & 0x7ff))
        }
        Type::NUMERIC => (None, Some(10), None),
        _ => (None, None, None),
    }
}

/// The type's name without lengths; every array is `ARRAY`.
fn bare_type_name(field: &Field) -> String {
    if types::element(field).is_some() {
        return "ARRAY".to_owned();
    }
    match EnumType::of(field).is_some() || CompositeType::of(field).is_some_and(|of| of.oid != 0) {
        true => "USER-DEFINED".to_owned(),
        false => types::plain_name(field),
    }
}

/// The schema of a type, and its own name: an array's begins with an underscore.
fn own_name(field: &Field) -> (String, String) {
    let element = types::element(field);
    let of = element.as_deref().unwrap_or(field);
    let made = EnumType::of(of).map(|of| of.schema);
    let made = made.or_else(|| CompositeType::of(of).filter(|of| of.oid != 0).map(|of| of.schema));
    let schema = made.unwrap_or_else(|| "pg_catalog".to_owned());
    (schema, types::pg_type(field).name().to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_relation_has_its_columns_and_rows() {
        let names: Vec<&str> = listed::names(RELATIONS).collect();
        assert_eq!(names.len(), names.iter().collect::<BTreeSet<_>>().len());
        for name in &names {
            let columns = listed::schema(RELATIONS, name).unwrap().unwrap();
            let distinct: BTreeSet<_> = columns.fields().iter().map(|field| field.name()).collect();
            assert_eq!(distinct.len(), columns.fields().len(), "{name}");
        }
        for name in EMPTY {
            assert!(names.contains(&name), "{name}");
        }
        for none in ["#", "", "absent"] {
            assert!(listed::schema(RELATIONS, none).unwrap().is_none());
        }
    }
}
