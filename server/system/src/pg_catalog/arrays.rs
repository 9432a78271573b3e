//! The columns of `pg_catalog` as PostgreSQL 15 has them. The crate has arrays as texts, which are read here, and columns of later and of
//! earlier versions, which are left out.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::catalog::TableProvider;
use datafusion::datasource::{ViewTable, provider_as_source};
use datafusion::functions::unicode;
use datafusion::logical_expr::{Expr, LogicalPlanBuilder, lit};
use millrace_functions::cast;
use millrace_postgres::error::SqlResult;
use millrace_postgres::from_internal::df;
use millrace_postgres::types::SqlType;

/// Relations, columns, and the types of their elements.
const COLUMNS: &[(&str, &str, &str)] = &[
    ("pg_attribute", "attacl", "text"),
    ("pg_attribute", "attfdwoptions", "text"),
    ("pg_attribute", "attoptions", "text"),
    ("pg_available_extension_versions", "requires", "name"),
    ("pg_class", "relacl", "text"),
    ("pg_class", "reloptions", "text"),
    ("pg_constraint", "conexclop", "integer"),
    ("pg_constraint", "confdelsetcols", "smallint"),
    ("pg_constraint", "conffeqop", "integer"),
    ("pg_constraint", "confkey", "smallint"),
    ("pg_constraint", "conkey", "smallint"),
    ("pg_constraint", "conpfeqop", "integer"),
    ("pg_constraint", "conppeqop", "integer"),
    ("pg_database", "datacl", "text"),
    ("pg_db_role_setting", "setconfig", "text"),
    ("pg_default_acl", "defaclacl", "text"),
    ("pg_event_trigger", "evttags", "text"),
    ("pg_extension", "extcondition", "text"),
    ("pg_extension", "extconfig", "integer"),
    ("pg_foreign_data_wrapper", "fdwacl", "text"),
    ("pg_foreign_data_wrapper", "fdwoptions", "text"),
    ("pg_foreign_server", "srvacl", "text"),
    ("pg_foreign_server", "srvoptions", "text"),
    ("pg_foreign_table", "ftoptions", "text"),
    ("pg_init_privs", "initprivs", "text"),
    ("pg_language", "lanacl", "text"),
    ("pg_largeobject_metadata", "lomacl", "text"),
    ("pg_namespace", "nspacl", "text"),
    ("pg_parameter_acl", "paracl", "text"),
    ("pg_policy", "polroles", "integer"),
    ("pg_proc", "proacl", "text"),
    ("pg_proc", "proallargtypes", "integer"),
    ("pg_proc", "proargmodes", "text"),
    ("pg_proc", "proargnames", "text"),
    ("pg_proc", "proconfig", "text"),
    ("pg_proc", "protrftypes", "integer"),
    ("pg_subscription", "subpublications", "text"),
    ("pg_tablespace", "spcacl", "text"),
    ("pg_tablespace", "spcoptions", "text"),
    ("pg_type", "typacl", "text"),
    ("pg_user_mapping", "umoptions", "text"),
    ("pg_user_mappings", "umoptions", "text"),
    ("pg_publication_rel", "prattrs", "smallint"),
    ("pg_statistic_ext", "stxkind", "text"),
];

/// Columns that are not there: the crate's relations end before them.
const MISSING: &[(&str, &str, DataType)] = &[
    ("pg_class", "relacl", DataType::Utf8),
    ("pg_class", "reloptions", DataType::Utf8),
    ("pg_database", "datcollversion", DataType::Utf8),
    ("pg_index", "indnullsnotdistinct", DataType::Boolean),
];

/// Columns that have another name there.
const RENAMED: &[(&str, &str, &str)] = &[
    ("pg_collation", "colllocale", "colliculocale"),
    ("pg_tables", "hasindex", "hasindexes"),
];

/// Columns that the crate has, and PostgreSQL 15 has not.
const SURPLUS: &[(&str, &[&str])] = &[
    ("pg_collation", &["collicurules"]),
    ("pg_database", &["datlastsysoid", "daticurules"]),
    ("pg_namespace", &["options"]),
    ("pg_replication_slots", &["conflicting"]),
    ("pg_stat_gssapi", &["credentials_delegated"]),
    (
        "pg_stat_user_tables",
        &[
            "last_seq_scan",
            "last_idx_scan",
            "n_tup_newpage_upd",
            "total_vacuum_time",
            "total_autovacuum_time",
            "total_analyze_time",
            "total_autoanalyze_time",
        ],
    ),
    (
        "pg_subscription",
        &["subpasswordrequired", "subrunasowner", "subfailover", "suborigin"],
    ),
];

