//! FROM: what each of its items brings into scope, and what joins with USING and NATURAL make of it.
//!
//! `a FULL JOIN b USING (k)` becomes `a FULL JOIN b ON a.k = b.k`, and `k` is `coalesce(a.k, b.k)` from then on; `a.k` for
//! an inner or left join, `b.k` for a right one. DataFusion would take whichever column it finds.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use datafusion::error::{DataFusionError, Result};
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, Join, JoinConstraint,
    JoinOperator, ObjectName, Query, SelectItem, SetExpr, TableAlias, TableAliasColumnDef, TableFactor,
    TableWithJoins, Value, WildcardAdditionalOptions,
};

use millrace_parser::ast::JOIN_ALIAS;

use super::scope::{Columns, Item, JoinAlias, Known, Merged, Relation, Scope};
use super::{Resolver, faulty, folded, ident};
use crate::copies::original;
use crate::error::Fault;
use crate::postgres::set_returning::is_series;
use crate::postgres::unnest;
use crate::template::{ROWS_OF_ARRAY, ROWS_OF_FUNCTION, call};
use crate::workarounds::counted_sets::relation::is_multiset;
use crate::workarounds::recursive_numbers::is_term;

/// Which side's column the merged one is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kept {
    Left,
    Right,
    Either,
}

