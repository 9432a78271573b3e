//! `(value).*` in the list of a SELECT: the columns of a relation, or of what a function makes rows of.

use datafusion::sql::sqlparser::ast::{
    AccessExpr, Expr, ObjectName, SelectItem, SelectItemQualifiedWildcardKind, WildcardAdditionalOptions,
};
use millrace_postgres::error::{SqlError, SqlResult};

use crate::arrays::{acl, numbered};

/// Whether all members of a value are meant.
pub(crate) fn is_all(expr: &Expr) -> bool {
    matches!(expr, Expr::CompoundFieldAccess { access_chain, .. }
        if matches!(access_chain.last(), Some(AccessExpr::Dot(Expr::Identifier(member)))
            if member.quote_style.is_some() && member.value == millrace_parser::ALL_MEMBERS))
}

/// Puts the items that each `(value).*` stands for in its place.
///
/// # Errors
/// The members of a value are not known.
pub(crate) fn expand(projection: &mut Vec<SelectItem>) -> SqlResult<()> {
    let is_all = |item: &SelectItem| matches!(item, SelectItem::UnnamedExpr(expr) if is_all(expr));
    if !projection.iter().any(is_all) {
        return Ok(());
    }
    let mut items = vec![];
    for item in projection.drain(..) {
        match all(&item)? {
            Some(all) => items.extend(all),
            None => items.push(item),
        }
    }
    *projection = items;
    Ok(())
}

/// The items that one with all members of a value stands for; `None`: it has another form.
fn all(item: &SelectItem) -> SqlResult<Option<Vec<SelectItem>>> {
    let SelectItem::UnnamedExpr(expr) = item else {
        return Ok(None);
    };
    let Expr::CompoundFieldAccess { root, access_chain } = expr else {
        return Ok(None);
    };
    if !is_all(expr) {
        return Ok(None);
    }
    let found = match (root.as_ref(), access_chain.as_slice()) {
        (Expr::Nested(inner), [_]) => match inner.as_ref() {
            Expr::Function(function) => acl::all(function).or_else(|| numbered::all(function)),
            Expr::Identifier(name) => Some(whole(ObjectName::from(vec![name.clone()]))),
            Expr::CompoundIdentifier(parts) => Some(whole(ObjectName::from(parts.clone()))),
            _ => None,
        },
        _ => None,
    };
    match found {
        Some(items) => Ok(Some(items)),
        None => Err(
            SqlError::unsupported(format!("all members of {root} are not known"))
                .with_hint("Name the members that you want: (value).name."),
        ),
    }
}

fn whole(name: ObjectName) -> Vec<SelectItem> {
    let kind = SelectItemQualifiedWildcardKind::ObjectName(name);
    vec![SelectItem::QualifiedWildcard(
        kind,
        WildcardAdditionalOptions::default(),
    )]
}
