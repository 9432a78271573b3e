//! Barriers for what DataFusion's rules conclude wrongly from a part of a plan (found by the random queries of the oracle).
//!
//! Sorts and window functions leave out columns that plans say are constant. Three kinds of nodes say so wrongly:
//!
//! * outer joins pass on the constants of a side that can be missing: rows without a match have NULL there;
//! * grouping sets pass on the constants of what they group: in sets without a column it is NULL;
//! * UNION ALL says that a column is constant within each of its inputs. That is true, but a sort of the first rows
//!   compares the rows of all inputs with one threshold.
//!
//! And a sort is pushed through OFFSET without LIMIT, which then skips other rows; one below it is left out, because OFFSET
//! does not say that it needs the order in which it skips. Below it goes a node that does ([`Hides::Nothing`]).
//!
//! A node that says nothing about its rows but their columns, and keeps no order, is put above such nodes. Another kind of it stops
//! filters only ([`super::fence`]).

use std::fmt;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{JoinType, Statistics};
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{Distribution, EquivalenceProperties, OrderingRequirements, PhysicalExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::execution_plan::{CardinalityEffect, ChildrenPropertiesMode};
use datafusion::physical_plan::joins::{
    HashJoinExec, NestedLoopJoinExec, PiecewiseMergeJoinExec, SortMergeJoinExec, SymmetricHashJoinExec,
};
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
    ReplaceChildrenOptions,
};

/// Puts [`Barrier`]s into plans, see the module. First of the physical rules: those after it decide by what plans say of
/// their rows.
#[derive(Debug)]
pub struct PutBarriers;

impl PhysicalOptimizerRule for PutBarriers {
    fn name(&self) -> &str {
        "put_barriers"
    }

    fn schema_check(&self) -> bool {
        true
    }

    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            Ok(if needs_barrier(node.as_ref()) {
                let node = skips_in_order(node)?;
                Transformed::yes(Arc::new(Barrier::new(node, Hides::Rows)) as _)
            } else {
                Transformed::no(node)
            })
        })
        .map(|transformed| transformed.data)
    }
}

/// OFFSET, by which the order of its input is kept; any other node as it is.
fn skips_in_order(node: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    match node.downcast_ref::<GlobalLimitExec>() {
        Some(limit) => {
            let ordered = in_order(Arc::clone(limit.input()))?;
            over(node, ordered)
        }
        None => Ok(node),
    }
}

/// A plan whose order is kept. What it is ordered by may be left out by a projection above.
fn in_order(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    if plan.output_ordering().is_some() {
        return Ok(Arc::new(Barrier::new(plan, Hides::Nothing)));
    }
    let only = match plan.children().as_slice() {
        [only] if plan.maintains_input_order() == [true] => Arc::clone(only),
        _ => return Ok(plan),
    };
    let ordered = in_order(only)?;
    over(plan, ordered)
}

fn over(node: Arc<dyn ExecutionPlan>, input: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    node.replace_children(
        vec![input],
        ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute),
    )
}

/// Whether what the node says of its rows may be wrong, or is wrongly used.
fn needs_barrier(plan: &dyn ExecutionPlan) -> bool {
    if let Some(limit) = plan.downcast_ref::<GlobalLimitExec>() {
        return limit.skip() > 0 && limit.fetch().is_none();
    }
    if plan.is::<UnionExec>() {
        return has_constants(plan);
    }
    if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        // Which columns are constant may only show once its joins are chosen.
        return aggregate.group_expr().has_grouping_set();
    }
    let can_be_missing = match join_type(plan) {
        Some(JoinType::Left) => [false, true],
        Some(JoinType::Right) => [true, false],
        Some(JoinType::Full) => [true, true],
        _ => return false,
    };
    plan.children()
        .into_iter()
        .zip(can_be_missing)
        .any(|(side, can)| can && has_constants(side.as_ref()))
}

fn has_constants(plan: &dyn ExecutionPlan) -> bool {
    !plan.properties().eq_properties.constants().is_empty()
}

fn join_type(plan: &dyn ExecutionPlan) -> Option<JoinType> {
    if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        Some(*join.join_type())
    } else if let Some(join) = plan.downcast_ref::<NestedLoopJoinExec>() {
        Some(*join.join_type())
    } else if let Some(join) = plan.downcast_ref::<SortMergeJoinExec>() {
        Some(join.join_type())
    } else if let Some(join) = plan.downcast_ref::<SymmetricHashJoinExec>() {
        Some(*join.join_type())
    } else {
        plan.downcast_ref::<PiecewiseMergeJoinExec>()
            .map(PiecewiseMergeJoinExec::join_type)
    }
}

/// What those above a barrier do not see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hides {
    /// What the input says of its rows, but what columns they have and how they are partitioned.
    Rows,
    /// The input as somewhere for filters to go.
    Filters,
    /// Nothing: the input's rows in one partition, in the order that they have.
    Nothing,
}

/// Its input's rows. No barrier lets filters through.
#[derive(Debug)]
pub(super) struct Barrier {
    input: Arc<dyn ExecutionPlan>,
    hides: Hides,
    properties: Arc<PlanProperties>,
    /// The order that it needs.
    order: Option<OrderingRequirements>,
}

impl Barrier {
    pub(super) fn new(input: Arc<dyn ExecutionPlan>, hides: Hides) -> Self {
        let properties = match hides {
            Hides::Rows => {
                let nothing = EquivalenceProperties::new(input.schema());
                Arc::new(PlanProperties::clone(input.properties()).with_eq_properties(nothing))
            }
            Hides::Filters | Hides::Nothing => Arc::clone(input.properties()),
        };
        let order = match hides {
            Hides::Nothing => input.output_ordering().cloned().map(OrderingRequirements::from),
            Hides::Rows | Hides::Filters => None,
        };
        Barrier {
            input,
            hides,
            properties,
            order,
        }
    }

    /// The same over another input: the order that it needs stays.
    fn over(&self, input: Arc<dyn ExecutionPlan>) -> Self {
        Barrier {
            order: self.order.clone(),
            ..Barrier::new(input, self.hides)
        }
    }

    /// What is below, if this is only in the way of filters.
    pub(super) fn unfenced(&self) -> Option<&Arc<dyn ExecutionPlan>> {
        (self.hides == Hides::Filters).then_some(&self.input)
    }
}

impl DisplayAs for Barrier {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Barrier")
    }
}

impl ExecutionPlan for Barrier {
    fn name(&self) -> &'static str {
        "Barrier"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![self.hides != Hides::Rows]
    }

    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        vec![self.order.clone()]
    }

    fn required_input_distribution(&self) -> Vec<Distribution> {
        vec![match self.hides {
            Hides::Nothing => Distribution::SinglePartition,
            Hides::Rows | Hides::Filters => Distribution::UnspecifiedDistribution,
        }]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(self.over(children.swap_remove(0))))
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(self.over(children.swap_remove(0))))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.input.execute(partition, context)
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(partition)]
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        _: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        Ok(Arc::clone(&inputs[0]))
    }

    fn supports_limit_pushdown(&self) -> bool {
        true
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::Equal
    }
}
