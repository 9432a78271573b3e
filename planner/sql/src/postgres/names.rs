//! What names mean, found before DataFusion looks for them: it takes the first column that fits, in places where PostgreSQL
//! takes another one, or none.
//!
//! | in a query | what becomes of it |
//! |---|---|
//! | joins with USING and NATURAL | ON, and their merged columns by what they are (see [`from`]) |
//! | `x` that several columns are called | an error, instead of the first or of a column outside |
//! | `t.x` where an inner `t` has no `x` and an outer one has | an error, instead of the outer one's |
//! | `SELECT outer.x` in a subquery | `SELECT outer.x AS x`: it is a column of that name |
//! | a name within an expression of ORDER BY or GROUP BY, or in HAVING | the input's column, with its relation, and never an alias (see [`order`]) |
//! | `to_jsonb(t)` of a relation's row | the object of its columns (see [`rows`]) |
//! | numbers in DISTINCT ON, ROLLUP, CUBE and GROUPING SETS | the expressions of the select list that they count |
//!
//! What cannot be told from the text and the catalog is left as it is.

mod from;
mod order;
mod outputs;
mod rows;
mod scope;

use std::ops::ControlFlow;

use datafusion::error::{DataFusionError, Result};
use datafusion::sql::sqlparser::ast::{
    AccessExpr, Expr, Ident, ObjectName, OrderBy, Query, Select, SelectItem, SelectItemQualifiedWildcardKind,
    SetExpr, Statement, TableFactor, VisitorMut, With,
};
use millrace_parser::walk::{Walk, walk_expressions};

pub(crate) use self::outputs::output;
use self::outputs::{is_plain, set_apart};
use self::scope::{Columns, Found, Scope, ambiguous};
use crate::binding::Binding;
use crate::copies::original;
use crate::error::{Fault, Faulty};
use crate::postgres::records::attributes_as_texts;
use crate::template::parse as parse_query;
use crate::template::{bare, nothing};

/// The numbers of copies beside stars: above those of copies within a select list.
const COPIES_BESIDE_STARS: usize = 10_000;
/// The numbers of copies of aliases beside the input's columns.
const COPIES_BESIDE_INPUT: usize = 20_000;

/// Resolves the names of a statement in place.
///
/// # Errors
/// A name that means several columns, or one that is hidden; see [`from`] for those of joins.
pub(crate) fn resolve(statement: &mut Statement, names: &dyn Binding) -> Result<()> {
    let mut resolver = Resolver {
        names,
        frames: vec![],
        tables: vec![],
        unnamed: 0,
    };
    match statement {
        Statement::Query(query) => resolver.query(query).map(|_| ()),
        other => resolver.visit(other, &[], true),
    }
}

struct Resolver<'a> {
    names: &'a dyn Binding,
    /// The scopes of the SELECTs around, the innermost last.
    frames: Vec<Scope>,
    /// The tables of the WITH clauses around, the innermost last.
    tables: Vec<Table>,
    /// How many queries in FROM were given an alias.
    unnamed: usize,
}

/// A table of a WITH clause.
struct Table {
    name: String,
    columns: Columns,
    /// The clause up to it, by which its columns can be asked for.
    with: With,
}

