//! What upstream stages send: the leaf of a reduce stage.

use arrow::datatypes::SchemaRef;

use super::description::Description;
use super::operator::Operator;
use super::origins::Origin;

/// What upstream stages sent to this partition. Where its columns come from, whether they are settled and why they multiply, the
/// stages say that it reads.
#[derive(Debug, Clone)]
pub struct Exchange {
    pub stages: Vec<usize>,
    pub schema: SchemaRef,
}

impl Description for Exchange {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn inputs(&self) -> Vec<&Operator> {
        vec![]
    }

    fn line(&self) -> String {
        let from: Vec<String> = self.stages.iter().map(|stage| format!("stage {stage}")).collect();
        format!("Exchange: from {}", from.join(", "))
    }

    fn origins(&self, _: &[Vec<Origin>]) -> Vec<Origin> {
        vec![]
    }

    fn settles(&self) -> bool {
        false
    }

    fn takes_parts(&self) -> bool {
        true
    }
}
