//! Fences around nodes through which DataFusion's `FilterPushdown` would lead filters wrongly.
//!
//! It takes a filter from a node to its input by the names of the columns. That goes wrong where
//!
//! * two columns of a node have one name: the filter reaches the first of them. `FROM u RIGHT JOIN s ON u.k = s.k WHERE u.k IS
//!   NULL`, its sides swapped, kept only the rows of `s` whose key is NULL (found by the random queries of the oracle);
//! * a semi join passes a filter on its key to the other side, which has another column of that name;
//! * a node gives a name of its input to something else, as an aggregate's group may have that of another column.
//!
//! Through what has none of this filters go as far as they can: conditions to the row groups of files, and what a hash join
//! or the first rows of a sort have learned to the scans below.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::JoinType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;

use super::barrier::{Barrier, Hides};

/// A rule that pushes filters down, with fences around what it would lead them wrongly through. They are gone after it.
#[derive(Debug)]
pub struct Fenced {
    rule: Arc<dyn PhysicalOptimizerRule + Send + Sync>,
}

impl Fenced {
    pub fn new(rule: Arc<dyn PhysicalOptimizerRule + Send + Sync>) -> Self {
        Fenced { rule }
    }
}

impl PhysicalOptimizerRule for Fenced {
    fn name(&self) -> &str {
        self.rule.name()
    }

    fn schema_check(&self) -> bool {
        self.rule.schema_check()
    }

    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        options: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let fenced = plan.transform_up(|node| {
            Ok(if leads_right(node.as_ref()) {
                Transformed::no(node)
            } else {
                Transformed::yes(Arc::new(Barrier::new(node, Hides::Filters)) as _)
            })
        })?;
        let optimized = self.rule.optimize(fenced.data, options)?;
        let open = optimized.transform_up(|node| {
            let below = node.downcast_ref::<Barrier>().and_then(Barrier::unfenced);
            Ok(match below {
                Some(below) => Transformed::yes(Arc::clone(below)),
                None => Transformed::no(node),
            })
        })?;
        Ok(open.data)
    }
}

/// Whether a filter on the node's rows reaches the same columns in its input.
fn leads_right(plan: &dyn ExecutionPlan) -> bool {
    let is_known = plan.is::<DataSourceExec>()
        || plan.is::<FilterExec>()
        || plan.is::<ProjectionExec>()
        || plan.is::<RepartitionExec>()
        || plan.is::<CoalescePartitionsExec>()
        || plan.is::<SortExec>()
        || plan.is::<SortPreservingMergeExec>()
        || plan.downcast_ref::<HashJoinExec>().is_some_and(keys_are_meant);
    let schema = plan.schema();
    let mut names = HashSet::new();
    is_known && schema.fields().iter().all(|field| names.insert(field.name()))
}

/// Whether the other side of a semi join has nothing else by the name of a key.
fn keys_are_meant(join: &HashJoinExec) -> bool {
    let is_left = match join.join_type() {
        JoinType::LeftSemi => true,
        JoinType::RightSemi => false,
        _ => return true,
    };
    join.on().iter().all(|(left, right)| {
        let (key, same, other) = match is_left {
            true => (left, right, join.right()),
            false => (right, left, join.left()),
        };
        let name = |key: &Arc<dyn PhysicalExpr>| Some(key.downcast_ref::<Column>()?.name().to_owned());
        match name(key) {
            Some(key) => name(same).as_ref() == Some(&key) || other.schema().index_of(&key).is_err(),
            None => true,
        }
    })
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array, RecordBatch};
    use datafusion::execution::SessionStateBuilder;
    use datafusion::physical_plan::{collect, displayable};
    use datafusion::prelude::{SessionConfig, SessionContext};

    use super::*;
    use crate::query::physical_optimizer_rules;

    fn context() -> SessionContext {
        let config = SessionConfig::new().with_target_partitions(1);
        let state = SessionStateBuilder::new_with_default_features()
            .with_config(config)
            .with_physical_optimizer_rules(physical_optimizer_rules())
            .build();
        let context = SessionContext::new_with_state(state);
        let rows = |keys: std::ops::Range<i64>| {
            let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(keys));
            let others: ArrayRef = Arc::new(Int64Array::from_iter_values((0..keys.len() as i64).rev()));
            RecordBatch::try_from_iter([("k", keys), ("v", others)]).unwrap()
        };
        context.register_batch("u", rows(0..1_000)).unwrap();
        context.register_batch("s", rows(995..1_005)).unwrap();
        context
    }

    async fn plan(sql: &str) -> (SessionContext, Arc<dyn ExecutionPlan>) {
        let context = context();
        let frame = context.sql(sql).await.unwrap();
        (context, frame.create_physical_plan().await.unwrap())
    }

    async fn count(sql: &str) -> usize {
        let (context, plan) = plan(sql).await;
        let batches = collect(plan, context.task_ctx()).await.unwrap();
        batches.iter().map(RecordBatch::num_rows).sum()
    }

    #[tokio::test]
    async fn names_that_two_columns_have_lead_no_filter_astray() {
        let sql = "SELECT s.k FROM u RIGHT JOIN s ON u.k = s.k WHERE u.k IS NULL";
        assert_eq!(count(sql).await, 5);
        let sql = "SELECT * FROM u JOIN s ON u.k = s.k ORDER BY s.v, u.v LIMIT 3";
        assert_eq!(count(sql).await, 3);
        // The key that is kept is called `k`, and so is a column of the other side that is no key.
        let sql = "SELECT k FROM u LEFT SEMI JOIN s ON u.k = s.v WHERE k + 0 > 2";
        assert_eq!(count(sql).await, 7);
    }

    #[tokio::test]
    async fn fences_are_gone_and_filters_go_as_far_as_they_can() {
        let (_, plan) = plan("SELECT u.v, s.k AS other FROM u JOIN s ON u.k = s.k WHERE u.v > 3").await;
        let shown = displayable(plan.as_ref()).indent(false).to_string();
        assert!(!shown.contains("Barrier"), "{shown}");
        assert!(shown.contains("HashJoinExec"), "{shown}");
    }

    #[test]
    fn what_keeps_names_apart_is_passed() {
        let schema = |names: &[&str]| {
            let columns = names.iter().map(|name| {
                let values: ArrayRef = Arc::new(Int64Array::from(vec![1]));
                (*name, values)
            });
            let batch = RecordBatch::try_from_iter(columns).unwrap();
            let schema = batch.schema();
            datafusion::datasource::memory::MemorySourceConfig::try_new_exec(&[vec![batch]], schema, None)
                .unwrap()
        };
        assert!(leads_right(schema(&["a", "b"]).as_ref()));
        assert!(!leads_right(schema(&["a", "a"]).as_ref()));
    }
}
