//! What a view does where an expression fails, in the words of a query that does not fail: what plain DataFusion is asked.
//!
//! The only expression of the grammar that can fail is a division. In a view it is NULL where it fails, and what it stands in goes on
//! with that NULL.

use std::ops::ControlFlow;

use millrace_parser::walk::walk_expressions_mut;
use sqlparser::ast::{self, BinaryOperator, Expr};

/// The query whose answer a view over this one must have.
pub(super) fn without_failures(query: &ast::Query) -> ast::Query {
    let mut query = query.clone();
    let _ = walk_expressions_mut(&mut query, |expression: &mut Expr| {
        let Expr::BinaryOp {
            op: BinaryOperator::Divide,
            right,
            ..
        } = &*expression
        else {
            return ControlFlow::<()>::Continue(());
        };
        let where_possible = format!("CASE WHEN ({right}) <> 0 THEN {expression} END");
        // What is written so is one.
        if let Ok(where_possible) = millrace_parser::parse_expression(&where_possible) {
            *expression = where_possible;
        }
        ControlFlow::Continue(())
    });
    query
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::parse;

    #[test]
    fn each_division_is_null_where_it_fails() {
        let query = parse("SELECT 1 + (a / (b / c)) FROM t").unwrap();
        let inner = "(CASE WHEN (c) <> 0 THEN b / c END)";
        let expected = format!("SELECT 1 + (CASE WHEN ({inner}) <> 0 THEN a / {inner} END) FROM t");
        assert_eq!(without_failures(&query).to_string(), expected);
    }
}
