//! What is refused by looking at the bound query, before the optimizer folds it away.

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Expr, LogicalPlan, Volatility};

use crate::error::{PlanError, Result};

/// Refuses functions whose value changes without any input changing. The time itself is [`super::clock`]'s.
pub(super) fn check(plan: &LogicalPlan) -> Result<()> {
    let mut refused = None;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expression| {
            expression.apply(|inner| {
                if let Expr::ScalarFunction(call) = inner {
                    match call.func.signature().volatility {
                        Volatility::Immutable => {}
                        // What is left of the clock: the others became the epoch's time.
                        Volatility::Stable if call.func.name() != "current_time" => {}
                        Volatility::Stable => {
                            refused = Some(PlanError::not_incremental(
                                format!("{}()", call.func.name()),
                                "it returns to 00:00 every night; compare with now() or current_date",
                            ));
                            return Ok(TreeNodeRecursion::Stop);
                        }
                        Volatility::Volatile => {
                            refused = Some(PlanError::not_incremental(
                                format!("the volatile function {}()", call.func.name()),
                                "it returns a different value at each call, so the contents of the view \
                                 would not be defined",
                            ));
                            return Ok(TreeNodeRecursion::Stop);
                        }
                    }
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })?;
        Ok(if refused.is_some() {
            TreeNodeRecursion::Stop
        } else {
            TreeNodeRecursion::Continue
        })
    })?;
    refused.map_or(Ok(()), Err)
}
