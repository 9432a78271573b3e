//! Rewrites of the AST, before names are bound.
//!
//! * `FROM f(..)` of a set-returning function whose arguments name columns, or WITH ORDINALITY, becomes `UNNEST(f(..))`,
//!   which the binder lets see the relations to its left.
//! * `a EXCEPT ALL b` becomes `SELECT * FROM "EXCEPT ALL"((a), (b))`, INTERSECT likewise: DataFusion would plan an anti or
//!   semi join, which keeps or drops all copies of a row.
//! * `x > ALL (q)` becomes `NOT (x <= ANY (q))`, which is the same in three-valued logic.

use std::ops::ControlFlow;

use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments,
    Ident, ObjectName, Query, SetExpr, SetOperator, SetQuantifier, Statement, TableAlias,
    TableAliasColumnDef, TableFactor, UnaryOperator, Visit, VisitMut, Visitor, VisitorMut,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};

use super::names::resolve;
use super::windows;

/// Set-returning functions that are also functions to an array.
const SERIES: [&str; 2] = ["generate_series", "range"];

/// Whether it is the name of a function of one column, a series.
pub(super) fn is_series(name: &ObjectName) -> bool {
    let last = name.0.last().and_then(|part| part.as_ident());
    last.is_some_and(|name| SERIES.contains(&name.value.to_lowercase().as_str()))
}

/// Rewrites a statement in place.
///
/// # Errors
/// Those of [`super::names`], and of the parser on a text of this module's own.
pub(crate) fn statement(statement: &mut Statement, names: &dyn Names) -> Result<()> {
    match statement.visit(&mut Rewriter { names }) {
        ControlFlow::Continue(()) => resolve(statement, names),
        ControlFlow::Break(error) => Err(error),
    }
}

/// What names and expressions mean, as far as rewriting has to know.
pub(crate) trait Names {
    /// The plan of a query whose other parts were rewritten already, for its columns.
    fn query(&self, query: &Query) -> Result<LogicalPlan>;

    /// The value of an expression without columns.
    fn constant(&self, expression: &Expr) -> Result<ScalarValue>;

    /// The columns of a stored relation; `None`: there is none of that name.
    fn columns(&self, relation: &ObjectName) -> Option<Vec<String>>;
}

struct Rewriter<'a> {
    names: &'a dyn Names,
}

impl VisitorMut for Rewriter<'_> {
    type Break = DataFusionError;

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<DataFusionError> {
        match set_operation(&mut query.body) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(DataFusionError::SQL(Box::new(error), None)),
        }
    }

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<DataFusionError> {
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

    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<DataFusionError> {
        if let Err(error) = windows::factor(factor, &|length| self.names.constant(length)) {
            return ControlFlow::Break(error);
        }
        set_returning(factor);
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

/// Set-returning functions in FROM.
///
/// Gives `generate_series(..)` in FROM the name of its column, and makes UNNEST of it where its arguments or its
/// ordinality ask for that. With constants it stays a table function, which makes its rows one by one.
fn set_returning(factor: &mut TableFactor) {
    let (name, arguments, alias, with_ordinality, lateral) = match factor {
        TableFactor::Table {
            name,
            args: Some(args),
            alias,
            with_ordinality,
            ..
        } => (&*name, &args.args, alias, *with_ordinality, false),
        TableFactor::Function {
            name,
            args,
            alias,
            with_ordinality,
            lateral,
        } => (&*name, &*args, alias, *with_ordinality, *lateral),
        _ => return,
    };
    let Some(function) = name
        .0
        .last()
        .and_then(|part| part.as_ident())
        .map(|ident| ident.value.to_lowercase())
    else {
        return;
    };
    // After LATERAL the parser has it for a function like any other.
    if function == "unnest" {
        let array_exprs = arguments
            .iter()
            .filter_map(|argument| match argument {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(array)) => Some(array.clone()),
                _ => None,
            })
            .collect();
        *factor = TableFactor::UNNEST {
            alias: alias.clone(),
            array_exprs,
            with_offset: false,
            with_offset_alias: None,
            with_ordinality,
        };
        return;
    }
    if !SERIES.contains(&function.as_str()) {
        return;
    }
    let alias = alias.get_or_insert_with(|| TableAlias {
        explicit: true,
        name: Ident::new(function.as_str()),
        columns: vec![],
        at: None,
    });
    if !with_ordinality && !lateral && !arguments.iter().any(names_columns) {
        if alias.columns.is_empty() {
            alias.columns = vec![TableAliasColumnDef {
                name: alias.name.clone(),
                data_type: None,
            }];
        }
        return;
    }
    let call = Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new(function)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: arguments.clone(),
            clauses: vec![],
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: vec![],
    });
    let alias = Some(alias.clone());
    *factor = TableFactor::UNNEST {
        alias,
        array_exprs: vec![call],
        with_offset: false,
        with_offset_alias: None,
        with_ordinality,
    };
}

fn names_columns(argument: &FunctionArg) -> bool {
    struct Names;
    impl Visitor for Names {
        type Break = ();

        fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
            match expression {
                Expr::Identifier(_)
                | Expr::CompoundIdentifier(_)
                | Expr::CompoundFieldAccess { .. }
                | Expr::Subquery(_) => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        }
    }
    argument.visit(&mut Names).is_break()
}

