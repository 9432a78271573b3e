//! The reduce half of GROUP BY, which keeps the groups.

use arrow::datatypes::SchemaRef;

use super::aggregation::{AggregateForm, Aggregation};
use super::description::{Description, Note, State};
use super::operator::Operator;
use super::origins::{Origin, Origins};
use super::readable::{readable, readable_names};

/// Merges what arrives into keyed state and emits the retraction and the new row of every group that changed.
#[derive(Debug, Clone)]
pub struct Aggregate(pub Aggregation);

impl Description for Aggregate {
    fn schema(&self) -> &SchemaRef {
        &self.0.schema
    }

    fn inputs(&self) -> Vec<&Operator> {
        vec![&self.0.input]
    }

    fn line(&self) -> String {
        format!("Aggregate: {}", self.0.words())
    }

    fn origins(&self, inputs: &[Vec<Origin>]) -> Vec<Origin> {
        self.0.key_origins(&inputs[0])
    }

    fn state(&self, inputs: &[Origins]) -> Option<State> {
        Some(State {
            kind: "aggregate",
            version: 1,
            text: self.0.state_text(&inputs[0]),
        })
    }

    fn grows(&self, inputs: &[Option<String>], note: &mut Note<'_>) -> Option<String> {
        let aggregation = &self.0;
        let stream = inputs[0].clone()?;
        if aggregation.closes.is_some() {
            return Some(stream);
        }
        if aggregation.group_columns > 0 {
            let names = readable_names(&aggregation.schema, 0..aggregation.group_columns);
            let operator = match aggregation.calls.is_empty() {
                true => format!("DISTINCT ({names})"),
                false => format!("GROUP BY ({names})"),
            };
            note(operator, "every group", &stream);
            return Some(stream);
        }
        for call in &aggregation.calls {
            let keeps_values = call.distinct
                || matches!(
                    call.form,
                    AggregateForm::Values | AggregateForm::Min | AggregateForm::Max
                );
            if keeps_values {
                note(readable(call.function.name()), "every value", &stream);
            }
        }
        None
    }

    fn keeps_time(&self) -> bool {
        self.0.timer.is_some()
    }

    fn goes_by_watermarks(&self) -> bool {
        self.0.closes.is_some()
    }

    fn takes_parts(&self) -> bool {
        true
    }
}
