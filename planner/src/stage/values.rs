//! Fixed rows.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::physical_expr::PhysicalExpr;

use super::description::Description;
use super::operator::Operator;
use super::origins::Origin;

/// Fixed rows, inserted once, in the first epoch that the view sees.
#[derive(Debug, Clone)]
pub struct Values {
    pub rows: Vec<Vec<Arc<dyn PhysicalExpr>>>,
    pub schema: SchemaRef,
}

impl Description for Values {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn inputs(&self) -> Vec<&Operator> {
        vec![]
    }

    fn line(&self) -> String {
        format!("Values: {} rows", self.rows.len())
    }

    fn origins(&self, _: &[Vec<Origin>]) -> Vec<Origin> {
        vec![]
    }
}
