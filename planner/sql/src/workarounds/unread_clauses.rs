//! What DataFusion's SQL planner accepts and answers wrongly: refused before it is planned. (TABLESAMPLE:
//! apache/datafusion#13563.)

use std::ops::ControlFlow;

use datafusion::error::{DataFusionError, Result};
use datafusion::sql::sqlparser::ast::{Expr, Select, Statement, TableFactor, Visitor};
use millrace_parser::walk::Walk;

/// Refuses a statement that would be answered wrongly.
///
/// # Errors
/// `NotImplemented`, naming the construct.
pub(crate) fn check(statement: &Statement) -> Result<()> {
    match statement.walk(&mut Refuser) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(construct) => Err(DataFusionError::NotImplemented(construct)),
    }
}

struct Refuser;

impl Visitor for Refuser {
    type Break = String;

    fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<String> {
        match expression {
            // Comparisons were rewritten; what is left is a pattern or an operator of an extension.
            Expr::AllOp {
                compare_op, right, ..
            } if matches!(right.as_ref(), Expr::Subquery(_)) => {
                ControlFlow::Break(format!("{compare_op} ALL (subquery) is not supported"))
            }
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<String> {
        // The parser makes CREATE TABLE AS of it where it may stand.
        match &select.into {
            Some(_) => {
                ControlFlow::Break("SELECT .. INTO is only supported at the top level of a statement".into())
            }
            None => ControlFlow::Continue(()),
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
            refused("SELECT * FROM t TABLESAMPLE BERNOULLI (10)")
                .unwrap()
                .contains("TABLESAMPLE")
        );
        assert!(
            refused("SELECT 'a' ~ ALL (SELECT 'b')")
                .unwrap()
                .contains("ALL (subquery)")
        );
        for into in [
            "SELECT * FROM (SELECT 1 INTO t) x",
            "SELECT 1 UNION SELECT 2 INTO t",
        ] {
            assert!(refused(into).unwrap().contains("INTO"), "{into}");
        }
        assert_eq!(refused("SELECT * FROM t WHERE x IN (SELECT 1)"), None);
    }
}
