//! Queries into which a pass puts parts of a statement: written as text, or empty; and calls.

use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments, Ident, ObjectName,
    Query, SetExpr, Values,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};

/// What the query of a function is called where its rows are put in: as many columns are named as the function says.
pub const ROWS_OF_FUNCTION: &str = "rows of a function";

/// What the query of ARRAY(..) is called: it has one column.
pub const ROWS_OF_ARRAY: &str = "__array";

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

/// A call of a function.
pub(crate) fn call(name: &str, arguments: Vec<Expr>) -> Expr {
    let argument = |expr: Expr| FunctionArg::Unnamed(FunctionArgExpr::Expr(expr));
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new(name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: arguments.into_iter().map(argument).collect(),
            clauses: vec![],
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: vec![],
    })
}
