//! Equality of types of which one value has several forms: an interval of a day and one of 24 hours, 1 and 1.0 in jsonb.
//!
//! Operators compare by keys (see [`crate::operators`]); here the rest of a bound plan is told to: GROUP BY, DISTINCT, UNION,
//! USING, IN, count(DISTINCT ..), PARTITION BY. A group shows the least form of its value, whichever came first, so that a
//! view does not depend on the order of rows.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema, Result};
use datafusion::functions_aggregate::first_last::first_value_udaf;
use datafusion::functions_aggregate::min_max::min_udaf;
use datafusion::logical_expr::expr::{
    AggregateFunction, GroupingSet, InList, InSubquery, Sort, WindowFunction,
};
use datafusion::logical_expr::{
    Aggregate, BinaryExpr, Distinct, Expr, Join, LogicalPlan, LogicalPlanBuilder, Projection, Subquery,
    binary_expr, lit, when,
};
use millrace_postgres::error::{SqlError, SqlResult};
use millrace_postgres::types::{ANNOTATION, plain_name};

use crate::datetime::{self, Function};
use crate::in_plans::in_expressions;
use crate::sql::comparisons::{is_comparison, is_quoted};
use crate::sql::output_types::field_of;
use crate::{cast as pg_cast, jsonb};

/// A type that is compared by keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keyed {
    Interval,
    Jsonb,
}

impl Keyed {
    fn of(field: &Field) -> Option<Keyed> {
        match field.data_type() {
            DataType::Interval(_) | DataType::Duration(_) => Some(Keyed::Interval),
            _ => field
                .metadata()
                .get(ANNOTATION)
                .is_some_and(|name| name == "jsonb")
                .then_some(Keyed::Jsonb),
        }
    }

    /// The key of a literal, which is of the type of what it is compared with.
    fn key_of_literal(self, literal: Expr) -> Expr {
        let name = match self {
            Keyed::Jsonb => "jsonb",
            Keyed::Interval => "interval",
        };
        self.key(pg_cast::udf().call(vec![literal, lit(name)]))
    }

    fn key(self, expr: Expr) -> Expr {
        match self {
            Keyed::Interval => datetime::udf(Function::SortKey).call(vec![expr]),
            Keyed::Jsonb => jsonb::udf(jsonb::SORT_KEY).call(vec![expr]),
        }
    }
}

/// The type of an expression if it is compared by keys.
fn keyed(expr: &Expr, schema: &DFSchema) -> Option<Keyed> {
    Keyed::of(&field_of(expr, schema).ok()?)
}

/// The key of an expression that has one, else itself.
fn by_key(expr: &Expr, schema: &DFSchema) -> Expr {
    match keyed(expr, schema) {
        Some(kind) => kind.key(expr.clone()),
        None => expr.clone(),
    }
}

/// Refuses a column of a primary key whose equal values are not held alike.
///
/// # Errors
/// The column is an interval or jsonb.
pub fn check_key(field: &Field) -> SqlResult<()> {
    match Keyed::of(field) {
        None => Ok(()),
        Some(_) => Err(SqlError::unsupported(format!(
            "column \"{}\" of type {} cannot be in a primary key",
            field.name(),
            plain_name(field)
        ))
        .with_hint(
            "Equal values of it can have different forms. Add a column of type text or a number type as the \
             key.",
        )),
    }
}

/// The plan with its equalities by the keys.
///
/// # Errors
/// The plan cannot be put together again.
pub fn by_value(plan: LogicalPlan) -> Result<LogicalPlan> {
    plan.transform_up_with_subqueries(|plan| {
        Ok(match in_conditions(plan)?.data {
            LogicalPlan::Distinct(Distinct::All(input)) => {
                let schema = Arc::clone(input.schema());
                if !schema.fields().iter().any(|field| Keyed::of(field).is_some()) {
                    return Ok(Transformed::no(LogicalPlan::Distinct(Distinct::All(input))));
                }
                let columns = schema.columns().into_iter().map(Expr::Column).collect();
                Transformed::yes(grouped(Aggregate::try_new(input, columns, vec![])?)?)
            }
            LogicalPlan::Aggregate(aggregate) if concerns(&aggregate) => {
                Transformed::yes(grouped(aggregate)?)
            }
            LogicalPlan::Join(join) if join_concerns(&join) => Transformed::yes(joined(join)?),
            other => Transformed::no(other),
        })
    })
    .map(|transformed| transformed.data)
}

