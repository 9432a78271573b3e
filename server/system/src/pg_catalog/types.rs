//! Types that somebody made, in `pg_type` beside PostgreSQL's own, and what else there is about them.

use std::sync::Arc;

use arrow::datatypes::Fields;
use datafusion::catalog::TableProvider;
use datafusion::datasource::{ViewTable, provider_as_source};
use datafusion::logical_expr::LogicalPlanBuilder;
use datafusion::sql::sqlparser::ast::{DataType, ObjectName};
use millrace_catalog::user_type::{DomainDef, TypeDef, array_type_oid};
use millrace_catalog::{CatalogSnapshot, Definition, Object};
use millrace_postgres::error::SqlResult;
use millrace_postgres::from_internal::df;
use millrace_postgres::types;
use millrace_postgres::types::enumeration::{array_oid, label, shown};
use millrace_postgres::types::named::{NamedType, TypeNames, resolved, without_names};
use postgres_types::Type;

use crate::pg_catalog::relations::{collation, flag, layout, owned};
use crate::pg_catalog::table::{self, Row};
use crate::pg_catalog::{FIRST_OID, definitions, namespace_oid, oid};

/// Oids of the rows of `pg_enum`: from this on.
const VALUE_OID: usize = 2_000_000_000;

/// The types of a database, found by their complete names.
struct Complete<'a> {
    catalog: &'a CatalogSnapshot,
    database: &'a str,
}

impl TypeNames for Complete<'_> {
    fn named(&self, name: &ObjectName) -> SqlResult<Option<NamedType>> {
        let parts: Vec<String> = (name.0.iter())
            .filter_map(|part| part.as_ident().map(millrace_parser::fold))
            .collect();
        let [schema, name] = parts.as_slice() else {
            return Ok(None);
        };
        let object = self.catalog.user_type(self.database, schema, name);
        Ok(object.and_then(|object| object.named_type()))
    }
}

/// What a domain is made of in the end, as a column.
pub(crate) fn base_of(
    catalog: &CatalogSnapshot,
    database: &str,
    data_type: &DataType,
) -> Option<arrow::datatypes::Field> {
    let base = resolved(data_type, &Complete { catalog, database }).ok()?;
    Some(types::from_sql(&base.data_type).ok()?.field("", true))
}

/// `pg_type` with the types of a database.
///
/// # Errors
/// The plan that puts them together cannot be made.
pub(super) fn provider(
    catalog: &CatalogSnapshot,
    database: &str,
    fixed: Arc<dyn TableProvider>,
) -> SqlResult<Arc<dyn TableProvider>> {
    let own = catalog
        .user_types(database)
        .flat_map(|object| match &object.definition {
            Definition::Type(of) => rows(catalog, database, object, of),
            _ => vec![],
        });
    let own: Vec<Row> = own.collect();
    if own.is_empty() {
        return Ok(fixed);
    }
    let own = table::provider(&fixed.schema(), &own)?;
    let scan = |provider| LogicalPlanBuilder::scan("pg_type", provider_as_source(provider), None);
    let plan = scan(own)
        .and_then(LogicalPlanBuilder::build)
        .and_then(|own| scan(fixed)?.union(own)?.build());
    Ok(Arc::new(ViewTable::new(df(plan)?, None)))
}

/// The rows of a type and of its arrays.
fn rows(catalog: &CatalogSnapshot, database: &str, object: &Object, of: &TypeDef) -> Vec<Row> {
    let base = |oid: i64, name: &str, kind: &str, category: &str| {
        let mut row = Row::from([
            ("oid", oid.to_string()),
            ("typname", name.to_owned()),
            (
                "typnamespace",
                namespace_oid(catalog, database, &object.schema).to_string(),
            ),
            ("typtype", kind.to_owned()),
            ("typcategory", category.to_owned()),
            ("typispreferred", flag(false)),
            ("typisdefined", flag(true)),
            ("typdelim", ",".to_owned()),
            ("typlen", "-1".to_owned()),
            ("typbyval", flag(false)),
            ("typalign", "i".to_owned()),
            ("typstorage", "x".to_owned()),
            ("typtypmod", "-1".to_owned()),
            ("typmodin", "-".to_owned()),
            ("typmodout", "-".to_owned()),
            ("typanalyze", "-".to_owned()),
            ("typsubscript", "-".to_owned()),
        ]);
        owned(catalog, object, &mut row, "typowner", "typacl");
        row
    };
    let functions = |row: &mut Row, prefix: &str| {
        for (column, verb) in [
            ("typinput", "in"),
            ("typoutput", "out"),
            ("typreceive", "recv"),
            ("typsend", "send"),
        ] {
            row.insert(column, format!("{prefix}_{verb}"));
        }
    };
    let array = i64::from(array_type_oid(object.id));
    let mut own = match of {
        TypeDef::Enum(_) => {
            let mut row = base(oid(object.id), &object.name, "e", "E");
            row.insert("typlen", "4".to_owned());
            row.insert("typbyval", flag(true));
            row.insert("typstorage", "p".to_owned());
            functions(&mut row, "enum");
            row
        }
        TypeDef::Domain(domain) => {
            let of = base_of(catalog, database, &domain.base);
            let pg = of.as_ref().map_or(Type::TEXT, types::pg_type);
            let (length, by_value, alignment, storage) = layout(&pg);
            let mut row = base(oid(object.id), &object.name, "d", category(&pg));
            row.insert("typlen", length.to_string());
            row.insert("typbyval", flag(by_value));
            row.insert("typalign", alignment.to_owned());
            row.insert("typstorage", storage.to_owned());
            row.insert("typbasetype", base_oid(catalog, database, domain).to_string());
            row.insert("typnotnull", flag(domain.not_null));
            row.insert("typtypmod", of.as_ref().map_or(-1, types::modifier).to_string());
            row.insert("typcollation", collation(&pg).to_string());
            if let Some(default) = &domain.default {
                row.insert("typdefault", default.to_string());
            }
            functions(&mut row, "domain");
            row
        }
        TypeDef::Composite(_) => {
            let mut row = base(oid(object.id), &object.name, "c", "C");
            row.insert("typrelid", oid(object.id).to_string());
            row.insert("typalign", "d".to_owned());
            functions(&mut row, "record");
            row
        }
    };
    own.insert("typarray", array.to_string());
    let mut of_arrays = base(array, &format!("_{}", object.name), "b", "A");
    of_arrays.insert("typelem", oid(object.id).to_string());
    functions(&mut of_arrays, "array");
    of_arrays.insert("typsubscript", "array_subscript_handler".to_owned());
    vec![own, of_arrays]
}

