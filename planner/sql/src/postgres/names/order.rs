//! ORDER BY, GROUP BY and DISTINCT ON: where a bare name or a number may stand for an item of the select list.
//!
//! ORDER BY and DISTINCT ON take a bare name for a column that is put out, if there is one, GROUP BY for one of the input.
//! A name within an expression is always a column of the input.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::error::{DataFusionError, Result};
use datafusion::sql::sqlparser::ast::{
    Distinct, Expr, GroupByExpr, Ident, LimitClause, OrderBy, OrderByKind, Query, Select, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, TableFactor, Value, Visitor,
};
use millrace_parser::walk::{Walk, walk_expressions};

use super::scope::{Found, Item, Relation};
use super::{Resolver, faulty, folded, ident, idents, output};
use crate::copies::{copy, original};
use crate::error::Fault;

/// What a column is called by which a query around orders the rows.
const KEY: &str = "__order_";

impl Resolver<'_> {
    pub(super) fn order_by(
        &mut self,
        order_by: &mut OrderBy,
        projection: &mut Vec<SelectItem>,
        is_distinct: bool,
        aliases: &[String],
        starred: &[String],
    ) -> Result<Vec<String>> {
        let OrderByKind::Expressions(items) = &mut order_by.kind else {
            return Ok(vec![]);
        };
        let mut renamed: Vec<String> = vec![];
        let written = items.clone();
        for item in items.iter_mut() {
            let is_bare = matches!(item.expr, Expr::Identifier(_));
            self.key(&mut item.expr, projection, aliases, starred, "ORDER BY")?;
            if !is_bare {
                let _: ControlFlow<()> = walk_expressions(&item.expr, |expr| {
                    if let Expr::CompoundIdentifier(parts) = expr
                        && let Some(name) = parts.last().map(folded)
                        && aliases.contains(&name)
                        && !renamed.contains(&name)
                    {
                        renamed.push(name);
                    }
                    ControlFlow::Continue(())
                });
            }
        }
        // DataFusion cannot have a column of the input beside one that is put out under the same name.
        renamed.retain(|name| !starred.contains(name));
        if renamed.is_empty() {
            return Ok(vec![]);
        }
        if is_distinct {
            return Err(faulty(
                Fault::InvalidColumnReference,
                "for SELECT DISTINCT, ORDER BY expressions must appear in select list".into(),
            ));
        }
        // So its columns are put out beside, and rows are ordered by them in a query around.
        for (position, (item, written)) in items.iter_mut().zip(written).enumerate() {
            let is_output = match (&item.expr, &written.expr) {
                (Expr::Identifier(name), Expr::Identifier(_)) => aliases.contains(&folded(name)),
                (key, _) => number(key).is_some(),
            };
            if !is_output {
                let name = Ident::new(format!("{KEY}{position}"));
                let expr = std::mem::replace(&mut item.expr, Expr::Identifier(name.clone()));
                projection.push(SelectItem::ExprWithAlias { expr, alias: name });
            }
        }
        for (position, item) in projection.iter_mut().enumerate() {
            let Some(name) = output(item).filter(|name| renamed.iter().any(|known| known == original(name)))
            else {
                continue;
            };
            let other = Ident::with_quote('"', copy(original(&name), super::COPIES_BESIDE_INPUT + position));
            match item {
                SelectItem::ExprWithAlias { alias, .. } => {
                    for item in items.iter_mut() {
                        if let Expr::Identifier(key) = &mut item.expr
                            && folded(key) == folded(alias)
                        {
                            *key = other.clone();
                        }
                    }
                    *alias = other;
                }
                SelectItem::UnnamedExpr(expr) => {
                    let expr = expr.clone();
                    *item = SelectItem::ExprWithAlias { expr, alias: other };
                }
                _ => {}
            }
        }
        Ok(renamed)
    }

    pub(super) fn distinct_on(
        &mut self,
        select: &mut Select,
        aliases: &[String],
        starred: &[String],
    ) -> Result<()> {
        let Some(Distinct::On(keys)) = &mut select.distinct else {
            return Ok(());
        };
        for key in keys.iter_mut() {
            match number(key) {
                Some(number) => *key = self.nth(&select.projection, number, "SELECT DISTINCT ON")?,
                None => self.key(key, &select.projection, aliases, starred, "DISTINCT ON")?,
            }
        }
        // DataFusion takes each key for a column of its own.
        let mut seen = HashSet::new();
        keys.retain(|key| seen.insert(key.clone()));
        Ok(())
    }

    /// A key by which rows are ordered or told apart.
    fn key(
        &mut self,
        key: &mut Expr,
        projection: &[SelectItem],
        aliases: &[String],
        starred: &[String],
        clause: &str,
    ) -> Result<()> {
        let Expr::Identifier(name) = key else {
            // What is put out is ordered by what it is called.
            let mut same = key.clone();
            self.expression(&mut same, &[])?;
            for item in projection {
                if let SelectItem::ExprWithAlias { expr, alias } = item
                    && *expr == same
                {
                    *key = Expr::Identifier(alias.clone());
                    return Ok(());
                }
            }
            return self.expression(key, aliases);
        };
        let mut named: Option<&SelectItem> = None;
        for item in projection {
            if output(item).is_none_or(|output| original(&output) != folded(name)) {
                continue;
            }
            match named {
                Some(other) if self.canonical(other)? != self.canonical(item)? => {
                    return Err(faulty(
                        Fault::AmbiguousColumn,
                        format!("{clause} \"{}\" is ambiguous", folded(name)),
                    ));
                }
                _ => named = named.or(Some(item)),
            }
        }
        if starred.contains(&folded(name))
            && let Some(item) = named
        {
            let mut of_star = Expr::Identifier(name.clone());
            self.expression(&mut of_star, &[])?;
            let of_star = self.canonical(&SelectItem::UnnamedExpr(of_star))?;
            if self.canonical(item)? != of_star {
                return Err(faulty(
                    Fault::AmbiguousColumn,
                    format!("{clause} \"{}\" is ambiguous", folded(name)),
                ));
            }
            if let Some(column) = of_star {
                *key = column;
            }
            return Ok(());
        }
        match named {
            Some(SelectItem::UnnamedExpr(column)) => {
                *key = column.clone();
                Ok(())
            }
            Some(_) => Ok(()),
            None => self.expression(key, aliases),
        }
    }

    /// The expression of an item; a column with its relation.
    fn canonical(&self, item: &SelectItem) -> Result<Option<Expr>> {
        let Some(Expr::Identifier(name)) = value(item) else {
            return Ok(value(item).cloned());
        };
        let found = match self.frames.last() {
            Some(own) => own.find(name, self)?,
            None => Found::Nothing,
        };
        Ok(match found {
            Found::Column(column) | Found::Merged(column) => Some(column),
            Found::Nothing | Found::Unknown => value(item).cloned(),
        })
    }

    pub(super) fn group_by(&mut self, select: &mut Select, aliases: &[String]) -> Result<()> {
        let GroupByExpr::Expressions(keys, _) = &mut select.group_by else {
            return Ok(());
        };
        for key in keys {
            let (Expr::Rollup(sets) | Expr::Cube(sets) | Expr::GroupingSets(sets)) = key else {
                self.group(key, aliases)?;
                continue;
            };
            for key in sets.iter_mut().flatten() {
                match number(key) {
                    Some(number) => *key = self.nth(&select.projection, number, "GROUP BY")?,
                    None => {
                        self.group(key, aliases)?;
                        // An alias is looked for by DataFusion only outside of grouping sets.
                        if let Expr::Identifier(name) = &*key
                            && let Some(named) = aliased(&select.projection, name)
                        {
                            *key = named.clone();
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn group(&mut self, key: &mut Expr, aliases: &[String]) -> Result<()> {
        let Expr::Identifier(name) = &*key else {
            return self.expression(key, aliases);
        };
        if !aliases.contains(&folded(name)) {
            return self.expression(key, &[]);
        }
        let found = match self.frames.last() {
            Some(own) => own.find(name, self)?,
            None => Found::Nothing,
        };
        if let Found::Column(input) | Found::Merged(input) = found {
            *key = input;
        }
        Ok(())
    }

    /// LIMIT and OFFSET, which are computed before any row is read.
    ///
    /// # Errors
    /// One names a column.
    pub(super) fn limit(&mut self, clause: &mut Option<LimitClause>) -> Result<()> {
        if let Some(LimitClause::LimitOffset { limit, offset, .. }) = clause {
            let offset = offset.as_ref().map(|offset| &offset.value);
            for (value, name) in [(limit.as_ref(), "LIMIT"), (offset, "OFFSET")] {
                if value.is_some_and(names_column) {
                    let message = format!("argument of {name} must not contain variables");
                    return Err(faulty(Fault::InvalidColumnReference, message));
                }
            }
        }
        self.visit(clause, &[], false)
    }

    /// What the item of a select list is that a number counts.
    fn nth(&self, projection: &[SelectItem], number: usize, clause: &str) -> Result<Expr> {
        let unknown = || {
            DataFusionError::NotImplemented(format!(
                "{clause} position {number} is not supported after a * whose columns are not known: use the \
                 name of the column"
            ))
        };
        let mut left = number;
        let scope = self.frames.last().cloned().unwrap_or_default();
        let of_relation = |relation: &Relation, left: &mut usize| -> Result<Option<Expr>> {
            for column in relation.columns(self).ok_or_else(unknown)? {
                if relation.hides(original(column)) {
                    continue;
                }
                *left = left.saturating_sub(1);
                if *left == 0 {
                    return Ok(Some(relation.column(ident(column.clone()))));
                }
            }
            Ok(None)
        };
        for item in projection {
            let found = match item {
                SelectItem::Wildcard(_) => {
                    let mut found = None;
                    for item in &scope.items {
                        found = match item {
                            Item::Relation(relation) => of_relation(relation, &mut left)?,
                            Item::Merged(merged) => {
                                left = left.saturating_sub(1);
                                (left == 0).then(|| merged.value.as_ref().clone())
                            }
                        };
                        if found.is_some() {
                            break;
                        }
                    }
                    found
                }
                SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), options) => {
                    let parts: Vec<Ident> = idents(name).ok_or_else(unknown)?;
                    let relation = scope.relations().find(|relation| relation.is_called(&parts));
                    let mut relation = relation.ok_or_else(unknown)?.clone();
                    // In a select list as it was written, `t.*` has the columns that joins have merged as well.
                    if options.opt_except.is_none() {
                        relation.hidden.clear();
                    }
                    of_relation(&relation, &mut left)?
                }
                other => {
                    left = left.saturating_sub(1);
                    (left == 0).then(|| value(other).cloned()).flatten()
                }
            };
            if let Some(found) = found {
                return Ok(found);
            }
        }
        Err(faulty(
            Fault::InvalidColumnReference,
            format!("{clause} position {number} is not in select list"),
        ))
    }
}

/// Puts a SELECT around the query, by which its renamed columns have their names.
///
/// # Errors
/// A text of ours is no query.
pub(super) fn name_again(query: &mut Query, renamed: &[String]) -> Result<()> {
    let SetExpr::Select(select) = query.body.as_ref() else {
        return Ok(());
    };
    let mut projection = vec![];
    let mut shown = HashSet::new();
    for (position, item) in select.projection.iter().enumerate() {
        let Some(name) = output(item) else {
            return Err(DataFusionError::NotImplemented(
                "ORDER BY an input column is not supported if an output column has the same name and the \
                 select list has *: list the columns"
                    .into(),
            ));
        };
        if name.starts_with(KEY) {
            continue;
        }
        let column = Expr::Identifier(ident(name.clone()));
        projection.push(match renamed.contains(&original(&name).to_string()) {
            true => {
                let name = original(&name).to_owned();
                let alias = match shown.insert(name.clone()) {
                    true => ident(name),
                    false => ident(copy(&name, position)),
                };
                SelectItem::ExprWithAlias { expr: column, alias }
            }
            false => SelectItem::UnnamedExpr(column),
        });
    }
    let mut outer = super::parse("SELECT 1 FROM (SELECT 1) AS __ordered")?;
    outer.order_by = query.order_by.take();
    outer.limit_clause = query.limit_clause.take();
    outer.fetch = query.fetch.take();
    if let SetExpr::Select(select) = outer.body.as_mut() {
        select.projection = projection;
        if let Some(from) = select.from.first_mut()
            && let TableFactor::Derived { subquery, .. } = &mut from.relation
        {
            std::mem::swap(subquery.as_mut(), query);
        }
    }
    *query = outer;
    Ok(())
}

/// The expression of an item.
fn value(item: &SelectItem) -> Option<&Expr> {
    match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => Some(expr),
        _ => None,
    }
}

/// The expression of the item with this alias.
fn aliased<'a>(projection: &'a [SelectItem], name: &Ident) -> Option<&'a Expr> {
    projection.iter().find_map(|item| match item {
        SelectItem::ExprWithAlias { expr, alias } if folded(alias) == folded(name) => Some(expr),
        _ => None,
    })
}

/// Whether an expression names a column outside of its subqueries.
fn names_column(expr: &Expr) -> bool {
    struct Names(usize);
    impl Visitor for Names {
        type Break = ();

        fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
            self.0 += 1;
            ControlFlow::Continue(())
        }

        fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
            self.0 -= 1;
            ControlFlow::Continue(())
        }

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            let is_column = matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_));
            match self.0 == 0 && is_column {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        }
    }
    expr.walk(&mut Names(0)).is_break()
}

/// The position that a whole number without a sign stands for.
fn number(key: &Expr) -> Option<usize> {
    match key {
        Expr::Value(value) => match &value.value {
            Value::Number(text, _) => text.parse().ok(),
            _ => None,
        },
        _ => None,
    }
}
