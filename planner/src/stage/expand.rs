//! Every row once for each projection: GROUPING SETS.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::physical_expr::PhysicalExpr;

use super::description::Description;
use super::operator::Operator;
use super::origins::{Origin, in_common, projected};

/// See the module.
#[derive(Debug, Clone)]
pub struct Expand {
    pub input: Box<Operator>,
    pub projections: Vec<Vec<Arc<dyn PhysicalExpr>>>,
    pub schema: SchemaRef,
}

impl Description for Expand {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn inputs(&self) -> Vec<&Operator> {
        vec![&self.input]
    }

    fn line(&self) -> String {
        format!("Expand: {} grouping sets", self.projections.len())
    }

    fn origins(&self, inputs: &[Vec<Origin>]) -> Vec<Origin> {
        let projections = self.projections.iter();
        let known = projections.map(|expressions| projected(&inputs[0], expressions));
        known.reduce(in_common).unwrap_or_default()
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
