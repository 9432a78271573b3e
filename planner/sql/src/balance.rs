//! Long conditions as trees that are as deep as they have to be: `a AND b AND c AND ..` is written, and read, as a chain.
//!
//! To plan an expression takes time with its size times its depth, several times over: 400 conditions took seconds. The order in which
//! the conditions are looked at stays the same.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, Statement, Value, VisitorMut};
use millrace_parser::walk::Walk;

/// Chains of fewer conditions stay as they are.
const LONG: usize = 16;

/// Balances the chains of AND and OR.
pub(crate) fn balance(statement: &mut Statement) {
    // It never breaks.
    let _ = statement.walk_mut(&mut Balancer);
}

struct Balancer;

impl VisitorMut for Balancer {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Some(op) = chained(expr)
            && length(expr, &op) >= LONG
        {
            let mut operands = vec![];
            let mut rest = std::mem::replace(expr, Expr::Value(Value::Null.into()));
            loop {
                match rest {
                    Expr::BinaryOp { left, op: own, right } if own == op => {
                        operands.push(*right);
                        rest = *left;
                    }
                    first => {
                        operands.push(first);
                        break;
                    }
                }
            }
            operands.reverse();
            *expr = tree(operands, &op);
        }
        ControlFlow::Continue(())
    }
}

/// The operator, if it is one that chains.
fn chained(expr: &Expr) -> Option<BinaryOperator> {
    match expr {
        Expr::BinaryOp {
            op: op @ (BinaryOperator::And | BinaryOperator::Or),
            ..
        } => Some(op.clone()),
        _ => None,
    }
}

/// How often the operator stands to the left of itself.
fn length(expr: &Expr, op: &BinaryOperator) -> usize {
    let (mut length, mut next) = (0, expr);
    while let Expr::BinaryOp { left, op: own, .. } = next
        && own == op
    {
        length += 1;
        next = left;
    }
    length
}

/// Operands in their order, at least one.
fn tree(mut operands: Vec<Expr>, op: &BinaryOperator) -> Expr {
    match operands.len() {
        1 => operands.swap_remove(0),
        many => {
            let right = operands.split_off(many.div_ceil(2));
            Expr::BinaryOp {
                left: Box::new(tree(operands, op)),
                op: op.clone(),
                right: Box::new(tree(right, op)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    fn balanced(condition: &str) -> Expr {
        let sql = format!("SELECT {condition}");
        let parser = Parser::new(&PostgreSqlDialect {}).with_recursion_limit(2_000);
        let mut statements = parser.try_with_sql(&sql).unwrap().parse_statements().unwrap();
        balance(&mut statements[0]);
        let Statement::Query(query) = statements.remove(0) else {
            panic!("a query");
        };
        let select = query.body.as_select().unwrap().clone();
        let Some(datafusion::sql::sqlparser::ast::SelectItem::UnnamedExpr(expr)) =
            select.projection.into_iter().next()
        else {
            panic!("an expression");
        };
        expr
    }

    fn depth(expr: &Expr) -> usize {
        match expr {
            Expr::BinaryOp { left, right, .. } => 1 + depth(left).max(depth(right)),
            _ => 0,
        }
    }

    #[test]
    fn chains_become_trees_in_the_same_order() {
        for op in ["AND", "OR"] {
            for count in [1, 2, 15, 17, 100, 501] {
                let chain: Vec<String> = (0..count).map(|n| format!("c{n}")).collect();
                let chain = chain.join(&format!(" {op} "));
                let expr = balanced(&chain);
                assert_eq!(expr.to_string(), chain);
                let is_long = count > LONG;
                assert!(!is_long || depth(&expr) <= 10, "{count}: {}", depth(&expr));
            }
        }
    }

    #[test]
    fn chains_within_chains_are_balanced_too() {
        let ands: Vec<String> = (0..40).map(|n| format!("a{n}")).collect();
        let ands = ands.join(" AND ");
        let chain = vec![ands; 40].join(" OR ");
        let expr = balanced(&chain);
        assert_eq!(expr.to_string(), chain);
        assert!(depth(&expr) <= 13, "{}", depth(&expr));
    }
}
