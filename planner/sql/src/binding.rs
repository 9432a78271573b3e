//! What passes ask of whoever binds the statement.

use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::planner::object_name_to_table_reference;
use datafusion::sql::sqlparser::ast::{Expr, ObjectName, Statement};

use crate::catalog::CatalogReader;

/// What names and expressions mean, as far as rewriting has to know.
pub trait Binding {
    /// How names become relations and functions.
    fn catalog(&self) -> &dyn CatalogReader;

    /// DataFusion's plan of a statement as it stands.
    ///
    /// # Errors
    /// Unknown names, type errors and unsupported SQL, as DataFusion reports them.
    fn bind(&self, statement: &Statement) -> Result<LogicalPlan>;

    /// The value of an expression without columns.
    ///
    /// # Errors
    /// It names something, or fails.
    fn constant(&self, expression: &Expr) -> Result<ScalarValue>;

    /// The columns of a stored relation; `None`: there is none of that name.
    fn columns(&self, relation: &ObjectName) -> Option<Vec<String>> {
        let name = object_name_to_table_reference(relation.clone(), true).ok()?;
        let table = self.catalog().table(&name).ok()?;
        let schema = table.schema();
        Some(schema.fields().iter().map(|field| field.name().clone()).collect())
    }

    /// Whether two names mean one stored relation.
    fn is_same(&self, one: &ObjectName, other: &ObjectName) -> bool {
        let reference = |name: &ObjectName| object_name_to_table_reference(name.clone(), true).ok();
        match (reference(one), reference(other)) {
            (Some(one), Some(other)) => self.catalog().is_same(&one, &other),
            _ => false,
        }
    }
}
