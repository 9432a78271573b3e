//! Quoted literals in `x IN (..)` and `x BETWEEN .. AND ..`, read by the type of `x`.
//!
//! Operators are planned one by one and have their literals read then (see [`crate::arithmetic`]). These two have no such
//! hook, so that a bound plan is gone through instead; and with it the comparisons of a CASE, and of a column that is one, whose type is
//! known only then.

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, DFSchemaRef, Result, ScalarValue};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan, Operator};
use millrace_postgres::types::is_text;
use std::sync::Arc;

use crate::arithmetic::comparable;
use crate::quoted::read_as;
use crate::sql::output_types::field_of;

/// The plan, with the literals of its comparisons read.
///
/// # Errors
/// A literal is no input of its type.
pub fn read_literals(plan: LogicalPlan) -> Result<LogicalPlan> {
    plan.transform_up_with_subqueries(|node| {
        let schema: DFSchemaRef = match &node {
            LogicalPlan::Filter(filter) => Arc::clone(filter.input.schema()),
            LogicalPlan::Join(join) => Arc::new(join.left.schema().join(join.right.schema())?),
            LogicalPlan::Projection(projection) => Arc::clone(projection.input.schema()),
            _ => return Ok(Transformed::no(node)),
        };
        let names = NamePreserver::new(&node);
        node.map_expressions(|expr| {
            let name = names.save(&expr);
            let read = expr
                .transform_up(|expr| one(expr, &schema)?.transform_data(|expr| in_one_type(expr, &schema)))?;
            Ok(read.update_data(|expr| name.restore(expr)))
        })
    })
    .map(|transformed| transformed.data)
}

/// Whether an operator compares.
pub(super) fn is_comparison(operator: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(
        operator,
        Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom
    )
}

/// Whether an expression is a quoted literal.
pub(super) fn is_quoted(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(ScalarValue::Utf8(Some(_)), None))
}

/// What is compared by IN, BETWEEN and IS DISTINCT FROM, in one type with what it is compared with.
fn in_one_type(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    match expr {
        Expr::BinaryExpr(mut binary)
            if matches!(binary.op, Operator::IsDistinctFrom | Operator::IsNotDistinctFrom) =>
        {
            let (left, right) = comparable((*binary.left).clone(), (*binary.right).clone(), schema)?;
            let changed = left != *binary.left || right != *binary.right;
            (binary.left, binary.right) = (Box::new(left), Box::new(right));
            let expr = Expr::BinaryExpr(binary);
            Ok(if changed {
                Transformed::yes(expr)
            } else {
                Transformed::no(expr)
            })
        }
        Expr::Between(mut between) => {
            let tested = (*between.expr).clone();
            let (left, low) = comparable(tested.clone(), (*between.low).clone(), schema)?;
            let (right, high) = comparable(tested.clone(), (*between.high).clone(), schema)?;
            if left == tested && right == tested && low == *between.low && high == *between.high {
                return Ok(Transformed::no(Expr::Between(between)));
            }
            (between.low, between.high) = (Box::new(low.clone()), Box::new(high.clone()));
            // Each bound is compared by itself: they may be of two types.
            let above = left.gt_eq(low);
            let below = right.lt_eq(high);
            let within = above.and(below);
            Ok(Transformed::yes(if between.negated { !within } else { within }))
        }
        Expr::InList(mut list) => {
            let tested = (*list.expr).clone();
            let mut cast = tested.clone();
            for item in &mut list.list {
                let (left, right) = comparable(tested.clone(), item.clone(), schema)?;
                if left != tested {
                    cast = left;
                }
                *item = right;
            }
            if cast == tested {
                return Ok(Transformed::yes(Expr::InList(list)));
            }
            let items = std::mem::take(&mut list.list).into_iter();
            list.list = items
                .map(|item| comparable(cast.clone(), item, schema).map(|(_, item)| item))
                .collect::<Result<_>>()?;
            list.expr = Box::new(cast);
            Ok(Transformed::yes(Expr::InList(list)))
        }
        other => Ok(Transformed::no(other)),
    }
}

fn one(mut expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let is_operator = matches!(expr, Expr::BinaryExpr(_));
    let (tested, literals): (&Expr, Vec<&mut Expr>) = match &mut expr {
        Expr::InList(list) => (&list.expr, list.list.iter_mut().collect()),
        Expr::BinaryExpr(binary) if is_comparison(binary.op) && is_quoted(&binary.right) => {
            (&binary.left, vec![binary.right.as_mut()])
        }
        Expr::BinaryExpr(binary) if is_comparison(binary.op) && is_quoted(&binary.left) => {
            (&binary.right, vec![binary.left.as_mut()])
        }
        Expr::Between(between) => (&between.expr, vec![&mut between.low, &mut between.high]),
        _ => return Ok(Transformed::no(expr)),
    };
    // An outer column is not in this schema: it stays as it is.
    let Ok(field) = field_of(tested, schema) else {
        return Ok(Transformed::no(expr));
    };
    // Of other types they were read when the operator was planned.
    if is_operator && !is_text(field.data_type()) {
        return Ok(Transformed::no(expr));
    }
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
