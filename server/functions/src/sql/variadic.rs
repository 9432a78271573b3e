//! `f(x, VARIADIC a)`: the elements of an array as the last arguments of a function that takes any number of them.
//!
//! The parser makes `f(x, "variadic"(a))` of it. The elements of `ARRAY[..]` become arguments; another array becomes that of a function
//! that takes one.

use datafusion::sql::sqlparser::ast::{Expr, FunctionArg, FunctionArgExpr, FunctionArguments};
use millrace_parser::ast::VARIADIC;
use millrace_postgres::error::{SqlError, SqlResult};

use crate::syntax::{self, call, text};

/// What a call with VARIADIC becomes; `None`: it is none.
///
/// # Errors
/// The function takes no array in the place of its last arguments.
pub(super) fn spread(expr: &Expr) -> SqlResult<Option<Expr>> {
    let Expr::Function(function) = expr else {
        return Ok(None);
    };
    let Some((array, before)) = arguments(&function.args).and_then(|arguments| {
        let (last, before) = arguments.split_last()?;
        array_of(last).map(|array| (array.clone(), before.to_vec()))
    }) else {
        return Ok(None);
    };
    if let Some(elements) = elements(&array) {
        let mut function = function.clone();
        if let FunctionArguments::List(list) = &mut function.args {
            let arguments = before.into_iter().chain(elements);
            list.args = arguments
                .map(|argument| FunctionArg::Unnamed(FunctionArgExpr::Expr(argument)))
                .collect();
        }
        return Ok(Some(Expr::Function(function)));
    }
    let name = syntax::name_of(function).unwrap_or_else(|| function.name.to_string());
    Ok(Some(match (name.as_str(), before.as_slice()) {
        ("concat", []) => call("array_to_string", vec![array, text("")]),
        ("concat_ws", [separator]) => call("array_to_string", vec![array, separator.clone()]),
        ("jsonb_build_array" | "json_build_array", []) => call("to_jsonb", vec![array]),
        _ => {
            return Err(SqlError::unsupported(format!(
                "VARIADIC is not supported for {name}: only ARRAY[..] can be spread over its arguments"
            )));
        }
    }))
}

fn arguments(arguments: &FunctionArguments) -> Option<Vec<Expr>> {
    let FunctionArguments::List(list) = arguments else {
        return None;
    };
    let argument = |argument: &FunctionArg| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
        _ => None,
    };
    list.args.iter().map(argument).collect()
}

/// The array of `"variadic"(a)`.
fn array_of(argument: &Expr) -> Option<&Expr> {
    let Expr::Function(function) = argument else {
        return None;
    };
    let FunctionArguments::List(list) = &function.args else {
        return None;
    };
    match list.args.as_slice() {
        [FunctionArg::Unnamed(FunctionArgExpr::Expr(array))]
            if syntax::name_of(function).as_deref() == Some(VARIADIC) =>
        {
            Some(array)
        }
        _ => None,
    }
}

/// The elements of `ARRAY[..]`.
fn elements(array: &Expr) -> Option<Vec<Expr>> {
    match array {
        Expr::Array(array) if !array.elem.iter().any(|element| matches!(element, Expr::Array(_))) => {
            Some(array.elem.clone())
        }
        Expr::Nested(inner) => elements(inner),
        _ => None,
    }
}
