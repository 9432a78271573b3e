//! Joins in which time decides: `ASOF JOIN`, and `JOIN t FOR SYSTEM_TIME AS OF PROCTIME()`.
//!
//! SQL's planner of DataFusion knows neither. Both are written down as an ordinary join whose condition holds a marker
//! (`syntax`), so that names are resolved as in any join; in the bound plan the marked join becomes a [`TimeJoin`].
//! A view lowers it to an operator of its own. A SELECT has one moment only ([`in_batch`]).

mod batch;
mod syntax;

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, DFSchemaRef, JoinType};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::logical_plan::builder::build_join_schema;
use datafusion::logical_expr::utils::split_conjunction_owned;
use datafusion::logical_expr::{
    BinaryExpr, Expr, Extension, LogicalPlan, Operator, UserDefinedLogicalNodeCore,
};

pub use batch::in_batch;
pub use syntax::marker;
pub(crate) use syntax::rewrite;

/// How time decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Hash)]
pub enum TimeJoinKind {
    /// Each left row with the nearest right row in time.
    Asof,
    /// Each change of the left side with the right side as it is then.
    Lookup,
}

/// See the module. Inner, or left outer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TimeJoin {
    pub kind: TimeJoinKind,
    pub is_outer: bool,
    pub left: Arc<LogicalPlan>,
    pub right: Arc<LogicalPlan>,
    /// What must hold for a pair.
    pub conditions: Vec<Expr>,
    pub schema: DFSchemaRef,
}

impl PartialOrd for TimeJoin {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.conditions.partial_cmp(&other.conditions)
    }
}

impl TimeJoin {
    fn join_type(&self) -> JoinType {
        if self.is_outer {
            JoinType::Left
        } else {
            JoinType::Inner
        }
    }

    fn name(&self) -> &'static str {
        match self.kind {
            TimeJoinKind::Asof => "AsofJoin",
            TimeJoinKind::Lookup => "LookupJoin",
        }
    }

    /// The join's conditions by what they speak of.
    ///
    /// # Errors
    /// An ASOF join has not exactly one comparison of times, or a condition that cannot be part of it.
    pub fn parts(&self) -> Result<Parts> {
        let (left, right) = (self.left.schema(), self.right.schema());
        let mut parts = Parts::default();
        let mut times = vec![];
        for condition in &self.conditions {
            let (reads_left, reads_right) = (reads(condition, left)?, reads(condition, right)?);
            match (reads_left, reads_right) {
                (true, true) => match sides(condition, left, right)? {
                    Some((l, Operator::Eq, r)) => parts.keys.push((l, r)),
                    Some((l, op @ (Operator::Gt | Operator::GtEq | Operator::Lt | Operator::LtEq), r))
                        if self.kind == TimeJoinKind::Asof =>
                    {
                        times.push((l, op, r));
                    }
                    _ => parts.both.push(condition.clone()),
                },
                (true, false) => parts.left.push(condition.clone()),
                _ => parts.right.push(condition.clone()),
            }
        }
        if self.kind == TimeJoinKind::Asof {
            let refused = |what: &str| {
                DataFusionError::NotImplemented(format!(
                    "ASOF JOIN takes equalities and one comparison (>=, >, <=, <) of a left with a right column; {what}"
                ))
            };
            if times.len() != 1 {
                return Err(refused(&format!("this one has {} comparisons", times.len())));
            }
            if let Some(other) = parts.both.first() {
                return Err(refused(&format!("{other} is neither of them")));
            }
            if self.is_outer
                && let Some(other) = parts.left.first()
            {
                return Err(refused(&format!(
                    "{other} does not restrict ASOF LEFT JOIN, which keeps all left rows: move it to WHERE"
                )));
            }
            parts.time = times.pop();
        }
        Ok(parts)
    }
}

/// See [`TimeJoin::parts`].
#[derive(Debug, Default)]
pub struct Parts {
    /// Left, right.
    pub keys: Vec<(Expr, Expr)>,
    /// The comparison of an ASOF join, the left side first.
    pub time: Option<(Expr, Operator, Expr)>,
    /// Conditions on the left side alone.
    pub left: Vec<Expr>,
    /// Conditions on the right side alone, or on nothing.
    pub right: Vec<Expr>,
    pub both: Vec<Expr>,
}

fn reads(condition: &Expr, side: &DFSchema) -> Result<bool> {
    condition.exists(|inner| Ok(matches!(inner, Expr::Column(column) if side.has_column(column))))
}

