//! `ROWS FROM (f(..), g(..))`: functions side by side, the shorter ones filled up with NULL. It is UNNEST of an array for each.

use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, Ident, ObjectName, TableAlias, TableAliasColumnDef, TableFactor,
    Value,
};
use millrace_parser::ast::ROWS_FROM;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_sql::called::Called;
use millrace_sql::copies::{copy, original};

use crate::syntax::{self, call, text};

/// What stands around a function until it is known what it has become: the array of its rows.
const ROWS_OF: &str = "rows of";

/// Functions whose rows have several columns.
const RECORDS: [&str; 11] = [
    "jsonb_each",
    "json_each",
    "jsonb_each_text",
    "json_each_text",
    "jsonb_to_record",
    "json_to_record",
    "jsonb_to_recordset",
    "json_to_recordset",
    "aclexplode",
    "pg_options_to_table",
    "_pg_expandarray",
];

/// The UNNEST that it is; `None`: it is another relation.
///
/// # Errors
/// Something in it is no function, or one whose rows have several columns.
pub(super) fn unnested(factor: &TableFactor) -> SqlResult<Option<TableFactor>> {
    let Some(called) = Called::of(factor).filter(|called| is(called.name, ROWS_FROM)) else {
        return Ok(None);
    };
    let (mut names, mut arrays) = (vec![], vec![]);
    for argument in called.arguments {
        let FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Function(function))) = argument else {
            return Err(SqlError::new(
                SqlState::SyntaxError,
                format!("{argument} is no function: ROWS FROM has functions only"),
            ));
        };
        let last = function.name.0.last().and_then(|part| part.as_ident());
        let name = last.map(millrace_parser::fold).unwrap_or_default();
        if RECORDS.contains(&name.as_str()) {
            return Err(SqlError::unsupported(format!(
                "{name}, whose rows have several columns, is not supported in ROWS FROM"
            )));
        }
        // Its column has a name of its own.
        let shown = match name.as_str() {
            "jsonb_array_elements" | "json_array_elements" => "value".to_owned(),
            "jsonb_array_elements_text" | "json_array_elements_text" => "value".to_owned(),
            other => other.to_owned(),
        };
        let each: Vec<Expr> = match syntax::arguments(function).as_slice() {
            several @ [_, _, ..] if name == "unnest" => several
                .iter()
                .map(|array| call("unnest", vec![(*array).clone()]))
                .collect(),
            _ => vec![Expr::Function(function.clone())],
        };
        for rows in each {
            names.push(shown.clone());
            arrays.push(call(ROWS_OF, vec![rows]));
        }
    }
    let mut alias = called.alias.cloned().unwrap_or_else(|| TableAlias {
        explicit: true,
        name: Ident::with_quote('"', names.first().cloned().unwrap_or_default()),
        columns: vec![],
        at: None,
    });
    // The one column of one function is called as the relation is.
    if let ([only], true) = (names.as_mut_slice(), alias.columns.is_empty()) {
        *only = millrace_parser::fold(&alias.name);
    }
    if called.with_ordinality {
        names.push("ordinality".to_owned());
    }
    for (position, name) in names.into_iter().enumerate().skip(alias.columns.len()) {
        let is_there = |column: &TableAliasColumnDef| original(&column.name.value) == name;
        let name = match alias.columns.iter().any(is_there) {
            true => copy(&name, position),
            false => name,
        };
        alias.columns.push(TableAliasColumnDef {
            name: Ident::with_quote('"', name),
            data_type: None,
        });
    }
    Ok(Some(TableFactor::UNNEST {
        alias: Some(alias),
        array_exprs: arrays,
        with_offset: false,
        with_offset_alias: None,
        with_ordinality: called.with_ordinality,
    }))
}

fn is(name: &ObjectName, wanted: &str) -> bool {
    matches!(name.0.as_slice(), [only] if only.as_ident().is_some_and(|only| only.value == wanted))
}

/// The array of a function's rows, once the function is what it is here; `None`: another expression.
pub(super) fn array_of_rows(expr: &Expr) -> Option<Expr> {
    let Expr::Function(function) = expr else {
        return None;
    };
    let arguments = syntax::arguments(function);
    let [rows] = arguments.as_slice() else {
        return None;
    };
    is(&function.name, ROWS_OF)
        .then(|| array(rows).unwrap_or_else(|| call("make_array", vec![(*rows).clone()])))
}

/// The array that `unnest` makes rows of, cast as they are.
fn array(rows: &Expr) -> Option<Expr> {
    let Expr::Function(function) = rows else {
        return None;
    };
    let name = syntax::name_of(function)?;
    match (name.as_str(), syntax::arguments(function).as_slice()) {
        ("unnest", [array]) => Some((*array).clone()),
        (crate::cast::NAME, [inner, Expr::Value(to)]) => match &to.value {
            Value::SingleQuotedString(to) | Value::EscapedStringLiteral(to) => Some(call(
                crate::cast::NAME,
                vec![array(inner)?, text(&format!("{to}[]"))],
            )),
            _ => None,
        },
        _ => None,
    }
}
