//! What a view does where an expression fails, in the words of a query that does not fail: what plain DataFusion is asked.
//!
//! The only expression of the grammar that can fail is a division. With `on_error = 'null'` it is NULL where it fails, and what it
//! stands in goes on with that NULL. With `'skip'` the row that it was computed over is left out.

use std::ops::ControlFlow;

use millrace_parser::parse_expression;
use millrace_parser::walk::{Walk, walk_expressions, walk_expressions_mut};
use sqlparser::ast::{
    self, BinaryOperator, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Select, SelectItem, SetExpr,
};

/// Aggregates of the grammar whose argument may be computed.
const OVER_VALUES: [&str; 6] = ["sum", "avg", "stddev", "var_pop", "stddev_pop", "var_samp"];

/// The query whose answer a view with `on_error = 'null'` must have.
pub(super) fn without_failures(query: &ast::Query) -> ast::Query {
    let mut query = query.clone();
    guard(&mut query);
    query
}

/// The query whose answer a view with `on_error = 'skip'` must have. `None`: it has no division, or it is not certain over which rows
/// they are computed. It is in one SELECT, without order, limit and windows, whose divisions stand in its condition, in what it puts
/// out or, if it aggregates, in what is aggregated, and nowhere that is not always computed (CASE, AND, coalesce).
pub(super) fn without_failing_rows(query: &ast::Query) -> Option<ast::Query> {
    let SetExpr::Select(select) = query.body.as_ref() else {
        return None;
    };
    if query.order_by.is_some() || query.limit_clause.is_some() || query.fetch.is_some() {
        return None;
    }
    let mut found = Divisions {
        is_aggregated: is_aggregated(select)?,
        ..Divisions::default()
    };
    select.projection.iter().try_for_each(|item| match item {
        SelectItem::UnnamedExpr(value) | SelectItem::ExprWithAlias { expr: value, .. } => {
            found.of_item(value)
        }
        _ => Some(()),
    })?;
    // A condition that fails is not true: it needs no more than NULL.
    let in_condition = select.selection.as_ref().map_or(Some(0), in_condition)?;
    let all = count(query);
    if all == 0 || all != found.divisions.len() + in_condition {
        return None;
    }
    let mut query = without_failures(query);
    let SetExpr::Select(select) = query.body.as_mut() else {
        return None;
    };
    for (mut dividend, mut divisor) in found.divisions {
        guard(&mut dividend);
        guard(&mut divisor);
        let computed = format!("(({divisor}) = 0 AND ({dividend}) IS NOT NULL) IS NOT TRUE");
        let condition = match &select.selection {
            None => computed,
            Some(condition) => format!("({condition}) AND {computed}"),
        };
        select.selection = Some(parse_expression(&condition).ok()?);
    }
    Some(query)
}

/// Makes each division NULL where it fails.
fn guard(node: &mut impl Walk) {
    let _ = walk_expressions_mut(node, |expression: &mut Expr| {
        if let Some(divisor) = divisor(expression) {
            let where_possible = format!("CASE WHEN ({divisor}) <> 0 THEN {expression} END");
            // What is written so is one.
            if let Ok(where_possible) = parse_expression(&where_possible) {
                *expression = where_possible;
            }
        }
        ControlFlow::<()>::Continue(())
    });
}

fn divisor(expression: &Expr) -> Option<&Expr> {
    match expression {
        Expr::BinaryOp {
            op: BinaryOperator::Divide,
            right,
            ..
        } => Some(right),
        _ => None,
    }
}

/// The divisions anywhere inside.
fn count(node: &impl Walk) -> usize {
    let mut divisions = 0;
    let _ = walk_expressions(node, |expression| {
        divisions += usize::from(divisor(expression).is_some());
        ControlFlow::<()>::Continue(())
    });
    divisions
}

/// Whether it combines rows. `None`: it has windows.
fn is_aggregated(select: &Select) -> Option<bool> {
    let mut aggregates = matches!(&select.group_by, ast::GroupByExpr::Expressions(keys, _) if !keys.is_empty())
        || select.having.is_some();
    let mut has_windows = false;
    let _ = walk_expressions(&select.projection, |expression| {
        if let Expr::Function(function) = expression {
            has_windows |= function.over.is_some();
            aggregates |= OVER_VALUES.contains(&function.name.to_string().as_str());
        }
        ControlFlow::<()>::Continue(())
    });
    (!has_windows).then_some(aggregates)
}

