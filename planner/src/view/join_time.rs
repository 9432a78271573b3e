//! What watermarks mean for a join: which rows of a side no row to come will match, and which pairs are final.
//!
//! Keys that have a bound on both sides (a window's end, say) meet nothing new below it. A comparison of the two sides' times
//! (`a.ts BETWEEN b.ts AND b.ts + INTERVAL '10 minutes'`) says of a row of one side up to which time of the other it matches.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::Operator as Op;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, Column};
use datafusion::physical_expr::split_conjunction;
use datafusion::physical_expr::utils::collect_columns;

use super::fragment::Fragment;
use crate::stage::closing::Closing;
use crate::stage::join::JoinKind;
use crate::watermark::{Bound, ColumnWatermark, applied, bound_of, growing};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct TimeBounds {
    pub left_closes: Option<Closing>,
    pub right_closes: Option<Closing>,
    /// Of the join's output.
    pub watermarks: Vec<ColumnWatermark>,
}

/// One side as the bounds are looked for.
struct Side<'a> {
    fragment: &'a Fragment,
    width: usize,
    /// Its columns reach the output, and are not NULL there because of a missing match.
    is_shown: bool,
    /// Where its columns are in the output.
    first: usize,
    closes: Option<Closing>,
    watermarks: Vec<ColumnWatermark>,
}

impl TimeBounds {
    /// `widths`: columns of each side that the filter and the output see. `filter`: over the left ones, then the right ones.
    pub fn new(
        kind: JoinKind,
        [left, right]: [&Fragment; 2],
        [left_width, right_width]: [usize; 2],
        keys: &[(usize, usize)],
        filter: Option<&Arc<dyn PhysicalExpr>>,
    ) -> TimeBounds {
        use JoinKind::*;
        let shows_left = matches!(kind, Inner | Left | LeftSemi | LeftAnti | LeftMark);
        let shows_right = matches!(kind, Inner | Right | RightSemi | RightAnti);
        let first_right = if kind == Inner || kind == Right {
            left_width
        } else {
            0
        };
        let mut left = Side::new(left, left_width, shows_left, 0);
        let mut right = Side::new(right, right_width, shows_right, first_right);
        for (left_key, right_key) in keys {
            let (of_left, of_right) = (left.bound(*left_key), right.bound(*right_key));
            left.meets_key(*left_key, of_right.as_ref());
            right.meets_key(*right_key, of_left.as_ref());
        }
        for conjunct in filter.map(split_conjunction).unwrap_or_default() {
            compare(conjunct, &mut left, &mut right);
        }
        left.watermarks.append(&mut right.watermarks);
        TimeBounds {
            left_closes: left.closes,
            right_closes: right.closes,
            watermarks: left.watermarks,
        }
    }
}

impl<'a> Side<'a> {
    fn new(fragment: &'a Fragment, width: usize, is_shown: bool, first: usize) -> Side<'a> {
        Side {
            fragment,
            width,
            is_shown,
            first,
            closes: None,
            watermarks: vec![],
        }
    }

    fn schema(&self) -> &SchemaRef {
        &self.fragment.schema
    }

    fn bound(&self, column: usize) -> Option<Bound> {
        let known = self.fragment.watermarks.iter();
        let mut known = known.filter(|known| known.column == column);
        let is_simple = !self.schema().field(column).data_type().is_nested();
        known
            .next()
            .map(|known| known.bound.clone())
            .filter(|_| is_simple)
    }

    /// Its column is equal to one of the other side that has this bound.
    fn meets_key(&mut self, column: usize, other: Option<&Bound>) {
        let Some(other) = other else { return };
        let value: Arc<dyn PhysicalExpr> = Arc::new(Column::new(self.schema().field(column).name(), column));
        self.meets_later(&value, other.clone());
    }

    /// From now on it meets only rows with which `value`, over its columns, is at or above the bound.
    fn meets_later(&mut self, value: &Arc<dyn PhysicalExpr>, other: Bound) {
        let own = bound_of(value, &self.fragment.watermarks, self.schema());
        // A row that can be taken back has to be known until then.
        let until = match (&own, self.fragment.append_only) {
            (_, true) => Some(other.clone()),
            (Some(own), false) => Some(Bound::Least(vec![own.clone(), other.clone()])),
            (None, false) => None,
        };
        if let (Some(bound), None) = (until, &self.closes) {
            self.closes = Some(Closing {
                value: Arc::clone(value),
                bound,
            });
        }
        // A pair is new if its row of this side is, or the one of the other.
        let column = value.downcast_ref::<Column>().map(Column::index);
        if let (Some(own), Some(column), true) = (own, column, self.is_shown)
            && column < self.width
            && !self
                .watermarks
                .iter()
                .any(|known| known.column == self.first + column)
        {
            self.watermarks.push(ColumnWatermark {
                column: self.first + column,
                bound: Bound::Least(vec![own, other]),
            });
        }
    }
}

/// Takes a comparison of the sides' times into account: `l >= r` says that a left row meets no right row that is later.
fn compare(conjunct: &Arc<dyn PhysicalExpr>, left: &mut Side<'_>, right: &mut Side<'_>) {
    let Some(comparison) = conjunct.downcast_ref::<BinaryExpr>() else {
        return;
    };
    let is_left = |side: &Arc<dyn PhysicalExpr>| {
        let columns = collect_columns(side);
        let (count, width) = (columns.len(), left.width);
        (count == 1).then(|| columns.iter().all(|column| column.index() < width))
    };
    let (of_left, op, of_right) = match (is_left(comparison.left()), is_left(comparison.right())) {
        (Some(true), Some(false)) => (comparison.left(), Some(*comparison.op()), comparison.right()),
        (Some(false), Some(true)) => (comparison.right(), comparison.op().swap(), comparison.left()),
        _ => return,
    };
    let of_right = rebased(of_right, left.width);
    let bound = |side: &Side<'_>, value: &Arc<dyn PhysicalExpr>| -> Option<Bound> {
        let column = growing(value, side.schema())?;
        let data_type = side.schema().field(column).data_type().clone();
        applied(&side.bound(column)?, data_type, value)
    };
    let grows = |side: &Side<'_>, value: &Arc<dyn PhysicalExpr>| growing(value, side.schema()).is_some();
    let comparable = match (
        of_left.data_type(left.schema()),
        of_right.data_type(right.schema()),
    ) {
        (Ok(left), Ok(right)) => left == right,
        _ => false,
    };
    if !comparable || !grows(left, of_left) || !grows(right, &of_right) {
        return;
    }
    match op {
        Some(Op::Gt | Op::GtEq) => {
            if let Some(bound) = bound(right, &of_right) {
                left.meets_later(of_left, bound);
            }
        }
        Some(Op::Lt | Op::LtEq) => {
            if let Some(bound) = bound(left, of_left) {
                right.meets_later(&of_right, bound);
            }
        }
        _ => {}
    }
}

/// An expression over the right side's columns behind the left side's, over the right side's alone.
fn rebased(expression: &Arc<dyn PhysicalExpr>, left_width: usize) -> Arc<dyn PhysicalExpr> {
    let rebased = Arc::clone(expression).transform_up(|inner| {
        Ok(match inner.downcast_ref::<Column>() {
            Some(column) => {
                let column = Column::new(column.name(), column.index().saturating_sub(left_width));
                Transformed::yes(Arc::new(column) as Arc<dyn PhysicalExpr>)
            }
            None => Transformed::no(inner),
        })
    });
    rebased.map_or_else(|_| Arc::clone(expression), |rebased| rebased.data)
}
