//! Rows of computed columns.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::physical_expr::PhysicalExpr;

use super::description::Description;
use super::operator::Operator;
use super::origins::{Origin, projected};

/// See the module.
#[derive(Debug, Clone)]
pub struct Project {
    pub input: Box<Operator>,
    pub expressions: Vec<Arc<dyn PhysicalExpr>>,
    pub schema: SchemaRef,
}

impl Description for Project {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn inputs(&self) -> Vec<&Operator> {
        vec![&self.input]
    }

    fn line(&self) -> String {
        let shown: Vec<String> = (self.expressions.iter().zip(self.schema.fields()))
            .map(|(expression, field)| format!("{expression} as {}", field.name()))
            .collect();
        format!("Project: {}", shown.join(", "))
    }

    fn origins(&self, inputs: &[Vec<Origin>]) -> Vec<Origin> {
        projected(&inputs[0], &self.expressions)
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
