//! `SELECT (SELECT sum(o.x)) FROM o`: an aggregate whose arguments are columns of an outer query belongs to that query.
//!
//! DataFusion computes it in the subquery, once for each row outside. It is refused, wherever it stands.

use datafusion::common::DFSchema;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{Expr, LogicalPlan, Subquery};

/// Refuses a plan with such an aggregate.
///
/// # Errors
/// There is one.
pub(crate) fn check(plan: &LogicalPlan) -> Result<()> {
    let mut found = None;
    plan.apply_with_subqueries(|node| {
        let LogicalPlan::Aggregate(aggregate) = node else {
            return Ok(TreeNodeRecursion::Continue);
        };
        for expression in &aggregate.aggr_expr {
            expression.apply(|expr| {
                if let Expr::AggregateFunction(call) = expr
                    && is_outer(
                        call.params.args.iter().chain(call.params.filter.as_deref()),
                        aggregate.input.schema(),
                    )?
                {
                    found = Some(call.func.name().to_owned());
                    return Ok(TreeNodeRecursion::Stop);
                }
                Ok(TreeNodeRecursion::Continue)
            })?;
        }
        Ok(match found {
            Some(_) => TreeNodeRecursion::Stop,
            None => TreeNodeRecursion::Continue,
        })
    })?;
    match found {
        None => Ok(()),
        Some(name) => Err(DataFusionError::NotImplemented(format!(
            "aggregate {name}() over outer columns only is not supported in a subquery"
        ))),
    }
}

/// Whether expressions name columns of an outer query, and none of the query whose columns are `own_columns`.
fn is_outer<'e>(expressions: impl Iterator<Item = &'e Expr>, own_columns: &DFSchema) -> Result<bool> {
    let (mut own, mut outer) = (false, false);
    // What a subquery within names may be of the query around it, or of one further out.
    let mut within = |subquery: &Subquery, own: &mut bool| {
        for column in &subquery.outer_ref_columns {
            match column {
                Expr::OuterReferenceColumn(_, column) if !own_columns.has_column(column) => outer = true,
                _ => *own = true,
            }
        }
    };
    let mut is_named_directly = false;
    for expression in expressions {
        expression.apply(|expr| {
            match expr {
                Expr::Column(_) => own = true,
                Expr::OuterReferenceColumn(..) => is_named_directly = true,
                Expr::ScalarSubquery(subquery) => within(subquery, &mut own),
                Expr::Exists(exists) => within(&exists.subquery, &mut own),
                Expr::InSubquery(membership) => within(&membership.subquery, &mut own),
                _ => {}
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
    }
    Ok((outer || is_named_directly) && !own)
}