fn is_surplus(relation: &str, column: &str) -> bool {
    let mut surplus = SURPLUS.iter();
    surplus.any(|(of, columns)| *of == relation && columns.contains(&column))
}

/// What a column is called.
fn renamed<'a>(relation: &str, column: &'a str) -> &'a str {
    let mut renamed = RENAMED.iter();
    renamed
        .find(|(of, from, _)| *of == relation && *from == column)
        .map_or(column, |(_, _, to)| to)
}

/// Arrays that are written without braces.
const VECTORS: &[(&str, &str, &str)] = &[
    ("pg_index", "indkey", "int2vector"),
    ("pg_index", "indoption", "int2vector"),
    ("pg_index", "indclass", "oidvector"),
    ("pg_index", "indcollation", "oidvector"),
];

/// The type of a column that is a vector.
fn vector(relation: &str, field: &Field) -> Option<Field> {
    let mut vectors = VECTORS.iter();
    let (_, _, name) = vectors.find(|(of, column, _)| *of == relation && column == field.name())?;
    let element = match *name {
        "int2vector" => SqlType::plain(DataType::Int16),
        _ => SqlType::annotated(DataType::Int64, "oid"),
    };
    let list = DataType::List(Arc::new(element.field("item", true)));
    Some(SqlType::annotated(list, *name).field(field.name(), field.is_nullable()))
}

/// The type of a column that is an array.
fn element(relation: &str, column: &str) -> Option<&'static str> {
    let mut columns = COLUMNS.iter();
    columns
        .find(|(of, name, _)| *of == relation && *name == column)
        .map(|(_, _, element)| *element)
}

/// The columns of a relation of ours, of the types that PostgreSQL's have.
///
/// # Errors
/// A type is not known.
pub fn schema(relation: &str, schema: &SchemaRef) -> SqlResult<SchemaRef> {
    let typed = |field: &Field| -> SqlResult<Field> {
        if let Some(field) = vector(relation, field) {
            return Ok(field);
        }
        Ok(match element(relation, field.name()) {
            Some(element) => {
                let array = df(cast::named(&format!("{element}[]")))?;
                Field::new(field.name(), array.data_type, field.is_nullable())
            }
            None => field.clone(),
        })
    };
    let named = |field: &FieldRef| field.as_ref().clone().with_name(renamed(relation, field.name()));
    let mut fields = schema
        .fields()
        .iter()
        .filter(|field| !is_surplus(relation, field.name()))
        .map(|field| typed(&named(field)))
        .collect::<SqlResult<Vec<Field>>>()?;
    for (of, name, data_type) in MISSING {
        if *of == relation && schema.field_with_name(name).is_err() {
            fields.push(typed(&Field::new(
                *name,
                data_type.clone(),
                *data_type == DataType::Utf8,
            ))?);
        }
    }
    Ok(Arc::new(Schema::new(fields)))
}

/// A relation that never changes, with its arrays read and its columns as they should be.
///
/// # Errors
/// The plan that reads them cannot be made.
pub fn provider(relation: &str, provider: Arc<dyn TableProvider>) -> SqlResult<Arc<dyn TableProvider>> {
    let schema = provider.schema();
    let is_changed = |column: &str| {
        element(relation, column).is_some()
            || is_surplus(relation, column)
            || renamed(relation, column) != column
    };
    if !schema.fields().iter().any(|field| is_changed(field.name())) {
        return Ok(provider);
    }
    let columns: Vec<Expr> = schema
        .fields()
        .iter()
        .filter(|field| !is_surplus(relation, field.name()))
        .map(|field| {
            let column = Expr::Column(datafusion::common::Column::new_unqualified(field.name()));
            match element(relation, field.name()) {
                Some(element) => {
                    // The arrays of some are written in brackets, with single quotes.
                    let written = match relation {
                        "pg_proc" => unicode::expr_fn::translate(column, lit("[]' "), lit("{}\"")),
                        _ => column,
                    };
                    cast::udf()
                        .call(vec![written, lit(format!("{element}[]"))])
                        .alias(field.name())
                }
                None => column.alias(renamed(relation, field.name())),
            }
        })
        .collect();
    let plan = LogicalPlanBuilder::scan(relation, provider_as_source(provider), None)
        .and_then(|plan| plan.project(columns))
        .and_then(LogicalPlanBuilder::build);
    Ok(Arc::new(ViewTable::new(df(plan)?, None)))
}
