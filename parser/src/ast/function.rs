//! CREATE FUNCTION and CREATE AGGREGATE.

use sqlparser::ast::{DataType, Expr, Ident, ObjectName};

/// `CREATE FUNCTION` and `CREATE AGGREGATE`: the body is an SQL expression over the parameters, or a query.
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
    /// The type of the result, or of a row of it.
    pub returns: DataType,
    /// The columns of its rows, if it gives rows: `TABLE (..)`, or the one of `SETOF type`, which is called after the function.
    pub rows: Vec<(Ident, DataType)>,
    /// The expression; a query that reads relations is a subquery.
    pub body: Expr,
}
