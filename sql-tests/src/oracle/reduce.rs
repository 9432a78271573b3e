//! Smaller queries than a given one: each leaves out one part, or puts a part in the place of the whole.
//!
//! Many of them do not bind or mean something else. Whoever tries them finds out.

use std::ops::ControlFlow;

use millrace_parser::walk::Walk;
use sqlparser::ast::{
    Distinct, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr, Query, Select,
    SetExpr, TableFactor, Value, VisitorMut,
};

/// The reductions of a query, the largest first.
pub fn reductions(query: &Query) -> impl Iterator<Item = Query> + use<> {
    let whole = query.clone();
    let mut next = 0;
    std::iter::from_fn(move || {
        let mut smaller = whole.clone();
        let mut reducer = Reducer {
            wanted: next,
            seen: 0,
            is_done: false,
        };
        let _ = smaller.walk_mut(&mut reducer);
        next += 1;
        reducer.is_done.then_some(smaller)
    })
    .filter({
        let whole = query.clone();
        move |smaller| *smaller != whole
    })
}

/// Counts what could be done to a query, and does one of it.
struct Reducer {
    wanted: usize,
    seen: usize,
    is_done: bool,
}

impl Reducer {
    /// Whether this is what is to be done.
    fn turn(&mut self) -> bool {
        let is_turn = !self.is_done && self.seen == self.wanted;
        self.seen += 1;
        self.is_done |= is_turn;
        is_turn
    }

    fn query(&mut self, query: &mut Query) {
        let bodies: Vec<SetExpr> = match query.body.as_ref() {
            SetExpr::SetOperation { left, right, .. } => vec![(**left).clone(), (**right).clone()],
            SetExpr::Query(inner) => vec![(*inner.body).clone()],
            SetExpr::Select(select) => derived(select),
            _ => vec![],
        };
        for body in bodies {
            if self.turn() {
                *query.body = body;
                query.order_by = None;
                query.limit_clause = None;
                return;
            }
        }
        let parts = query.with.as_ref().map_or(0, |with| with.cte_tables.len());
        for part in 0..parts {
            if self.turn()
                && let Some(with) = query.with.take()
            {
                *query = (*with.cte_tables[part].query).clone();
                return;
            }
            if self.turn()
                && let Some(with) = &mut query.with
            {
                with.cte_tables.remove(part);
                if with.cte_tables.is_empty() {
                    query.with = None;
                }
                return;
            }
        }
        // Without an order DISTINCT ON has no definite answer.
        let is_first_rows = matches!(query.body.as_ref(), SetExpr::Select(select)
            if matches!(select.distinct, Some(Distinct::On(_))));
        if (query.limit_clause.is_some() || query.order_by.is_some()) && !is_first_rows && self.turn() {
            query.limit_clause = None;
            query.order_by = None;
            return;
        }
        let mut unordered = false;
        if let SetExpr::Select(select) = query.body.as_mut() {
            unordered = self.select(select);
        }
        if unordered {
            query.order_by = None;
        }
    }

    /// Whether the query's order has become meaningless.
    fn select(&mut self, select: &mut Select) -> bool {
        if select.distinct.is_some() && self.turn() {
            let was_on = matches!(select.distinct, Some(Distinct::On(_)));
            select.distinct = None;
            return was_on;
        }
        for table in 0..select.from.len() {
            if select.from.len() > 1 && self.turn() {
                select.from.remove(table);
                return false;
            }
            for join in 0..select.from[table].joins.len() {
                if self.turn() {
                    select.from[table].joins.remove(join);
                    return false;
                }
                if join == 0 && self.turn() {
                    select.from[table].relation = select.from[table].joins.remove(0).relation;
                    return false;
                }
            }
        }
        if select.selection.is_some() && self.turn() {
            select.selection = None;
            return false;
        }
        if select.having.is_some() && self.turn() {
            select.having = None;
            return false;
        }
        if let GroupByExpr::Expressions(keys, _) = &mut select.group_by {
            for key in 0..keys.len() {
                if self.turn() {
                    keys.remove(key);
                    return false;
                }
                let sets = match &keys[key] {
                    Expr::Rollup(sets) | Expr::Cube(sets) | Expr::GroupingSets(sets) => sets.clone(),
                    _ => vec![],
                };
                if !sets.is_empty() && self.turn() {
                    keys.splice(key..=key, sets.into_iter().flatten());
                    return false;
                }
            }
        }
        if select.projection.len() > 1 {
            for item in 0..select.projection.len() {
                if self.turn() {
                    select.projection.remove(item);
                    return false;
                }
            }
        }
        false
    }