/// The oid of what a domain was made of: another domain's, if it was.
fn base_oid(catalog: &CatalogSnapshot, database: &str, domain: &DomainDef) -> i64 {
    if let DataType::Custom(name, _) = &domain.base
        && let Ok(Some(NamedType::Domain(of))) = (Complete { catalog, database }).named(name)
    {
        return oid(millrace_storage::ObjectId(of.id));
    }
    let of = base_of(catalog, database, &domain.base);
    of.map_or(0, |of| types::pg_type(&of).oid().into())
}

fn category(pg: &Type) -> &'static str {
    match *pg {
        Type::BOOL => "B",
        Type::INT2 | Type::INT4 | Type::INT8 | Type::FLOAT4 | Type::FLOAT8 | Type::NUMERIC | Type::OID => "N",
        Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME => "S",
        Type::DATE | Type::TIME | Type::TIMESTAMP | Type::TIMESTAMPTZ => "D",
        Type::INTERVAL => "T",
        _ => match pg.kind() {
            postgres_types::Kind::Enum(_) => "E",
            postgres_types::Kind::Array(_) => "A",
            postgres_types::Kind::Composite(_) => "C",
            _ => "U",
        },
    }
}

/// `pg_enum`.
pub(super) fn pg_enum(catalog: &CatalogSnapshot, database: &str) -> Vec<Row> {
    let mut rows = vec![];
    for object in catalog.user_types(database) {
        let Definition::Type(of) = &object.definition else {
            continue;
        };
        let TypeDef::Enum(values) = of.as_ref() else {
            continue;
        };
        for (index, held) in values.iter().enumerate() {
            rows.push(Row::from([
                ("oid", (VALUE_OID + rows.len()).to_string()),
                ("enumtypid", oid(object.id).to_string()),
                ("enumsortorder", (index + 1).to_string()),
                ("enumlabel", label(held).to_owned()),
            ]));
        }
    }
    rows
}

/// The domains of a database.
pub(crate) fn domains<'a>(
    catalog: &'a CatalogSnapshot,
    database: &'a str,
) -> impl Iterator<Item = (&'a Arc<Object>, &'a DomainDef)> {
    catalog
        .user_types(database)
        .filter_map(|object| match &object.definition {
            Definition::Type(of) => match of.as_ref() {
                TypeDef::Domain(domain) => Some((object, domain.as_ref())),
                TypeDef::Enum(_) | TypeDef::Composite(_) => None,
            },
            _ => None,
        })
}

/// The composite types of a database, with their attributes as columns.
pub(crate) fn composites<'a>(
    catalog: &'a CatalogSnapshot,
    database: &'a str,
) -> impl Iterator<Item = (&'a Arc<Object>, Fields)> {
    catalog.user_types(database).filter_map(move |object| {
        let Some(NamedType::Composite(known)) = object.named_type() else {
            return None;
        };
        let known = without_names(known, &Complete { catalog, database }).ok()?;
        match known.sql_type().ok()?.data_type {
            arrow::datatypes::DataType::Struct(fields) => Some((object, fields)),
            _ => None,
        }
    })
}

/// The name of a type that somebody made, as `format_type` has it; `None`: the oid is none of such a type.
pub(super) fn name(catalog: &CatalogSnapshot, wanted: i64) -> Option<String> {
    if let Some(object) = definitions::object(catalog, wanted)
        && matches!(object.definition, Definition::Type(_))
    {
        return Some(shown(&object.schema, &object.name));
    }
    let element = wanted.checked_sub(i64::from(array_oid(0)))?;
    match element >= FIRST_OID && element < i64::from(array_oid(0)) {
        true => name(catalog, element).map(|name| format!("{name}[]")),
        false => None,
    }
}
