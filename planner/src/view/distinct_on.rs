//! `DISTINCT ON (a) .. ORDER BY a, b` as `row_number() OVER (PARTITION BY a ORDER BY b) = 1`, which is a Top-N of each
//! partition. DataFusion makes an aggregate of it, each column by itself: rows equal in the order would be mixed.

use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::{
    Distinct, DistinctOn, Expr, ExprFunctionExt, LogicalPlan, LogicalPlanBuilder, col, lit,
};

const NUMBER: &str = "__distinct_on";

pub(super) fn as_first_rows(plan: LogicalPlan) -> Result<LogicalPlan> {
    plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Distinct(Distinct::On(distinct)) => Ok(Transformed::yes(first_rows(distinct)?)),
        other => Ok(Transformed::no(other)),
    })
    .map(|transformed| transformed.data)
}

fn first_rows(distinct: DistinctOn) -> Result<LogicalPlan> {
    let order: Vec<_> = distinct
        .sort_expr
        .into_iter()
        .flatten()
        .filter(|sort| !distinct.on_expr.contains(&sort.expr))
        .collect();
    let mut number = row_number().partition_by(distinct.on_expr);
    if !order.is_empty() {
        number = number.order_by(order);
    }
    let columns: Vec<Expr> = distinct
        .select_expr
        .into_iter()
        .zip(distinct.schema.iter())
        .map(|(expression, (qualifier, field))| match &expression {
            Expr::Column(column) if column.relation.as_ref() == qualifier => expression,
            _ => expression
                .unalias()
                .alias_qualified(qualifier.cloned(), field.name()),
        })
        .collect();
    LogicalPlanBuilder::from(distinct.input)
        .window(vec![number.build()?.alias(NUMBER)])?
        .filter(col(NUMBER).eq(lit(1_u64)))?
        .project(columns)?
        .build()
}
