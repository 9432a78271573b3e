//! What sqlparser reads and PostgreSQL does not: refused as soon as it is read, with PostgreSQL's errors.
//!
//! | written | what is wrong |
//! |---|---|
//! | `SELECT 'foo' 'bar'`, `FROM t 'x'` | a literal is no alias |
//! | `SELECT DISTINCT FROM t` | rows without columns cannot be told apart |
//! | `a JOIN b` | a join needs ON or USING |
//! | `INSERT t VALUES (1)` | INTO |
//! | `position('a', 'abc')`, `extract(x, y)` | these have words between their arguments |
//! | `ORDER BY 'x'`, `GROUP BY 'x'`, `DISTINCT ON ('x')` | a constant that counts no column |
//! | `GROUP BY rank() OVER ()` | windows are computed over groups |
//! | `SELECT .. UNION SELECT .. ORDER BY a + 1` | only what is put out can order it |

use std::ops::ControlFlow;

use sqlparser::ast::{
    Distinct, Expr, Function, FunctionArguments, GroupByExpr, Ident, Join, JoinConstraint, JoinOperator,
    ObjectNamePart, OrderByKind, Query, Select, SelectItem, SetExpr, Spanned, Statement, TableFactor, Value,
    Visitor,
};
use sqlparser::tokenizer::Location;

use crate::error::Failure;
use crate::walk::Walk;

/// Refuses them in a statement, or a query.
pub(crate) fn check(node: &impl Walk) -> Result<(), Failure> {
    match node.walk(&mut Rules) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(failure) => Err(failure),
    }
}

struct Rules;

impl Visitor for Rules {
    type Break = Failure;

