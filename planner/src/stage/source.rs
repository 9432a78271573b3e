//! The changes of a stored relation: the leaf of a map stage.

use arrow::datatypes::SchemaRef;

use super::description::Description;
use super::operator::Operator;
use super::origins::Origin;
use super::words::columns;
use crate::relation_id::RelationId;

/// The changes of a stored relation in this epoch.
#[derive(Debug, Clone)]
pub struct Source {
    pub relation: RelationId,
    pub name: String,
    pub projection: Vec<usize>,
    pub schema: SchemaRef,
}

impl Description for Source {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn inputs(&self) -> Vec<&Operator> {
        vec![]
    }

    fn line(&self) -> String {
        format!("Source: {} {}", self.name, columns(&self.schema))
    }

    fn origins(&self, _: &[Vec<Origin>]) -> Vec<Origin> {
        let columns = self.projection.iter();
        columns
            .map(|column| Origin::Stored(self.relation, *column))
            .collect()
    }

    fn settles(&self) -> bool {
        // Whoever asks knows the relation.
        false
    }
}