/// A comparison with the left side first, if each of its sides reads one side of the join only.
fn sides(condition: &Expr, left: &DFSchema, right: &DFSchema) -> Result<Option<(Expr, Operator, Expr)>> {
    let Expr::BinaryExpr(BinaryExpr {
        left: l,
        op,
        right: r,
    }) = condition
    else {
        return Ok(None);
    };
    let is_of = |expr: &Expr, own: &DFSchema, other: &DFSchema| -> Result<bool> {
        Ok(reads(expr, own)? && !reads(expr, other)?)
    };
    if is_of(l, left, right)? && is_of(r, right, left)? {
        return Ok(Some((l.as_ref().clone(), *op, r.as_ref().clone())));
    }
    if is_of(l, right, left)? && is_of(r, left, right)? {
        return Ok(op.swap().map(|op| (r.as_ref().clone(), op, l.as_ref().clone())));
    }
    Ok(None)
}

impl UserDefinedLogicalNodeCore for TimeJoin {
    fn name(&self) -> &str {
        TimeJoin::name(self)
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.left, &self.right]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        self.conditions.clone()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let outer = if self.is_outer { "left, " } else { "" };
        let conditions: Vec<String> = self.conditions.iter().map(ToString::to_string).collect();
        write!(
            f,
            "{}: {outer}on {}",
            TimeJoin::name(self),
            conditions.join(" AND ")
        )
    }

    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        let width = self.left.schema().fields().len();
        let (mut left, mut right): (BTreeSet<usize>, BTreeSet<usize>) =
            output_columns.iter().copied().partition(|column| *column < width);
        right = right.into_iter().map(|column| column - width).collect();
        for column in self.conditions.iter().flat_map(Expr::column_refs) {
            left.extend(self.left.schema().maybe_index_of_column(column));
            right.extend(self.right.schema().maybe_index_of_column(column));
        }
        if self.kind == TimeJoinKind::Asof {
            // Of rows at one time all columns decide.
            right = (0..self.right.schema().fields().len()).collect();
        }
        Some(vec![left.into_iter().collect(), right.into_iter().collect()])
    }

    fn with_exprs_and_inputs(&self, conditions: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        let [left, right] = <[LogicalPlan; 2]>::try_from(inputs)
            .map_err(|_| DataFusionError::Internal("a join has two inputs".into()))?;
        // The optimizer gives what it rewrites the name that it had: a condition has none.
        let conditions = conditions.into_iter().map(Expr::unalias).collect();
        TimeJoin::new(self.kind, self.is_outer, left, right, conditions)
    }
}

impl TimeJoin {
    fn new(
        kind: TimeJoinKind,
        is_outer: bool,
        left: LogicalPlan,
        right: LogicalPlan,
        conditions: Vec<Expr>,
    ) -> Result<Self> {
        let join_type = if is_outer { JoinType::Left } else { JoinType::Inner };
        let schema = build_join_schema(left.schema(), right.schema(), &join_type)?;
        Ok(TimeJoin {
            kind,
            is_outer,
            left: Arc::new(left),
            right: Arc::new(right),
            conditions,
            schema: Arc::new(schema),
        })
    }

    /// The join of a node, if it is one.
    pub fn of(extension: &Extension) -> Option<&TimeJoin> {
        extension.node.as_any().downcast_ref()
    }
}

/// Marked joins of a bound plan as [`TimeJoin`]s.
pub(crate) fn recognise(plan: LogicalPlan) -> Result<LogicalPlan> {
    let marked = |node: &LogicalPlan| match node {
        LogicalPlan::Join(join) => join.filter.as_ref().is_some_and(|filter| {
            split_conjunction_owned(filter.clone())
                .iter()
                .any(|condition| syntax::marked(condition).is_some())
        }),
        _ => false,
    };
    let mut is_marked = false;
    plan.apply_with_subqueries(|node| {
        is_marked |= marked(node);
        Ok(TreeNodeRecursion::Continue)
    })?;
    if !is_marked {
        return Ok(plan);
    }
    let recognised = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Join(join) if marked(&LogicalPlan::Join(join.clone())) => {
            let mut kind = TimeJoinKind::Asof;
            let mut conditions = vec![];
            for condition in join.filter.map(split_conjunction_owned).unwrap_or_default() {
                match syntax::marked(&condition) {
                    Some(marked) => kind = marked,
                    None => conditions.push(condition),
                }
            }
            conditions.extend(join.on.into_iter().map(|(l, r)| l.eq(r)));
            let time_join = TimeJoin::new(
                kind,
                join.join_type == JoinType::Left,
                Arc::unwrap_or_clone(join.left),
                Arc::unwrap_or_clone(join.right),
                conditions,
            )?;
            // What cannot be part of the join is refused whether or not it is run.
            time_join.parts()?;
            Ok(Transformed::yes(LogicalPlan::Extension(Extension {
                node: Arc::new(time_join),
            })))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(recognised.data)
}