    fn pre_visit_statement(&mut self, statement: &Statement) -> ControlFlow<Failure> {
        match statement {
            Statement::Insert(insert) if !insert.into && !insert.replace_into => {
                refused("INSERT needs INTO", insert.insert_token.0.span.start)
            }
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<Failure> {
        let Some(OrderByKind::Expressions(keys)) = query.order_by.as_ref().map(|order| &order.kind) else {
            return ControlFlow::Continue(());
        };
        let is_of_sets = matches!(query.body.as_ref(), SetExpr::SetOperation { .. });
        for key in keys {
            counts_a_column(&key.expr, "ORDER BY")?;
            if is_of_sets && !names_output(&key.expr) {
                let hint = "Only names of columns can be used here: add the expression to every SELECT, or put the whole in FROM.";
                return ControlFlow::Break(Failure::unsupported(
                    "invalid UNION/INTERSECT/EXCEPT ORDER BY clause",
                    key.expr.span().start,
                    hint,
                ));
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<Failure> {
        for item in &select.projection {
            if let SelectItem::ExprWithAlias { alias, .. } = item {
                is_no_literal(alias)?;
            }
        }
        if matches!(select.distinct, Some(Distinct::Distinct | Distinct::On(_)))
            && select.projection.is_empty()
        {
            return refused("DISTINCT needs columns", select.select_token.0.span.start);
        }
        if let Some(Distinct::On(keys)) = &select.distinct {
            keys.iter()
                .try_for_each(|key| counts_a_column(key, "DISTINCT ON"))?;
        }
        if let GroupByExpr::Expressions(keys, _) = &select.group_by {
            keys.iter().try_for_each(|key| key.walk(&mut Windows(0)))?;
            keys.iter().try_for_each(|key| match key {
                Expr::Rollup(sets) | Expr::Cube(sets) | Expr::GroupingSets(sets) => {
                    let mut keys = sets.iter().flatten();
                    keys.try_for_each(|key| counts_a_column(key, "GROUP BY"))
                }
                key => counts_a_column(key, "GROUP BY"),
            })?;
        }
        let mut joins = select.from.iter().flat_map(|from| &from.joins);
        joins.try_for_each(has_condition)
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<Failure> {
        match factor {
            TableFactor::Table {
                alias: Some(alias), ..
            }
            | TableFactor::Derived {
                alias: Some(alias), ..
            } => is_no_literal(&alias.name),
            TableFactor::NestedJoin { table_with_joins, .. } => {
                table_with_joins.joins.iter().try_for_each(has_condition)
            }
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<Failure> {
        match expr {
            Expr::Function(function) => has_words(function),
            _ => ControlFlow::Continue(()),
        }
    }
}

/// Refuses functions of windows, but not in the queries within.
struct Windows(usize);

impl Visitor for Windows {
    type Break = Failure;

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<Failure> {
        self.0 += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<Failure> {
        self.0 -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<Failure> {
        match expr {
            Expr::Function(function) if self.0 == 0 && function.over.is_some() => {
                let message = "window functions are not allowed in GROUP BY";
                refused(message, function.name.span().start)
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

fn refused(message: impl Into<String>, at: Location) -> ControlFlow<Failure> {
    ControlFlow::Break(Failure::invalid(message, at))
}

fn is_no_literal(alias: &Ident) -> ControlFlow<Failure> {
    match alias.quote_style {
        Some('\'') => {
            let message = format!("syntax error at or near \"'{}'\"", alias.value);
            refused(message, alias.span.start)
        }
        _ => ControlFlow::Continue(()),
    }
}

fn has_condition(join: &Join) -> ControlFlow<Failure> {
    match &join.join_operator {
        JoinOperator::Join(JoinConstraint::None)
        | JoinOperator::Inner(JoinConstraint::None)
        | JoinOperator::Left(JoinConstraint::None)
        | JoinOperator::LeftOuter(JoinConstraint::None)
        | JoinOperator::Right(JoinConstraint::None)
        | JoinOperator::RightOuter(JoinConstraint::None)
        | JoinOperator::FullOuter(JoinConstraint::None) => {
            let failure = Failure::invalid("JOIN needs ON or USING", join.relation.span().start);
            let hint = "CROSS JOIN has every pair of rows.";
            ControlFlow::Break(failure.with_hint(hint))
        }
        _ => ControlFlow::Continue(()),
    }
}

/// Functions whose arguments stand between words, by which sqlparser also reads plain calls.
fn has_words(function: &Function) -> ControlFlow<Failure> {
    const FORMS: [(&str, &str); 2] = [
        ("position", "position(text IN text)"),
        ("extract", "extract(field FROM time)"),
    ];
    let ([ObjectNamePart::Identifier(name)], FunctionArguments::List(list)) =
        (function.name.0.as_slice(), &function.args)
    else {
        return ControlFlow::Continue(());
    };
    let form = FORMS
        .iter()
        .find(|(called, _)| name.value.eq_ignore_ascii_case(called));
    match form {
        Some((_, form)) if name.quote_style.is_none() && !list.args.is_empty() => {
            refused(format!("{name} is written {form}"), name.span.start)
        }
        _ => ControlFlow::Continue(()),
    }
}

/// Refuses a constant that is no whole number.
fn counts_a_column(key: &Expr, clause: &str) -> ControlFlow<Failure> {
    let Expr::Value(constant) = inner(key) else {
        return ControlFlow::Continue(());
    };
    let counts = match &constant.value {
        Value::Number(digits, _) => digits.parse::<i32>().is_ok(),
        Value::Placeholder(_) => true,
        _ => false,
    };
    match counts {
        true => ControlFlow::Continue(()),
        false => refused(format!("non-integer constant in {clause}"), constant.span.start),
    }
}

/// Whether a key of a set operation may name one of its columns.
fn names_output(key: &Expr) -> bool {
    matches!(
        inner(key),
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Value(_)
    )
}

fn inner(expr: &Expr) -> &Expr {
    match expr {
        Expr::Nested(nested) => inner(nested),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use crate::{ParseErrorKind, parse};

    #[test]
    fn what_postgres_does_not_read() {
        for sql in [
            "SELECT 'foo' 'bar'",
            "SELECT * FROM t 'x'",
            "SELECT DISTINCT FROM t",
            "SELECT * FROM a JOIN b",
            "SELECT * FROM a LEFT JOIN b JOIN c ON true",
            "SELECT * FROM (a JOIN b) x",
            "INSERT t VALUES (1)",
            "SELECT position('a', 'abc')",
            "CREATE MATERIALIZED VIEW v AS SELECT extract(a, b) FROM t",
            "SELECT a FROM t ORDER BY 'x'",
            "SELECT a FROM t ORDER BY (1.5)",
            "SELECT a FROM t GROUP BY ROLLUP (a, NULL)",
            "SELECT DISTINCT ON (true) a FROM t",
            "SELECT a FROM t WHERE a IN (SELECT 1 ORDER BY NULL)",
            "SELECT a FROM t GROUP BY a, 1 + rank() OVER ()",
        ] {
            let error = parse(sql).expect_err(sql);
            assert_eq!(error.kind, ParseErrorKind::Syntax, "{sql}: {error}");
        }
        let error = parse("SELECT 1 AS a UNION SELECT 2 ORDER BY a + 1").expect_err("no output");
        assert_eq!(error.kind, ParseErrorKind::Unsupported);
    }

    #[test]
    fn what_postgres_reads() {
        for sql in [
            "SELECT 'foo'\n'bar'",
            "SELECT ALL FROM t",
            "SELECT FROM t",
            "SELECT * FROM a CROSS JOIN b NATURAL JOIN c, d",
            "SELECT position('a' IN 'abc'), \"position\"('a', 'b'), extract(day FROM x)",
            "SELECT a, rank() OVER (ORDER BY NULL) FROM t ORDER BY 1, (2), 'x'::text",
            "SELECT 1 AS a UNION SELECT 2 ORDER BY (a), 1",
            "SELECT 1 AS a UNION (SELECT 2 ORDER BY 1 + 1)",
            "SELECT a FROM t GROUP BY a, (SELECT max(r) FROM (SELECT rank() OVER () AS r) x)",
        ] {
            assert!(parse(sql).is_ok(), "{sql}: {:?}", parse(sql));
        }
    }
}
