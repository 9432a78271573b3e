//! DataFusion's analyzer and optimizer, with the rules that suit a plan which runs once an epoch forever.

use std::sync::Arc;

use datafusion::error::Result;
use datafusion::execution::SessionState;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::OptimizerRule;

use super::clock;
use crate::query::{Wanted, logical_optimizer_rules};

/// Rules that would spoil an incremental plan: DISTINCT inside aggregates has its own maintained form, and a limit
/// pushed below a union or a join would drop rows that a later deletion brings back.
const LEFT_OUT: [&str; 2] = ["single_distinct_aggregation_to_group_by", "push_down_limit"];

/// Rules that would move `now()` to where no filter can follow it: into a projection below its conditions, or into the
/// condition of a semi join.
const LEFT_OUT_WITH_CLOCK: [&str; 2] = ["common_sub_expression_eliminate", "eliminate_join"];

pub(super) fn optimize(state: &SessionState, plan: LogicalPlan) -> Result<LogicalPlan> {
    let wanted = state.config().get_extension::<Wanted>();
    let wanted = wanted.map(|wanted| *wanted).unwrap_or_default();
    let reads_clock = clock::is_read(&plan)?;
    let mut rules: Vec<Arc<dyn OptimizerRule + Send + Sync>> = logical_optimizer_rules(wanted);
    rules.retain(|rule| {
        let is_left_out = LEFT_OUT.contains(&rule.name());
        !(is_left_out || reads_clock && LEFT_OUT_WITH_CLOCK.contains(&rule.name()))
    });
    let mut config = state.config().clone();
    // A scalar subquery becomes a join, which is maintained; as a physical subquery it would be evaluated once.
    config
        .options_mut()
        .optimizer
        .enable_physical_uncorrelated_scalar_subquery = false;
    let state = SessionStateBuilder::new_from_existing(state.clone())
        .with_config(config)
        .with_optimizer_rules(rules)
        .build();
    state.optimize(&plan)
}
