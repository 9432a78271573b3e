//! `rank(x) WITHIN GROUP (ORDER BY y)` and its like: where a row would stand among those of a group, if it were one of them. They are
//! counts of the rows that come before it.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments,
    OrderByExpr,
};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};

use crate::cast;
use crate::syntax::{self, call, number, text};

/// What the call is; `None`: it is another function.
///
/// # Errors
/// There are more values than things to order by, or fewer; it is what cannot be counted.
pub(super) fn counted(function: &Function) -> SqlResult<Option<Expr>> {
    let Some(name) = syntax::name_of(function) else {
        return Ok(None);
    };
    let names = ["rank", "dense_rank", "percent_rank", "cume_dist"];
    if function.within_group.is_empty() || !names.contains(&name.as_str()) {
        return Ok(None);
    }
    let values = syntax::arguments(function);
    let keys = &function.within_group;
    if values.len() != keys.len() {
        return Err(SqlError::new(
            SqlState::UndefinedFunction,
            format!("function {name} with these arguments does not exist"),
        )
        .with_hint(format!(
            "To use the hypothetical-set aggregate {name}, the number of hypothetical direct arguments (here {}) must match the \
             number of ordering columns (here {}).",
            values.len(),
            keys.len()
        )));
    }
    let before = before(&values, keys);
    let count = |condition: Option<Expr>| counting(function, vec![], condition);
    let before_it = count(Some(before.clone()));
    let double = |count: Expr| call(cast::NAME, vec![count, text("double precision")]);
    let quotient = |what: Expr, of: Expr| binary(double(what), BinaryOperator::Divide, double(of));
    let counted = match name.as_str() {
        "rank" => plus_one(before_it),
        "dense_rank" => {
            let [key] = keys.as_slice() else {
                return Err(SqlError::unsupported(
                    "dense_rank(..) WITHIN GROUP with several values is not supported",
                ));
            };
            // NULL is one of the values.
            let nulls = both(before.clone(), Expr::IsNull(Box::new(key.expr.clone())));
            let nulls = call("least", vec![count(Some(nulls)), number("1".to_owned())]);
            let values = counting(function, vec![key.expr.clone()], Some(before));
            plus_one(binary(values, BinaryOperator::Plus, nulls))
        }
        "percent_rank" => {
            let all = call("greatest", vec![count(None), number("1".to_owned())]);
            quotient(before_it, all)
        }
        _ => {
            let same = values.iter().zip(keys).map(|(value, key)| {
                Expr::IsNotDistinctFrom(Box::new(key.expr.clone()), Box::new((*value).clone()))
            });
            let same = same.reduce(both).unwrap_or(before.clone());
            let up_to_it = count(Some(binary(before, BinaryOperator::Or, same)));
            quotient(plus_one(up_to_it), plus_one(count(None)))
        }
    };
    Ok(Some(Expr::Nested(Box::new(counted))))
}

fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::Nested(Box::new(Expr::BinaryOp {
        left: Box::new(left),
        op,
        right: Box::new(right),
    }))
}

fn both(left: Expr, right: Expr) -> Expr {
    binary(left, BinaryOperator::And, right)
}

fn plus_one(count: Expr) -> Expr {
    binary(count, BinaryOperator::Plus, number("1".to_owned()))
}

/// `count(*)` or `count(DISTINCT what)` of the rows that fulfil a condition and that of the call.
fn counting(function: &Function, what: Vec<Expr>, condition: Option<Expr>) -> Expr {
    let is_of_rows = what.is_empty();
    let mut counting = call("count", what);
    if let Expr::Function(counting) = &mut counting {
        if let FunctionArguments::List(list) = &mut counting.args {
            match is_of_rows {
                true => list.args = vec![FunctionArg::Unnamed(FunctionArgExpr::Wildcard)],
                false => list.duplicate_treatment = Some(DuplicateTreatment::Distinct),
            }
        }
        let conditions = function.filter.as_deref().cloned().into_iter().chain(condition);
        counting.filter = conditions.reduce(both).map(Box::new);
    }
    counting
}

/// Whether a row comes before the one with these values.
fn before(values: &[&Expr], keys: &[OrderByExpr]) -> Expr {
    let mut before: Option<Expr> = None;
    for (value, key) in values.iter().zip(keys).rev() {
        let (value, at) = (
            Expr::Nested(Box::new((*value).clone())),
            Expr::Nested(Box::new(key.expr.clone())),
        );
        let descends = key.options.asc == Some(false);
        let op = if descends {
            BinaryOperator::Gt
        } else {
            BinaryOperator::Lt
        };
        let is_null = |expr: &Expr| Expr::IsNull(Box::new(expr.clone()));
        let is_there = |expr: &Expr| Expr::IsNotNull(Box::new(expr.clone()));
        let beside_null = match key.options.nulls_first.unwrap_or(descends) {
            true => both(is_null(&at), is_there(&value)),
            false => both(is_there(&at), is_null(&value)),
        };
        let smaller = binary(at.clone(), op, value.clone());
        let mut this = binary(smaller, BinaryOperator::Or, beside_null);
        if let Some(rest) = before {
            let same = Expr::IsNotDistinctFrom(Box::new(at), Box::new(value));
            this = binary(this, BinaryOperator::Or, both(same, rest));
        }
        before = Some(this);
    }
    before.unwrap_or_else(|| Expr::value(datafusion::sql::sqlparser::ast::Value::Boolean(false)))
}
