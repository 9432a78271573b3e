//! A dependent plan made independent, after Neumann and Kemper, "Unnesting Arbitrary Queries" (BTW 2015).
//!
//! A plan that names outer columns `c` stands for one relation for each value of `c`. [`Unnesting::push`] makes of it one
//! plan with `c` among its columns: restricted to a value of `c` that occurs outside, it has the rows of that value's
//! relation. (Under other values it may have any rows: the join that brings it back to the outer rows drops them.)
//!
//! ```text
//!  Filter(p) below which nothing is outer   if p has `x = c` for every c, c is x and the domain is not needed;
//!                                           else Filter(p) over (input x domain)
//!  Project, Unnest                          pass c on
//!  Aggregate by g                           by g and c
//!  Aggregate by nothing                     by c, outer-joined to the domain: a value of c without rows has a row too
//!  Limit over Sort                          row_number() over (partition by c order by ..) within the limits
//!  Join                                     both sides joined on c as well, if both have it
//!  WITH RECURSIVE                           one recursion for all c (`recursion`)
//! ```
//! The domain is the set of the values of `c` outside, from the smallest plan that has them.

mod operators;
mod recursion;

use std::sync::Arc;

use arrow::datatypes::FieldRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Column, TableReference};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    Distinct, Expr, ExprSchemable, Filter, JoinType, LogicalPlan, LogicalPlanBuilder, Operator, Projection,
    SortExpr, Unnest,
};

use super::Made;
use super::bind::{bind, columns_of, not_distinct};

/// A plan with the outer columns among its own.
pub(super) struct Independent {
    pub plan: LogicalPlan,
    /// Where each outer column is.
    pub columns: Vec<Column>,
    /// Whether none of them is NULL.
    pub null_free: bool,
}

/// The outer columns that are pushed into a plan.
pub(super) struct Unnesting<'a> {
    outer: Vec<(FieldRef, Column)>,
    /// The plan outside, which has them.
    source: LogicalPlan,
    /// Over the whole statement.
    made: &'a mut Made,
    /// The working tables of the recursions that are being pushed into, the innermost last.
    carried: Vec<recursion::Carried>,
}

impl<'a> Unnesting<'a> {
    pub fn new(outer: Vec<(FieldRef, Column)>, outside: &LogicalPlan, made: &'a mut Made) -> Result<Self> {
        let source = smallest_source(outside, &outer).clone();
        // It is read twice, and must be the same.
        if is_volatile(&source)? {
            return Err(DataFusionError::NotImplemented(
                "a subquery that refers to rows with a volatile function is not supported".into(),
            ));
        }
        // The binder takes outer columns as their relations have them: before joins can miss them, and before the branches
        // of a CASE have one type.
        let outer = outer
            .into_iter()
            .map(|(field, column)| {
                let field = match outside.schema().qualified_field_from_column(&column) {
                    Ok((_, now)) => Arc::clone(now),
                    Err(_) => Arc::new(field.as_ref().clone().with_nullable(true)),
                };
                (field, column)
            })
            .collect();
        Ok(Unnesting {
            outer,
            source,
            made,
            carried: vec![],
        })
    }

    /// The conditions under which a row outside and a row of the plan have the same outer columns.
    pub fn conditions(&self, independent: &Independent) -> Vec<Expr> {
        self.outer
            .iter()
            .zip(&independent.columns)
            .flat_map(|((field, outside), inside)| {
                let null_free = independent.null_free || !field.is_nullable();
                not_distinct(
                    Expr::Column(outside.clone()),
                    Expr::Column(inside.clone()),
                    field,
                    null_free,
                )
            })
            .collect()
    }

