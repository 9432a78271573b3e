//! A physical plan in stages: every operator that would start tasks of its own becomes a [`StageBoundary`].
//!
//! What DataFusion would spawn for is repartitioning, bringing partitions together, and merging them in order. (It would also
//! read ahead while it merges; that it leaves on a runtime with one thread, as the slots' is.)

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec};
use datafusion::physical_plan::placeholder_row::PlaceholderRowExec;
use datafusion::physical_plan::recursive_query::RecursiveQueryExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::statistics::StatisticsContext;
use datafusion::physical_plan::work_table::WorkTableExec;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, ExecutionPlan, ExecutionPlanProperties, Partitioning, PlanProperties,
    ReplaceChildrenOptions,
};

use super::boundary::{Routing, StageBoundary};
use super::carry::carried;
use super::compact::Compacting;
use super::constants;
use super::gate::Gating;
use super::run::QueryRun;
use super::steps::stepped;
use super::wanted::looking;
use super::wrap::Wrapped;
use crate::snapshot::SnapshotScan;

/// A leaf that has no more rows than this in memory needs no suspension point.
const UNGATED_ROWS_MAX: usize = 8_192;

/// The plan of the last stage, which has one partition. Its leaves are the boundaries to those before it.
///
/// # Errors
/// An operator refuses its new input, which only a wrong one brings about.
pub fn cut(plan: Arc<dyn ExecutionPlan>, run: &Arc<QueryRun>) -> Result<Arc<dyn ExecutionPlan>> {
    let plan = plan.transform_up(|node| cut_node(node, run))?.data;
    Ok(match plan.output_partitioning().partition_count() {
        1 => plan,
        _ => {
            let properties = PlanProperties::new(
                EquivalenceProperties::new(plan.schema()),
                Partitioning::UnknownPartitioning(1),
                plan.pipeline_behavior(),
                plan.boundedness(),
            );
            together(plan, None, Arc::new(properties), run)
        }
    })
}

fn cut_node(
    node: Arc<dyn ExecutionPlan>,
    run: &Arc<QueryRun>,
) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    if let Some(repartition) = node.downcast_ref::<RepartitionExec>() {
        let input = Arc::clone(repartition.input());
        let producers = input.output_partitioning().partition_count();
        let routing = Routing::Partitioned {
            keeps_order: repartition.preserve_order() && producers > 1,
        };
        let properties = Arc::clone(node.properties());
        let stage = run.new_stage(&input);
        return Ok(Transformed::yes(Arc::new(StageBoundary::new(
            input, routing, properties, run, stage,
        ))));
    }
    if let Some(coalesce) = node.downcast_ref::<CoalescePartitionsExec>() {
        let input = Arc::clone(coalesce.input());
        return Ok(match input.output_partitioning().partition_count() {
            1 => Transformed::no(node),
            _ => {
                let properties = Arc::clone(node.properties());
                Transformed::yes(together(input, coalesce.fetch(), properties, run))
            }
        });
    }
    if let Some(merge) = node.downcast_ref::<SortPreservingMergeExec>() {
        let input = Arc::clone(merge.input());
        if input.output_partitioning().partition_count() == 1 {
            return Ok(Transformed::no(node));
        }
        let properties = Arc::clone(input.properties());
        let stage = run.new_stage(&input);
        let boundary = StageBoundary::new(input, Routing::Straight, properties, run, stage);
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep);
        return node
            .replace_children(vec![Arc::new(boundary)], options)
            .map(Transformed::yes);
    }
    if node.children().is_empty() && !has_suspension_points(node.as_ref()) {
        return Ok(Transformed::yes(Wrapped::around(&node, Gating)));
    }
    if node.is::<RecursiveQueryExec>() {
        return Ok(Transformed::yes(Wrapped::around(&node, Compacting)));
    }
    let (node, looks) = match looking(&node)? {
        Some(node) => (node, true),
        None => (node, false),
    };
    let (node, is_new) = match constants::stepped(&node)? {
        Some(node) => (node, true),
        None => (node, looks),
    };
    let in_steps = match carried(&node)? {
        Some(join) => Some(join),
        None => stepped(&node)?,
    };
    if multiplies(node.as_ref()) {
        let joined = in_steps.as_ref().unwrap_or(&node);
        return Ok(Transformed::yes(Wrapped::around(joined, Gating)));
    }
    let other = |node| Transformed::new_transformed(node, is_new);
    Ok(in_steps.map_or_else(|| other(node), Transformed::yes))
}

/// Whether it may make any number of batches out of one of its input, and is at none of the suspension points below meanwhile.
fn multiplies(node: &dyn ExecutionPlan) -> bool {
    node.is::<CrossJoinExec>()
        || node.is::<HashJoinExec>()
        || node.is::<NestedLoopJoinExec>()
        || node.is::<SortMergeJoinExec>()
}

/// Whether a leaf gives way by itself, or is too short to.
fn has_suspension_points(leaf: &dyn ExecutionPlan) -> bool {
    if leaf.is::<SnapshotScan>() || leaf.is::<PlaceholderRowExec>() {
        return true;
    }
    // It is short in each step of its recursion, of which there may be any number.
    if leaf.is::<WorkTableExec>() {
        return false;
    }
    let rows = StatisticsContext::default()
        .compute(leaf, &Default::default())
        .ok()
        .and_then(|statistics| statistics.num_rows.get_value().copied());
    rows.is_some_and(|rows| rows <= UNGATED_ROWS_MAX)
}

/// All partitions as one, in any order.
fn together(
    input: Arc<dyn ExecutionPlan>,
    fetch: Option<usize>,
    properties: Arc<PlanProperties>,
    run: &Arc<QueryRun>,
) -> Arc<dyn ExecutionPlan> {
    let stage = run.new_stage(&input);
    let routing = Routing::Single { fetch };
    Arc::new(StageBoundary::new(input, routing, properties, run, stage))
}