/// Replaces the set operations that count copies, innermost first.
fn set_operation(body: &mut SetExpr) -> Result<(), ParserError> {
    let SetExpr::SetOperation {
        op,
        set_quantifier,
        left,
        right,
    } = body
    else {
        return Ok(());
    };
    set_operation(left)?;
    set_operation(right)?;
    let name = match op {
        SetOperator::Except | SetOperator::Minus => EXCEPT_ALL,
        SetOperator::Intersect => INTERSECT_ALL,
        SetOperator::Union => return Ok(()),
    };
    if *set_quantifier != SetQuantifier::All {
        return Ok(());
    }
    let operand = |side: &SetExpr| -> Result<FunctionArg, ParserError> {
        let query = match side {
            SetExpr::Query(query) => query.as_ref().clone(),
            other => {
                let mut query = parse("SELECT 1")?;
                *query.body = other.clone();
                query
            }
        };
        Ok(FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Subquery(
            Box::new(query),
        ))))
    };
    let arguments = vec![operand(left)?, operand(right)?];
    let mut query = parse("SELECT * FROM t")?;
    if let SetExpr::Select(select) = query.body.as_mut()
        && let Some(from) = select.from.first_mut()
    {
        from.relation = TableFactor::Function {
            lateral: false,
            name: ObjectName::from(vec![Ident::with_quote('"', name)]),
            args: arguments,
            with_ordinality: false,
            alias: None,
        };
    }
    *body = *query.body;
    Ok(())
}

/// The relation that stands for EXCEPT ALL of its two arguments.
pub(super) const EXCEPT_ALL: &str = "EXCEPT ALL";
/// The relation that stands for INTERSECT ALL of its two arguments.
pub(super) const INTERSECT_ALL: &str = "INTERSECT ALL";

pub(super) fn parse(sql: &str) -> Result<Query, ParserError> {
    Parser::new(&PostgreSqlDialect {})
        .try_with_sql(sql)?
        .parse_query()
        .map(|query| *query)
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::common::plan_err;

    struct NoNames;

    impl Names for NoNames {
        fn query(&self, query: &Query) -> Result<LogicalPlan> {
            plan_err!("nothing is known of {query}")
        }

        fn constant(&self, expression: &Expr) -> Result<ScalarValue> {
            plan_err!("nothing is known of {expression}")
        }

        fn columns(&self, _: &ObjectName) -> Option<Vec<String>> {
            None
        }
    }

    fn rewritten(sql: &str) -> String {
        let mut parsed = Parser::parse_sql(&PostgreSqlDialect {}, sql).unwrap().remove(0);
        statement(&mut parsed, &NoNames).unwrap();
        parsed.to_string()
    }

    #[test]
    fn a_series_over_columns_is_unnested() {
        assert_eq!(
            rewritten("SELECT * FROM t, generate_series(1, t.n) AS g(x)"),
            "SELECT * FROM t, UNNEST(generate_series(1, t.n)) AS g (x)"
        );
        assert_eq!(
            rewritten("SELECT * FROM generate_series(1, 3)"),
            "SELECT * FROM generate_series(1, 3) AS generate_series (generate_series)"
        );
        assert_eq!(
            rewritten("SELECT * FROM generate_series(1, 3) WITH ORDINALITY AS g"),
            "SELECT * FROM UNNEST(generate_series(1, 3)) WITH ORDINALITY AS g"
        );
    }

    #[test]
    fn set_operations_that_count_copies_become_relations() {
        assert_eq!(
            rewritten("SELECT 1 EXCEPT ALL SELECT 2 UNION SELECT 3"),
            "SELECT * FROM \"EXCEPT ALL\"((SELECT 1), (SELECT 2)) UNION SELECT 3"
        );
        assert_eq!(
            rewritten("SELECT 1 EXCEPT SELECT 2 UNION ALL SELECT 3"),
            "SELECT 1 EXCEPT SELECT 2 UNION ALL SELECT 3"
        );
    }

    #[test]
    fn the_column_that_using_merges_is_that_of_the_row() {
        assert_eq!(
            rewritten(
                "SELECT k, x FROM a FULL JOIN b USING (k) LEFT JOIN c USING (k) WHERE k > 1 ORDER BY k"
            ),
            "SELECT coalesce(a.k, b.k) AS k, x FROM a FULL JOIN b ON a.k = b.k LEFT JOIN c ON coalesce(a.k, b.k) = c.k \
             WHERE coalesce(a.k, b.k) > 1 ORDER BY k"
        );
        assert_eq!(
            rewritten("SELECT * FROM a AS l RIGHT JOIN b USING (k, m)"),
            "SELECT b.k, b.m, l.* EXCEPT (k, m), b.* EXCEPT (k, m) FROM a AS l RIGHT JOIN b ON l.k = b.k AND l.m = b.m"
        );
        assert_eq!(
            rewritten("SELECT k FROM a LEFT JOIN b USING(k) GROUP BY k ORDER BY k + 1"),
            "SELECT a.k FROM a LEFT JOIN b ON a.k = b.k GROUP BY a.k ORDER BY a.k + 1"
        );
        assert_eq!(
            rewritten(
                "SELECT 1 FROM a JOIN b USING (k) WHERE EXISTS (SELECT 1 FROM (SELECT 2 AS m) AS c WHERE c.m = k)"
            ),
            "SELECT 1 FROM a JOIN b ON a.k = b.k WHERE EXISTS (SELECT 1 FROM (SELECT 2 AS m) AS c WHERE c.m = a.k)"
        );
    }

    #[test]
    fn all_is_the_negation_of_any() {
        assert_eq!(
            rewritten("SELECT 1 > ALL (SELECT 2)"),
            "SELECT (NOT (1 <= ANY(SELECT 2)))"
        );
    }
}
