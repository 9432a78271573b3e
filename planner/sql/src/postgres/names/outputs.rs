//! What a select list puts out, by name.

use datafusion::error::Result;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, ObjectName, SelectItem, SelectItemQualifiedWildcardKind, WildcardAdditionalOptions,
};

use super::scope::{Columns, Found, Item, Relation, Scope, shown};
use super::{COPIES_BESIDE_STARS, Resolver, folded, ident, idents};
use crate::copies::{copy, original};
use crate::postgres::records::starred;

impl Resolver<'_> {
    /// The star of a relation as the relation is called in FROM: `t.*` of `FROM s.t`, `s.t.*` of `FROM t`, and `(t).*`, if `t` is no column;
    /// `None`: it stays.
    pub(super) fn starred_relation(&self, item: &SelectItem, scope: &Scope) -> Result<Option<SelectItem>> {
        let (parts, options) = match (starred(item), item) {
            (Some(Expr::Identifier(name)), _) if matches!(scope.find(name, self)?, Found::Nothing) => {
                (vec![name.clone()], WildcardAdditionalOptions::default())
            }
            (Some(Expr::CompoundIdentifier(parts)), _) => {
                (parts.clone(), WildcardAdditionalOptions::default())
            }
            (
                None,
                SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), options),
            ) => match idents(name).filter(|parts| scope.join_called(parts).is_none()) {
                Some(parts) => (parts, options.clone()),
                None => return Ok(None),
            },
            _ => return Ok(None),
        };
        let is_value_as_star = |relation: &Relation| relation.is_value && starred(item).is_some();
        let mut relations = scope.relations();
        let relation =
            relations.find(|relation| relation.is_called(&parts) || self.is_stored_as(relation, &parts));
        Ok(relation
            .filter(|relation| !relation.qualifier.is_empty() && !is_value_as_star(relation))
            .map(|relation| {
                let name = ObjectName::from(relation.qualifier.clone());
                let kind = SelectItemQualifiedWildcardKind::ObjectName(name);
                SelectItem::QualifiedWildcard(kind, options)
            }))
    }

    /// Whether a relation without an alias, which is written without its schema, is the one that is written with it here.
    fn is_stored_as(&self, relation: &Relation, parts: &[Ident]) -> bool {
        let same = |(one, other): (&Ident, &Ident)| folded(one) == folded(other);
        let names = || relation.qualifier.iter().rev().zip(parts.iter().rev());
        relation.is_stored
            && parts.len() > relation.qualifier.len()
            && names().all(same)
            && self.names.is_same(
                &ObjectName::from(relation.qualifier.clone()),
                &ObjectName::from(parts.to_vec()),
            )
    }

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

    /// The columns that a star stands for, if they are known: beside another star its names may be there already.
    pub(super) fn spelled(&self, star: &SelectItem) -> Option<Vec<SelectItem>> {
        let scope = self.frames.last()?;
        let mut items = vec![];
        match star {
            SelectItem::Wildcard(options) if is_plain(options) => {
                for item in &scope.items {
                    match item {
                        Item::Merged(_) => items.push(shown(item)),
                        Item::Relation(relation) => {
                            items.extend(self.columns_of(relation, |column| !relation.hides(column))?);
                        }
                    }
                }
            }
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), options)
                if is_plain(options) =>
            {
                let parts: Vec<Ident> = idents(name)?;
                if scope.join_called(&parts).is_some() {
                    return None;
                }
                let relation = scope.relations().find(|relation| relation.is_called(&parts))?;
                items.extend(self.columns_of(relation, |_| true)?);
            }
            _ => return None,
        }
        Some(items)
    }

    fn columns_of(&self, relation: &Relation, is_shown: impl Fn(&str) -> bool) -> Option<Vec<SelectItem>> {
        let columns = relation.columns(self)?.iter();
        let shown = columns.filter(|column| is_shown(original(column)));
        let items = shown.map(|column| SelectItem::UnnamedExpr(relation.column(ident(column.clone()))));
        Some(items.collect())
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
pub(crate) fn output(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::UnnamedExpr(Expr::Identifier(name)) => Some(folded(name)),
        SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => parts.last().map(folded),
        _ if starred(item).is_some() => None,
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
        let alias = Ident::with_quote('"', copy(original(&name), COPIES_BESIDE_STARS + position));
        *item = SelectItem::ExprWithAlias {
            expr: expr.clone(),
            alias,
        };
    }
}

/// Whether two stars have columns of the same relation.
pub(super) fn overlap(one: &SelectItem, other: &SelectItem) -> bool {
    let name = |star: &SelectItem| match star {
        SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
            idents(name).and_then(|parts| parts.last().map(folded))
        }
        _ => None,
    };
    match (name(one), name(other)) {
        (Some(one), Some(other)) => one == other,
        // One of them is of all relations.
        _ => true,
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
