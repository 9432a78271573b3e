//! Calls whose arguments have names, as calls without names.

use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Value,
};

use crate::syntax::{call, number, text};

/// `make_interval(days => 10)`, whose arguments may be named; `None`: they are not.
pub(super) fn interval_of_parts(function: &Function) -> Option<Expr> {
    const PARTS: [&str; 7] = ["years", "months", "weeks", "days", "hours", "mins", "secs"];
    let FunctionArguments::List(list) = &function.args else {
        return None;
    };
    let mut parts = vec![number("0".to_owned()); PARTS.len()];
    let mut are_named = list.args.is_empty();
    for (index, argument) in list.args.iter().enumerate() {
        match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => *parts.get_mut(index)? = value.clone(),
            FunctionArg::Named {
                name,
                arg: FunctionArgExpr::Expr(value),
                ..
            } => {
                let place = PARTS
                    .iter()
                    .position(|part| *part == millrace_parser::fold(name))?;
                parts[place] = value.clone();
                are_named = true;
            }
            _ => return None,
        }
    }
    are_named.then(|| call("make_interval", parts))
}

/// `jsonb_path_query(j, p, silent => true)`: the call without names; `None`: there are none.
pub(super) fn path_of_names(function: &Function) -> Option<Function> {
    const NAMES: [&str; 4] = ["target", "path", "vars", "silent"];
    let FunctionArguments::List(list) = &function.args else {
        return None;
    };
    let mut arguments = vec![text(""), text(""), text("{}"), Expr::value(Value::Boolean(false))];
    let mut has_names = false;
    for (index, argument) in list.args.iter().enumerate() {
        match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => *arguments.get_mut(index)? = value.clone(),
            FunctionArg::Named {
                name,
                arg: FunctionArgExpr::Expr(value),
                ..
            } => {
                let place = NAMES
                    .iter()
                    .position(|known| *known == millrace_parser::fold(name))?;
                arguments[place] = value.clone();
                has_names = true;
            }
            _ => return None,
        }
    }
    match call(&function.name.to_string(), arguments) {
        Expr::Function(unnamed) if has_names => Some(unnamed),
        _ => None,
    }
}
