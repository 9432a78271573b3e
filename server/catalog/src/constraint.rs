//! CHECK constraints of tables. What is unique is known from indexes, see [`crate::IndexDef`].

use datafusion::sql::sqlparser::ast;

/// `CONSTRAINT name CHECK (expression)`.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckDef {
    /// The name, which errors give.
    pub name: String,
    /// What no row may make false.
    pub expression: ast::Expr,
}
