//! The join with the other side as it is now.

use std::fmt::Write;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::physical_expr::PhysicalExpr;

use super::description::{Description, Note, State};
use super::operator::Operator;
use super::origins::{Origin, Origins};
use super::words::{flags, key_pairs, outer};

/// Each change of the left side, with the right side as it is in that epoch; later changes of the right side do not change
/// what was emitted. The rows that exist when the view is made are joined when all of them are there. Inner, or left outer.
#[derive(Debug, Clone)]
pub struct LookupJoin {
    pub left: Operator,
    pub right: Operator,
    /// Columns of each side that reach the output; what an input has beyond them are computed keys.
    pub left_width: usize,
    pub right_width: usize,
    pub is_outer: bool,
    /// Pairs of (left column, right column); both sides are exchanged by them.
    pub keys: Vec<(usize, usize)>,
    /// Over left columns, then right columns.
    pub filter: Option<Arc<dyn PhysicalExpr>>,
    pub left_append_only: bool,
    pub right_append_only: bool,
    pub schema: SchemaRef,
}

impl Description for LookupJoin {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn inputs(&self) -> Vec<&Operator> {
        vec![&self.left, &self.right]
    }

    fn line(&self) -> String {
        let filter = self
            .filter
            .as_ref()
            .map_or(String::new(), |filter| format!(", filter {filter}"));
        let kept = if self.left_append_only {
            "append-only: not stored"
        } else {
            "changing: its output is stored"
        };
        format!(
            "LookupJoin: {} on {}{filter}, left {kept}",
            outer(self.is_outer),
            key_pairs(self.left.schema(), self.right.schema(), &self.keys)
        )
    }

    fn origins(&self, inputs: &[Vec<Origin>]) -> Vec<Origin> {
        let mut left = inputs[0].clone();
        let mut right = inputs[1].clone();
        left.truncate(self.left_width);
        right.truncate(self.right_width);
        left.extend(right);
        left
    }

    fn state(&self, inputs: &[Origins]) -> Option<State> {
        let (left, right) = (&inputs[0], &inputs[1]);
        let mut text = format!("of ({}) and ({})", left.all(), right.all());
        for (from, to) in &self.keys {
            let _ = write!(text, ", {from} = {to}");
        }
        flags(
            &mut text,
            &[
                (self.is_outer, "outer"),
                (self.left_append_only, "left append-only"),
                (self.right_append_only, "right append-only"),
            ],
        );
        Some(State {
            kind: "lookup join",
            version: 1,
            text,
        })
    }

    fn grows(&self, inputs: &[Option<String>], note: &mut Note<'_>) -> Option<String> {
        let (left, right) = (&inputs[0], &inputs[1]);
        if let Some(stream) = right {
            note("JOIN .. FOR SYSTEM_TIME AS OF".into(), "every row", stream);
        }
        if let Some(stream) = left.as_ref().filter(|_| !self.left_append_only) {
            note(
                "JOIN .. FOR SYSTEM_TIME AS OF".into(),
                "the match of every row",
                stream,
            );
        }
        left.clone()
    }

    fn awaits_all(&self) -> bool {
        true
    }
}
