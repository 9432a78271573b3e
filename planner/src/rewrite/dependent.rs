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
//! ```
//! The domain is the set of the values of `c` outside, from the smallest plan that has them.

use std::sync::Arc;

use arrow::datatypes::FieldRef;
use datafusion::common::{Column, ScalarValue, TableReference};
use datafusion::error::{DataFusionError, Result};
use datafusion::functions::expr_fn::coalesce;
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    Aggregate, Distinct, DistinctOn, Expr, ExprFunctionExt, ExprSchemable, Filter, GroupingSet, Join,
    JoinType, Limit, LogicalPlan, LogicalPlanBuilder, Operator, Projection, SortExpr, Union, Unnest, Values,
    Window, cast, lit, when,
};

use super::bind::{bind, columns_of, join, keep, names_outer, not_distinct, plan_names_outer};

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
    /// Counts the names given to columns, over the whole statement.
    names: &'a mut usize,
}

impl<'a> Unnesting<'a> {
    pub fn new(outer: Vec<(FieldRef, Column)>, outside: &LogicalPlan, names: &'a mut usize) -> Result<Self> {
        let source = smallest_source(outside, &outer).clone();
        Ok(Unnesting { outer, source, names })
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
        if !plan_names_outer(plan, &self.outer)? {
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
            LogicalPlan::RecursiveQuery(_) => Err(unsupported("WITH RECURSIVE")),
            other => Err(unsupported(&other.display().to_string())),
        }
    }

    fn fresh(&mut self) -> Vec<String> {
        *self.names += 1;
        (0..self.outer.len())
            .map(|position| format!("__outer_{}_{position}", self.names))
            .collect()
    }