    /// See the module.
    ///
    /// # Errors
    /// `NotImplemented`, naming what cannot be correlated.
    pub fn push(&mut self, plan: &LogicalPlan) -> Result<Independent> {
        if !self.depends(plan)? {
            return self.with_domain(plan.clone());
        }
        match plan {
            LogicalPlan::Filter(filter) => self.filter(filter),
            LogicalPlan::Projection(projection) => self.projection(projection),
            LogicalPlan::Subquery(subquery) => self.push(&subquery.subquery),
            LogicalPlan::SubqueryAlias(alias) => {
                let inner = self.push(&alias.input)?;
                let columns = requalified(inner.columns, &alias.alias);
                let plan = LogicalPlanBuilder::from(inner.plan)
                    .alias(alias.alias.clone())?
                    .build()?;
                Ok(Independent {
                    plan,
                    columns,
                    ..inner
                })
            }
            LogicalPlan::Aggregate(aggregate) if aggregate.group_expr.is_empty() => self.total(aggregate),
            LogicalPlan::Aggregate(aggregate) => self.grouped(aggregate),
            LogicalPlan::Distinct(Distinct::All(input)) => {
                let inner = self.push(input)?;
                let plan = LogicalPlanBuilder::from(inner.plan).distinct()?.build()?;
                Ok(Independent { plan, ..inner })
            }
            LogicalPlan::Distinct(Distinct::On(distinct)) => self.distinct_on(distinct),
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => self.push(&sort.input),
            LogicalPlan::Limit(limit) => self.limit(limit),
            LogicalPlan::Join(join) => self.join(join),
            LogicalPlan::Union(union) => self.union(union),
            LogicalPlan::Window(window) => self.window(window),
            LogicalPlan::Unnest(unnest) => {
                let inner = self.push(&unnest.input)?;
                let unnest = Unnest::try_new(
                    Arc::new(inner.plan),
                    unnest.exec_columns.clone(),
                    unnest.options.clone(),
                )?;
                Ok(Independent {
                    plan: LogicalPlan::Unnest(unnest),
                    ..inner
                })
            }
            LogicalPlan::Values(values) => self.values(values),
            LogicalPlan::RecursiveQuery(query) => self.recursion(query),
            LogicalPlan::TableScan(scan) => self.working_table(scan),
            other => Err(unsupported(&other.display().to_string())),
        }
    }

    fn fresh(&mut self) -> Vec<String> {
        let number = self.made.name();
        (0..self.outer.len())
            .map(|position| format!("__outer_{number}_{position}"))
            .collect()
    }

    /// The values of the outer columns, each once.
    fn domain(&mut self) -> Result<Independent> {
        self.made.copy(&self.source)?;
        let names = self.fresh();
        let expressions: Vec<Expr> = self
            .outer
            .iter()
            .zip(&names)
            .map(|((_, column), name)| Expr::Column(column.clone()).alias(name))
            .collect();
        let plan = LogicalPlanBuilder::from(self.source.clone())
            .project(expressions)?
            .distinct()?
            .build()?;
        Ok(Independent {
            plan,
            columns: names.into_iter().map(Column::new_unqualified).collect(),
            null_free: false,
        })
    }

    /// A plan that names nothing outer, for every value of the domain.
    fn with_domain(&mut self, plan: LogicalPlan) -> Result<Independent> {
        let domain = self.domain()?;
        if matches!(&plan, LogicalPlan::EmptyRelation(empty) if empty.produce_one_row) {
            return Ok(domain);
        }
        Ok(Independent {
            plan: LogicalPlanBuilder::from(plan).cross_join(domain.plan)?.build()?,
            ..domain
        })
    }

    fn filter(&mut self, filter: &Filter) -> Result<Independent> {
        if self.depends(&filter.input)? {
            let inner = self.push(&filter.input)?;
            let predicate = bind(filter.predicate.clone(), &self.outer, &inner.columns)?;
            let plan = LogicalPlanBuilder::from(inner.plan).filter(predicate)?.build()?;
            return Ok(Independent { plan, ..inner });
        }
        if let Some(independent) = self.equated(filter)? {
            return Ok(independent);
        }
        let inner = self.with_domain(filter.input.as_ref().clone())?;
        let predicate = bind(filter.predicate.clone(), &self.outer, &inner.columns)?;
        let plan = LogicalPlanBuilder::from(inner.plan).filter(predicate)?.build()?;
        Ok(Independent { plan, ..inner })
    }

