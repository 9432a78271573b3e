//! Which subqueries DataFusion makes right joins of.

use datafusion::common::tree_node::TreeNode;
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison, SetQuantifier};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{Expr, JoinType, LogicalPlan, Operator};

use super::bind::{contains_subquery, outer_columns};

/// Where an expression stands, which decides what DataFusion plans there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// A condition of a WHERE by itself.
    Condition,
    /// Within a condition of a WHERE, below nothing but AND and OR.
    Alternative,
    /// Elsewhere within a condition of a WHERE.
    WithinCondition,
    /// A select list.
    SelectList,
    Elsewhere,
}

impl Place {
    /// Whether it makes a difference if a membership is NULL or false.
    pub(super) fn tells_null(self) -> bool {
        !matches!(self, Place::Condition | Place::Alternative)
    }

    /// The place of the subqueries in a condition of a WHERE.
    pub(super) fn in_condition(condition: &Expr) -> Place {
        match condition {
            Expr::Exists(_) => Place::Condition,
            Expr::InSubquery(InSubquery { expr, .. }) if has_no_membership(expr) => Place::Condition,
            Expr::Not(inner) if matches!(inner.as_ref(), Expr::Exists(_)) => Place::Condition,
            _ if are_alternatives(condition) => Place::Alternative,
            _ => Place::WithinCondition,
        }
    }
}

/// Whether all memberships in a condition are below nothing but AND and OR.
fn are_alternatives(condition: &Expr) -> bool {
    match condition {
        Expr::BinaryExpr(binary) if matches!(binary.op, Operator::And | Operator::Or) => {
            are_alternatives(&binary.left) && are_alternatives(&binary.right)
        }
        Expr::InSubquery(InSubquery { expr, negated, .. }) => !negated && has_no_membership(expr),
        Expr::SetComparison(SetComparison { expr, quantifier, .. }) => {
            *quantifier == SetQuantifier::Any && has_no_membership(expr)
        }
        other => has_no_membership(other),
    }
}

fn has_no_membership(expression: &Expr) -> bool {
    let found = expression.exists(|inner| Ok(matches!(inner, Expr::InSubquery(_) | Expr::SetComparison(_))));
    matches!(found, Ok(false))
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