impl Resolver<'_> {
    /// Resolves the names in FROM. Its relations, in order.
    ///
    /// # Errors
    /// A name of USING is there twice, or nowhere; those of the queries within.
    pub(super) fn from(&mut self, from: &mut Vec<TableWithJoins>) -> Result<Scope> {
        let mut whole = Scope::default();
        let mut trees: Vec<TableWithJoins> = vec![];
        for mut tree in from.drain(..) {
            let scope = self.tree(&mut tree, &whole)?;
            whole.extend(scope);
            match trees.last_mut() {
                Some(left) if looks_left(&tree) => put_behind(left, tree),
                _ => trees.push(tree),
            }
        }
        *from = trees;
        self.each_is_called_otherwise(&whole)?;
        Ok(whole)
    }

    /// Refuses two relations of one name. Relations of two schemas may have the same name.
    fn each_is_called_otherwise(&self, scope: &Scope) -> Result<()> {
        let mut seen: BTreeMap<String, Vec<&[Ident]>> = BTreeMap::new();
        let joins = scope.joins.iter().map(|join| std::slice::from_ref(&join.name));
        let relations = scope.relations().map(|relation| relation.qualifier.as_slice());
        for qualifier in relations.chain(joins) {
            let Some(name) = qualifier.last().map(folded) else {
                continue;
            };
            let others = seen.entry(name.clone()).or_default();
            let is_other = |one: &&[Ident]| {
                (one.len() > 1 || qualifier.len() > 1)
                    && !(self.names).is_same(
                        &ObjectName::from(one.to_vec()),
                        &ObjectName::from(qualifier.to_vec()),
                    )
            };
            if !others.iter().all(is_other) {
                let message = format!("table name \"{name}\" specified more than once");
                return Err(faulty(Fault::DuplicateAlias, message));
            }
            others.push(qualifier);
        }
        Ok(())
    }

    /// `before`: what stands to the left, which LATERAL sees.
    fn tree(&mut self, tree: &mut TableWithJoins, before: &Scope) -> Result<Scope> {
        // Conditions will see the columns to the left as well, with which theirs are not to be confused.
        let beside = match looks_left(tree) {
            true => before.outputs(self).unwrap_or_default(),
            false => vec![],
        };
        let mut left = self.factor(&mut tree.relation, before)?;
        for join in &mut tree.joins {
            let mut seen = before.clone();
            seen.extend(left.clone());
            let right = self.factor(&mut join.relation, &seen)?;
            left = self.join(left, right, join, &beside)?;
        }
        Ok(left)
    }

    /// `beside`: the names that are not the only ones where the condition is read.
    fn join(
        &mut self,
        mut left: Scope,
        mut right: Scope,
        join: &mut Join,
        beside: &[String],
    ) -> Result<Scope> {
        match &join.join_operator {
            JoinOperator::Left(_) | JoinOperator::LeftOuter(_) => right.make_optional(),
            JoinOperator::Right(_) | JoinOperator::RightOuter(_) => left.make_optional(),
            JoinOperator::FullOuter(_) => {
                left.make_optional();
                right.make_optional();
            }
            _ => {}
        }
        let (constraint, kept) = match &mut join.join_operator {
            JoinOperator::Join(constraint)
            | JoinOperator::Inner(constraint)
            | JoinOperator::Left(constraint)
            | JoinOperator::LeftOuter(constraint) => (constraint, Kept::Left),
            JoinOperator::Right(constraint) | JoinOperator::RightOuter(constraint) => {
                (constraint, Kept::Right)
            }
            JoinOperator::FullOuter(constraint) => (constraint, Kept::Either),
            _ => {
                left.extend(right);
                return Ok(left);
            }
        };
        let mut alias = None;
        let names = match constraint {
            JoinConstraint::None => vec![],
            JoinConstraint::On(condition) => {
                left.extend(right);
                self.frames.push(left);
                let done = self.expression(condition, beside);
                let scope = self.frames.pop().unwrap_or_default();
                return done.map(|()| scope);
            }
            JoinConstraint::Natural => self.in_common(&left, &right)?.into_iter().map(ident).collect(),
            JoinConstraint::Using(columns) => {
                alias = columns.pop_if(|last| alias_of_join(last).is_some());
                let named = columns.iter().map(|column| match column.0.as_slice() {
                    [only] => only.as_ident().cloned(),
                    _ => None,
                });
                named.collect::<Option<Vec<Ident>>>().ok_or_else(|| {
                    DataFusionError::NotImplemented("this form of USING is not supported".into())
                })?
            }
        };
        let mut merged = vec![];
        let mut condition: Option<Expr> = None;
        for name in names {
            let one = self.take(&mut left, &name, "left")?;
            let other = self.take(&mut right, &name, "right")?;
            let equal = binary(one.clone(), BinaryOperator::Eq, other.clone());
            condition = Some(match condition {
                None => equal,
                Some(before) => binary(before, BinaryOperator::And, equal),
            });
            let value = match kept {
                Kept::Left => one,
                Kept::Right => other,
                Kept::Either => coalesce(one, other),
            };
            merged.push(Merged {
                name,
                value: Box::new(value),
            });
        }
        if !matches!(constraint, JoinConstraint::None) {
            *constraint = JoinConstraint::On(condition.unwrap_or_else(|| Expr::value(Value::Boolean(true))));
        }
        let mut whole = Scope::default();
        if let Some(name) = alias.as_ref().and_then(alias_of_join) {
            whole.joins.push(JoinAlias {
                name: name.clone(),
                columns: merged.clone(),
            });
        }
        whole.items.extend(merged.into_iter().map(Item::Merged));
        whole.extend(left);
        whole.extend(right);
        Ok(whole)
    }

    /// The columns that both sides have, in the left side's order.
    fn in_common(&self, left: &Scope, right: &Scope) -> Result<Vec<String>> {
        let (Some(left), Some(right)) = (left.outputs(self), right.outputs(self)) else {
            return Err(DataFusionError::NotImplemented(
                "NATURAL JOIN is not supported with a relation whose columns depend on other relations: use \
                 ON"
                .into(),
            ));
        };
        let mut common: Vec<String> = vec![];
        for name in left {
            if right.contains(&name) && !common.contains(&name) {
                common.push(name);
            }
        }
        Ok(common)
    }

    /// Takes a column out of what one side shows, to be merged.
    fn take(&self, side: &mut Scope, name: &Ident, which: &str) -> Result<Expr> {
        let wanted = folded(name);
        let mut found = vec![];
        let mut unknown = vec![];
        for (index, item) in side.items.iter().enumerate() {
            match item {
                Item::Merged(merged) if folded(&merged.name) == wanted => found.push(index),
                Item::Merged(_) => {}
                Item::Relation(relation) if relation.hides(&wanted) => {}
                Item::Relation(relation) => match relation.columns(self) {
                    Some(columns) => {
                        let here = columns.iter().filter(|column| original(column) == wanted);
                        found.extend(here.map(|_| index));
                    }
                    None => unknown.push(index),
                },
            }
        }
        if found.is_empty() && unknown.len() == 1 {
            found = unknown;
        }
        let index = match found.as_slice() {
            [only] => *only,
            [] => {
                return Err(faulty(
                    Fault::UndefinedColumn,
                    format!("column \"{wanted}\" specified in USING clause does not exist in {which} table"),
                ));
            }
            _ => {
                return Err(faulty(
                    Fault::AmbiguousColumn,
                    format!("common column name \"{wanted}\" appears more than once in {which} table"),
                ));
            }
        };
        if let Item::Relation(relation) = &mut side.items[index] {
            relation.hidden.push(name.clone());
            return Ok(relation.column(name.clone()));
        }
        match side.items.remove(index) {
            Item::Merged(merged) => Ok(*merged.value),
            Item::Relation(relation) => Ok(relation.column(name.clone())),
        }
    }

    fn factor(&mut self, factor: &mut TableFactor, before: &Scope) -> Result<Scope> {
        let relation = match factor {
            TableFactor::NestedJoin {
                table_with_joins,
                alias: None,
            } => return self.tree(table_with_joins, before),
            TableFactor::NestedJoin {
                table_with_joins,
                alias: alias @ Some(_),
            } => {
                // Only the alias is visible, as that of a query.
                let mut query = super::parse("SELECT * FROM x")?;
                if let SetExpr::Select(select) = query.body.as_mut() {
                    select.from = vec![table_with_joins.as_ref().clone()];
                    select.projection = vec![SelectItem::Wildcard(WildcardAdditionalOptions::default())];
                }
                *factor = TableFactor::Derived {
                    lateral: false,
                    subquery: Box::new(query),
                    alias: alias.take(),
                    sample: None,
                };
                return self.factor(factor, before);
            }
            TableFactor::Table {
                name,
                alias,
                args: None,
                ..
            } => {
                let qualifier = match alias {
                    Some(alias) => vec![alias.name.clone()],
                    None => name
                        .0
                        .iter()
                        .filter_map(|part| part.as_ident().cloned())
                        .collect(),
                };
                let columns = aliased(self.table(name), alias.as_mut())?;
                Relation {
                    qualifier,
                    known: Known::Columns(columns),
                    hidden: vec![],
                    is_optional: false,
                    is_value: false,
                    is_stored: alias.is_none() && self.table_of_with(name).is_none(),
                }
            }
            TableFactor::Derived {
                lateral,
                subquery,
                alias,
                ..
            } => {
                if *lateral {
                    self.frames.push(before.clone());
                }
                let columns = self.query(subquery);
                if *lateral {
                    self.frames.pop();
                }
                let alias = alias.get_or_insert_with(|| {
                    self.unnamed += 1;
                    TableAlias {
                        explicit: true,
                        name: Ident::new(format!("__unnamed_{}", self.unnamed)),
                        columns: vec![],
                        at: None,
                    }
                });
                let is_value = *lateral && is_rows_of_function(subquery);
                let columns = aliased(columns?, Some(alias))?;
                Relation {
                    qualifier: vec![alias.name.clone()],
                    known: Known::Columns(columns),
                    hidden: vec![],
                    is_optional: false,
                    is_value,
                    is_stored: false,
                }
            }
            // A set operation that counts copies, or a term of a recursive query: its columns are those of the first query.
            TableFactor::Function {
                name,
                args,
                alias: None,
                ..
            } if is_multiset(name) || is_term(name) => {
                let mut columns = None;
                for (position, argument) in args.iter_mut().enumerate() {
                    if let FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Subquery(query))) = argument {
                        let of_query = self.query(query)?;
                        if position == 0 {
                            columns = of_query;
                        }
                    }
                }
                Relation {
                    qualifier: vec![],
                    known: Known::Columns(columns),
                    hidden: vec![],
                    is_optional: false,
                    is_value: false,
                    is_stored: false,
                }
            }
            other => {
                self.frames.push(before.clone());
                let arguments = self.visit(other, &[], true);
                self.frames.pop();
                arguments?;
                Relation {
                    qualifier: name_of(other).into_iter().collect(),
                    known: match columns_of(other) {
                        Some(columns) => Known::Columns(Some(columns)),
                        None => Known::Later(Box::new(other.clone()), OnceCell::new()),
                    },
                    hidden: vec![],
                    is_optional: false,
                    is_value: false,
                    is_stored: false,
                }
            }
        };
        Ok(Scope {
            items: vec![Item::Relation(relation)],
            joins: vec![],
        })
    }
}

