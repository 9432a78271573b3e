//! Expressions whose tree differs from what sqlparser makes of PostgreSQL's dialect.

#![allow(clippy::unwrap_used)]

use millrace_parser::parse_expression;
use sqlparser::ast::{BinaryOperator, Expr};

#[test]
fn and_ends_the_right_side_of_is_distinct_from() {
    for text in [
        "a IS DISTINCT FROM b + 1 AND c",
        "a IS NOT DISTINCT FROM b AND NOT c OR d",
    ] {
        let expression = parse_expression(text).unwrap();
        assert!(
            matches!(expression, Expr::BinaryOp { .. }),
            "{text}: {expression:?}"
        );
        assert_eq!(expression.to_string(), text);
    }
    let compared = parse_expression("a IS DISTINCT FROM b = c").unwrap();
    let Expr::IsDistinctFrom(_, right) = compared else {
        panic!("{compared:?}");
    };
    assert!(matches!(
        *right,
        Expr::BinaryOp {
            op: BinaryOperator::Eq,
            ..
        }
    ));
}