    /// The values of the outer columns, each once.
    fn domain(&mut self) -> Result<Independent> {
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
        if plan_names_outer(&filter.input, &self.outer)? {
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

    fn grouped(&mut self, aggregate: &Aggregate) -> Result<Independent> {
        if matches!(aggregate.group_expr.as_slice(), [Expr::GroupingSet(_)])
            || aggregate.group_expr.iter().any(|e| {
                matches!(
                    e,
                    Expr::GroupingSet(
                        GroupingSet::Rollup(_) | GroupingSet::Cube(_) | GroupingSet::GroupingSets(_)
                    )
                )
            })
        {
            return Err(unsupported("GROUPING SETS"));
        }
        let inner = self.push(&aggregate.input)?;
        let groups = aggregate.group_expr.iter().cloned();
        let mut group = self.bound(groups, &inner.columns)?;
        group.extend(inner.columns.iter().cloned().map(Expr::Column));
        let calls = self.bound(aggregate.aggr_expr.iter().cloned(), &inner.columns)?;
        let plan = LogicalPlanBuilder::from(inner.plan)
            .aggregate(group, calls)?
            .build()?;
        // Groups and calls keep their names, which are those of the expressions as written.
        let mut outputs = plan.schema().columns();
        outputs.retain(|column| !inner.columns.contains(column));
        let expressions: Vec<Expr> = outputs
            .into_iter()
            .zip(aggregate.schema.iter())
            .map(|(column, (qualifier, field))| named(Expr::Column(column), qualifier, field.name()))
            .chain(inner.columns.iter().cloned().map(Expr::Column))
            .collect();
        let plan = LogicalPlanBuilder::from(plan).project(expressions)?.build()?;
        Ok(Independent { plan, ..inner })
    }

    /// An aggregate over everything has a row over nothing too.
    fn total(&mut self, aggregate: &Aggregate) -> Result<Independent> {
        let inner = self.push(&aggregate.input)?;
        let calls = self.bound(aggregate.aggr_expr.iter().cloned(), &inner.columns)?;
        *self.names += 1;
        let marker = format!("__has_rows_{}", self.names);
        let group: Vec<Expr> = inner.columns.iter().cloned().map(Expr::Column).collect();
        let plan = LogicalPlanBuilder::from(inner.plan)
            .aggregate(group, calls)?
            .build()?;
        // Outputs keep their names, which are those of the calls as written.
        let outputs: Vec<Expr> = plan.schema().columns()[inner.columns.len()..]
            .iter()
            .zip(aggregate.schema.fields())
            .map(|(column, field)| Expr::Column(column.clone()).alias(field.name()))
            .collect();
        let expressions: Vec<Expr> = inner
            .columns
            .iter()
            .cloned()
            .map(Expr::Column)
            .chain(outputs)
            .chain([lit(true).alias(&marker)])
            .collect();
        let plan = LogicalPlanBuilder::from(plan).project(expressions)?.build()?;
        let domain = self.domain()?;
        let conditions = self
            .outer
            .iter()
            .zip(domain.columns.iter().zip(&inner.columns))
            .flat_map(|((field, _), (outside, inside))| {
                not_distinct(
                    Expr::Column(outside.clone()),
                    Expr::Column(inside.clone()),
                    field,
                    inner.null_free || !field.is_nullable(),
                )
            })
            .collect();
        let joined = join(domain.plan, plan, JoinType::Left, conditions)?;
        let mut expressions = vec![];
        for (call, field) in aggregate.aggr_expr.iter().zip(aggregate.schema.fields()) {
            let value = Expr::Column(Column::new_unqualified(field.name()));
            let over_nothing = over_nothing(call, field)?;
            let value = if over_nothing.is_null() {
                value
            } else {
                let marker = Expr::Column(Column::new_unqualified(&marker));
                when(marker.is_null(), lit(over_nothing)).otherwise(value)?
            };
            expressions.push(value.alias(field.name()));
        }
        expressions.extend(domain.columns.iter().cloned().map(Expr::Column));
        Ok(Independent {
            plan: LogicalPlanBuilder::from(joined).project(expressions)?.build()?,
            columns: domain.columns,
            null_free: false,
        })
    }

    fn distinct_on(&mut self, distinct: &DistinctOn) -> Result<Independent> {
        let inner = self.push(&distinct.input)?;
        let outer: Vec<Expr> = inner.columns.iter().cloned().map(Expr::Column).collect();
        let on = self.bound(distinct.on_expr.iter().cloned(), &inner.columns)?;
        let select = self.bound(distinct.select_expr.iter().cloned(), &inner.columns)?;
        let sort = match &distinct.sort_expr {
            Some(sort) => {
                let own = self.bound_sort(sort, &inner.columns)?;
                let first = outer.iter().map(|e| e.clone().sort(true, false));
                Some(first.chain(own).collect())
            }
            None => None,
        };
        let plan = LogicalPlanBuilder::from(inner.plan)
            .distinct_on(
                outer.iter().cloned().chain(on).collect(),
                select.into_iter().chain(outer).collect(),
                sort,
            )?
            .build()?;
        Ok(Independent { plan, ..inner })
    }

    fn limit(&mut self, limit: &Limit) -> Result<Independent> {
        // The order may be below a projection that drops what only it needs.
        let (projection, ordered) = match limit.input.as_ref() {
            LogicalPlan::Projection(projection)
                if matches!(projection.input.as_ref(), LogicalPlan::Sort(_)) =>
            {
                (Some(projection), projection.input.as_ref())
            }
            other => (None, other),
        };
        let (order, input): (&[SortExpr], &LogicalPlan) = match ordered {
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => (&sort.expr, &sort.input),
            other => (&[], other),
        };
        let inner = self.push(input)?;
        *self.names += 1;
        let number = format!("__row_{}", self.names);
        let mut window = row_number().partition_by(inner.columns.iter().cloned().map(Expr::Column).collect());
        if !order.is_empty() {
            window = window.order_by(self.bound_sort(order, &inner.columns)?);
        }
        let window = window.build()?.alias(&number);
        let number = cast(
            Expr::Column(Column::new_unqualified(&number)),
            arrow::datatypes::DataType::Int64,
        );
        let amount = |e: &Expr| -> Result<Expr> {
            let bound = bind(e.clone(), &self.outer, &inner.columns)?;
            Ok(match bound {
                Expr::Literal(value, _) => lit(value.cast_to(&arrow::datatypes::DataType::Int64)?),
                other => cast(other, arrow::datatypes::DataType::Int64),
            })
        };
        let skip = limit.skip.as_deref().map(amount).transpose()?;
        let fetch = limit.fetch.as_deref().map(amount).transpose()?;
        let mut conditions = vec![];
        let skipped = match &skip {
            Some(Expr::Literal(ScalarValue::Int64(skip), _)) => lit(skip.unwrap_or(0)),
            Some(other) => coalesce(vec![other.clone(), lit(0_i64)]),
            None => lit(0_i64),
        };
        if skip.is_some() && skipped != lit(0_i64) {
            conditions.push(number.clone().gt(skipped.clone()));
        }
        match fetch {
            // LIMIT NULL is no limit.
            None | Some(Expr::Literal(ScalarValue::Int64(None), _)) => {}
            Some(Expr::Literal(ScalarValue::Int64(Some(fetch)), _)) => {
                let last = match &skipped {
                    Expr::Literal(ScalarValue::Int64(Some(skip)), _) => lit(skip.saturating_add(fetch)),
                    other => other.clone() + lit(fetch),
                };
                conditions.push(number.lt_eq(last));
            }
            Some(fetch) => conditions.push(fetch.clone().is_null().or(number.lt_eq(skipped + fetch))),
        }
        let kept: Vec<Column> = inner.plan.schema().columns();
        let mut plan = LogicalPlanBuilder::from(inner.plan).window(vec![window])?;
        if let Some(predicate) = conjunction(conditions) {
            plan = plan.filter(predicate)?;
        }
        let plan = keep(plan.build()?, kept)?;
        let Some(projection) = projection else {
            return Ok(Independent {
                plan,
                columns: inner.columns,
                null_free: inner.null_free,
            });
        };
        let mut expressions = self.bound(projection.expr.iter().cloned(), &inner.columns)?;
        expressions.extend(inner.columns.iter().cloned().map(Expr::Column));
        let plan = LogicalPlanBuilder::from(plan).project(expressions)?.build()?;
        Ok(Independent {
            plan,
            columns: inner.columns,
            null_free: inner.null_free,
        })
    }

    fn join(&mut self, original: &Join) -> Result<Independent> {
        use JoinType::*;
        let mut conditions: Vec<Expr> = original.on.iter().map(|(l, r)| l.clone().eq(r.clone())).collect();
        if original.null_equality == datafusion::common::NullEquality::NullEqualsNull {
            let operator = Operator::IsNotDistinctFrom;
            conditions = original
                .on
                .iter()
                .map(|(l, r)| datafusion::logical_expr::binary_expr(l.clone(), operator, r.clone()))
                .collect();
        }
        conditions.extend(original.filter.clone());
        let condition_outer = conditions.iter().any(|e| names_outer(e, &self.outer));
        let left_outer = plan_names_outer(&original.left, &self.outer)?;
        let right_outer = plan_names_outer(&original.right, &self.outer)?;
        // The side that is kept must have the columns; where both have them, they are joined on them too.
        let (push_left, push_right) = match original.join_type {
            Inner => (left_outer || !right_outer, right_outer),
            Left | LeftSemi | LeftAnti | LeftMark => (true, right_outer),
            Right | RightSemi | RightAnti | RightMark => (left_outer, true),
            Full => (true, true),
        };
        let left = if push_left {
            Some(self.push(&original.left)?)
        } else {
            None
        };
        let right = if push_right {
            Some(self.push(&original.right)?)
        } else {
            None
        };
        let bound_to = match (&left, &right) {
            (Some(left), _) => &left.columns,
            (None, Some(right)) => &right.columns,
            (None, None) => return Err(unsupported("a join")),
        };
        if condition_outer {
            conditions = self.bound(conditions.into_iter(), bound_to)?;
        }
        if let (Some(left), Some(right)) = (&left, &right) {
            for ((field, _), (l, r)) in self.outer.iter().zip(left.columns.iter().zip(&right.columns)) {
                let null_free = left.null_free || right.null_free || !field.is_nullable();
                conditions.extend(not_distinct(
                    Expr::Column(l.clone()),
                    Expr::Column(r.clone()),
                    field,
                    null_free,
                ));
            }
        }
        let (columns, null_free) = match original.join_type {
            Right | RightSemi | RightAnti | RightMark => {
                right.as_ref().map(|side| (side.columns.clone(), side.null_free))
            }
            _ => left
                .as_ref()
                .or(right.as_ref())
                .map(|side| (side.columns.clone(), side.null_free)),
        }
        .ok_or_else(|| unsupported("a join"))?;
        let full = match (&left, &right) {
            (Some(left), Some(right)) if original.join_type == Full => {
                Some((left.columns.clone(), right.columns.clone()))
            }
            _ => None,
        };
        let left_plan = left.map_or_else(|| original.left.as_ref().clone(), |side| side.plan);
        let right_plan = right.map_or_else(|| original.right.as_ref().clone(), |side| side.plan);
        let joined = join(left_plan, right_plan, original.join_type, conditions)?;
        let Some((left, right)) = full else {
            let kept = original
                .schema
                .columns()
                .into_iter()
                .chain(columns.iter().cloned());
            return Ok(Independent {
                plan: keep(joined, kept.collect())?,
                columns,
                null_free,
            });
        };
        // A row of either side knows the outer columns.
        let names = self.fresh();
        let expressions: Vec<Expr> = columns_of(&original.schema)
            .into_iter()
            .chain(
                left.into_iter()
                    .zip(right)
                    .zip(&names)
                    .map(|((l, r), name)| coalesce(vec![Expr::Column(l), Expr::Column(r)]).alias(name)),
            )
            .collect();
        Ok(Independent {
            plan: LogicalPlanBuilder::from(joined).project(expressions)?.build()?,
            columns: names.into_iter().map(Column::new_unqualified).collect(),
            null_free,
        })
    }

    fn union(&mut self, union: &Union) -> Result<Independent> {
        let names = self.fresh();
        let mut inputs = vec![];
        let mut null_free = true;
        for input in &union.inputs {
            let own = input.schema().columns();
            let inner = self.push(input)?;
            null_free &= inner.null_free;
            let expressions: Vec<Expr> = own
                .into_iter()
                .zip(union.schema.iter())
                .map(|(column, (qualifier, field))| {
                    Expr::Column(column).alias_qualified(qualifier.cloned(), field.name())
                })
                .chain(
                    inner
                        .columns
                        .iter()
                        .zip(&names)
                        .map(|(column, name)| Expr::Column(column.clone()).alias(name)),
                )
                .collect();
            inputs.push(Arc::new(
                LogicalPlanBuilder::from(inner.plan)
                    .project(expressions)?
                    .build()?,
            ));
        }
        let plan = LogicalPlan::Union(Union::try_new_with_loose_types(inputs)?);
        Ok(Independent {
            plan,
            columns: names.into_iter().map(Column::new_unqualified).collect(),
            null_free,
        })
    }

    fn window(&mut self, window: &Window) -> Result<Independent> {
        let inner = self.push(&window.input)?;
        let width = window.input.schema().fields().len();
        let mut expressions = vec![];
        for (expression, field) in window.window_expr.iter().zip(&window.schema.fields()[width..]) {
            let bound = bind(expression.clone(), &self.outer, &inner.columns)?;
            let partitioned = match bound {
                Expr::WindowFunction(function) => by_outer(*function, &inner.columns),
                Expr::Alias(alias) => match *alias.expr {
                    Expr::WindowFunction(function) => by_outer(*function, &inner.columns),
                    _ => return Err(unsupported("a window")),
                },
                _ => return Err(unsupported("a window")),
            };
            expressions.push(partitioned.alias(field.name()));
        }
        let plan = LogicalPlanBuilder::from(inner.plan)
            .window(expressions)?
            .build()?;
        Ok(Independent { plan, ..inner })
    }

    /// VALUES over outer columns: a union of a row each.
    fn values(&mut self, values: &Values) -> Result<Independent> {
        let domain = self.domain()?;
        let mut inputs = vec![];
        for row in &values.values {
            let mut expressions = vec![];
            for (expression, field) in row.iter().zip(values.schema.fields()) {
                let bound = bind(expression.clone(), &self.outer, &domain.columns)?;
                expressions.push(cast(bound, field.data_type().clone()).alias(field.name()));
            }
            expressions.extend(domain.columns.iter().cloned().map(Expr::Column));
            let input = LogicalPlanBuilder::from(domain.plan.clone())
                .project(expressions)?
                .build()?;
            inputs.push(Arc::new(input));
        }
        let plan = match inputs.len() {
            1 => inputs.remove(0).as_ref().clone(),
            _ => LogicalPlan::Union(Union::try_new_with_loose_types(inputs)?),
        };
        Ok(Independent { plan, ..domain })
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

fn by_outer(mut function: WindowFunction, columns: &[Column]) -> Expr {
    function
        .params
        .partition_by
        .extend(columns.iter().cloned().map(Expr::Column));
    Expr::WindowFunction(Box::new(function))
}

/// What an aggregate answers over no rows.
fn over_nothing(call: &Expr, field: &FieldRef) -> Result<ScalarValue> {
    match call {
        Expr::Alias(alias) => over_nothing(&alias.expr, field),
        Expr::AggregateFunction(function) => function.func.default_value(field.data_type()),
        _ => ScalarValue::try_from(field.data_type()),
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

fn unsupported(construct: &str) -> DataFusionError {
    DataFusionError::NotImplemented(format!(
        "a subquery that refers to outer columns inside {construct} is not supported"
    ))
}
