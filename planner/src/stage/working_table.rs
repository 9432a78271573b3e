//! The working table of a recursion, inside its body.

use arrow::datatypes::SchemaRef;

use super::description::Description;
use super::operator::Operator;
use super::origins::Origin;
use super::words::columns;

/// Inside a recursion's body: what changed in its working table. The last column is the iteration.
#[derive(Debug, Clone)]
pub struct WorkingTable {
    pub schema: SchemaRef,
}

impl Description for WorkingTable {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn inputs(&self) -> Vec<&Operator> {
        vec![]
    }

    fn line(&self) -> String {
        format!("WorkingTable: {}", columns(&self.schema))
    }

    fn origins(&self, _: &[Vec<Origin>]) -> Vec<Origin> {
        vec![]
    }
}