/// Divisions that are computed for every row.
#[derive(Default)]
struct Divisions {
    is_aggregated: bool,
    /// What is divided, and by what.
    divisions: Vec<(Expr, Expr)>,
}

impl Divisions {
    /// Those of what a SELECT puts out.
    fn of_item(&mut self, value: &Expr) -> Option<()> {
        match value {
            _ if count(value) == 0 => Some(()),
            Expr::Function(function) if OVER_VALUES.contains(&function.name.to_string().as_str()) => {
                if function.filter.is_some() {
                    return None;
                }
                let is_aggregated = std::mem::take(&mut self.is_aggregated);
                let found = self.of_arguments(&function.args);
                self.is_aggregated = is_aggregated;
                found
            }
            _ if self.is_aggregated => None,
            _ => self.of_value(value),
        }
    }

    fn of_value(&mut self, value: &Expr) -> Option<()> {
        match value {
            _ if count(value) == 0 => Some(()),
            Expr::Nested(inner) | Expr::UnaryOp { expr: inner, .. } | Expr::Cast { expr: inner, .. } => {
                self.of_value(inner)
            }
            Expr::BinaryOp { left, op, right } if !matches!(op, BinaryOperator::And | BinaryOperator::Or) => {
                self.of_value(left)?;
                self.of_value(right)?;
                if *op == BinaryOperator::Divide {
                    self.divisions
                        .push((left.as_ref().clone(), right.as_ref().clone()));
                }
                Some(())
            }
            Expr::Function(function) if function.name.to_string() == "abs" => {
                self.of_arguments(&function.args)
            }
            _ => None,
        }
    }

    fn of_arguments(&mut self, arguments: &FunctionArguments) -> Option<()> {
        let FunctionArguments::List(list) = arguments else {
            return None;
        };
        list.args.iter().try_for_each(|argument| match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => self.of_value(value),
            _ => None,
        })
    }
}

/// The number of divisions in a condition of which each is computed and makes it not true where it fails.
fn in_condition(condition: &Expr) -> Option<usize> {
    match condition {
        Expr::Nested(inner) => in_condition(inner),
        Expr::BinaryOp {
            left,
            op: BinaryOperator::And,
            right,
        } => Some(in_condition(left)? + in_condition(right)?),
        _ => {
            let mut found = Divisions::default();
            found.of_value(condition)?;
            Some(found.divisions.len())
        }
    }
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

    #[test]
    fn the_rows_on_which_one_fails_are_left_out() {
        for (query, condition) in [
            (
                "SELECT a / b AS x FROM t",
                Some("((b) = 0 AND (a) IS NOT NULL) IS NOT TRUE"),
            ),
            (
                "SELECT sum(a / b), k FROM t GROUP BY k",
                Some("((b) = 0 AND (a) IS NOT NULL) IS NOT TRUE"),
            ),
            (
                "SELECT a / b AS x FROM t WHERE k OR a = 1",
                Some("(k OR a = 1) AND ((b) = 0 AND (a) IS NOT NULL) IS NOT TRUE"),
            ),
            (
                "SELECT a FROM t WHERE k AND a / b > 1",
                Some("k AND CASE WHEN (b) <> 0 THEN a / b END > 1"),
            ),
            ("SELECT CASE WHEN b <> 0 THEN a / b END FROM t", None),
            ("SELECT sum(a) / sum(b) FROM t", None),
            ("SELECT a / b FROM t ORDER BY 1 LIMIT 3", None),
            ("SELECT a FROM (SELECT a / b AS a FROM t) AS q", None),
            ("SELECT a FROM t WHERE k OR a / b > 1", None),
            ("SELECT a FROM t", None),
        ] {
            let skipping = without_failing_rows(&parse(query).unwrap()).map(|query| query.to_string());
            match condition {
                None => assert_eq!(skipping, None, "{query}"),
                Some(condition) => {
                    let skipping = skipping.unwrap();
                    assert!(skipping.contains(&format!("WHERE {condition}")), "{skipping}");
                }
            }
        }
    }
}
