//! The functions and aggregates that were made by SQL, in `pg_proc` beside PostgreSQL's own, and what the functions about them say.

use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::datasource::{ViewTable, provider_as_source};
use datafusion::logical_expr::LogicalPlanBuilder;
use datafusion::sql::sqlparser::ast::{DataType, Expr};
use millrace_catalog::function::FunctionDef;
use millrace_catalog::{CatalogSnapshot, Definition, Object};
use millrace_parser::ast::FunctionBody;
use millrace_parser::quote_identifier;
use millrace_postgres::error::SqlResult;
use millrace_postgres::from_internal::df;
use millrace_postgres::types;

use crate::pg_catalog::relations::owned;
use crate::pg_catalog::table::{self, Row};
use crate::pg_catalog::{definitions, namespace_oid, oid, roles};

/// The oid of SQL as the language of a body.
pub const SQL_OID: i64 = 14;
/// The same of JavaScript, which PostgreSQL has as an extension, under an oid of the moment.
pub const JAVASCRIPT_OID: i64 = 13_900;

/// `pg_proc` with the functions of a database.
///
/// # Errors
/// The plan that puts them together cannot be made.
pub(super) fn provider(
    catalog: &CatalogSnapshot,
    database: &str,
    fixed: Arc<dyn TableProvider>,
) -> SqlResult<Arc<dyn TableProvider>> {
    let own = catalog.functions(database);
    let rows: Vec<Row> = own
        .filter_map(|object| Some(row(catalog, object, of(object)?)))
        .collect();
    if rows.is_empty() {
        return Ok(fixed);
    }
    let own = table::provider(&fixed.schema(), &rows)?;
    let scan = |provider| LogicalPlanBuilder::scan("pg_proc", provider_as_source(provider), None);
    let plan = scan(own)
        .and_then(LogicalPlanBuilder::build)
        .and_then(|own| scan(fixed)?.union(own)?.build());
    Ok(Arc::new(ViewTable::new(df(plan)?, None)))
}

fn of(object: &Object) -> Option<&FunctionDef> {
    match &object.definition {
        Definition::Function(function) => Some(function),
        _ => None,
    }
}

fn row(catalog: &CatalogSnapshot, object: &Object, function: &FunctionDef) -> Row {
    let type_oid = |data_type: &DataType| {
        let sql_type = types::from_sql(data_type).ok();
        sql_type.map_or(0, |sql_type| types::pg_type(&sql_type.field("", true)).oid())
    };
    let given: Vec<String> = (function.parameters.iter())
        .map(|(_, data_type)| type_oid(data_type).to_string())
        .collect();
    let mut row = Row::from([
        ("oid", oid(object.id).to_string()),
        ("proname", object.name.clone()),
        (
            "pronamespace",
            namespace_oid(catalog, &object.database, &object.schema).to_string(),
        ),
        (
            "prolang",
            if function.is_javascript() {
                JAVASCRIPT_OID
            } else {
                SQL_OID
            }
            .to_string(),
        ),
        ("proisstrict", if function.strict { "t" } else { "f" }.to_owned()),
        ("procost", "100".to_owned()),
        ("prosupport", "-".to_owned()),
        (
            "prokind",
            if function.is_aggregate { "a" } else { "f" }.to_owned(),
        ),
        (
            "provolatile",
            if function.is_javascript() { "i" } else { "v" }.to_owned(),
        ),
        ("proparallel", "u".to_owned()),
        ("pronargs", given.len().to_string()),
        (
            "proretset",
            match function.rows.is_empty() || function.is_row {
                true => "f",
                false => "t",
            }
            .to_owned(),
        ),
        ("prorettype", type_oid(&function.returns).to_string()),
        ("proargtypes", given.join(" ")),
        (
            "prosrc",
            match &function.body {
                FunctionBody::Sql(body) => format!("SELECT {body}"),
                FunctionBody::Javascript(text) => text.clone(),
            },
        ),
    ]);
    if !function.parameters.is_empty() {
        let names = function.parameters.iter().map(|(name, _)| name.clone());
        row.insert("proargnames", roles::array(names));
    }
    owned(catalog, object, &mut row, "proowner", "proacl");
    row
}

fn type_name(data_type: &DataType) -> String {
    match types::from_sql(data_type) {
        Ok(sql_type) => types::type_name(&sql_type.field("", true)),
        Err(_) => data_type.to_string().to_lowercase(),
    }
}

/// The type of a function's result; of PostgreSQL's own it is not kept.
pub(super) fn result(catalog: &CatalogSnapshot, oid: i64) -> String {
    let found = definitions::object(catalog, oid).and_then(|object| of(object));
    found.map_or_else(|| "any".to_owned(), returned)
}

fn returned(function: &FunctionDef) -> String {
    match function.rows.is_empty() || function.is_row {
        true => type_name(&function.returns),
        false if function.is_setof && function.is_javascript() => {
            format!("SETOF {}", type_name(&function.returns))
        }
        false => format!("TABLE({})", listed(&function.rows)),
    }
}

/// The statement that makes a function, as PostgreSQL writes it; none of an aggregate.
pub(super) fn definition(catalog: &CatalogSnapshot, oid: i64) -> Option<String> {
    let object = definitions::object(catalog, oid)?;
    let function = of(object).filter(|function| !function.is_aggregate)?;
    let (language, body) = match &function.body {
        FunctionBody::Sql(body) => match body.as_ref() {
            Expr::Subquery(query) if function.gives_rows() => ("sql", query.to_string()),
            body => ("sql", format!("SELECT {body}")),
        },
        FunctionBody::Javascript(text) => ("javascript", text.clone()),
    };
    let strict = if function.strict { "\n STRICT" } else { "" };
    Some(format!(
        "CREATE OR REPLACE FUNCTION {}.{}({})\n RETURNS {}\n LANGUAGE {language}{strict}\nAS $function${body}$function$\n",
        quote_identifier(&object.schema),
        quote_identifier(&object.name),
        taken(function),
        returned(function),
    ))
}

/// The names and types of a function's arguments.
pub(super) fn arguments(catalog: &CatalogSnapshot, oid: i64) -> String {
    let found = definitions::object(catalog, oid).and_then(|object| of(object));
    found.map_or_else(String::new, taken)
}

/// The parameters, with defaults, and those of OUT behind them.
fn taken(function: &FunctionDef) -> String {
    let required = function.parameters.len() - function.defaults.len();
    let out: &[(String, DataType)] = if function.is_row { &function.rows } else { &[] };
    let parameters = function.parameters.iter().enumerate().map(|(place, parameter)| {
        let default = place
            .checked_sub(required)
            .and_then(|at| function.defaults.get(at));
        let default = default.map_or_else(String::new, |value| format!(" DEFAULT {value}"));
        let mode = if out.contains(parameter) { "INOUT " } else { "" };
        format!("{mode}{}{default}", listed(std::slice::from_ref(parameter)))
    });
    let only_out = out.iter().filter(|column| !function.parameters.contains(column));
    let only_out = only_out.map(|column| format!("OUT {}", listed(std::slice::from_ref(column))));
    parameters.chain(only_out).collect::<Vec<_>>().join(", ")
}

fn listed(named: &[(String, DataType)]) -> String {
    let each = named.iter().map(|(name, data_type)| match name.as_str() {
        "" => type_name(data_type),
        name => format!("{} {}", quote_identifier(name), type_name(data_type)),
    });
    each.collect::<Vec<_>>().join(", ")
}
