//! Queries in forms that DataFusion answers rightly and that views can maintain: the same for a SELECT and for a view.
//!
//! ```text
//!  AST --statement--> AST --binder (relations planned by `relations`)--> logical plan --subquery--> logical plan
//! ```
//! In this order over the AST:
//! * [`windows`]: TUMBLE, HOP, CUMULATE and SESSION.
//! * [`set_returning`]: set-returning functions in FROM.
//! * [`all_subquery`]: comparisons with ALL.
//! * [`counted_sets`]: `EXCEPT ALL` and `INTERSECT ALL`.
//! * [`names`]: what names mean: joins with USING and NATURAL, what is ambiguous or hidden, aliases and numbers of the select list.
//!
//! While binding, and over the plan:
//! * [`relations`]: how the relations are planned that [`counted_sets`] and [`set_returning`] name.
//! * [`aggregate_order`]: aggregates that are ordered by one expression twice.
//! * [`subquery`], with [`dependent`] and [`row_wise`]: LATERAL, and the subqueries in expressions that DataFusion cannot plan or answers wrongly, as joins.

mod aggregate_order;
mod all_subquery;
mod bind;
mod counted_sets;
mod dependent;
mod meaning;
mod names;
mod native;
mod relations;
mod row_wise;
mod set_returning;
mod single_value;
mod subquery;
mod template;
mod windows;

use datafusion::error::Result;
use datafusion::sql::sqlparser::ast::Statement;

pub(crate) use aggregate_order::ordered_once;
pub(crate) use meaning::Names;
pub(crate) use relations::planners;
pub(crate) use subquery::{decorrelate, single_rows};
pub(crate) use windows::function as window_function;

/// Rewrites a statement in place.
///
/// # Errors
/// Those of [`windows`] and [`names`], and of the parser on a text of our own.
pub(crate) fn statement(statement: &mut Statement, names: &dyn Names) -> Result<()> {
    windows::as_queries(statement, names)?;
    set_returning::unnested(statement);
    all_subquery::as_any(statement);
    counted_sets::as_relations(statement)?;
    names::resolve(statement, names)
}

#[cfg(test)]
mod tests {
    use datafusion::common::{ScalarValue, plan_err};
    use datafusion::logical_expr::LogicalPlan;
    use datafusion::sql::sqlparser::ast::{Expr, ObjectName, Query};
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

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
