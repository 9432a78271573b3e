//! `x > ALL (q)` becomes `NOT (x <= ANY (q))`, which is the same in three-valued logic.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, Statement, UnaryOperator, VisitorMut};
use millrace_parser::walk::Walk;

/// Rewrites the comparisons with ALL in a statement.
pub(crate) fn as_any(statement: &mut Statement) {
    let _ = statement.walk_mut(&mut Negation);
}

struct Negation;

impl VisitorMut for Negation {
    type Break = ();

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        if let Expr::AllOp {
            left,
            compare_op,
            right,
        } = expression
            && matches!(right.as_ref(), Expr::Subquery(_))
            && let Some(negated) = negation(compare_op)
        {
            let any = Expr::AnyOp {
                left: left.clone(),
                compare_op: negated,
                right: right.clone(),
                is_some: false,
            };
            *expression = Expr::Nested(Box::new(Expr::UnaryOp {
                op: UnaryOperator::Not,
                expr: Box::new(Expr::Nested(Box::new(any))),
            }));
        }
        ControlFlow::Continue(())
    }
}

/// The comparison that holds where this one does not, NULL aside.
fn negation(operator: &BinaryOperator) -> Option<BinaryOperator> {
    Some(match operator {
        BinaryOperator::Eq => BinaryOperator::NotEq,
        BinaryOperator::NotEq => BinaryOperator::Eq,
        BinaryOperator::Lt => BinaryOperator::GtEq,
        BinaryOperator::LtEq => BinaryOperator::Gt,
        BinaryOperator::Gt => BinaryOperator::LtEq,
        BinaryOperator::GtEq => BinaryOperator::Lt,
        _ => return None,
    })
}
