//! `(value).*` in the list of a SELECT: the columns of a relation, or of what a function makes rows of.

use datafusion::sql::sqlparser::ast::{AccessExpr, Expr, SelectItem};
use millrace_sql::postgres::records::star;

use crate::arrays::{acl, numbered};

/// Whether all members of a value are meant.
pub(crate) fn is_all(expr: &Expr) -> bool {
    matches!(expr, Expr::CompoundFieldAccess { access_chain, .. }
        if matches!(access_chain.last(), Some(AccessExpr::Dot(Expr::Identifier(member)))
            if member.quote_style.is_some() && member.value == millrace_parser::ALL_MEMBERS))
}

/// Puts the items that each `(value).*` stands for in its place, or one that stands for them until the value's type is known.
pub(crate) fn expand(projection: &mut Vec<SelectItem>) {
    let is_all = |item: &SelectItem| matches!(item, SelectItem::UnnamedExpr(expr) if is_all(expr));
    if !projection.iter().any(is_all) {
        return;
    }
    let mut items = vec![];
    for item in projection.drain(..) {
        match all(&item) {
            Some(all) => items.extend(all),
            None => items.push(item),
        }
    }
    *projection = items;
}

/// The items that one with all members of a value stands for; `None`: it has another form.
fn all(item: &SelectItem) -> Option<Vec<SelectItem>> {
    let SelectItem::UnnamedExpr(expr) = item else {
        return None;
    };
    let Expr::CompoundFieldAccess { root, access_chain } = expr else {
        return None;
    };
    if !is_all(expr) {
        return None;
    }
    let found = match (root.as_ref(), access_chain.as_slice()) {
        (Expr::Nested(inner), [_]) => match inner.as_ref() {
            Expr::Function(function) => acl::all(function).or_else(|| numbered::all(function)),
            _ => None,
        },
        _ => None,
    };
    Some(found.unwrap_or_else(|| vec![star(value(root, access_chain))]))
}

/// The value of which all members are meant.
fn value(root: &Expr, chain: &[AccessExpr]) -> Expr {
    match (root, &chain[..chain.len().saturating_sub(1)]) {
        (Expr::Nested(inner), []) => inner.as_ref().clone(),
        (_, []) => root.clone(),
        (_, chain) => Expr::CompoundFieldAccess {
            root: Box::new(root.clone()),
            access_chain: chain.to_vec(),
        },
    }
}
