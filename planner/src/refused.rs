//! What DataFusion's SQL planner accepts and answers wrongly: refused before it is planned.

use std::ops::ControlFlow;

use datafusion::error::{DataFusionError, Result};
use datafusion::sql::sqlparser::ast::{
    Expr, Query, SetExpr, SetOperator, SetQuantifier, Statement, TableFactor, Visit, Visitor,
};

/// Refuses a statement that would be answered wrongly.
///
/// # Errors
/// `NotImplemented`, naming the construct.
pub(crate) fn check(statement: &Statement) -> Result<()> {
    match statement.visit(&mut Refuser) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(construct) => Err(DataFusionError::NotImplemented(construct)),
    }
}

struct Refuser;

impl Visitor for Refuser {
    type Break = String;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<String> {
        set_operations(&query.body)
    }

    fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<String> {
        match expression {
            // The planner's rewrite keeps too few rows.
            Expr::AllOp { right, .. } if matches!(right.as_ref(), Expr::Subquery(_)) => ControlFlow::Break(
                "a comparison with ALL (subquery) is not supported; compare with the subquery's min() or max()".into(),
            ),
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<String> {
        match factor {
            // The planner reads over the clause and returns every row.
            TableFactor::Table { sample: Some(_), .. } | TableFactor::Derived { sample: Some(_), .. } => {
                ControlFlow::Break("TABLESAMPLE is not supported".into())
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

/// The planner makes a semi or anti join of both, which keeps or drops all copies of a row instead of counting them.
fn set_operations(body: &SetExpr) -> ControlFlow<String> {
    let SetExpr::SetOperation {
        op,
        set_quantifier,
        left,
        right,
    } = body
    else {
        return ControlFlow::Continue(());
    };
    if matches!(set_quantifier, SetQuantifier::All | SetQuantifier::AllByName)
        && matches!(
            op,
            SetOperator::Except | SetOperator::Intersect | SetOperator::Minus
        )
    {
        return ControlFlow::Break(format!("{op} ALL is not supported; {op} without ALL is"));
    }
    set_operations(left)?;
    set_operations(right)
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    #[test]
    fn only_what_would_be_wrong_is_refused() {
        let refused = |sql: &str| {
            let statement = Parser::parse_sql(&PostgreSqlDialect {}, sql).unwrap().remove(0);
            check(&statement).err().map(|error| error.strip_backtrace())
        };
        assert!(
            refused("SELECT 1 EXCEPT ALL SELECT 1")
                .unwrap()
                .contains("EXCEPT ALL")
        );
        assert!(refused("SELECT * FROM (SELECT 1 UNION (SELECT 2 INTERSECT ALL SELECT 2)) x").is_some());
        assert!(
            refused("SELECT * FROM t TABLESAMPLE BERNOULLI (10)")
                .unwrap()
                .contains("TABLESAMPLE")
        );
        assert_eq!(
            refused("SELECT 1 EXCEPT SELECT 1 UNION ALL SELECT 2 INTERSECT SELECT 2"),
            None
        );
    }
}
