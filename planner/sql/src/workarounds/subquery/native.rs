//! Which subqueries DataFusion makes right joins of.

use datafusion::common::tree_node::TreeNode;
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{Expr, JoinType, LogicalPlan, Operator};

use super::bind::{contains_subquery, outer_columns};

/// Where an expression stands, which decides what DataFusion plans there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// A condition of a WHERE by itself.
    Condition,
    /// Within a condition of a WHERE.
    WithinCondition,
    /// A select list.
    SelectList,
    Elsewhere,
}

/// Whether DataFusion makes a right join of the subquery.
pub(super) fn planned_by_datafusion(expression: &Expr, input: &LogicalPlan, place: Place) -> Result<bool> {
    Ok(match expression {
        Expr::ScalarSubquery(subquery) => {
            let outer = outer_columns(&subquery.subquery)?;
            let is_here = outer.iter().all(|(_, column)| input.schema().has_column(column));
            match place {
                Place::Elsewhere => false,
                _ if outer.is_empty() => true,
                _ => is_here && is_equated_aggregate(&subquery.subquery),
            }
        }
        Expr::Exists(Exists { subquery, .. }) => {
            matches!(place, Place::Condition)
                && !outer_columns(&subquery.subquery)?.is_empty()
                && is_filtered(&subquery.subquery, input)?
        }
        Expr::InSubquery(InSubquery {
            subquery, negated, ..
        }) => {
            place == Place::Condition
                && !negated
                && (outer_columns(&subquery.subquery)?.is_empty() || is_filtered(&subquery.subquery, input)?)
        }
        _ => false,
    })
}

/// `SELECT f(agg(..)) FROM .. WHERE x = outer`: an aggregate over everything, below it filters by equality.
fn is_equated_aggregate(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => {
            !projection.expr.iter().any(Expr::contains_outer) && is_equated_aggregate(&projection.input)
        }
        // Below an alias of its own, columns that the correlation needs are not found by their names.
        LogicalPlan::SubqueryAlias(_) => false,
        LogicalPlan::Aggregate(aggregate) => {
            aggregate.group_expr.is_empty()
                && !aggregate.aggr_expr.iter().any(Expr::contains_outer)
                && filters_above(&aggregate.input, &|condition| match condition {
                    Expr::BinaryExpr(binary) => {
                        binary.op == Operator::Eq
                            && matches!(
                                (binary.left.as_ref(), binary.right.as_ref()),
                                (Expr::Column(_), Expr::OuterReferenceColumn(..))
                                    | (Expr::OuterReferenceColumn(..), Expr::Column(_))
                            )
                    }
                    _ => false,
                })
        }
        _ => false,
    }
}

/// Only filters name outer columns, and only such of the input.
fn is_filtered(plan: &LogicalPlan, input: &LogicalPlan) -> Result<bool> {
    let is_here = outer_columns(plan)?
        .iter()
        .all(|(_, column)| input.schema().has_column(column));
    Ok(is_here && filters_above(plan, &|condition| !contains_subquery(condition)))
}

/// Whether all that is correlated is a condition, for which `fits` holds, above projections, filters and inner joins.
fn filters_above(plan: &LogicalPlan, fits: &dyn Fn(&Expr) -> bool) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => {
            !projection.expr.iter().any(Expr::contains_outer) && filters_above(&projection.input, fits)
        }
        LogicalPlan::Filter(filter) => {
            split_conjunction(&filter.predicate)
                .into_iter()
                .all(|condition| !names_any_outer(condition) || fits(condition))
                && filters_above(&filter.input, fits)
        }
        LogicalPlan::Join(join) if join.join_type == JoinType::Inner => {
            !join.filter.iter().any(names_any_outer)
                && filters_above(&join.left, fits)
                && filters_above(&join.right, fits)
        }
        other => outer_columns(other).is_ok_and(|columns| columns.is_empty()),
    }
}

/// Whether an expression or a subquery in it names an outer column.
fn names_any_outer(expression: &Expr) -> bool {
    expression
        .exists(|inner| {
            Ok(match inner {
                Expr::OuterReferenceColumn(..) => true,
                Expr::Exists(Exists { subquery, .. })
                | Expr::InSubquery(InSubquery { subquery, .. })
                | Expr::ScalarSubquery(subquery)
                | Expr::SetComparison(SetComparison { subquery, .. }) => {
                    !outer_columns(&subquery.subquery)?.is_empty()
                }
                _ => false,
            })
        })
        .unwrap_or(true)
}
