//! Joins: both sides are exchanged by their keys and indexed by them.

use std::sync::Arc;

use datafusion::common::{DFSchema, JoinType, NullEquality};
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{Expr, Join as LogicalJoin, lit};

use super::clock::reads_clock;
use super::fragment::{Fragment, Part, Placement};
use super::join_time::TimeBounds;
use super::lower::{Lowering, arrow_schema};
use crate::error::{PlanError, Result};
use crate::stage::Output;
use crate::stage::join::{Join, JoinKind};
use crate::stage::operator::Operator;

impl Lowering {
    pub(super) fn join(&mut self, join: &LogicalJoin) -> Result<Fragment> {
        if let Some(fragment) = self.generic_join(join)? {
            return Ok(fragment);
        }
        let kind = match join.join_type {
            JoinType::Inner => JoinKind::Inner,
            JoinType::Left => JoinKind::Left,
            JoinType::Right => JoinKind::Right,
            JoinType::Full => JoinKind::Full,
            JoinType::LeftSemi => JoinKind::LeftSemi,
            JoinType::RightSemi => JoinKind::RightSemi,
            JoinType::LeftAnti => JoinKind::LeftAnti,
            JoinType::RightAnti => JoinKind::RightAnti,
            JoinType::LeftMark => JoinKind::LeftMark,
            JoinType::RightMark => {
                return Err(PlanError::Internal("a right mark join in a logical plan".into()));
            }
        };
        if join.null_aware {
            // The binder makes mark joins of NOT IN, whose NULLs they tell apart.
            return Err(PlanError::Internal("a null-aware join in a view's plan".into()));
        }
        let left = self.node(&join.left)?;
        let right = self.node(&join.right)?;
        let (left_width, right_width) = (left.schema.fields().len(), right.schema.fields().len());
        let (left, left_keys) =
            self.with_columns(left, join.left.schema(), join.on.iter().map(|(l, _)| l))?;
        let (right, right_keys) =
            self.with_columns(right, join.right.schema(), join.on.iter().map(|(_, r)| r))?;
        let left = self.with_some_column(left, join.left.schema())?;
        let right = self.with_some_column(right, join.right.schema())?;
        let (temporal, filter) = match &join.filter {
            Some(filter) => split_clock(filter),
            None => (None, None),
        };
        if temporal.is_some() && kind != JoinKind::Inner {
            return Err(PlanError::not_incremental(
                "now() in the condition of an outer join or of EXISTS, compared with columns of the \
                 preserved side or of both sides",
                "filter one side before the join: (SELECT .. FROM t WHERE ts > now() - ..) AS t",
            ));
        }
        let filter = match &filter {
            Some(filter) => {
                let both = join.left.schema().join(join.right.schema())?;
                Some(self.expression(filter, &both)?)
            }
            None => None,
        };
        let key = joined_key(kind, &left, &right, &left_keys, &right_keys, left_width);
        let (left_append_only, right_append_only) = (left.append_only, right.append_only);
        let in_recursion = left.reads_working_table() || right.reads_working_table();
        let (left_key, right_key) = (left.key.clone(), right.key.clone());
        let keys: Vec<(usize, usize)> = left_keys
            .iter()
            .copied()
            .zip(right_keys.iter().copied())
            .collect();
        let TimeBounds {
            left_closes,
            right_closes,
            watermarks,
        } = TimeBounds::new(
            kind,
            [&left, &right],
            [left_width, right_width],
            &keys,
            filter.as_ref(),
        );
        let exchange = |keys: &[usize]| {
            if keys.is_empty() || in_recursion {
                Output::Single
            } else {
                Output::Hash(keys.to_vec())
            }
        };
        let left = self.stages.exchange(left, exchange(&left_keys));
        let right = self.stages.exchange(right, exchange(&right_keys));
        let placement = placement(kind, &left_keys, &right_keys, left_width, right_width);
        let schema = arrow_schema(&join.schema);
        let operator = Operator::Join(Box::new(Join {
            left,
            right,
            left_width,
            right_width,
            kind,
            keys,
            null_equals_null: join.null_equality == NullEquality::NullEqualsNull,
            filter,
            left_append_only,
            right_append_only,
            left_key,
            right_key,
            left_closes,
            right_closes,
            schema: Arc::clone(&schema),
        }));
        let joined = Fragment {
            parts: vec![Part { operator, placement }],
            // A row that waits for its first match may be taken back; a pair or a match that was found may not.
            append_only: left_append_only
                && right_append_only
                && matches!(kind, JoinKind::Inner | JoinKind::LeftSemi | JoinKind::RightSemi),
            key,
            watermarks,
            schema,
        };
        match temporal {
            Some(condition) => self.filtered(joined, &condition, &join.schema),
            None => Ok(joined),
        }
    }
}

