//! Rows with their sessions.

use std::time::Duration;

use arrow::datatypes::SchemaRef;

use super::description::{Description, Note, State};
use super::operator::Operator;
use super::origins::{Origin, Origins};
use super::readable::readable_names;
use super::words::{flags, names};
use crate::watermark::Bound;

/// Each row with the first and the last moment of its session: the rows with its keys that are no more than the gap away from
/// one another, in a chain. The session ends at its last row plus the gap.
#[derive(Debug, Clone)]
pub struct Session {
    pub input: Operator,
    /// Input columns that tell whose session it is.
    pub keys: Vec<usize>,
    /// The input column of the time, in microseconds.
    pub time: usize,
    /// In microseconds.
    pub gap: i64,
    /// Columns of the input that reach the output; what it has beyond them are computed keys.
    pub width: usize,
    pub input_append_only: bool,
    /// A session that ends before this is final, and forgotten.
    pub closes: Option<Bound>,
    pub schema: SchemaRef,
}

impl Description for Session {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn inputs(&self) -> Vec<&Operator> {
        vec![&self.input]
    }

    fn line(&self) -> String {
        format!(
            "Session: by {}, time {}, gap {:?}{}",
            names(self.input.schema(), &self.keys),
            self.input.schema().field(self.time).name(),
            Duration::from_micros(self.gap.unsigned_abs()),
            if self.closes.is_some() {
                ", closes at its end"
            } else {
                ""
            }
        )
    }

    fn origins(&self, inputs: &[Vec<Origin>]) -> Vec<Origin> {
        let mut origins = inputs[0].clone();
        origins.truncate(self.width);
        origins
    }

    fn state(&self, inputs: &[Origins]) -> Option<State> {
        let rows = &inputs[0];
        let mut text = format!(
            "of ({}) in ({}), time {}, gap {}, width {}",
            rows.all(),
            rows.list(self.keys.iter().copied()),
            self.time,
            self.gap,
            self.width,
        );
        flags(
            &mut text,
            &[
                (self.input_append_only, "append-only"),
                (self.closes.is_some(), "closes"),
            ],
        );
        Some(State {
            kind: "session",
            version: 1,
            text,
        })
    }

    fn grows(&self, inputs: &[Option<String>], note: &mut Note<'_>) -> Option<String> {
        let stream = inputs[0].clone()?;
        if self.closes.is_none() {
            let names = readable_names(self.input.schema(), self.keys.iter().copied());
            note(format!("SESSION ({names})"), "every row", &stream);
        }
        Some(stream)
    }

    fn goes_by_watermarks(&self) -> bool {
        self.closes.is_some()
    }
}