/// Conditions and windows in the expressions of a node.
fn in_conditions(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    in_expressions(plan, condition)
}

fn condition(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    Ok(match expr {
        Expr::InList(InList { expr, list, negated }) => match keyed(&expr, schema) {
            Some(kind) => {
                let read = |value: Expr| match value {
                    Expr::Literal(..) if keyed(&value, schema).is_none() => kind.key_of_literal(value),
                    value => kind.key(value),
                };
                Transformed::yes(Expr::InList(InList {
                    expr: Box::new(kind.key(*expr)),
                    list: list.into_iter().map(read).collect(),
                    negated,
                }))
            }
            None => Transformed::no(Expr::InList(InList { expr, list, negated })),
        },
        Expr::InSubquery(InSubquery {
            expr,
            subquery,
            negated,
        }) => match keyed(&expr, schema) {
            Some(kind) => {
                let inner = subquery.subquery.as_ref().clone();
                let columns: Vec<Expr> = inner
                    .schema()
                    .columns()
                    .into_iter()
                    .map(|column| kind.key(Expr::Column(column)).alias("key"))
                    .collect();
                let inner = LogicalPlanBuilder::from(inner).project(columns)?.build()?;
                let subquery = Subquery {
                    subquery: Arc::new(inner),
                    ..subquery
                };
                Transformed::yes(Expr::InSubquery(InSubquery {
                    expr: Box::new(kind.key(*expr)),
                    subquery,
                    negated,
                }))
            }
            None => Transformed::no(Expr::InSubquery(InSubquery {
                expr,
                subquery,
                negated,
            })),
        },
        // Those that were made when the query was bound, of IN and NOT IN.
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_comparison(op) => {
            let both = (keyed(&left, schema), keyed(&right, schema));
            match both {
                (Some(one), Some(other)) if one == other => {
                    Transformed::yes(binary_expr(one.key(*left), op, other.key(*right)))
                }
                (Some(kind), None) if is_quoted(&right) => {
                    Transformed::yes(binary_expr(kind.key(*left), op, kind.key_of_literal(*right)))
                }
                (None, Some(kind)) if is_quoted(&left) => {
                    Transformed::yes(binary_expr(kind.key_of_literal(*left), op, kind.key(*right)))
                }
                _ => Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right })),
            }
        }
        Expr::WindowFunction(mut window) => {
            let WindowFunction { params, .. } = window.as_mut();
            let mut changed = false;
            for by in &mut params.partition_by {
                if let Some(kind) = keyed(by, schema) {
                    *by = kind.key(by.clone());
                    changed = true;
                }
            }
            for by in &mut params.order_by {
                if let Some(kind) = keyed(&by.expr, schema) {
                    by.expr = kind.key(by.expr.clone());
                    changed = true;
                }
            }
            let window = Expr::WindowFunction(window);
            if changed {
                Transformed::yes(window)
            } else {
                Transformed::no(window)
            }
        }
        other => Transformed::no(other),
    })
}

/// The aggregate function of an expression of an aggregate.
fn aggregate_of(expr: &Expr) -> Option<&AggregateFunction> {
    match expr {
        Expr::AggregateFunction(function) => Some(function),
        Expr::Alias(alias) => aggregate_of(&alias.expr),
        _ => None,
    }
}