impl Resolver<'_> {
    /// Resolves a query. The names of its columns.
    fn query(&mut self, query: &mut Query) -> Result<Columns> {
        let tables = self.tables.len();
        let outcome = self.query_with(query);
        self.tables.truncate(tables);
        outcome
    }

    fn query_with(&mut self, query: &mut Query) -> Result<Columns> {
        if let Some(with) = &mut query.with {
            let recursive = with.recursive;
            let written = with.clone();
            for (position, cte) in with.cte_tables.iter_mut().enumerate() {
                let mut up_to = written.clone();
                up_to.cte_tables.truncate(position + 1);
                let columns = match recursive {
                    true => self.named(&cte.query),
                    false => self.query(&mut cte.query)?,
                };
                let columns = from::aliased(columns, Some(&mut cte.alias))?;
                self.tables.push(Table {
                    name: folded(&cte.alias.name),
                    columns,
                    with: up_to,
                });
                if recursive {
                    self.query(&mut cte.query)?;
                }
            }
        }
        let columns = match query.body.as_mut() {
            SetExpr::Select(select) => {
                let (columns, renamed) = self.select(select, query.order_by.as_mut())?;
                self.limit(&mut query.limit_clause)?;
                if !renamed.is_empty() {
                    order::name_again(query, &renamed)?;
                }
                return Ok(columns);
            }
            other => self.body(other)?,
        };
        // What orders a set operation are its columns: nothing else is in scope.
        self.visit(&mut query.order_by, &[], false)?;
        self.limit(&mut query.limit_clause)?;
        Ok(columns)
    }

    fn body(&mut self, body: &mut SetExpr) -> Result<Columns> {
        match body {
            SetExpr::Select(select) => self.select(select, None).map(|(columns, _)| columns),
            SetExpr::Query(query) => self.query(query),
            SetExpr::SetOperation { left, right, .. } => {
                let columns = self.body(left)?;
                self.body(right)?;
                Ok(columns)
            }
            SetExpr::Values(values) => {
                self.visit(values, &[], true)?;
                let width = values.rows.first().map_or(0, |row| row.content.len());
                Ok(Some(
                    (1..=width).map(|number| format!("column{number}")).collect(),
                ))
            }
            other => {
                self.visit(other, &[], true)?;
                Ok(None)
            }
        }
    }

    /// The names that a query's select list gives, where they need no scope.
    fn named(&self, query: &Query) -> Columns {
        let mut body = query.body.as_ref();
        loop {
            match body {
                SetExpr::SetOperation { left, .. } => body = left,
                SetExpr::Query(inner) => body = &inner.body,
                SetExpr::Select(select) => return select.projection.iter().map(output).collect(),
                SetExpr::Values(values) => {
                    let width = values.rows.first().map_or(0, |row| row.content.len());
                    return Some((1..=width).map(|number| format!("column{number}")).collect());
                }
                _ => return None,
            }
        }
    }

    /// Resolves a SELECT. The names of its columns, and those that have been renamed for the sake of its ORDER BY.
    fn select(
        &mut self,
        select: &mut Select,
        order_by: Option<&mut OrderBy>,
    ) -> Result<(Columns, Vec<String>)> {
        let scope = self.from(&mut select.from)?;
        for item in &mut select.projection {
            if let Some(relation) = self.starred_relation(item, &scope)? {
                *item = relation;
            }
        }
        let columns = self.outputs(&select.projection, &scope);
        self.frames.push(scope);
        let outcome = self.within(select, order_by);
        self.frames.pop();
        Ok((columns, outcome?))
    }

    /// What stands in a SELECT beside its FROM, whose scope is the innermost frame.
    fn within(&mut self, select: &mut Select, order_by: Option<&mut OrderBy>) -> Result<Vec<String>> {
        let aliases: Vec<String> = select
            .projection
            .iter()
            .filter_map(|item| match item {
                SelectItem::ExprWithAlias { alias, .. } => Some(original(&folded(alias)).to_string()),
                _ => None,
            })
            .collect();
        let starred = self.starred(&select.projection);
        let mut stars = vec![];
        for item in std::mem::take(&mut select.projection) {
            let from = select.projection.len();
            let is_star = matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..));
            // What another star has brought already.
            let is_again = is_star && stars.iter().any(|star| outputs::overlap(star, &item));
            let spelled = is_again.then(|| self.spelled(&item)).flatten();
            if is_star {
                stars.push(item.clone());
            }
            let is_spelled = spelled.is_some();
            match spelled {
                Some(columns) => select.projection.extend(columns),
                None => self.item(item, &mut select.projection)?,
            }
            // DataFusion wants other names beside those of `*`.
            if !is_star || is_spelled {
                for (position, item) in select.projection.iter_mut().enumerate().skip(from) {
                    set_apart(item, &starred, position);
                }
            }
        }
        self.visit(&mut select.selection, &[], true)?;
        self.group_by(select, &aliases)?;
        self.visit(&mut select.having, &aliases, true)?;
        self.visit(&mut select.named_window, &[], true)?;
        self.visit(&mut select.qualify, &[], true)?;
        self.distinct_on(select, &aliases, &starred)?;
        match order_by {
            Some(order_by) => {
                let is_distinct = select.distinct.is_some();
                self.order_by(order_by, &mut select.projection, is_distinct, &aliases, &starred)
            }
            None => Ok(vec![]),
        }
    }

    /// An item of a select list, as what it stands for.
    fn item(&mut self, mut item: SelectItem, into: &mut Vec<SelectItem>) -> Result<()> {
        match &mut item {
            SelectItem::Wildcard(options) => {
                let scope = self.frames.last().cloned().unwrap_or_default();
                if scope.has_merged() {
                    if !is_plain(options) {
                        return Err(DataFusionError::NotImplemented(
                            "* with a list of columns is not supported over joins with USING or NATURAL"
                                .into(),
                        ));
                    }
                    into.extend(scope.items.iter().map(scope::shown));
                    return Ok(());
                }
            }
            SelectItem::UnnamedExpr(expr) => {
                let name = match expr {
                    Expr::Identifier(name) => Some(name.clone()),
                    Expr::CompoundIdentifier(parts) => parts.last().cloned(),
                    _ => None,
                };
                let is_outer = self.is_outer(expr)?;
                self.expression(expr, &[])?;
                if let Some(alias) = name
                    && (is_outer || !matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_)))
                {
                    let expr = expr.clone();
                    into.push(SelectItem::ExprWithAlias { expr, alias });
                    return Ok(());
                }
            }
            SelectItem::ExprWithAlias { expr, .. } | SelectItem::ExprWithAliases { expr, .. } => {
                self.expression(expr, &[])?;
            }
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
                let join = self.frames.last().zip(idents(name));
                if let Some(join) = join.and_then(|(scope, parts)| scope.join_called(&parts)) {
                    let columns = join.columns.iter().cloned().map(scope::Item::Merged);
                    into.extend(columns.map(|column| scope::shown(&column)));
                    return Ok(());
                }
            }
            SelectItem::QualifiedWildcard(..) => {}
        }
        into.push(item);
        Ok(())
    }

    /// Whether an expression is a column of a query outside.
    fn is_outer(&self, expr: &Expr) -> Result<bool> {
        let Some((own, outside)) = self.frames.split_last() else {
            return Ok(false);
        };
        Ok(match expr {
            Expr::Identifier(name) => {
                if !matches!(own.find(name, self)?, Found::Nothing) {
                    return Ok(false);
                }
                for frame in outside.iter().rev() {
                    match frame.find(name, self)? {
                        Found::Nothing => {}
                        Found::Unknown => return Ok(false),
                        Found::Column(_) | Found::Merged(_) => return Ok(true),
                    }
                }
                false
            }
            Expr::CompoundIdentifier(parts) => {
                let relation = &parts[..parts.len().saturating_sub(1)];
                let has = |frame: &Scope| frame.relations().any(|known| known.is_called(relation));
                !has(own) && outside.iter().any(has)
            }
            _ => false,
        })
    }

    /// The columns of a stored relation, or of a table of a WITH clause.
    fn table(&self, name: &ObjectName) -> Columns {
        match self.table_of_with(name) {
            Some(table) => table.columns.clone(),
            None => self.names.columns(name),
        }
    }

    fn table_of_with(&self, name: &ObjectName) -> Option<&Table> {
        let [part] = name.0.as_slice() else {
            return None;
        };
        let name = folded(part.as_ident()?);
        self.tables.iter().rev().find(|table| table.name == name)
    }

    /// The columns of an item of FROM, from its plan.
    fn planned(&self, factor: &TableFactor) -> Columns {
        let mut query = parse("SELECT * FROM x").ok()?;
        if let SetExpr::Select(select) = query.body.as_mut() {
            for from in &mut select.from {
                from.relation = factor.clone();
            }
        }
        query.with = self.tables.last().map(|table| table.with.clone());
        let plan = self.names.bind(&Statement::Query(Box::new(query))).ok()?;
        Some(
            plan.schema()
                .fields()
                .iter()
                .map(|field| field.name().clone())
                .collect(),
        )
    }

    fn expression(&mut self, expression: &mut Expr, aliases: &[String]) -> Result<()> {
        self.visit(expression, aliases, true)
    }

    /// Resolves the names in a part of the innermost SELECT. `aliases`: names of its select list that mean nothing here.
    /// `names`: whether names are looked for in its scope at all; queries within are resolved in any case.
    fn visit(&mut self, node: &mut impl Walk, aliases: &[String], names: bool) -> Result<()> {
        let mut expressions = Expressions {
            resolver: self,
            aliases,
            names,
            roots: 0,
            resolved: vec![],
        };
        match node.walk_mut(&mut expressions) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(error) => Err(*error),
        }
    }

    /// What an unqualified name becomes; `None`: it stays.
    fn name(&self, name: &Ident, aliases: &[String]) -> Result<Option<Expr>> {
        let wanted = folded(name);
        let is_alias = aliases.contains(&wanted);
        for (distance, frame) in self.frames.iter().rev().enumerate() {
            match frame.find(name, self)? {
                Found::Nothing => {}
                Found::Unknown => return Ok(None),
                Found::Column(column) => return Ok((distance == 0 && is_alias).then_some(column)),
                Found::Merged(value) => {
                    self.check_reaches(&value, distance)?;
                    return Ok(Some(value));
                }
            }
        }
        if is_alias {
            return Err(faulty(
                Fault::UndefinedColumn,
                format!("column \"{wanted}\" does not exist"),
            ));
        }
        let is_row = |relation: &scope::Relation| relation.is_called(std::slice::from_ref(name));
        let mut rows = self.frames.iter().rev().flat_map(|frame| frame.relations());
        if let Some(row) = rows.find(|relation| is_row(relation))
            && row.is_value
            && let Some([column]) = row.columns(self)
        {
            return Ok(Some(row.column(ident(column.clone()))));
        }
        let mut rows = self.frames.iter().rev().flat_map(|frame| frame.relations());
        if let Some(relation) = rows.find(|relation| is_row(relation)) {
            if let Some(row) = self.row(relation) {
                return Ok(Some(row));
            }
            return Err(DataFusionError::NotImplemented(format!(
                "a whole row as a value (\"{wanted}\") is not supported: list its columns"
            )));
        }
        Ok(None)
    }

    /// Whether the columns of a scope outside can be named here: no relation in between has the same name.
    fn check_reaches(&self, value: &Expr, distance: usize) -> Result<()> {
        let inner = &self.frames[self.frames.len() - distance..];
        let found = walk_expressions(value, |expr| match expr {
            Expr::CompoundIdentifier(parts) => {
                let relation = &parts[..parts.len().saturating_sub(1)];
                match inner
                    .iter()
                    .any(|frame| frame.relations().any(|known| known.is_called(relation)))
                {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            }
            _ => ControlFlow::Continue(()),
        });
        match found {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(DataFusionError::NotImplemented(format!(
                "{value} of the outer query cannot be referenced here, because another relation has the \
                 same name: give one of them an alias"
            ))),
        }
    }

    /// What `t.x` becomes where `t` is a join; `None`: it stays. Refuses `t.x` where the nearest `t` has no `x` and another one
    /// outside has: DataFusion would read that.
    fn qualified(&self, parts: &[Ident]) -> Result<Option<Expr>> {
        let Some((column, relation)) = parts.split_last() else {
            return Ok(None);
        };
        let wanted = folded(column);
        let mut hidden = false;
        for (distance, frame) in self.frames.iter().rev().enumerate() {
            if let Some(join) = frame.join_called(relation) {
                let value = join.column(column)?;
                self.check_reaches(&value, distance)?;
                return Ok(Some(value));
            }
            let Some(known) = frame.relations().find(|known| known.is_called(relation)) else {
                continue;
            };
            let Some(columns) = known.columns(self) else {
                return Ok(None);
            };
            match columns.iter().filter(|name| original(name) == wanted).count() {
                0 => hidden = true,
                _ if hidden => {
                    let written: Vec<&str> = parts.iter().map(|part| part.value.as_str()).collect();
                    return Err(faulty(
                        Fault::UndefinedColumn,
                        format!("column {} does not exist", written.join(".")),
                    ));
                }
                1 => return Ok(None),
                _ => return Err(ambiguous(&wanted)),
            }
        }
        Ok(None)
    }
}

