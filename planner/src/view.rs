//! A view's query to its stage DAG.
//!
//! Steps: refuse what cannot be maintained and is visible in the query (`check`), optimise with the rules that keep the
//! plan incremental, lower each logical node to an incremental operator (`lower`), cutting a stage at each exchange.

mod aggregate;
mod check;
mod clock;
mod distinct_on;
mod emit;
mod faucet;
mod fragment;
mod generic_join;
mod join;
mod join_time;
mod limit;
mod lower;
mod optimize;
mod ranking;
mod recursive;
mod series;
mod session;
mod session_window;
mod sliding;
mod temporal;
mod time_join;
mod unnest;
mod window;

use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use millrace_sql::streaming::may_fail;
use millrace_sql::workarounds::subquery::single_rows;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::stage::StageGraph;
use crate::stage::flow::FlowLimits;
use crate::stage::policy::{OnError, Priority};
use crate::stage::recursion::RecursionLimits;

/// What a view's plan depends on besides its query.
#[derive(Debug, Clone, Copy)]
pub struct ViewOptions {
    /// Partitions of keyed state.
    pub partitions: usize,
    /// The limits from which a recursion counts as endless.
    pub recursion: RecursionLimits,
    pub emit: Emit,
    /// Whether overlapping windows are put together from panes, where that can be.
    pub slides: bool,
    /// Flow control where rows multiply; without it if there are no batches.
    pub flow: FlowLimits,
    /// Whether cyclic joins are joined all at once, where that can be.
    pub generic_joins: bool,
    pub priority: Priority,
    /// See [`StageGraph::freshness_us`].
    pub freshness_us: Option<u64>,
    pub on_error: OnError,
    /// Whether the rows on which an expression fails are kept.
    pub keeps_errors: bool,
}

/// When a view shows what changes in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Emit {
    /// At once.
    #[default]
    Changes,
    /// Each row once, when it is final: when the watermark is past it, and so many microseconds more.
    OnWindowClose { delay: i64 },
    /// Whenever the time is a multiple of so many microseconds.
    Every(i64),
}

impl ViewOptions {
    /// So many partitions, and the default limits.
    pub fn new(partitions: usize) -> Self {
        ViewOptions {
            partitions,
            recursion: RecursionLimits::default(),
            emit: Emit::default(),
            slides: true,
            flow: FlowLimits::of_cores(partitions),
            generic_joins: true,
            priority: Priority::default(),
            freshness_us: None,
            on_error: OnError::default(),
            keeps_errors: false,
        }
    }
}

/// Plans a bound query as an incrementally maintained view.
///
/// # Errors
/// [`crate::PlanError::NotIncremental`] names the construct that cannot be maintained.
pub fn plan_view(state: &SessionState, plan: LogicalPlan, options: ViewOptions) -> Result<StageGraph> {
    let plan = session_window::recognise(plan)?;
    let plan = clock::replace(plan)?;
    check::check(&plan)?;
    let plan = single_rows(plan)?;
    let plan = distinct_on::as_first_rows(plan)?;
    let plan = may_fail::counted_as_null(plan, |plan| optimize::optimize(state, plan))?;
    clock::check(&plan)?;
    let plan = temporal::narrow(plan)?;
    lower::lower(state, &plan, options)
}
