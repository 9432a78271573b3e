//! CREATE FUNCTION and CREATE AGGREGATE.

use sqlparser::ast::{DataType, Expr, Ident, ObjectName};

/// `CREATE FUNCTION` and `CREATE AGGREGATE`: the body is an SQL expression over the parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateFunction {
    /// Its name.
    pub name: ObjectName,
    /// `OR REPLACE` was written.
    pub or_replace: bool,
    /// `AGGREGATE`: it is computed from the rows of a group.
    pub is_aggregate: bool,
    /// Names and types.
    pub parameters: Vec<(Ident, DataType)>,
    /// The type of the result.
    pub returns: DataType,
    /// The expression.
    pub body: Expr,
}
