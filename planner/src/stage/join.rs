//! The join by equal keys, both sides of which are kept.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::physical_expr::PhysicalExpr;

use super::closing::Closing;
use super::description::{Description, Note, State};
use super::flow::{Explosion, Faucet};
use super::operator::Operator;
use super::origins::{Origin, Origins};
use super::words::{closes, flags, key_pairs};

/// A join by equal keys, with an optional further condition.
#[derive(Debug, Clone)]
pub struct Join {
    pub left: Operator,
    pub right: Operator,
    /// Columns of each side that reach the output; what an input has beyond them are computed keys.
    pub left_width: usize,
    pub right_width: usize,
    pub kind: JoinKind,
    /// Pairs of (left column, right column); both sides are exchanged by them.
    pub keys: Vec<(usize, usize)>,
    /// Whether NULL keys match each other (`IS NOT DISTINCT FROM`, set operations).
    pub null_equals_null: bool,
    /// Over left columns, then right columns.
    pub filter: Option<Arc<dyn PhysicalExpr>>,
    pub left_append_only: bool,
    pub right_append_only: bool,
    /// Columns whose values are unique together in a side, if the plan proves it: a deleted row is found by them.
    pub left_key: Option<Vec<usize>>,
    pub right_key: Option<Vec<usize>>,
    /// Rows of each side that no row to come of the other one matches, and that do not change: they are forgotten.
    pub left_closes: Option<Closing>,
    pub right_closes: Option<Closing>,
    pub schema: SchemaRef,
}

/// Which rows of a side appear without a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JoinKind {
    Inner,
    Left,
    Right,
    Full,
    LeftSemi,
    LeftAnti,
    /// Every left row once, with a last column that says whether it has a match.
    LeftMark,
    RightSemi,
    RightAnti,
}

impl Description for Join {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn inputs(&self) -> Vec<&Operator> {
        vec![&self.left, &self.right]
    }

    fn line(&self) -> String {
        let (left, right) = (self.left.schema(), self.right.schema());
        let filter = self
            .filter
            .as_ref()
            .map_or(String::new(), |filter| format!(", filter {filter}"));
        let form = |append_only: bool| if append_only { "append-only" } else { "changing" };
        format!(
            "Join: {:?} on {}{filter}, left {}{}, right {}{}",
            self.kind,
            key_pairs(left, right, &self.keys),
            form(self.left_append_only),
            closes(self.left_closes.as_ref()),
            form(self.right_append_only),
            closes(self.right_closes.as_ref())
        )
    }

    fn origins(&self, inputs: &[Vec<Origin>]) -> Vec<Origin> {
        let mut left = inputs[0].clone();
        let mut right = inputs[1].clone();
        left.truncate(self.left_width);
        right.truncate(self.right_width);
        match self.kind {
            JoinKind::Inner | JoinKind::Left | JoinKind::Right | JoinKind::Full => {
                left.extend(right);
                left
            }
            JoinKind::LeftSemi | JoinKind::LeftAnti | JoinKind::LeftMark => left,
            JoinKind::RightSemi | JoinKind::RightAnti => right,
        }
    }

    fn state(&self, inputs: &[Origins]) -> Option<State> {
        let (left, right) = (&inputs[0], &inputs[1]);
        let mut text = format!(
            "{} of ({}) and ({})",
            join_kind(self.kind),
            left.all(),
            right.all()
        );
        for (from, to) in &self.keys {
            let _ = write!(text, ", {from} = {to}");
        }
        flags(
            &mut text,
            &[
                (self.null_equals_null, "NULL matches NULL"),
                (self.left_append_only, "left append-only"),
                (self.right_append_only, "right append-only"),
                (self.left_closes.is_some(), "left closes"),
                (self.right_closes.is_some(), "right closes"),
            ],
        );
        Some(State {
            kind: "join",
            version: 1,
            text,
        })
    }

    fn grows(&self, inputs: &[Option<String>], note: &mut Note<'_>) -> Option<String> {
        let (left, right) = (&inputs[0], &inputs[1]);
        let kept_left = left.iter().filter(|_| self.left_closes.is_none());
        let kept_right = right.iter().filter(|_| self.right_closes.is_none());
        let kept: BTreeSet<&String> = kept_left.chain(kept_right).collect();
        for stream in kept {
            note("JOIN".into(), "every row", stream);
        }
        match self.kind {
            JoinKind::LeftSemi | JoinKind::LeftAnti | JoinKind::LeftMark => left.clone(),
            JoinKind::RightSemi | JoinKind::RightAnti => right.clone(),
            JoinKind::Inner | JoinKind::Left | JoinKind::Right | JoinKind::Full => {
                left.clone().or_else(|| right.clone())
            }
        }
    }

    fn goes_by_watermarks(&self) -> bool {
        self.left_closes.is_some() || self.right_closes.is_some()
    }

    fn takes_parts(&self) -> bool {
        true
    }

    fn passes_on(&self) -> bool {
        true
    }

    fn multiplies(&self) -> Option<Faucet> {
        if !matches!(
            self.kind,
            JoinKind::Inner | JoinKind::Left | JoinKind::Right | JoinKind::Full
        ) {
            return None;
        }
        let (left, right): (Vec<usize>, Vec<usize>) = self.keys.iter().copied().unzip();
        let is_unique = |key: &Option<Vec<usize>>, columns: &[usize]| {
            (key.as_ref()).is_some_and(|key| key.iter().all(|column| columns.contains(column)))
        };
        let names = |side: &Operator, columns: &[usize]| -> Vec<String> {
            let names = columns.iter().map(|column| side.schema().field(*column).name());
            names.cloned().collect()
        };
        let (is_left, is_right) = (
            is_unique(&self.left_key, &left),
            is_unique(&self.right_key, &right),
        );
        let reason = match (is_left, is_right) {
            // Each row meets one at most.
            (true, true) => return None,
            (false, false) if self.keys.is_empty() => Explosion::CrossJoin,
            (false, false) => Explosion::ManyToMany {
                keys: names(&self.left, &left),
            },
            (true, false) => Explosion::OneToMany {
                keys: names(&self.left, &left),
            },
            (false, true) => Explosion::OneToMany {
                keys: names(&self.right, &right),
            },
        };
        Some(Faucet {
            is_placed: !matches!(reason, Explosion::OneToMany { .. }),
            reason,
        })
    }
}

fn join_kind(kind: JoinKind) -> &'static str {
    match kind {
        JoinKind::Inner => "inner",
        JoinKind::Left => "left",
        JoinKind::Right => "right",
        JoinKind::Full => "full",
        JoinKind::LeftSemi => "left semi",
        JoinKind::LeftAnti => "left anti",
        JoinKind::LeftMark => "left mark",
        JoinKind::RightSemi => "right semi",
        JoinKind::RightAnti => "right anti",
    }
}