/// Whether something in a tree of joins may name columns of what stands before the comma, and nothing forbids to join the tree with that
/// from left to right: DataFusion looks for such columns in the join that they are in.
fn looks_left(tree: &TableWithJoins) -> bool {
    let is_lateral = |factor: &TableFactor| {
        matches!(
            factor,
            TableFactor::Derived { lateral: true, .. }
                | TableFactor::Function { .. }
                | TableFactor::UNNEST { .. }
        )
    };
    let goes_left_to_right = |join: &Join| {
        matches!(
            join.join_operator,
            JoinOperator::Join(_)
                | JoinOperator::Inner(_)
                | JoinOperator::Left(_)
                | JoinOperator::LeftOuter(_)
                | JoinOperator::CrossJoin(_)
        )
    };
    !tree.joins.is_empty()
        && tree.joins.iter().all(goes_left_to_right)
        && (is_lateral(&tree.relation) || tree.joins.iter().any(|join| is_lateral(&join.relation)))
}

/// `a, b JOIN c` is `a CROSS JOIN b JOIN c`.
fn put_behind(left: &mut TableWithJoins, tree: TableWithJoins) {
    left.joins.push(Join {
        relation: tree.relation,
        global: false,
        join_operator: JoinOperator::CrossJoin(JoinConstraint::None),
    });
    left.joins.extend(tree.joins);
}

