//! CREATE FUNCTION, CREATE AGGREGATE and CREATE REDUCER.

use sqlparser::ast::{DataType, Expr, Ident, ObjectName};

/// `CREATE FUNCTION` and `CREATE AGGREGATE`: the body is an SQL expression over the parameters, or a query, or a text in JavaScript.
/// `CREATE REDUCER` is an aggregate in JavaScript.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateFunction {
    /// Its name.
    pub name: ObjectName,
    /// `OR REPLACE` was written.
    pub or_replace: bool,
    /// `AGGREGATE`: it is computed from the rows of a group.
    pub is_aggregate: bool,
    /// Names and types; one without a name is called `"$1"` after its place.
    pub parameters: Vec<(Ident, DataType)>,
    /// Of the last parameters, what they are if a call does not give them.
    pub defaults: Vec<Expr>,
    /// The type of the result, or of a row of it.
    pub returns: DataType,
    /// The columns of its rows, if it gives rows: `TABLE (..)`, or the one of `SETOF type`, which is called after the function.
    pub rows: Vec<(Ident, DataType)>,
    /// Whether `SETOF` was written.
    pub is_setof: bool,
    /// Whether the columns of `rows` are OUT parameters: it gives one row.
    pub is_row: bool,
    /// `STRICT`: a NULL among the arguments makes NULL.
    pub strict: bool,
    pub body: FunctionBody,
}

/// What a function does.
#[derive(Debug, Clone, PartialEq)]
pub enum FunctionBody {
    /// The expression; a query that reads relations is a subquery.
    Sql(Box<Expr>),
    /// `LANGUAGE javascript`: what stands between the braces of a function.
    Javascript(String),
}
