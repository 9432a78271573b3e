//! `now()` in a view: where it may stand, and what takes its place while the plan is optimised.
//!
//! The optimizer would fold `now()` into the moment of planning. It is replaced by a placeholder, which the optimizer
//! moves about like a parameter and never looks into; the conditions in which it stands become temporal filters
//! ([`super::temporal`]).

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, TimeUnit};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::Result as DataFusionResult;
use datafusion::logical_expr::expr::Placeholder;
use datafusion::logical_expr::{Expr, LogicalPlan, cast};

use crate::error::{PlanError, Result};

/// No parameter can be called so.
const CLOCK: &str = "now()";

/// What is accepted.
const HINT: &str = "now() is supported in conditions of WHERE, HAVING or ON that compare now(), plus or minus a constant, \
                    with an expression over columns: ts > now() - INTERVAL '1 hour', valid_to >= current_date";

/// The type of the clock in views: times have microseconds.
pub(super) fn clock_type() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

/// The placeholder of the epoch's time.
pub(super) fn clock() -> Expr {
    let field = Field::new(CLOCK, clock_type(), false);
    Expr::Placeholder(Placeholder::new_with_field(CLOCK.into(), Some(Arc::new(field))))
}

pub(super) fn is_clock(expression: &Expr) -> bool {
    matches!(expression, Expr::Placeholder(placeholder) if placeholder.id == CLOCK)
}

/// Whether the epoch's time is somewhere in the expression.
pub(super) fn reads_clock(expression: &Expr) -> bool {
    expression.exists(|inner| Ok(is_clock(inner))).unwrap_or(false)
}

/// The expression with something else in the place of the clock.
pub(super) fn with_clock(expression: Expr, instead: &Expr) -> DataFusionResult<Expr> {
    let replaced = expression.transform_up(|inner| {
        Ok(if is_clock(&inner) {
            Transformed::yes(instead.clone())
        } else {
            Transformed::no(inner)
        })
    })?;
    Ok(replaced.data)
}

/// The refusal of a clock where none can be.
pub(super) fn misplaced() -> PlanError {
    PlanError::not_incremental("now() outside of a comparison with columns", HINT)
}

/// Puts the placeholder in the place of `now()` and its synonyms.
///
/// # Errors
/// One of them stands elsewhere than in a condition.
pub(super) fn replace(plan: LogicalPlan) -> Result<LogicalPlan> {
    let mut is_misplaced = false;
    let replaced = plan.transform_down_with_subqueries(|node| {
        let is_condition = is_condition(&node);
        node.map_expressions(|expression| {
            expression.transform_up(|inner| {
                let Some(value) = value_of(&inner) else {
                    return Ok(Transformed::no(inner));
                };
                is_misplaced |= !is_condition;
                Ok(Transformed::yes(value))
            })
        })
    })?;
    if is_misplaced {
        return Err(misplaced());
    }
    Ok(replaced.data)
}

fn is_condition(node: &LogicalPlan) -> bool {
    matches!(
        node,
        LogicalPlan::Filter(_) | LogicalPlan::Join(_) | LogicalPlan::Extension(_)
    )
}

fn value_of(expression: &Expr) -> Option<Expr> {
    let Expr::ScalarFunction(call) = expression else {
        return None;
    };
    match call.func.name() {
        "now" | "current_timestamp" | "clock_timestamp" => Some(clock()),
        "current_date" | "today" => Some(cast(clock(), DataType::Date32)),
        _ => None,
    }
}

/// Whether the clock is anywhere in a plan.
pub(super) fn is_read(plan: &LogicalPlan) -> DataFusionResult<bool> {
    let mut is_read = false;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expression| {
            is_read |= reads_clock(expression);
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    Ok(is_read)
}

/// Refuses a plan in which the clock was moved to where no filter can follow it.
///
/// # Errors
/// See [`misplaced`].
pub(super) fn check(plan: &LogicalPlan) -> Result<()> {
    let mut is_misplaced = false;
    plan.apply(|node| {
        if !is_condition(node) && !matches!(node, LogicalPlan::TableScan(_)) {
            node.apply_expressions(|expression| {
                is_misplaced |= reads_clock(expression);
                Ok(TreeNodeRecursion::Continue)
            })?;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    if is_misplaced { Err(misplaced()) } else { Ok(()) }
}
