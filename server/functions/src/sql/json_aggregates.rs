//! `jsonb_agg` and its like, by the aggregates of arrays.
//!
//! `jsonb_agg(x ORDER BY y)` is `jsonb_array_of(array_agg(jsonb_of(x) ORDER BY y))`, in which NULL has become null; that of no
//! rows is NULL. With DISTINCT the values are in their own order, as in PostgreSQL. `jsonb_object_agg(k, v)` collects pairs, of
//! which an object is made.

use datafusion::sql::sqlparser::ast::{
    DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause,
    FunctionArgumentList, FunctionArguments, Ident, ObjectName, ObjectNamePart,
};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};

use crate::syntax::call;

/// What a call becomes; `None`: it is not one of these aggregates.
///
/// # Errors
/// The number of arguments is wrong.
pub fn rewritten(function: &Function) -> SqlResult<Option<Expr>> {
    let [ObjectNamePart::Identifier(name)] = function.name.0.as_slice() else {
        return Ok(None);
    };
    let name = millrace_parser::fold(name);
    let width = match name.as_str() {
        "jsonb_agg" | "json_agg" => 1,
        "jsonb_object_agg" | "json_object_agg" => 2,
        _ => return Ok(None),
    };
    let mut collected = function.clone();
    collected.name = ObjectName(vec![ObjectNamePart::Identifier(Ident::new("array_agg"))]);
    let FunctionArguments::List(list) = &mut collected.args else {
        return Ok(None);
    };
    let arguments: Vec<Expr> = list
        .args
        .iter()
        .filter_map(|argument| match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
            _ => None,
        })
        .collect();
    if arguments.len() != width || list.args.len() != width {
        return Err(SqlError::new(
            SqlState::UndefinedFunction,
            format!(
                "function {name} takes {width} argument{}",
                if width == 1 { "" } else { "s" }
            ),
        ));
    }
    let is_distinct = matches!(list.duplicate_treatment, Some(DuplicateTreatment::Distinct));
    let around = match (width, is_distinct) {
        (1, false) => "jsonb_array_of",
        (1, true) => match distinct_order(list, &arguments[0])? {
            Order::Ascending => "jsonb_array_ascending",
            Order::Descending => "jsonb_array_descending",
        },
        (_, false) => "jsonb_object_of_pairs",
        (_, true) => {
            return Err(SqlError::unsupported(format!(
                "{name}(DISTINCT ..) is not supported"
            )));
        }
    };
    let element = match width {
        1 => call("jsonb_of", arguments),
        _ => call("jsonb_build_array", arguments),
    };
    list.args = vec![FunctionArg::Unnamed(FunctionArgExpr::Expr(element))];
    Ok(Some(call(around, vec![Expr::Function(collected)])))
}

enum Order {
    Ascending,
    Descending,
}

/// How distinct values are ordered, which only they themselves can say. The clause goes.
fn distinct_order(list: &mut FunctionArgumentList, argument: &Expr) -> SqlResult<Order> {
    let mut order = Order::Ascending;
    for clause in std::mem::take(&mut list.clauses) {
        let FunctionArgumentClause::OrderBy(keys) = clause else {
            list.clauses.push(clause);
            continue;
        };
        let [key] = keys.as_slice() else {
            return Err(not_in_arguments());
        };
        if key.expr != *argument {
            return Err(not_in_arguments());
        }
        if key.options.nulls_first.is_some() {
            return Err(SqlError::unsupported(
                "NULLS FIRST and NULLS LAST are not supported in an aggregate of distinct values as JSON",
            ));
        }
        if key.options.asc == Some(false) {
            order = Order::Descending;
        }
    }
    Ok(order)
}

fn not_in_arguments() -> SqlError {
    SqlError::new(
        SqlState::InvalidColumnReference,
        "in an aggregate with DISTINCT, ORDER BY expressions must appear in argument list",
    )
}
