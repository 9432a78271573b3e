//! What becomes of the operators that group, order, join and unite, when outer columns are pushed through them.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Column, NullEquality, ScalarValue};
use datafusion::error::Result;
use datafusion::functions::expr_fn::coalesce;
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{
    Aggregate, DistinctOn, Expr, ExprFunctionExt, Join, JoinType, Limit, LogicalPlan, LogicalPlanBuilder,
    Operator, SortExpr, Union, Values, Window, binary_expr, cast, lit, when,
};

use super::super::bind::{bind, columns_of, join, keep, names_outer, not_distinct};
use super::{Independent, Unnesting, named, unsupported};

impl Unnesting<'_> {
    pub(super) fn grouped(&mut self, aggregate: &Aggregate) -> Result<Independent> {
        if aggregate
            .group_expr
            .iter()
            .any(|e| matches!(e, Expr::GroupingSet(_)))
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
    pub(super) fn total(&mut self, aggregate: &Aggregate) -> Result<Independent> {
        let inner = self.push(&aggregate.input)?;
        let calls = self.bound(aggregate.aggr_expr.iter().cloned(), &inner.columns)?;
        let marker = format!("__has_rows_{}", self.made.name());
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

    pub(super) fn distinct_on(&mut self, distinct: &DistinctOn) -> Result<Independent> {
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

    pub(super) fn limit(&mut self, limit: &Limit) -> Result<Independent> {
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
        let number = format!("__row_{}", self.made.name());
        let mut window = row_number().partition_by(inner.columns.iter().cloned().map(Expr::Column).collect());
        if !order.is_empty() {
            window = window.order_by(self.bound_sort(order, &inner.columns)?);
        }
        let window = window.build()?.alias(&number);
        let number = cast(Expr::Column(Column::new_unqualified(&number)), DataType::Int64);
        let amount = |e: &Expr| -> Result<Expr> {
            let bound = bind(e.clone(), &self.outer, &inner.columns)?;
            Ok(match bound {
                Expr::Literal(value, _) => lit(value.cast_to(&DataType::Int64)?),
                other => cast(other, DataType::Int64),
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

    pub(super) fn join(&mut self, original: &Join) -> Result<Independent> {
        use JoinType::*;
        let mut conditions: Vec<Expr> = original.on.iter().map(|(l, r)| l.clone().eq(r.clone())).collect();
        if original.null_equality == NullEquality::NullEqualsNull {
            let operator = Operator::IsNotDistinctFrom;
            conditions = original
                .on
                .iter()
                .map(|(l, r)| binary_expr(l.clone(), operator, r.clone()))
                .collect();
        }
        conditions.extend(original.filter.clone());
        let condition_outer = conditions.iter().any(|e| names_outer(e, &self.outer));
        let left_outer = self.depends(&original.left)?;
        let right_outer = self.depends(&original.right)?;
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

    pub(super) fn union(&mut self, union: &Union) -> Result<Independent> {
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

    pub(super) fn window(&mut self, window: &Window) -> Result<Independent> {
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
    pub(super) fn values(&mut self, values: &Values) -> Result<Independent> {
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
