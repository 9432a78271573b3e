//! What stands before the subscripts of an element.

use datafusion::sql::sqlparser::ast::{self, AccessExpr};

/// The column before subscripts: in `t.a[1]` the dot belongs to its name.
pub(super) fn column_before<'a>(root: &ast::Expr, chain: &'a [AccessExpr]) -> (ast::Expr, &'a [AccessExpr]) {
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