/// An aggregate function over a type that is compared by keys, where the keys tell its value.
fn by_keys(expr: &Expr, schema: &DFSchema) -> Option<Expr> {
    let function = aggregate_of(expr)?;
    let mut keys = function
        .params
        .args
        .iter()
        .map(|argument| (argument, keyed(argument, schema)));
    let (argument, kind) = match function.func.name() {
        "grouping" => keys.find(|(_, kind)| kind.is_some())?,
        _ => keys.next()?,
    };
    let kind = kind?;
    let mut changed = function.clone();
    match function.func.name() {
        // What it is asked about is what is grouped by.
        "grouping" => {
            for argument in &mut changed.params.args {
                *argument = by_key(argument, schema);
            }
        }
        "count" if function.params.distinct => {
            for argument in &mut changed.params.args {
                *argument = by_key(argument, schema);
            }
        }
        name @ ("min" | "max") if kind == Keyed::Interval => {
            // The first by the keys; of equal ones the first by their form.
            let ascending = name == "min";
            let order = |expr: Expr| Sort::new(expr, ascending, false);
            changed.func = first_value_udaf();
            changed.params.order_by = vec![order(kind.key(argument.clone())), order(argument.clone())];
            let there = argument.clone().is_not_null();
            changed.params.filter = Some(Box::new(match changed.params.filter.take() {
                Some(filter) => filter.and(there),
                None => there,
            }));
        }
        _ => return None,
    }
    Some(Expr::AggregateFunction(changed).alias(expr.schema_name().to_string()))
}

/// Whether an aggregate groups or counts by such a type.
fn concerns(aggregate: &Aggregate) -> bool {
    let schema = aggregate.input.schema();
    let in_sets = |expr: &Expr| match expr {
        Expr::GroupingSet(sets) => sets
            .distinct_expr()
            .iter()
            .any(|expr| keyed(expr, schema).is_some()),
        other => keyed(other, schema).is_some(),
    };
    aggregate.group_expr.iter().any(in_sets)
        || aggregate
            .aggr_expr
            .iter()
            .any(|expr| by_keys(expr, schema).is_some())
}

/// Groups by keys, and shows a form of each.
fn grouped(aggregate: Aggregate) -> Result<LogicalPlan> {
    let input_schema = Arc::clone(aggregate.input.schema());
    let output = Arc::clone(&aggregate.schema);
    // What is grouped by, in the order of the columns that come out.
    let (by, groups): (Vec<Expr>, Vec<Expr>) = match aggregate.group_expr.as_slice() {
        [Expr::GroupingSet(sets)] => {
            let by = sets.distinct_expr().into_iter().cloned().collect();
            (by, vec![Expr::GroupingSet(sets_by_keys(sets, &input_schema))])
        }
        plain => {
            let keys = plain
                .iter()
                .enumerate()
                .map(|(index, expr)| match keyed(expr, &input_schema) {
                    Some(kind) => kind.key(expr.clone()).alias(format!("key of {index}")),
                    None => expr.clone(),
                });
            (plain.to_vec(), keys.collect())
        }
    };
    let is_in_sets = matches!(groups.as_slice(), [Expr::GroupingSet(_)]);
    let mut aggregates: Vec<Expr> = aggregate
        .aggr_expr
        .iter()
        .map(|expr| by_keys(expr, &input_schema).unwrap_or_else(|| expr.clone()))
        .collect();
    for (index, expr) in by.iter().enumerate() {
        if keyed(expr, &input_schema).is_some() {
            let form = min_udaf().call(vec![expr.clone()]);
            aggregates.push(form.alias(format!("form of {index}")));
        }
    }
    let inner = LogicalPlan::Aggregate(Aggregate::try_new(aggregate.input, groups, aggregates)?);
    let mut shown = vec![];
    for index in 0..output.fields().len() {
        let (qualifier, field) = output.qualified_field(index);
        // Only `grouping` asks for it, below.
        if field.name() == Aggregate::INTERNAL_GROUPING_ID {
            continue;
        }
        let Some(kind) = by.get(index).and_then(|expr| keyed(expr, &input_schema)) else {
            shown.push(Expr::Column(Column::from((qualifier, field))));
            continue;
        };
        let mut form = Expr::Column(Column::new_unqualified(format!("form of {index}")));
        if is_in_sets {
            // Where it is not grouped by, there is no key, and no form of it is shown.
            let key = Expr::Column(Column::from(inner.schema().qualified_field(index)));
            form = when(key.is_not_null(), form).end()?;
        }
        let value = match kind {
            Keyed::Jsonb => pg_cast::udf().call(vec![form, lit("jsonb")]),
            Keyed::Interval => form,
        };
        shown.push(value.alias_qualified(qualifier.cloned(), field.name()));
    }
    Ok(LogicalPlan::Projection(Projection::try_new(
        shown,
        Arc::new(inner),
    )?))
}

