//! The fix-point of WITH RECURSIVE.

use arrow::datatypes::SchemaRef;

use super::description::{Description, Note, State};
use super::flow::{Explosion, Faucet};
use super::operator::Operator;
use super::origins::{Origin, Origins};
use super::words::flags;

/// A fix-point inside the epoch (WITH RECURSIVE). The working table holds the rows of every iteration: `base` is
/// iteration 0, and what `body` makes of the rows of iteration `i` is iteration `i + 1`.
#[derive(Debug, Clone)]
pub struct Recursion {
    /// The query's name.
    pub name: String,
    pub base: Operator,
    /// From changes of the working table, and of what else it reads, to changes of the recursive term's rows. The last
    /// column is the iteration of the row of the working table that a row comes from.
    pub body: Operator,
    /// UNION: a row is only in the first iteration that reaches it. Otherwise UNION ALL.
    pub distinct: bool,
    pub limits: RecursionLimits,
    pub schema: SchemaRef,
}

/// When a recursion is held to be endless. Within one epoch:
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct RecursionLimits {
    /// How many times the recursive term may follow upon itself.
    pub iterations: usize,
    /// How many rows it may make.
    pub rows: usize,
}

impl Default for RecursionLimits {
    fn default() -> Self {
        RecursionLimits {
            iterations: 10_000,
            rows: 10_000_000,
        }
    }
}

impl Description for Recursion {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn inputs(&self) -> Vec<&Operator> {
        vec![&self.base, &self.body]
    }

    fn line(&self) -> String {
        let rows = if self.distinct {
            "distinct rows"
        } else {
            "all rows"
        };
        format!("Recursion: {}, {rows}", self.name)
    }

    fn origins(&self, _: &[Vec<Origin>]) -> Vec<Origin> {
        vec![]
    }

    fn state(&self, inputs: &[Origins]) -> Option<State> {
        let mut text = inputs[0].all();
        flags(&mut text, &[(self.distinct, "distinct")]);
        Some(State {
            kind: "recursion",
            version: 1,
            text,
        })
    }

    fn grows(&self, inputs: &[Option<String>], note: &mut Note<'_>) -> Option<String> {
        let (base, body) = (&inputs[0], &inputs[1]);
        let stream = base.clone().or_else(|| body.clone())?;
        note(format!("WITH RECURSIVE {}", self.name), "every row", &stream);
        Some(stream)
    }

    fn multiplies(&self) -> Option<Faucet> {
        Some(Faucet::placed(Explosion::Recursion {
            name: self.name.clone(),
        }))
    }
}
