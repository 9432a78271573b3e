//! Pieces of syntax trees that rewriting puts in the place of others.

use datafusion::sql::sqlparser::ast::{
    self, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments, Ident,
    ObjectName, ObjectNamePart, Statement, Value,
};
use millrace_postgres::error::{SqlError, SqlResult};

/// A text of ours as a query.
///
/// # Errors
/// It is none.
pub(crate) fn parsed_query(sql: &str) -> SqlResult<Box<ast::Query>> {
    let mut parsed = millrace_parser::parse(sql)?;
    match parsed.pop().map(|parsed| parsed.statement) {
        Some(millrace_parser::ast::Statement::Sql(statement)) => match *statement {
            Statement::Query(query) => Ok(query),
            other => Err(SqlError::internal(format!("{sql} became {other}"))),
        },
        _ => Err(SqlError::internal(format!("{sql} became nothing"))),
    }
}

/// A call of a function.
pub fn call(name: &str, arguments: Vec<Expr>) -> Expr {
    let args = arguments
        .into_iter()
        .map(|argument| FunctionArg::Unnamed(FunctionArgExpr::Expr(argument)))
        .collect();
    Expr::Function(Function {
        name: ObjectName(vec![ObjectNamePart::Identifier(Ident::new(name))]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args,
            clauses: vec![],
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: vec![],
    })
}

/// A string literal.
pub fn text(value: &str) -> Expr {
    Expr::value(Value::SingleQuotedString(value.to_string()))
}