    fn expression(&mut self, expression: &mut Expr) {
        for part in parts(expression) {
            if self.turn() {
                *expression = part;
                return;
            }
        }
        let is_condition = matches!(
            expression,
            Expr::Exists { .. }
                | Expr::InSubquery { .. }
                | Expr::InList { .. }
                | Expr::Between { .. }
                | Expr::Like { .. }
                | Expr::IsNull(_)
                | Expr::IsNotNull(_)
                | Expr::IsDistinctFrom(..)
                | Expr::IsNotDistinctFrom(..)
                | Expr::AnyOp { .. }
                | Expr::BinaryOp { .. }
        );
        if is_condition && self.turn() {
            *expression = Expr::value(Value::Boolean(true));
            return;
        }
        if let Expr::Function(function) = expression {
            self.function(function);
        }
    }

    fn function(&mut self, function: &mut Function) {
        if function.filter.is_some() && self.turn() {
            function.filter = None;
            return;
        }
        if let FunctionArguments::List(list) = &mut function.args
            && list.duplicate_treatment.is_some()
            && self.turn()
        {
            list.duplicate_treatment = None;
            return;
        }
        if let Some(sqlparser::ast::WindowType::WindowSpec(window)) = &mut function.over {
            if !window.partition_by.is_empty() && self.turn() {
                window.partition_by.clear();
                return;
            }
            if window.window_frame.is_some() && self.turn() {
                window.window_frame = None;
            }
        }
    }
}

impl VisitorMut for Reducer {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        self.query(query);
        self.go_on()
    }

    fn pre_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        self.expression(expression);
        self.go_on()
    }
}

impl Reducer {
    fn go_on(&self) -> ControlFlow<()> {
        if self.is_done {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

/// The queries that a SELECT reads from.
fn derived(select: &Select) -> Vec<SetExpr> {
    let tables = select.from.iter().flat_map(|table| {
        std::iter::once(&table.relation).chain(table.joins.iter().map(|join| &join.relation))
    });
    let inner = |factor: &TableFactor| match factor {
        TableFactor::Derived { subquery, .. } if subquery.with.is_none() => Some((*subquery.body).clone()),
        _ => None,
    };
    tables.filter_map(inner).collect()
}

/// The expressions that an expression is made of.
fn parts(expression: &Expr) -> Vec<Expr> {
    match expression {
        Expr::BinaryOp { left, right, .. } => vec![(**left).clone(), (**right).clone()],
        Expr::UnaryOp { expr, .. } | Expr::Nested(expr) | Expr::Cast { expr, .. } => vec![(**expr).clone()],
        Expr::Case {
            conditions,
            else_result,
            ..
        } => {
            let results = conditions.iter().map(|when| when.result.clone());
            results
                .chain(else_result.iter().map(|result| (**result).clone()))
                .collect()
        }
        Expr::Function(function) if function.over.is_none() => match &function.args {
            FunctionArguments::List(list) => list
                .args
                .iter()
                .filter_map(|argument| match argument {
                    FunctionArg::Unnamed(FunctionArgExpr::Expr(inner)) => Some(inner.clone()),
                    _ => None,
                })
                .collect(),
            _ => vec![],
        },
        _ => vec![],
    }
}

#[cfg(test)]
mod tests {
    use crate::engine::parse;

    use super::*;

    #[test]
    fn every_part_can_go_and_every_reduction_is_smaller() {
        let query = parse(
            "WITH e AS (SELECT k FROM t WHERE k > 1 AND k < 3) SELECT DISTINCT coalesce(a.k, 2) AS c, count(*) AS n \
             FROM e AS a LEFT JOIN t AS b ON a.k = b.k GROUP BY ROLLUP (a.k) HAVING count(*) > 1",
        )
        .unwrap();
        let all: Vec<String> = reductions(&query).map(|smaller| smaller.to_string()).collect();
        let length = query.to_string().len();
        assert!(all.iter().all(|smaller| smaller.len() < length), "{all:#?}");
        let wanted = [
            "SELECT k FROM t WHERE k > 1 AND k < 3",
            "WITH e AS (SELECT k FROM t WHERE k < 3) SELECT DISTINCT coalesce(a.k, 2) AS c, count(*) AS n \
             FROM e AS a LEFT JOIN t AS b ON a.k = b.k GROUP BY ROLLUP (a.k) HAVING count(*) > 1",
            "WITH e AS (SELECT k FROM t WHERE k > 1 AND k < 3) SELECT DISTINCT a.k AS c, count(*) AS n \
             FROM e AS a LEFT JOIN t AS b ON a.k = b.k GROUP BY ROLLUP (a.k) HAVING count(*) > 1",
        ];
        for wanted in wanted {
            assert!(all.iter().any(|smaller| smaller == wanted), "{wanted}: {all:#?}");
        }
    }
}
