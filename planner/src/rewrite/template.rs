//! Queries written as text, into which a pass puts parts of a statement.

use datafusion::sql::sqlparser::ast::Query;
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};

/// The query that a text of our own says.
pub(super) fn parse(sql: &str) -> Result<Query, ParserError> {
    Parser::new(&PostgreSqlDialect {})
        .try_with_sql(sql)?
        .parse_query()
        .map(|query| *query)
}