    /// Where the filter has an expression equal to each outer column, that is the column.
    fn equated(&mut self, filter: &Filter) -> Result<Option<Independent>> {
        let schema = filter.input.schema();
        let mut equal: Vec<Option<Expr>> = vec![None; self.outer.len()];
        let mut rest = vec![];
        for conjunct in split_conjunction_owned(filter.predicate.clone()) {
            let pair = match &conjunct {
                Expr::BinaryExpr(binary) if binary.op == Operator::Eq => {
                    match (binary.left.as_ref(), binary.right.as_ref()) {
                        (Expr::OuterReferenceColumn(_, column), other)
                        | (other, Expr::OuterReferenceColumn(_, column)) => Some((column, other)),
                        _ => None,
                    }
                }
                _ => None,
            };
            let position = pair.and_then(|(column, other)| {
                let position = self.outer.iter().position(|(_, known)| known == column)?;
                let same_type = other.get_type(schema).ok()? == *self.outer[position].0.data_type();
                let is_inner = !other.contains_outer() && !other.is_volatile();
                (same_type && is_inner && equal[position].is_none()).then(|| (position, other.clone()))
            });
            match position {
                Some((position, other)) => equal[position] = Some(other),
                None => rest.push(conjunct),
            }
        }
        let Some(equal) = equal.into_iter().collect::<Option<Vec<Expr>>>() else {
            return Ok(None);
        };
        let names = self.fresh();
        let expressions: Vec<Expr> = columns_of(schema)
            .into_iter()
            .chain(equal.iter().zip(&names).map(|(e, name)| e.clone().alias(name)))
            .collect();
        let columns: Vec<Column> = names.into_iter().map(Column::new_unqualified).collect();
        let mut conditions = vec![];
        for conjunct in rest {
            conditions.push(bind(conjunct, &self.outer, &columns)?);
        }
        conditions.extend(
            columns
                .iter()
                .map(|column| Expr::Column(column.clone()).is_not_null()),
        );
        let mut plan = LogicalPlanBuilder::from(filter.input.as_ref().clone()).project(expressions)?;
        if let Some(predicate) = conjunction(conditions) {
            plan = plan.filter(predicate)?;
        }
        Ok(Some(Independent {
            plan: plan.build()?,
            columns,
            null_free: true,
        }))
    }

    fn projection(&mut self, projection: &Projection) -> Result<Independent> {
        let inner = self.push(&projection.input)?;
        let mut expressions = vec![];
        for (expression, (qualifier, field)) in projection.expr.iter().zip(projection.schema.iter()) {
            let bound = bind(expression.clone(), &self.outer, &inner.columns)?;
            expressions.push(named(bound, qualifier, field.name()));
        }
        expressions.extend(inner.columns.iter().cloned().map(Expr::Column));
        let plan = LogicalPlanBuilder::from(inner.plan)
            .project(expressions)?
            .build()?;
        Ok(Independent { plan, ..inner })
    }

    fn bound(&self, expressions: impl Iterator<Item = Expr>, columns: &[Column]) -> Result<Vec<Expr>> {
        expressions.map(|e| bind(e, &self.outer, columns)).collect()
    }

    fn bound_sort(&self, sort: &[SortExpr], columns: &[Column]) -> Result<Vec<SortExpr>> {
        sort.iter()
            .map(|sort| {
                Ok(SortExpr {
                    expr: bind(sort.expr.clone(), &self.outer, columns)?,
                    ..sort.clone()
                })
            })
            .collect()
    }
}

/// The expression under the name that it had.
pub(super) fn named(expression: Expr, qualifier: Option<&TableReference>, name: &str) -> Expr {
    match &expression {
        Expr::Column(column) if column.name == name && column.relation.as_ref() == qualifier => expression,
        Expr::Alias(alias) if alias.name == name && alias.relation.as_ref() == qualifier => expression,
        _ => expression.alias_qualified(qualifier.cloned(), name),
    }
}

fn requalified(columns: Vec<Column>, alias: &TableReference) -> Vec<Column> {
    columns
        .into_iter()
        .map(|column| Column::new(Some(alias.clone()), column.name))
        .collect()
}

/// The smallest part of the plan that has every outer column, with all the values that it has in the whole.
fn smallest_source<'a>(plan: &'a LogicalPlan, outer: &[(FieldRef, Column)]) -> &'a LogicalPlan {
    let has_all = |plan: &LogicalPlan| outer.iter().all(|(_, column)| plan.schema().has_column(column));
    let next = match plan {
        LogicalPlan::Filter(filter) => Some(filter.input.as_ref()),
        LogicalPlan::Join(join) => match join.join_type {
            JoinType::Inner if has_all(&join.left) => Some(join.left.as_ref()),
            JoinType::Inner => Some(join.right.as_ref()),
            JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => {
                Some(join.left.as_ref())
            }
            JoinType::Right | JoinType::RightSemi | JoinType::RightAnti => Some(join.right.as_ref()),
            JoinType::Full | JoinType::RightMark => None,
        },
        _ => None,
    };
    match next {
        Some(next) if has_all(next) => smallest_source(next, outer),
        _ => plan,
    }
}

fn is_volatile(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expression| {
            found |= expression.is_volatile();
            Ok(if found {
                TreeNodeRecursion::Stop
            } else {
                TreeNodeRecursion::Continue
            })
        })
    })?;
    Ok(found)
}

fn unsupported(construct: &str) -> DataFusionError {
    DataFusionError::NotImplemented(format!(
        "a subquery that refers to outer columns inside {construct} is not supported"
    ))
}
