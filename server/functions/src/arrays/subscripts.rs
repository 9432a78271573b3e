//! Subscripts, and what stands before them.

use datafusion::sql::sqlparser::ast::{self, AccessExpr};

use super::subscripted;

/// The column before subscripts: in `t.a[1]` the dot belongs to its name.
fn column_before<'a>(root: &ast::Expr, chain: &'a [AccessExpr]) -> (ast::Expr, &'a [AccessExpr]) {
    let mut parts = match root {
        ast::Expr::Identifier(name) => vec![name.clone()],
        ast::Expr::CompoundIdentifier(parts) => parts.clone(),
        other => return (other.clone(), chain),
    };
    let dots = chain.iter().map_while(|access| match access {
        AccessExpr::Dot(ast::Expr::Identifier(name)) => Some(name.clone()),
        _ => None,
    });
    let before = parts.len();
    parts.extend(dots);
    match parts.len() - before {
        0 => (root.clone(), chain),
        dots => (ast::Expr::CompoundIdentifier(parts), &chain[dots..]),
    }
}

/// Subscripts and members in a row, `(a).b[1]`: the calls of the subscripts; members stay as they are.
pub(super) fn accessed(root: &ast::Expr, chain: &[AccessExpr]) -> Option<ast::Expr> {
    let (root, chain) = column_before(root, chain);
    if chain.is_empty() {
        return None;
    }
    let is_member = |access: &AccessExpr| matches!(access, AccessExpr::Dot(_));
    if !chain.iter().any(is_member) {
        return subscripted(&root, chain);
    }
    let subscripts = chain.iter().rev().take_while(|access| !is_member(access)).count();
    let (members, subscripts) = chain.split_at(chain.len() - subscripts);
    let of = |root: &ast::Expr, chain: &[AccessExpr]| ast::Expr::CompoundFieldAccess {
        root: Box::new(root.clone()),
        access_chain: chain.to_vec(),
    };
    match subscripts {
        // Subscripts may stand before the last member.
        [] => {
            let (last, before) = members.split_last()?;
            let before = accessed(&root, before)?;
            Some(of(
                &ast::Expr::Nested(Box::new(before)),
                std::slice::from_ref(last),
            ))
        }
        subscripts => {
            let value = accessed(&root, members).unwrap_or_else(|| of(&root, members));
            subscripted(&ast::Expr::Nested(Box::new(value)), subscripts)
        }
    }
}
