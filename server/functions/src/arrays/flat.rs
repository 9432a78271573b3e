//! `unnest` goes through all dimensions of an array: what it is called with is made flat, where it may not be.

use datafusion::common::Result;
use datafusion::logical_expr::Unnest;
use datafusion::sql::sqlparser::ast::{self, ObjectNamePart};
use millrace_postgres::error::SqlError;

use super::{Function, item_of};
use crate::syntax::call;

/// `unnest(a)` makes rows of the elements of all dimensions.
pub(super) fn flattened(function: &ast::Function) -> Option<ast::Expr> {
    let [ObjectNamePart::Identifier(name)] = function.name.0.as_slice() else {
        return None;
    };
    let ast::FunctionArguments::List(list) = &function.args else {
        return None;
    };
    let [ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(array))] = list.args.as_slice() else {
        return None;
    };
    (millrace_parser::fold(name) == "unnest" && has_dimensions(array)).then(|| {
        call(
            "unnest",
            vec![call(Function::Flatten.name(), vec![array.clone()])],
        )
    })
}

/// What `unnest` in FROM makes rows of.
pub fn flatten(array: &ast::Expr) -> ast::Expr {
    match has_dimensions(array) {
        true => call(Function::Flatten.name(), vec![array.clone()]),
        false => array.clone(),
    }
}

/// Whether it may be an array of arrays: not one that is written with its elements, and not what a function makes.
fn has_dimensions(array: &ast::Expr) -> bool {
    match array {
        ast::Expr::Nested(inner) => has_dimensions(inner),
        ast::Expr::Array(array) => matches!(array.elem.first(), Some(ast::Expr::Array(_))),
        ast::Expr::Identifier(_) | ast::Expr::CompoundIdentifier(_) | ast::Expr::Cast { .. } => true,
        ast::Expr::Function(function) => {
            let name = function.name.to_string();
            name == crate::cast::NAME || name.eq_ignore_ascii_case("array_agg")
        }
        _ => false,
    }
}

/// Refuses an `unnest` that would make rows of arrays: PostgreSQL's goes through all dimensions.
///
/// # Errors
/// The array has several dimensions.
pub(crate) fn check_unnest(unnest: &Unnest) -> Result<()> {
    for (index, _) in &unnest.list_type_columns {
        let (_, field) = unnest.input.schema().qualified_field(*index);
        // Each match of `regexp_matches` is an array.
        let is_nested = item_of(field.data_type())
            .is_some_and(|item| item.name() != crate::regex::MATCH && item_of(item.data_type()).is_some());
        if is_nested {
            return Err(SqlError::unsupported(
                "unnest() of an array with several dimensions is supported only for one that is written as ARRAY[[..], ..]",
            )
            .into());
        }
    }
    Ok(())
}
