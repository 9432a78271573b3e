//! ASOF and lookup joins: both sides are exchanged by their keys, as for any join.

use std::sync::Arc;

use datafusion::common::DFSchema;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, Operator as Op};

use super::fragment::{Fragment, Part, Placement};
use super::lower::{Lowering, arrow_schema};
use crate::error::{PlanError, Result};
use crate::stage::Output;
use crate::stage::asof_join::{AsofJoin, Nearest};
use crate::stage::lookup_join::LookupJoin;
use crate::stage::operator::Operator;
use crate::watermark::ColumnWatermark;
use millrace_sql::streaming::time_join::{Parts, TimeJoin, TimeJoinKind};

/// One side of a join, ready to be exchanged.
struct Side {
    fragment: Fragment,
    /// Columns of its own; computed ones follow.
    width: usize,
    /// The columns that were asked for.
    columns: Vec<usize>,
}

impl Side {
    /// The watermarks of its own columns.
    fn own_watermarks(&self) -> Vec<ColumnWatermark> {
        let known = self.fragment.watermarks.iter();
        known.filter(|known| known.column < self.width).cloned().collect()
    }
}

impl Lowering {
    pub(super) fn time_join(&mut self, join: &TimeJoin) -> Result<Fragment> {
        let mut parts = join.parts()?;
        let right = self.node(&join.right)?;
        let left = self.node(&join.left)?;
        let right = self.kept(right, &mut parts.right, join.right.schema())?;
        let left = if join.is_outer {
            // Its rows stay whether or not the condition holds.
            parts.both.append(&mut parts.left);
            left
        } else {
            self.kept(left, &mut parts.left, join.left.schema())?
        };
        match join.kind {
            TimeJoinKind::Lookup => self.lookup_join(join, left, right, parts),
            TimeJoinKind::Asof => self.asof_join(join, left, right, parts),
        }
    }

    /// The rows of one side that meet its own conditions.
    fn kept(
        &mut self,
        fragment: Fragment,
        conditions: &mut Vec<Expr>,
        schema: &DFSchema,
    ) -> Result<Fragment> {
        match conjunction(std::mem::take(conditions)) {
            Some(condition) => self.filtered(fragment, &condition, schema),
            None => Ok(fragment),
        }
    }

    fn side<'a>(
        &self,
        fragment: Fragment,
        schema: &DFSchema,
        wanted: impl Iterator<Item = &'a Expr>,
    ) -> Result<Side> {
        let width = fragment.schema.fields().len();
        let (fragment, columns) = self.with_columns(fragment, schema, wanted)?;
        Ok(Side {
            fragment,
            width,
            columns,
        })
    }

    fn exchange_by(&mut self, fragment: Fragment, keys: &[usize]) -> Operator {
        let output = if keys.is_empty() {
            Output::Single
        } else {
            Output::Hash(keys.to_vec())
        };
        self.stages.exchange(fragment, output)
    }

    fn lookup_join(
        &mut self,
        join: &TimeJoin,
        left: Fragment,
        right: Fragment,
        parts: Parts,
    ) -> Result<Fragment> {
        let left = self.side(left, join.left.schema(), parts.keys.iter().map(|(l, _)| l))?;
        let right = self.side(right, join.right.schema(), parts.keys.iter().map(|(_, r)| r))?;
        let filter = match conjunction(parts.both) {
            Some(filter) => Some(self.expression(&filter, &join.schema)?),
            None => None,
        };
        let (left_append_only, right_append_only) = (left.fragment.append_only, right.fragment.append_only);
        // A left row that meets one right row at most is still what it was.
        let meets_one = right
            .fragment
            .key
            .as_ref()
            .is_some_and(|key| key.iter().all(|column| right.columns.contains(column)));
        let key = if meets_one {
            left.fragment.key.clone()
        } else {
            None
        };
        // Only what changes on the left changes what comes out.
        let watermarks = left.own_watermarks();
        let placement = placement(&left);
        let schema = arrow_schema(&join.schema);
        let keys = left
            .columns
            .iter()
            .copied()
            .zip(right.columns.iter().copied())
            .collect();
        let operator = Operator::LookupJoin(Box::new(LookupJoin {
            left: self.exchange_by(left.fragment, &left.columns),
            right: self.exchange_by(right.fragment, &right.columns),
            left_width: left.width,
            right_width: right.width,
            is_outer: join.is_outer,
            keys,
            filter,
            left_append_only,
            right_append_only,
            schema: Arc::clone(&schema),
        }));
        Ok(Fragment {
            parts: vec![Part { operator, placement }],
            append_only: left_append_only,
            key,
            watermarks,
            schema,
        })
    }

    fn asof_join(
        &mut self,
        join: &TimeJoin,
        left: Fragment,
        right: Fragment,
        parts: Parts,
    ) -> Result<Fragment> {
        let Some((left_time, op, right_time)) = &parts.time else {
            return Err(PlanError::Internal("an ASOF join without a comparison".into()));
        };
        let nearest = match op {
            Op::GtEq => Nearest::AtOrBefore,
            Op::Gt => Nearest::Before,
            Op::LtEq => Nearest::AtOrAfter,
            Op::Lt => Nearest::After,
            other => return Err(PlanError::Internal(format!("an ASOF join by {other}"))),
        };
        let wanted = parts.keys.iter().map(|(l, _)| l).chain([left_time]);
        let mut left = self.side(left, join.left.schema(), wanted)?;
        let wanted = parts.keys.iter().map(|(_, r)| r).chain([right_time]);
        let mut right = self.side(right, join.right.schema(), wanted)?;
        let (Some(left_time), Some(right_time)) = (left.columns.pop(), right.columns.pop()) else {
            return Err(PlanError::Internal("an ASOF join without times".into()));
        };
        let (left_append_only, right_append_only) = (left.fragment.append_only, right.fragment.append_only);
        // Every left row comes once at most.
        let key = left.fragment.key.clone();
        let placement = placement(&left);
        let schema = arrow_schema(&join.schema);
        let keys = left
            .columns
            .iter()
            .copied()
            .zip(right.columns.iter().copied())
            .collect();
        let operator = Operator::AsofJoin(Box::new(AsofJoin {
            left: self.exchange_by(left.fragment, &left.columns),
            right: self.exchange_by(right.fragment, &right.columns),
            left_width: left.width,
            right_width: right.width,
            is_outer: join.is_outer,
            keys,
            times: (left_time, right_time),
            nearest,
            left_append_only,
            right_append_only,
            schema: Arc::clone(&schema),
        }));
        Ok(Fragment {
            parts: vec![Part { operator, placement }],
            append_only: false,
            key,
            watermarks: vec![],
            schema,
        })
    }
}

/// Rows are where the left side's key puts them.
fn placement(left: &Side) -> Placement {
    if left.columns.iter().all(|column| *column < left.width) {
        Placement::Hash(left.columns.clone())
    } else {
        Placement::Keyed
    }
}
