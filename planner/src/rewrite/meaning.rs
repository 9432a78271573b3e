//! What passes over the text of a statement ask of whoever will bind it.

use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::sqlparser::ast::{Expr, ObjectName, Query};

/// What names and expressions mean, as far as rewriting has to know.
pub(crate) trait Names {
    /// The plan of a query whose other parts were rewritten already, for its columns.
    fn query(&self, query: &Query) -> Result<LogicalPlan>;

    /// The value of an expression without columns.
    fn constant(&self, expression: &Expr) -> Result<ScalarValue>;

    /// The columns of a stored relation; `None`: there is none of that name.
    fn columns(&self, relation: &ObjectName) -> Option<Vec<String>>;
}