/// The `u` of `USING (..) AS u`, as the parser writes it.
fn alias_of_join(column: &ObjectName) -> Option<&Ident> {
    match column.0.as_slice() {
        [qualifier, name] if qualifier.as_ident().is_some_and(|name| name.value == JOIN_ALIAS) => {
            name.as_ident()
        }
        _ => None,
    }
}

/// The columns under the names that an alias gives them. Where it names the first of them alone, it names the others as well from now on:
/// DataFusion wants all or none.
///
/// # Errors
/// It names more than there are.
pub(super) fn aliased(columns: Columns, alias: Option<&mut TableAlias>) -> Result<Columns> {
    let given = match &alias {
        // What has another number of columns than these name is refused.
        Some(alias) if [ROWS_OF_FUNCTION, ROWS_OF_ARRAY].contains(&alias.name.value.as_str()) => 0,
        Some(alias) => alias.columns.len(),
        None => 0,
    };
    let (Some(columns), Some(alias), 1..) = (&columns, alias, given) else {
        return Ok(columns);
    };
    if given > columns.len() {
        let message = format!(
            "table \"{}\" has {} columns available but {given} columns specified",
            folded(&alias.name),
            columns.len()
        );
        return Err(faulty(Fault::InvalidColumnReference, message));
    }
    let rest = columns.iter().skip(given);
    alias.columns.extend(rest.map(|name| TableAliasColumnDef {
        name: ident(name.clone()),
        data_type: None,
    }));
    Ok(Some(
        alias.columns.iter().map(|column| folded(&column.name)).collect(),
    ))
}

/// The columns of a function in FROM whose names are known without its plan.
fn columns_of(factor: &TableFactor) -> Columns {
    match factor {
        TableFactor::UNNEST {
            alias,
            array_exprs,
            with_ordinality,
            ..
        } => {
            let named = unnest::named(alias.clone(), array_exprs.len(), *with_ordinality);
            Some(named.columns.iter().map(|column| folded(&column.name)).collect())
        }
        TableFactor::Table {
            name,
            args: Some(_),
            alias: Some(alias),
            with_ordinality: false,
            ..
        } if is_series(name) && alias.columns.len() == 1 => {
            Some(alias.columns.iter().map(|column| folded(&column.name)).collect())
        }
        _ => None,
    }
}

/// What a relation is called that is neither a stored one nor a query.
fn name_of(factor: &TableFactor) -> Option<Ident> {
    match factor {
        TableFactor::Table {
            alias: Some(alias), ..
        }
        | TableFactor::Function {
            alias: Some(alias), ..
        }
        | TableFactor::UNNEST {
            alias: Some(alias), ..
        }
        | TableFactor::TableFunction {
            alias: Some(alias), ..
        } => Some(alias.name.clone()),
        TableFactor::Table { name, .. } | TableFactor::Function { name, .. } => {
            name.0.last().and_then(|part| part.as_ident()).cloned()
        }
        TableFactor::UNNEST { .. } => Some(Ident::new("unnest")),
        _ => None,
    }
}

fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp {
        left: Box::new(left),
        op,
        right: Box::new(right),
    }
}

fn coalesce(left: Expr, right: Expr) -> Expr {
    call("coalesce", vec![left, right])
}

/// Whether a query is what a function in FROM has become that gives rows of single values.
fn is_rows_of_function(query: &Query) -> bool {
    let SetExpr::Select(select) = query.body.as_ref() else {
        return false;
    };
    fn has_unnest(expr: &Expr) -> bool {
        let Expr::Function(function) = expr else {
            return false;
        };
        let name = function.name.to_string();
        let arguments = match &function.args {
            FunctionArguments::List(list) => list.args.as_slice(),
            _ => &[],
        };
        name == "unnest"
            || name == "pg_cast"
                && arguments.iter().any(|argument| {
                    matches!(argument, FunctionArg::Unnamed(FunctionArgExpr::Expr(inner)) if has_unnest(inner))
                })
    }
    match select.projection.as_slice() {
        [SelectItem::ExprWithAlias { expr, .. }] => select.from.is_empty() && has_unnest(expr),
        _ => false,
    }
}