/// Resolves names in expressions. Queries within are resolved as queries, and not visited again.
struct Expressions<'r, 'a> {
    resolver: &'r mut Resolver<'a>,
    aliases: &'r [String],
    names: bool,
    /// Relations before a dot whose names are visited next: `t` in `t.a[1]`.
    roots: usize,
    resolved: Vec<Query>,
}

impl VisitorMut for Expressions<'_, '_> {
    type Break = Box<DataFusionError>;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        if let Err(error) = self.resolver.query(query) {
            return ControlFlow::Break(Box::new(error));
        }
        self.resolved.push(std::mem::replace(query, bare(nothing())));
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        if let Some(resolved) = self.resolved.pop() {
            *query = resolved;
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        if self.names && self.resolved.is_empty() {
            match self.resolver.member_of_row(expr) {
                Ok(Some(column)) => *expr = column,
                Ok(None) => {}
                Err(error) => return ControlFlow::Break(Box::new(error)),
            }
            if let Err(error) = self.resolver.stars(expr) {
                return ControlFlow::Break(Box::new(error));
            }
        }
        if let Expr::CompoundFieldAccess { root, access_chain } = expr
            && matches!(root.as_ref(), Expr::Identifier(_))
            && matches!(access_chain.first(), Some(AccessExpr::Dot(_)))
        {
            self.roots += 1;
        } else if let Expr::CompoundFieldAccess { access_chain, .. } = expr {
            attributes_as_texts(access_chain);
        }
        if self.names
            && self.resolved.is_empty()
            && let Expr::Function(function) = expr
            && let Err(error) = self.resolver.rows_as_json(function)
        {
            return ControlFlow::Break(Box::new(error));
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        if self.roots > 0 && matches!(expr, Expr::Identifier(_)) {
            self.roots -= 1;
            return ControlFlow::Continue(());
        }
        if !self.names || !self.resolved.is_empty() {
            return ControlFlow::Continue(());
        }
        let outcome = match expr {
            Expr::Identifier(name) => self.resolver.name(name, self.aliases),
            Expr::CompoundIdentifier(parts) => self.resolver.qualified(parts),
            _ => Ok(None),
        };
        match outcome {
            Ok(Some(found)) => *expr = found,
            Ok(None) => {}
            Err(error) => return ControlFlow::Break(Box::new(error)),
        }
        ControlFlow::Continue(())
    }
}

fn idents(name: &ObjectName) -> Option<Vec<Ident>> {
    name.0.iter().map(|part| part.as_ident().cloned()).collect()
}

fn folded(name: &Ident) -> String {
    match name.quote_style {
        None => name.value.to_lowercase(),
        Some(_) => name.value.clone(),
    }
}

/// A column's name, quoted where it would be read as another one otherwise.
fn ident(name: String) -> Ident {
    let is_plain = name
        .chars()
        .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    match is_plain {
        true => Ident::new(name),
        false => Ident::with_quote('"', name),
    }
}

/// A text of ours as a query.
fn parse(sql: &str) -> Result<Query> {
    parse_query(sql).map_err(|error| DataFusionError::SQL(Box::new(error), None))
}

fn faulty(fault: Fault, message: String) -> DataFusionError {
    Faulty { fault, message }.into()
}
