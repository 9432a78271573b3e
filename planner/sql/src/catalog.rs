//! What planning asks of the catalog. The session answers: search path, visibility and views are its business.

use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::common::{DFSchema, TableReference};
use datafusion::error::Result;
use datafusion::logical_expr::{AggregateUDF, Expr, LogicalPlan, ScalarUDF};
use datafusion::sql::sqlparser::ast;

/// How names become relations. Implemented by the session: search path, visibility and views are its business.
pub trait CatalogReader {
    /// The provider behind a name: a `crate::RelationTable`, a `ViewTable`, or a virtual relation.
    ///
    /// # Errors
    /// The name is not known; the message suggests the nearest one.
    fn table(&self, name: &TableReference) -> Result<Arc<dyn TableProvider>>;

    /// Whether two names mean one stored relation: `t` and `public.t`.
    fn is_same(&self, one: &TableReference, other: &TableReference) -> bool {
        one == other
    }

    /// A function of SQL; `None`: there is none of that name, or it is built in.
    ///
    /// # Errors
    /// It cannot be read.
    fn function(&self, _name: &ast::ObjectName) -> Result<Option<SqlFunction>> {
        Ok(None)
    }

    /// A built-in function that sees what the names of the statement mean; `None`: it does not depend on that.
    fn scalar_function(&self, _name: &str) -> Option<Arc<ScalarUDF>> {
        None
    }

    /// What stands for a function that does not exist, and says so; `None`: the planner does.
    fn unknown_function(&self, _name: &str) -> Option<Arc<ScalarUDF>> {
        None
    }

    /// An aggregate that somebody made; `None`: it is built in.
    fn aggregate_function(&self, _name: &str) -> Option<Arc<AggregateUDF>> {
        None
    }

    /// Refuses a plan, as it was bound, that brings together types which have nothing in common.
    ///
    /// # Errors
    /// It does.
    fn check_types(&self, _plan: &LogicalPlan) -> Result<()> {
        Ok(())
    }

    /// Gives quoted literals among expressions of which one is the value the type of the others.
    ///
    /// # Errors
    /// One is no input of that type.
    fn read_literals(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        Ok(plan)
    }

    /// The same for an expression.
    ///
    /// # Errors
    /// As [`CatalogReader::check_types`].
    fn check_expression(&self, _expression: &Expr, _schema: &DFSchema) -> Result<()> {
        Ok(())
    }

    /// Whether the plan is one of a view, which goes on with NULL where an expression fails.
    fn plans_view(&self) -> bool {
        false
    }

    /// Whether a column holds the time at which its row was written (`AS PROCTIME()`).
    fn is_proctime(&self, _table: &TableReference, _column: &str) -> bool {
        false
    }
}

/// A function of SQL.
#[derive(Debug, Clone)]
pub struct SqlFunction {
    /// Folded.
    pub parameters: Vec<String>,
    /// Of the last parameters, what they are if a call does not give them.
    pub defaults: Vec<ast::Expr>,
    /// What the column of its value is called in FROM, if not as the function.
    pub column: Option<String>,
    /// Whether it gives rows, those of the subquery that the body is.
    pub gives_rows: bool,
    /// Whether the body may read relations, whose columns it would take the arguments for.
    pub reads_relations: bool,
    /// Whether the body is a call of an aggregate, which takes over what else stands in a call: DISTINCT, ORDER BY, FILTER.
    pub is_reducer: bool,
    /// The parameters are columns in it.
    pub body: ast::Expr,
}
