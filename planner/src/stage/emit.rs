//! Rows that are held back: until they are final, or until the time is a multiple of an interval.

use std::time::Duration;

use arrow::datatypes::SchemaRef;

use super::closing::Closing;
use super::description::{Description, State};
use super::operator::Operator;
use super::origins::{Origin, Origins};
use super::words::closing_value;

/// EMIT ON WINDOW CLOSE: rows are held back until they are final.
#[derive(Debug, Clone)]
pub struct EmitOnClose {
    pub input: Operator,
    pub closing: Closing,
    pub schema: SchemaRef,
}

/// EMIT EVERY: what changes is held back until the time is a multiple of the interval, and emitted as one change.
#[derive(Debug, Clone)]
pub struct EmitEvery {
    pub input: Operator,
    /// In microseconds.
    pub every: i64,
    pub schema: SchemaRef,
}

impl Description for EmitOnClose {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn inputs(&self) -> Vec<&Operator> {
        vec![&self.input]
    }

    fn line(&self) -> String {
        format!("EmitOnClose: by {}", closing_value(&self.closing))
    }

    fn origins(&self, inputs: &[Vec<Origin>]) -> Vec<Origin> {
        inputs[0].clone()
    }

    fn state(&self, inputs: &[Origins]) -> Option<State> {
        Some(State {
            kind: "emit on close",
            version: 1,
            text: format!("of ({})", inputs[0].all()),
        })
    }

    fn goes_by_watermarks(&self) -> bool {
        true
    }
}

impl Description for EmitEvery {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn inputs(&self) -> Vec<&Operator> {
        vec![&self.input]
    }

    fn line(&self) -> String {
        format!(
            "EmitEvery: {:?}",
            Duration::from_micros(self.every.unsigned_abs())
        )
    }

    fn origins(&self, inputs: &[Vec<Origin>]) -> Vec<Origin> {
        inputs[0].clone()
    }

    fn state(&self, inputs: &[Origins]) -> Option<State> {
        Some(State {
            kind: "emit every",
            version: 1,
            text: format!("of ({}), every {}", inputs[0].all(), self.every),
        })
    }

    fn keeps_time(&self) -> bool {
        true
    }

    fn awaits_all(&self) -> bool {
        true
    }
}
