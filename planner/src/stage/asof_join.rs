//! The join with the nearest row in time.

use std::fmt::Write;

use arrow::datatypes::SchemaRef;

use super::description::{Description, Note, State};
use super::operator::Operator;
use super::origins::{Origin, Origins};
use super::words::{flags, key_pairs, outer};

/// Each left row with the nearest right row in time, of those with its key. Inner, or left outer.
#[derive(Debug, Clone)]
pub struct AsofJoin {
    pub left: Operator,
    pub right: Operator,
    /// As in [`super::lookup_join::LookupJoin`]; times may be computed too.
    pub left_width: usize,
    pub right_width: usize,
    pub is_outer: bool,
    pub keys: Vec<(usize, usize)>,
    /// The columns that are compared: left, right.
    pub times: (usize, usize),
    pub nearest: Nearest,
    pub left_append_only: bool,
    pub right_append_only: bool,
    pub schema: SchemaRef,
}

/// Which right row a left row of an ASOF join gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nearest {
    /// `l >= r`: the latest that is not later.
    AtOrBefore,
    /// `l > r`: the latest that is earlier.
    Before,
    /// `l <= r`: the earliest that is not earlier.
    AtOrAfter,
    /// `l < r`: the earliest that is later.
    After,
}

impl Description for AsofJoin {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn inputs(&self) -> Vec<&Operator> {
        vec![&self.left, &self.right]
    }

    fn line(&self) -> String {
        let (left, right) = (self.left.schema(), self.right.schema());
        let comparison = match self.nearest {
            Nearest::AtOrBefore => ">=",
            Nearest::Before => ">",
            Nearest::AtOrAfter => "<=",
            Nearest::After => "<",
        };
        format!(
            "AsofJoin: {} on {}, nearest {} {comparison} {}",
            outer(self.is_outer),
            key_pairs(left, right, &self.keys),
            left.field(self.times.0).name(),
            right.field(self.times.1).name()
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
        let nearest = match self.nearest {
            Nearest::AtOrBefore => "at or before",
            Nearest::Before => "before",
            Nearest::AtOrAfter => "at or after",
            Nearest::After => "after",
        };
        let (from, to) = self.times;
        let mut text = format!(
            "of ({}) and ({}), nearest {nearest} of {from} and {to}",
            left.all(),
            right.all()
        );
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
            kind: "asof join",
            version: 1,
            text,
        })
    }

    fn grows(&self, inputs: &[Option<String>], note: &mut Note<'_>) -> Option<String> {
        let (left, right) = (&inputs[0], &inputs[1]);
        for stream in left
            .iter()
            .chain(right.iter().filter(|right| left.as_ref() != Some(*right)))
        {
            note("ASOF JOIN".into(), "every row", stream);
        }
        left.clone()
    }
}
