//! Functions that only the server calls, in the place of what a statement says: whether that may be done was asked there.
//!
//! A call of the server's is marked by a quotation mark of its name that no statement can have.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Expr, Function, ObjectName, ObjectNamePart, TableFactor, Visitor};
use millrace_parser::walk::{Walk, walk_expressions_mut};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};

use crate::syntax;

/// `sequence_next(session, sequence)`: the next number of a sequence; both by their numbers.
pub const SEQUENCE_NEXT: &str = "sequence_next";
/// `sequence_set(session, sequence, value, is_called)`.
pub const SEQUENCE_SET: &str = "sequence_set";
/// `sequence_current(session, sequence)`.
pub const SEQUENCE_CURRENT: &str = "sequence_current";
/// `sequence_last(session)`.
pub const SEQUENCE_LAST: &str = "sequence_last";

const ALL: [&str; 4] = [SEQUENCE_NEXT, SEQUENCE_SET, SEQUENCE_CURRENT, SEQUENCE_LAST];

/// Statements quote names with `"` alone.
const MARK: char = '`';

/// A call of one of them.
pub fn call(name: &str, arguments: Vec<Expr>) -> Expr {
    let mut call = syntax::call(name, arguments);
    if let Expr::Function(Function {
        name: ObjectName(parts),
        ..
    }) = &mut call
        && let Some(ObjectNamePart::Identifier(name)) = parts.last_mut()
    {
        name.quote_style = Some(MARK);
    }
    call
}

/// Marks the calls of a statement that the server has put together of texts. [`check`] was asked of what these are made of.
pub fn mark(node: &mut impl Walk) {
    let _ = walk_expressions_mut(node, |expr| {
        if let Expr::Function(function) = expr
            && let Some(ObjectNamePart::Identifier(name)) = function.name.0.last_mut()
            && ALL.contains(&name.value.as_str())
        {
            name.quote_style = Some(MARK);
        }
        ControlFlow::<()>::Continue(())
    });
}

/// Refuses a statement that calls one of them: for others than the server they do not exist.
///
/// # Errors
/// 42883.
pub fn check(node: &impl Walk) -> SqlResult<()> {
    match node.walk(&mut Check) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(*error),
    }
}

struct Check;

impl Visitor for Check {
    type Break = Box<SqlError>;

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<Self::Break> {
        match expr {
            Expr::Function(function) => check_name(&function.name),
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<Self::Break> {
        match factor {
            TableFactor::Table {
                name, args: Some(_), ..
            }
            | TableFactor::Function { name, .. } => check_name(name),
            _ => ControlFlow::Continue(()),
        }
    }
}

fn check_name(name: &ObjectName) -> ControlFlow<Box<SqlError>> {
    let Some(ObjectNamePart::Identifier(last)) = name.0.last() else {
        return ControlFlow::Continue(());
    };
    let folded = millrace_parser::fold(last);
    match ALL.contains(&folded.as_str()) && last.quote_style != Some(MARK) {
        true => ControlFlow::Break(Box::new(SqlError::new(
            SqlState::UndefinedFunction,
            format!("function {folded} does not exist"),
        ))),
        false => ControlFlow::Continue(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::rewrite;

    #[test]
    fn no_statement_calls_what_only_the_server_does() {
        for name in ALL {
            let quoted = format!("\"{name}\"");
            let upper = name.to_uppercase();
            for written in [name, &quoted, &upper, &format!("pg_catalog.{name}")] {
                for sql in [
                    format!("SELECT {written}(1, 2)"),
                    format!("SELECT * FROM {written}(1, 2)"),
                    format!("SELECT * FROM t, LATERAL {written}(1, 2) AS x"),
                    format!("SELECT 1 ORDER BY (SELECT 1 + {written}(1))"),
                    format!("INSERT INTO t VALUES ({written}(1, 2))"),
                ] {
                    let parsed = millrace_parser::parse(&sql).unwrap().remove(0).statement;
                    let millrace_parser::ast::Statement::Sql(mut statement) = parsed else {
                        panic!("{sql}")
                    };
                    let error = rewrite::statement(&mut statement).unwrap_err();
                    assert_eq!(error.code, SqlState::UndefinedFunction, "{sql}");
                }
            }
            rewrite::expression(&mut call(name, vec![])).unwrap();
            // Its mark is none that a statement can have.
            assert!(millrace_parser::parse(&format!("SELECT `{name}`(1)")).is_err());
        }
    }
}
