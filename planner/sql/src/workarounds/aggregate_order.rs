//! Two things about the order of an aggregate.
//!
//! `array_agg(DISTINCT x)`, `string_agg(DISTINCT x, ',')`: PostgreSQL sorts to find what is there twice, so that the values come in
//! order. DataFusion looks them up in a hash table, whose order they come in.
//!
//! `first_value(x ORDER BY k, k)`, `DISTINCT ON (k) .. ORDER BY k, k`: what an aggregate is ordered by is named once.
//!
//! DataFusion leaves out the second mention in the order that an accumulator compares by, and not in the columns that the
//! accumulator is given: it panics (found by the random queries of the oracle).

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Distinct, Expr, LogicalPlan, SortExpr};

/// Aggregates that show their values one by one.
const LISTS: [&str; 2] = ["array_agg", "string_agg"];

/// The plan, in which no aggregate is ordered by one expression twice, and each that lists distinct values is ordered.
pub(crate) fn ordered_once(plan: LogicalPlan) -> Result<LogicalPlan> {
    plan.transform_up_with_subqueries(|node| {
        // DataFusion makes `first_value` of it.
        if let LogicalPlan::Distinct(Distinct::On(mut on)) = node {
            let changed = on.sort_expr.as_mut().is_some_and(once);
            let node = LogicalPlan::Distinct(Distinct::On(on));
            return Ok(if changed {
                Transformed::yes(node)
            } else {
                Transformed::no(node)
            });
        }
        if !matches!(node, LogicalPlan::Aggregate(_)) {
            return Ok(Transformed::no(node));
        }
        let names = NamePreserver::new(&node);
        node.map_expressions(|expression| {
            let name = names.save(&expression);
            let changed = expression.transform_up(aggregate)?;
            Ok(changed.update_data(|expression| name.restore(expression)))
        })
    })
    .map(|transformed| transformed.data)
}

fn aggregate(expression: Expr) -> Result<Transformed<Expr>> {
    let Expr::AggregateFunction(AggregateFunction { func, mut params }) = expression else {
        return Ok(Transformed::no(expression));
    };
    let mut changed = once(&mut params.order_by);
    if params.distinct
        && params.order_by.is_empty()
        && LISTS.contains(&func.name())
        && let Some(value) = params.args.first()
    {
        params.order_by = vec![SortExpr::new(value.clone(), true, false)];
        changed = true;
    }
    let call = Expr::AggregateFunction(AggregateFunction { func, params });
    Ok(if changed {
        Transformed::yes(call)
    } else {
        Transformed::no(call)
    })
}

/// Leaves out what stands there before. Whether there was such.
fn once(order: &mut Vec<SortExpr>) -> bool {
    let before = order.len();
    let mut seen: Vec<Expr> = vec![];
    order.retain(|sort| {
        let is_new = !seen.contains(&sort.expr);
        seen.push(sort.expr.clone());
        is_new
    });
    order.len() < before
}