/// GROUPING SETS, ROLLUP or CUBE of the keys.
fn sets_by_keys(sets: &GroupingSet, schema: &DFSchema) -> GroupingSet {
    let keys = |all: &[Expr]| all.iter().map(|expr| by_key(expr, schema)).collect::<Vec<_>>();
    match sets {
        GroupingSet::Rollup(all) => GroupingSet::Rollup(keys(all)),
        GroupingSet::Cube(all) => GroupingSet::Cube(keys(all)),
        GroupingSet::GroupingSets(sets) => {
            GroupingSet::GroupingSets(sets.iter().map(|set| keys(set)).collect())
        }
    }
}

fn join_concerns(join: &Join) -> bool {
    join.on
        .iter()
        .any(|(left, _)| keyed(left, join.left.schema()).is_some())
}

fn joined(mut join: Join) -> Result<LogicalPlan> {
    let on = join
        .on
        .iter()
        .map(|(left, right)| {
            let both = (keyed(left, join.left.schema()), keyed(right, join.right.schema()));
            match both {
                (Some(one), Some(other)) if one == other => (one.key(left.clone()), other.key(right.clone())),
                _ => (left.clone(), right.clone()),
            }
        })
        .collect();
    join.on = on;
    Ok(LogicalPlan::Join(join))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::IntervalUnit;
    use datafusion::functions_aggregate::count::count_udaf;
    use datafusion::functions_aggregate::min_max::max_udaf;
    use datafusion::logical_expr::{LogicalTableSource, col};

    fn table() -> LogicalPlanBuilder {
        let fields = vec![
            Field::new("i", DataType::Interval(IntervalUnit::MonthDayNano), true),
            Field::new("n", DataType::Int32, true),
        ];
        let source = LogicalTableSource::new(Arc::new(arrow::datatypes::Schema::new(fields)));
        LogicalPlanBuilder::scan("t", Arc::new(source), None).unwrap()
    }

    #[test]
    fn groups_are_made_by_keys() {
        let aggregates = vec![max_udaf().call(vec![col("i")]), count_udaf().call(vec![col("n")])];
        let plan = table()
            .aggregate(vec![col("i"), col("n")], aggregates)
            .unwrap()
            .build()
            .unwrap();
        let schema = Arc::clone(plan.schema());
        let changed = by_value(plan).unwrap();
        assert_eq!(changed.schema().as_arrow(), schema.as_arrow());
        assert!(
            changed
                .display_indent()
                .to_string()
                .contains("interval_sort_key(t.i)")
        );
        let plan = table().distinct().unwrap().build().unwrap();
        assert!(
            by_value(plan)
                .unwrap()
                .display_indent()
                .to_string()
                .contains("interval_sort_key(t.i)")
        );
    }

    #[test]
    fn what_has_no_keys_stays() {
        let plan = table()
            .aggregate(vec![col("n")], Vec::<Expr>::new())
            .unwrap()
            .build()
            .unwrap();
        assert_eq!(by_value(plan.clone()).unwrap(), plan);
    }
}
