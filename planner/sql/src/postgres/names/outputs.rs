//! What a select list puts out, by name.

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, SelectItem, SelectItemQualifiedWildcardKind, WildcardAdditionalOptions,
};

use super::scope::{Columns, Scope};
use super::{COPIES_BESIDE_STARS, Resolver, folded, idents};
use crate::copies::copy;

impl Resolver<'_> {
    /// The names of what a select list puts out.
    pub(super) fn outputs(&self, projection: &[SelectItem], scope: &Scope) -> Columns {
        let mut names = vec![];
        for item in projection {
            match item {
                SelectItem::Wildcard(options) if is_plain(options) => names.extend(scope.outputs(self)?),
                SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), options)
                    if is_plain(options) =>
                {
                    let parts: Vec<Ident> = idents(name)?;
                    if let Some(join) = scope.join_called(&parts) {
                        names.extend(join.columns.iter().map(|column| folded(&column.name)));
                        continue;
                    }
                    let relation = scope.relations().find(|relation| relation.is_called(&parts))?;
                    names.extend(relation.columns(self)?.iter().cloned());
                }
                other => names.push(output(other)?),
            }
        }
        Some(names)
    }

    /// The names of the columns that stars in a select list stand for, as far as they are known.
    pub(super) fn starred(&self, projection: &[SelectItem]) -> Vec<String> {
        let Some(scope) = self.frames.last() else {
            return vec![];
        };
        let is_star =
            |item: &&SelectItem| matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..));
        let stars = projection.iter().filter(is_star);
        let names = stars.filter_map(|star| self.outputs(std::slice::from_ref(star), scope));
        names.flatten().collect()
    }
}

/// The name of what an item puts out that is one column.
pub(super) fn output(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::UnnamedExpr(Expr::Identifier(name)) => Some(folded(name)),
        SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => parts.last().map(folded),
        SelectItem::ExprWithAlias { alias, .. } => Some(folded(alias)),
        _ => None,
    }
}

/// Gives an item another name if a star beside it has the same.
pub(super) fn set_apart(item: &mut SelectItem, starred: &[String], position: usize) {
    let Some(name) = output(item).filter(|name| starred.contains(name)) else {
        return;
    };
    if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
        let alias = Ident::with_quote('"', copy(&name, COPIES_BESIDE_STARS + position));
        *item = SelectItem::ExprWithAlias {
            expr: expr.clone(),
            alias,
        };
    }
}

pub(super) fn is_plain(options: &WildcardAdditionalOptions) -> bool {
    options.opt_ilike.is_none()
        && options.opt_exclude.is_none()
        && options.opt_except.is_none()
        && options.opt_replace.is_none()
        && options.opt_rename.is_none()
        && options.opt_alias.is_none()
}
