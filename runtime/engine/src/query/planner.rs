//! How a SELECT gets its physical plan: DataFusion's planner, with generic joins for cycles where they are chosen, and with our
//! own UNNEST.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::error::Result;
use datafusion::execution::context::QueryPlanner;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{DefaultPhysicalPlanner, PhysicalPlanner};
use millrace_planner::query::generic_join::{CyclicJoinChoice, choose};
use millrace_planner::stage::flow::FlowLimits;

use super::generic_join::NodePlanner;
use super::unnest;

/// See the module. It goes by extensions of the session's configuration: [`CyclicJoinChoice`] for cycles; [`FlowLimits`] for how
/// much of what UNNEST makes is in flight, and without them, or with no batches, UNNEST is DataFusion's.
#[derive(Debug, Default)]
pub struct BatchPlanner;

#[async_trait]
impl QueryPlanner for BatchPlanner {
    async fn create_physical_plan(
        &self,
        plan: &LogicalPlan,
        session: &dyn Session,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let choice = session.config().get_extension::<CyclicJoinChoice>();
        let plan = choose(plan.clone(), &choice.unwrap_or_default())?;
        let planner = DefaultPhysicalPlanner::with_extension_planners(vec![Arc::new(NodePlanner)]);
        let plan = planner.create_physical_plan(&plan, session).await?;
        match session.config().get_extension::<FlowLimits>() {
            Some(flow) if flow.batches > 0 => unnest::place(plan, *flow),
            _ => Ok(plan),
        }
    }
}
