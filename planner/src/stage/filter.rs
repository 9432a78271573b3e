//! The rows for which a condition holds.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::physical_expr::PhysicalExpr;

use super::description::Description;
use super::operator::Operator;
use super::origins::Origin;

/// See the module.
#[derive(Debug, Clone)]
pub struct Filter {
    pub input: Box<Operator>,
    pub predicate: Arc<dyn PhysicalExpr>,
    pub schema: SchemaRef,
}

impl Description for Filter {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn inputs(&self) -> Vec<&Operator> {
        vec![&self.input]
    }

    fn line(&self) -> String {
        format!("Filter: {}", self.predicate)
    }

    fn origins(&self, inputs: &[Vec<Origin>]) -> Vec<Origin> {
        inputs[0].clone()
    }

    fn settles(&self) -> bool {
        false
    }

    fn takes_parts(&self) -> bool {
        true
    }

    fn passes_on(&self) -> bool {
        true
    }
}
