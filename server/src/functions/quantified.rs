//! `x = ANY ('{1,2}')`: a quoted array beside ANY or ALL has elements of the type of the other side, which is known only
//! when the comparison is bound. So it becomes one comparison with each element: `x = '1' OR x = '2'`.

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, Value};

use crate::error::SqlResult;
use crate::functions::rewrite;
use crate::types::parse::array;

/// What a comparison becomes; `None`: it has nothing to do with a quoted array.
///
/// # Errors
/// The text is not an array.
pub fn compared_with_each(expr: &Expr) -> SqlResult<Option<Expr>> {
    let (left, comparison, right, joined, nothing) = match expr {
        Expr::AnyOp {
            left,
            compare_op,
            right,
            ..
        } => (left, compare_op, right, BinaryOperator::Or, false),
        Expr::AllOp {
            left,
            compare_op,
            right,
        } => (left, compare_op, right, BinaryOperator::And, true),
        _ => return Ok(None),
    };
    let Some(text) = quoted(right) else {
        return Ok(None);
    };
    let each = array::elements(text)?.into_iter().map(|element| {
        let element = element.map_or(Expr::value(Value::Null), |text| rewrite::text(&text));
        binary(left.as_ref().clone(), comparison, element)
    });
    let whole = each.reduce(|all, next| binary(all, &joined, next));
    Ok(Some(match whole {
        Some(whole) => Expr::Nested(Box::new(whole)),
        None => Expr::value(Value::Boolean(nothing)),
    }))
}

fn binary(left: Expr, op: &BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp {
        left: Box::new(left),
        op: op.clone(),
        right: Box::new(right),
    }
}

fn quoted(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => Some(text),
            _ => None,
        },
        Expr::Nested(inner) => quoted(inner),
        _ => None,
    }
}
