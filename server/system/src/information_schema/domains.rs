//! `domains` and `domain_constraints`.

use std::sync::Arc;

use arrow::array::Int32Array;
use millrace_catalog::CatalogSnapshot;
use millrace_postgres::types;

use super::{Columns, bare_type_name, same, texts};
use crate::pg_catalog::constraints::domain_checks;
use crate::pg_catalog::types::{base_of, domains as all};

pub(super) fn domains(catalog: &CatalogSnapshot, database: &str) -> Columns {
    let rows: Vec<_> = all(catalog, database)
        .map(|(object, domain)| (object, domain, base_of(catalog, database, &domain.base)))
        .collect();
    let count = rows.len();
    vec![
        ("domain_catalog", same(database, count)),
        (
            "domain_schema",
            texts(rows.iter().map(|(object, ..)| Some(object.schema.as_str()))),
        ),
        (
            "domain_name",
            texts(rows.iter().map(|(object, ..)| Some(object.name.as_str()))),
        ),
        (
            "data_type",
            texts(rows.iter().map(|(.., base)| base.as_ref().map(bare_type_name))),
        ),
        (
            "character_maximum_length",
            Arc::new(Int32Array::from_iter(rows.iter().map(|(.., base)| {
                let (_, length) = types::length_limit(base.as_ref()?)?;
                i32::try_from(length).ok()
            }))),
        ),
        (
            "domain_default",
            texts(
                rows.iter()
                    .map(|(_, domain, _)| domain.default.as_ref().map(ToString::to_string)),
            ),
        ),
        ("udt_catalog", same(database, count)),
        ("udt_schema", same("pg_catalog", count)),
        (
            "udt_name",
            texts(
                rows.iter()
                    .map(|(.., base)| base.as_ref().map(|base| types::pg_type(base).name().to_owned())),
            ),
        ),
    ]
}

pub(super) fn constraints(catalog: &CatalogSnapshot, database: &str) -> Columns {
    let rows: Vec<_> = domain_checks(catalog, database).collect();
    let count = rows.len();
    let schemas = || texts(rows.iter().map(|(object, _)| Some(object.schema.as_str())));
    vec![
        ("constraint_catalog", same(database, count)),
        ("constraint_schema", schemas()),
        (
            "constraint_name",
            texts(rows.iter().map(|(_, check)| Some(check.name.as_str()))),
        ),
        ("domain_catalog", same(database, count)),
        ("domain_schema", schemas()),
        (
            "domain_name",
            texts(rows.iter().map(|(object, _)| Some(object.name.as_str()))),
        ),
        ("is_deferrable", same("NO", count)),
        ("initially_deferred", same("NO", count)),
    ]
}
