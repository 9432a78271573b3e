//! The map half of GROUP BY.

use arrow::datatypes::SchemaRef;

use super::aggregation::{Aggregation, ExchangeForm};
use super::description::Description;
use super::operator::Operator;
use super::origins::Origin;

/// The combiner: this epoch's partial aggregates in the map stage. Output: group columns, then each aggregate's state.
#[derive(Debug, Clone)]
pub struct PartialAggregate(pub Aggregation);

impl Description for PartialAggregate {
    fn schema(&self) -> &SchemaRef {
        &self.0.schema
    }

    fn inputs(&self) -> Vec<&Operator> {
        vec![&self.0.input]
    }

    fn line(&self) -> String {
        match self.0.exchange {
            ExchangeForm::Partial => format!("PartialAggregate: {}", self.0.words()),
            ExchangeForm::Rows => "Consolidate: equal rows as one".to_owned(),
        }
    }

    fn origins(&self, inputs: &[Vec<Origin>]) -> Vec<Origin> {
        self.0.key_origins(&inputs[0])
    }

    fn settles(&self) -> bool {
        // All changes of equal rows as one: behind a hash they are all in one task.
        let is_whole = self.0.group_columns == 0 && self.0.exchange == ExchangeForm::Rows;
        is_whole && matches!(self.0.input, Operator::Exchange(_))
    }

    fn takes_parts(&self) -> bool {
        true
    }

    fn passes_on(&self) -> bool {
        true
    }

    fn combines(&self) -> bool {
        self.0.exchange == ExchangeForm::Partial
    }
}