impl Lowering {
    /// Rows without columns cannot be told apart when they are kept: there is one at least.
    fn with_some_column(&self, fragment: Fragment, schema: &DFSchema) -> Result<Fragment> {
        if !fragment.schema.fields().is_empty() {
            return Ok(fragment);
        }
        let (fragment, _) = self.with_columns(fragment, schema, std::iter::once(&lit(true)))?;
        Ok(fragment)
    }
}

/// The conjuncts that read the clock, and the others.
fn split_clock(filter: &Expr) -> (Option<Expr>, Option<Expr>) {
    let (temporal, timeless): (Vec<&Expr>, Vec<&Expr>) = split_conjunction(filter)
        .into_iter()
        .partition(|e| reads_clock(e));
    (
        conjunction(temporal.into_iter().cloned()),
        conjunction(timeless.into_iter().cloned()),
    )
}

/// Where the joined rows are. An unmatched row of an outer join has NULL for the other side's keys, but lives where its own
/// key puts it.
fn placement(
    kind: JoinKind,
    left_keys: &[usize],
    right_keys: &[usize],
    left_width: usize,
    right_width: usize,
) -> Placement {
    let within = |keys: &[usize], width: usize, shift: usize| {
        if keys.iter().all(|column| *column < width) {
            Placement::Hash(keys.iter().map(|column| column + shift).collect())
        } else {
            Placement::Keyed
        }
    };
    match kind {
        JoinKind::Inner | JoinKind::Left | JoinKind::LeftSemi | JoinKind::LeftAnti | JoinKind::LeftMark => {
            within(left_keys, left_width, 0)
        }
        JoinKind::Right => within(right_keys, right_width, left_width),
        JoinKind::RightSemi | JoinKind::RightAnti => within(right_keys, right_width, 0),
        JoinKind::Full => Placement::Keyed,
    }
}

/// What identifies a joined row. If one side is met by at most one row of the other, its own key suffices.
fn joined_key(
    kind: JoinKind,
    left: &Fragment,
    right: &Fragment,
    left_keys: &[usize],
    right_keys: &[usize],
    left_width: usize,
) -> Option<Vec<usize>> {
    let shift = |key: &[usize]| key.iter().map(|column| column + left_width).collect::<Vec<_>>();
    let covers = |key: &Option<Vec<usize>>, columns: &[usize]| {
        key.as_ref()
            .is_some_and(|key| key.iter().all(|column| columns.contains(column)))
    };
    match kind {
        JoinKind::LeftSemi | JoinKind::LeftAnti | JoinKind::LeftMark => return left.key.clone(),
        JoinKind::RightSemi | JoinKind::RightAnti => return right.key.clone(),
        JoinKind::Inner | JoinKind::Left | JoinKind::Right | JoinKind::Full => {}
    }
    if matches!(kind, JoinKind::Inner | JoinKind::Left)
        && covers(&right.key, right_keys)
        && left.key.is_some()
    {
        return left.key.clone();
    }
    if matches!(kind, JoinKind::Inner | JoinKind::Right)
        && covers(&left.key, left_keys)
        && let Some(key) = &right.key
    {
        return Some(shift(key));
    }
    match (&left.key, &right.key) {
        (Some(l), Some(r)) => Some(l.iter().copied().chain(shift(r)).collect()),
        _ => None,
    }
}
