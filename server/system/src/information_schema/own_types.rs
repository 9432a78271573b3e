//! Types that somebody made: `domains`, `domain_constraints`, `user_defined_types`, `attributes`; what arrays are made of
//! (`element_types`); and which columns are of which types.

use std::sync::Arc;

use arrow::datatypes::{Field, FieldRef};
use millrace_catalog::user_type::DomainDef;
use millrace_catalog::{CheckDef, Object};
use millrace_postgres::types;

use super::routines::{self, Place};
use super::{Asked, OF_TABLE, OF_UDT, fields, own_name, put, put_plain_type, put_type, yes};
use crate::pg_catalog::constraints::domain_checks;
use crate::pg_catalog::table::Row;
use crate::pg_catalog::types::{base_of, composites, domains as all_domains};

const OF_DOMAIN: [&str; 3] = ["domain_catalog", "domain_schema", "domain_name"];

/// The rows of a relation; `None`: it is another's.
pub(super) fn rows(asked: &Asked<'_>, name: &str) -> Option<Vec<Row>> {
    Some(match name {
        "domains" => domains(asked),
        "domain_udt_usage" => domains(asked).into_iter().map(of_names).collect(),
        "domain_constraints" => domain_constraints(asked),
        "user_defined_types" => user_defined_types(asked),
        "attributes" => attributes(asked),
        "element_types" => element_types(asked),
        "column_udt_usage" => columns(asked, |row, _, field| {
            let (schema, name) = own_name(field);
            row.extend(asked.three(OF_UDT, &schema, &name));
            true
        }),
        "column_domain_usage" => columns(asked, |row, domain, _| {
            if let Some(domain) = domain {
                row.extend(asked.named(OF_DOMAIN, domain));
            }
            domain.is_some()
        }),
        _ => return None,
    })
}

fn all<'a>(asked: &Asked<'a>) -> impl Iterator<Item = (&'a Object, &'a DomainDef, Option<Field>)> {
    let (catalog, database) = (asked.catalog, asked.database);
    all_domains(catalog, database).map(move |(object, domain)| {
        let base = base_of(catalog, database, &domain.base);
        (object.as_ref(), domain, base)
    })
}

fn domains(asked: &Asked<'_>) -> Vec<Row> {
    let mut rows = vec![];
    for (object, domain, base) in all(asked) {
        let mut row = asked.named(OF_DOMAIN, object);
        put(&mut row, "domain_default", domain.default.as_ref());
        if let Some(base) = &base {
            put_type(asked, &mut row, base, OF_UDT);
        }
        row.insert("dtd_identifier", "1".to_owned());
        rows.push(row);
    }
    rows
}

/// The names alone.
fn of_names(mut row: Row) -> Row {
    row.retain(|column, _| OF_DOMAIN.contains(column) || OF_UDT.contains(column));
    row
}

fn domain_constraints(asked: &Asked<'_>) -> Vec<Row> {
    let row = |(object, check): (&Arc<Object>, &CheckDef)| {
        let names = ["constraint_catalog", "constraint_schema", "constraint_name"];
        let mut row = asked.three(names, &object.schema, &check.name);
        row.extend(asked.named(OF_DOMAIN, object));
        row.insert("is_deferrable", yes(false));
        row.insert("initially_deferred", yes(false));
        row
    };
    domain_checks(asked.catalog, asked.database).map(row).collect()
}

fn user_defined_types(asked: &Asked<'_>) -> Vec<Row> {
    let names = [
        "user_defined_type_catalog",
        "user_defined_type_schema",
        "user_defined_type_name",
    ];
    composites(asked.catalog, asked.database)
        .map(|(object, _)| {
            let mut row = asked.named(names, object);
            row.insert("user_defined_type_category", "STRUCTURED".to_owned());
            row.insert("is_instantiable", yes(true));
            row
        })
        .collect()
}

fn attributes(asked: &Asked<'_>) -> Vec<Row> {
    let udt = [
        "attribute_udt_catalog",
        "attribute_udt_schema",
        "attribute_udt_name",
    ];
    let mut rows = vec![];
    for (object, fields) in composites(asked.catalog, asked.database) {
        for (index, field) in fields.iter().enumerate() {
            let mut row = asked.named(OF_UDT, object);
            row.insert("attribute_name", field.name().clone());
            row.insert("ordinal_position", (index + 1).to_string());
            row.insert("dtd_identifier", (index + 1).to_string());
            row.insert("is_nullable", yes(true));
            row.insert("is_derived_reference_attribute", yes(false));
            put_type(asked, &mut row, field, udt);
            rows.push(row);
        }
    }
    rows
}

/// The elements of every array that is a column, an attribute, what a domain is made of, a parameter or a result.
fn element_types(asked: &Asked<'_>) -> Vec<Row> {
    let mut rows = vec![];
    let mut add = |schema: &str, name: &str, kind: &str, identifier: usize, array: &Field| {
        let Some(element) = types::element(array) else {
            return;
        };
        let names = ["object_catalog", "object_schema", "object_name"];
        let mut row = asked.three(names, schema, name);
        row.insert("object_type", kind.to_owned());
        row.insert("collection_type_identifier", identifier.to_string());
        row.insert("dtd_identifier", format!("a{identifier}"));
        put_plain_type(&mut row, &element);
        // Of an element PostgreSQL says no lengths and digits.
        row.retain(|column, _| !column.starts_with("numeric_") && !column.starts_with("character_"));
        row.remove("datetime_precision");
        let (of_schema, of_name) = own_name(&element);
        row.extend(asked.three(OF_UDT, &of_schema, &of_name));
        rows.push(row);
    };
    for object in asked.relations() {
        for (index, field) in fields(object).iter().enumerate() {
            add(&object.schema, &object.name, "TABLE", index + 1, field);
        }
    }
    for (object, fields) in composites(asked.catalog, asked.database) {
        for (index, field) in fields.iter().enumerate() {
            add(
                &object.schema,
                &object.name,
                "USER-DEFINED TYPE",
                index + 1,
                field,
            );
        }
    }
    for (object, _, base) in all(asked) {
        if let Some(base) = base {
            add(&object.schema, &object.name, "DOMAIN", 1, &base);
        }
    }
    for (object, place, field) in routines::types_of_routines(asked) {
        let identifier = match place {
            Place::Result => 0,
            Place::Parameter(number) => number,
        };
        add(
            &object.schema,
            &routines::specific(object),
            "ROUTINE",
            identifier,
            &field,
        );
    }
    rows
}

/// The columns of tables of which something is to be said: the domain that a column is of, or its type.
fn columns(asked: &Asked<'_>, say: impl Fn(&mut Row, Option<&Object>, &FieldRef) -> bool) -> Vec<Row> {
    let mut rows = vec![];
    for object in asked.relations().filter(|object| asked.owns(object)) {
        let columns = object.relation().map(|relation| relation.columns.as_slice());
        for (index, field) in fields(object).iter().enumerate() {
            let domain = columns
                .and_then(|columns| asked.catalog.object(columns.get(index)?.domain?))
                .map(|domain| domain.as_ref());
            let mut row = asked.named(OF_TABLE, object);
            row.insert("column_name", field.name().clone());
            if say(&mut row, domain, field) {
                rows.push(row);
            }
        }
    }
    rows
}
