//! `routines`, `parameters` and `sequences`. Of the functions that come with the server nothing is said.

use std::collections::HashSet;

use arrow::datatypes::Field;
use datafusion::sql::sqlparser::ast::{DataType, Expr};
use millrace_catalog::function::FunctionDef;
use millrace_catalog::sequence::Takes;
use millrace_catalog::{Definition, Object};
use millrace_parser::ast::FunctionBody;
use millrace_postgres::types;

use super::{Asked, OF_UDT, number, put, put_type, yes};
use crate::pg_catalog::oid;
use crate::pg_catalog::sequences;
use crate::pg_catalog::table::Row;
use crate::pg_catalog::types::base_of;

const SPECIFIC: [&str; 3] = ["specific_catalog", "specific_schema", "specific_name"];
const ROUTINE: [&str; 3] = ["routine_catalog", "routine_schema", "routine_name"];

/// The rows of a relation; `None`: it is another's.
pub(super) fn rows(asked: &Asked<'_>, name: &str) -> Option<Vec<Row>> {
    Some(match name {
        "routines" => functions(asked)
            .map(|(object, function)| routine(asked, object, function))
            .collect(),
        "parameters" => functions(asked)
            .flat_map(|(object, function)| parameters(asked, object, function))
            .collect(),
        "sequences" => all_sequences(asked),
        _ => return None,
    })
}

/// The name that no other function has.
pub(super) fn specific(object: &Object) -> String {
    format!("{}_{}", object.name, oid(object.id))
}

fn functions<'a>(asked: &'a Asked<'a>) -> impl Iterator<Item = (&'a Object, &'a FunctionDef)> {
    asked
        .catalog
        .functions(asked.database)
        .filter(|object| asked.sees(object))
        .filter_map(|object| match &object.definition {
            Definition::Function(function) => Some((object.as_ref(), function.as_ref())),
            _ => None,
        })
}

/// Where a type stands in a function.
pub(super) enum Place {
    Result,
    Parameter(usize),
}

/// The types of parameters, and that of the result unless it is rows.
pub(super) fn types_of_routines<'a>(
    asked: &'a Asked<'a>,
) -> impl Iterator<Item = (&'a Object, Place, Field)> {
    functions(asked).flat_map(move |(object, function)| {
        let taken = function.parameters.iter().enumerate();
        let taken = taken.filter_map(move |(index, (_, data_type))| {
            Some((Place::Parameter(index + 1), field(asked, data_type)?))
        });
        let given = returned(asked, function).map(|field| (Place::Result, field));
        taken
            .chain(given)
            .map(move |(place, field)| (object, place, field))
    })
}

fn field(asked: &Asked<'_>, data_type: &DataType) -> Option<Field> {
    base_of(asked.catalog, asked.database, data_type)
}

/// `None`: it is a record of several columns.
fn returned(asked: &Asked<'_>, function: &FunctionDef) -> Option<Field> {
    match function.rows.as_slice() {
        [] => field(asked, &function.returns),
        [(_, data_type)] => field(asked, data_type),
        _ => None,
    }
}

fn routine(asked: &Asked<'_>, object: &Object, function: &FunctionDef) -> Row {
    let mut row = asked.three(SPECIFIC, &object.schema, &specific(object));
    row.extend(asked.named(ROUTINE, object));
    let udt = ["type_udt_catalog", "type_udt_schema", "type_udt_name"];
    match returned(asked, function) {
        Some(field) => put_names_of_type(asked, &mut row, &field, udt),
        None => {
            row.insert("data_type", "record".to_owned());
            row.extend(asked.three(udt, "pg_catalog", "record"));
        }
    }
    if !function.is_aggregate {
        row.insert("routine_type", "FUNCTION".to_owned());
    }
    let (language, text) = match &function.body {
        FunctionBody::Sql(body) => ("SQL", format!("SELECT {body}")),
        FunctionBody::Javascript(text) => ("JAVASCRIPT", text.clone()),
    };
    row.insert("external_language", language.to_owned());
    row.insert(
        "routine_body",
        if language == "SQL" { "SQL" } else { "EXTERNAL" }.to_owned(),
    );
    put(&mut row, "routine_definition", asked.owns(object).then_some(text));
    row.insert("dtd_identifier", "0".to_owned());
    row.insert("parameter_style", "GENERAL".to_owned());
    row.insert("is_deterministic", yes(function.is_javascript()));
    row.insert("sql_data_access", "MODIFIES".to_owned());
    row.insert("is_null_call", yes(function.strict));
    row.insert("schema_level_routine", yes(true));
    row.insert("max_dynamic_result_sets", "0".to_owned());
    row.insert("security_type", "INVOKER".to_owned());
    row.insert("as_locator", yes(false));
    row.insert("is_udt_dependent", yes(false));
    row
}

