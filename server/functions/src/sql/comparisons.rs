//! Quoted literals in `x IN (..)` and `x BETWEEN .. AND ..`, read by the type of `x`.
//!
//! Operators are planned one by one and have their literals read then (see [`crate::arithmetic`]). These two have no such
//! hook, so that the conditions of a bound plan are gone through instead. Only conditions: they have no names that
//! other parts of the plan refer to.

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, DFSchemaRef, Result};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};
use std::sync::Arc;

use crate::arithmetic::read_as;

/// The plan, with the literals of its conditions read.
///
/// # Errors
/// A literal is no input of its type.
pub fn read_literals(plan: LogicalPlan) -> Result<LogicalPlan> {
    plan.transform_up_with_subqueries(|node| {
        let schema: DFSchemaRef = match &node {
            LogicalPlan::Filter(filter) => Arc::clone(filter.input.schema()),
            LogicalPlan::Join(join) => Arc::new(join.left.schema().join(join.right.schema())?),
            _ => return Ok(Transformed::no(node)),
        };
        node.map_expressions(|expr| expr.transform_up(|expr| one(expr, &schema)))
    })
    .map(|transformed| transformed.data)
}

fn one(mut expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let (tested, literals): (&Expr, Vec<&mut Expr>) = match &mut expr {
        Expr::InList(list) => (&list.expr, list.list.iter_mut().collect()),
        Expr::Between(between) => (&between.expr, vec![&mut between.low, &mut between.high]),
        _ => return Ok(Transformed::no(expr)),
    };
    // An outer column is not in this schema: it stays as it is.
    let Ok((_, field)) = tested.to_field(schema) else {
        return Ok(Transformed::no(expr));
    };
    let mut changed = false;
    for literal in literals {
        if let Some(read) = read_as(literal, &field)? {
            *literal = read;
            changed = true;
        }
    }
    Ok(if changed {
        Transformed::yes(expr)
    } else {
        Transformed::no(expr)
    })
}
