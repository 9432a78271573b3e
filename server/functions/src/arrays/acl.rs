//! `aclexplode(list)`: the privileges of a list as rows, for which clients ask in FROM and in the list of a SELECT.

use arrow::datatypes::{DataType, Field, Fields};
use datafusion::sql::sqlparser::ast::{AccessExpr, Expr, Function, Ident, SelectItem};

use crate::arrays::numbered::is_called;
use crate::syntax::{arguments, call, text};

const CALLED: &str = "aclexplode";
/// The list of what it makes rows of.
pub const EXPLODED: &str = "aclexplode_items";

/// Its columns.
pub fn fields() -> Fields {
    let field = |name: &str, data_type| Field::new(name, data_type, true);
    Fields::from(vec![
        field("grantor", DataType::Int32),
        field("grantee", DataType::Int32),
        field("privilege_type", DataType::Utf8),
        field("is_grantable", DataType::Boolean),
    ])
}

fn items(function: &Function) -> Option<Expr> {
    if !is_called(function, CALLED) {
        return None;
    }
    let list = arguments(function).into_iter().cloned().collect();
    Some(call("unnest", vec![call(EXPLODED, list)]))
}

/// `aclexplode(list)` by itself: a row with all columns in one.
pub(super) fn rows(function: &Function) -> Option<Expr> {
    items(function)
}

/// `(aclexplode(list)).grantee`.
pub(super) fn member(root: &Expr, chain: &[AccessExpr]) -> Option<Expr> {
    let (Expr::Nested(inner), [AccessExpr::Dot(Expr::Identifier(name))]) = (root, chain) else {
        return None;
    };
    let Expr::Function(function) = inner.as_ref() else {
        return None;
    };
    Some(call(
        "get_field",
        vec![items_of(function)?, text(&millrace_parser::fold(name))],
    ))
}

/// What stands for a call, also where it is rewritten already.
fn items_of(function: &Function) -> Option<Expr> {
    let is_rewritten = is_called(function, "unnest")
        && matches!(arguments(function).as_slice(), [Expr::Function(inner)] if is_called(inner, EXPLODED));
    match is_rewritten {
        true => Some(Expr::Function(function.clone())),
        false => items(function),
    }
}

/// The columns, each of the same rows.
pub(crate) fn columns(list: &[Expr]) -> Vec<SelectItem> {
    let rows = call("unnest", vec![call(EXPLODED, list.to_vec())]);
    let column = |field: &std::sync::Arc<Field>| SelectItem::ExprWithAlias {
        expr: call("get_field", vec![rows.clone(), text(field.name())]),
        alias: Ident::new(field.name()),
    };
    fields().iter().map(column).collect()
}

/// The columns of a call; `None`: it calls another function.
pub(super) fn all(function: &Function) -> Option<Vec<SelectItem>> {
    let list = || arguments(function).into_iter().cloned().collect::<Vec<_>>();
    is_called(function, CALLED).then(|| columns(&list()))
}