/// Of a parameter and a result PostgreSQL says no lengths and digits.
fn put_names_of_type(asked: &Asked<'_>, row: &mut Row, field: &Field, udt: [&'static str; 3]) {
    let mut of_type = Row::new();
    put_type(asked, &mut of_type, field, udt);
    of_type.retain(|column, _| *column == "data_type" || udt.contains(column));
    row.extend(of_type);
}

/// Those of a call, and behind them what is only given back.
fn parameters(asked: &Asked<'_>, object: &Object, function: &FunctionDef) -> Vec<Row> {
    let required = function.parameters.len() - function.defaults.len();
    let given_back: &[(String, DataType)] = match function.is_setof {
        true => &[],
        false => &function.rows,
    };
    let taken = function.parameters.iter().enumerate().map(|(index, parameter)| {
        let is_both = function.is_row && given_back.contains(parameter);
        let default = index
            .checked_sub(required)
            .and_then(|at| function.defaults.get(at));
        (if is_both { "INOUT" } else { "IN" }, parameter, default)
    });
    let only_out = given_back
        .iter()
        .filter(|column| !(function.is_row && function.parameters.contains(column)));
    let all = taken.chain(only_out.map(|column| ("OUT", column, None)));
    type Parameter<'a> = (&'a str, &'a (String, DataType), Option<&'a Expr>);
    let row = |(index, (mode, (name, data_type), default)): (usize, Parameter<'_>)| {
        let mut row = asked.three(SPECIFIC, &object.schema, &specific(object));
        row.insert("ordinal_position", (index + 1).to_string());
        row.insert("dtd_identifier", (index + 1).to_string());
        row.insert("parameter_mode", mode.to_owned());
        row.insert("is_result", yes(false));
        row.insert("as_locator", yes(false));
        put(&mut row, "parameter_name", (!name.is_empty()).then_some(name));
        if let Some(field) = field(asked, data_type) {
            put_names_of_type(asked, &mut row, &field, OF_UDT);
        }
        put(
            &mut row,
            "parameter_default",
            default.filter(|_| asked.owns(object)),
        );
        row
    };
    all.enumerate().map(row).collect()
}

/// The sequences, without those of identity columns.
fn all_sequences(asked: &Asked<'_>) -> Vec<Row> {
    let of_identity: HashSet<_> = asked
        .catalog
        .relations(asked.database)
        .filter_map(|object| object.relation())
        .flat_map(|relation| &relation.columns)
        .filter_map(|column| column.sequence)
        .filter(|sequence| sequence.takes != Takes::Default)
        .map(|sequence| sequence.id)
        .collect();
    let names = ["sequence_catalog", "sequence_schema", "sequence_name"];
    let mut rows = vec![];
    for (object, sequence) in sequences::all(asked.catalog, asked.database) {
        if of_identity.contains(&object.id) || !asked.sees(object) {
            continue;
        }
        let of = sequences::data_type(sequence);
        let mut row = asked.named(names, object);
        let (precision, radix, scale) = number(&of, -1);
        row.insert("data_type", types::pg_name(&of));
        put(&mut row, "numeric_precision", precision);
        put(&mut row, "numeric_precision_radix", radix);
        put(&mut row, "numeric_scale", scale);
        row.insert("start_value", sequence.start.to_string());
        row.insert("minimum_value", sequence.min.to_string());
        row.insert("maximum_value", sequence.max.to_string());
        row.insert("increment", sequence.increment.to_string());
        row.insert("cycle_option", yes(sequence.cycles));
        rows.push(row);
    }
    rows
}
