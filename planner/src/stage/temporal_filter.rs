//! Rows while their time is.

use std::fmt::Write;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::physical_expr::PhysicalExpr;

use super::description::{Description, Note, State};
use super::operator::Operator;
use super::origins::{Origin, Origins};

/// Rows while their time is: a row is emitted when it has entered by all bounds, until it leaves by one. What is to enter
/// or leave later is kept in the order of the time when it does.
#[derive(Debug, Clone)]
pub struct TemporalFilter {
    pub input: Operator,
    pub bounds: Vec<TimeBound>,
    pub schema: SchemaRef,
}

/// The moment of a row: the first at which a function of the time reaches the row's value. A row whose value is NULL never
/// passes.
#[derive(Debug, Clone)]
pub struct TimeBound {
    pub passage: Passage,
    /// Over the input's columns.
    pub value: Arc<dyn PhysicalExpr>,
    /// Of the type of `value`, over one column: the time, in microseconds UTC. It never goes back.
    pub clock: Arc<dyn PhysicalExpr>,
    /// The moment comes when the clock is past the value, not when they are equal.
    pub is_strict: bool,
    /// The condition, to be shown.
    pub condition: String,
}

/// What happens to a row at its moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passage {
    Enters,
    Leaves,
}

impl Description for TemporalFilter {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn inputs(&self) -> Vec<&Operator> {
        vec![&self.input]
    }

    fn line(&self) -> String {
        let mut conditions: Vec<&str> = self.bounds.iter().map(|bound| bound.condition.as_str()).collect();
        conditions.dedup();
        let passes = |passage| self.bounds.iter().any(|bound| bound.passage == passage);
        let rows = match (passes(Passage::Enters), passes(Passage::Leaves)) {
            (true, true) => "rows enter and leave",
            (true, false) => "rows enter",
            _ => "rows leave",
        };
        format!("TemporalFilter: {}, {rows}", conditions.join(" AND "))
    }

    fn origins(&self, inputs: &[Vec<Origin>]) -> Vec<Origin> {
        inputs[0].clone()
    }

    fn state(&self, inputs: &[Origins]) -> Option<State> {
        let mut text = format!("of ({})", inputs[0].all());
        for bound in &self.bounds {
            let passage = match bound.passage {
                Passage::Enters => "enters",
                Passage::Leaves => "leaves",
            };
            let strict = if bound.is_strict { " strictly" } else { "" };
            let _ = write!(text, ", {passage}{strict}");
        }
        Some(State {
            kind: "temporal filter",
            version: 1,
            text,
        })
    }

    fn grows(&self, inputs: &[Option<String>], _note: &mut Note<'_>) -> Option<String> {
        let stream = inputs[0].clone()?;
        // What leaves is forgotten, and what is to enter waits for a while only.
        let leaves = self.bounds.iter().any(|bound| bound.passage == Passage::Leaves);
        (!leaves).then_some(stream)
    }

    fn keeps_time(&self) -> bool {
        true
    }
}
