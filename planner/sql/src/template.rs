//! Queries into which a pass puts parts of a statement: written as text, or empty.

use datafusion::sql::sqlparser::ast::{Query, SetExpr, Values};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};

/// The query that a text of our own says.
pub(crate) fn parse(sql: &str) -> Result<Query, ParserError> {
    Parser::new(&PostgreSqlDialect {})
        .try_with_sql(sql)?
        .parse_query()
        .map(|query| *query)
}

/// A query that is nothing but its body.
pub(crate) fn bare(body: SetExpr) -> Query {
    Query {
        with: None,
        body: Box::new(body),
        order_by: None,
        limit_clause: None,
        fetch: None,
        locks: vec![],
        for_clause: None,
        settings: None,
        format_clause: None,
        pipe_operators: vec![],
    }
}

/// What stands where a body was taken from.
pub(crate) fn nothing() -> SetExpr {
    SetExpr::Values(Values {
        explicit_row: false,
        value_keyword: false,
        rows: vec![],
    })
}
