//! Changing the expressions of a bound plan.

use datafusion::common::DFSchema;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan};

/// One node of a plan with its expressions changed from below, each by the columns that it can name. What refers to an expression
/// does so by its name, which stays.
pub(crate) fn in_expressions(
    plan: LogicalPlan,
    mut change: impl FnMut(Expr, &DFSchema) -> Result<Transformed<Expr>>,
) -> Result<Transformed<LogicalPlan>> {
    let mut schema = DFSchema::empty();
    for input in plan.inputs() {
        schema.merge(input.schema());
    }
    if let LogicalPlan::TableScan(_) = &plan {
        schema.merge(plan.schema());
    }
    let names = NamePreserver::new(&plan);
    plan.map_expressions(|expr| {
        let name = names.save(&expr);
        let expr = expr.transform_up(|expr| change(expr, &schema))?;
        Ok(expr.update_data(|expr| name.restore(expr)))
    })
}
