//! `first_value(x ORDER BY k, k)`: what an aggregate is ordered by is named once.
//!
//! DataFusion leaves out the second mention in the order that an accumulator compares by, and not in the columns that the
//! accumulator is given: it panics (found by the random queries of the oracle).

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan};

/// The plan, in which no aggregate is ordered by one expression twice.
pub(crate) fn ordered_once(plan: LogicalPlan) -> Result<LogicalPlan> {
    plan.transform_up_with_subqueries(|node| {
        if !matches!(node, LogicalPlan::Aggregate(_)) {
            return Ok(Transformed::no(node));
        }
        let names = NamePreserver::new(&node);
        node.map_expressions(|expression| {
            let name = names.save(&expression);
            let once = expression.transform_up(one)?;
            Ok(once.update_data(|expression| name.restore(expression)))
        })
    })
    .map(|transformed| transformed.data)
}

fn one(expression: Expr) -> Result<Transformed<Expr>> {
    let Expr::AggregateFunction(AggregateFunction { func, mut params }) = expression else {
        return Ok(Transformed::no(expression));
    };
    let before = params.order_by.len();
    let mut seen: Vec<Expr> = vec![];
    params.order_by.retain(|sort| {
        let is_new = !seen.contains(&sort.expr);
        seen.push(sort.expr.clone());
        is_new
    });
    let changed = params.order_by.len() < before;
    let call = Expr::AggregateFunction(AggregateFunction { func, params });
    Ok(if changed {
        Transformed::yes(call)
    } else {
        Transformed::no(call)
    })
}
