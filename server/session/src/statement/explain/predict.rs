//! EXPLAIN (PREDICT) of a query: what it will take, from the rows that it will read and the runs that were analysed before.

use std::sync::Arc;
use std::time::Instant;

use datafusion::physical_plan::ExecutionPlan;
use datafusion::sql::sqlparser::ast;
use millrace_catalog::scope::Scope;
use millrace_clarity::forecast::cardinality::{partitions, planned_operators};
use millrace_clarity::forecast::query::{Forecast, Rates, forecast};
use millrace_clarity::probe::slowness;
use millrace_clarity::render::forecast::forecast_text;
use millrace_clarity::render::json::{Document, Predicted};
use millrace_database::Database;
use millrace_engine::scanned_rows;
use millrace_parser::ast::{ExplainFormat, ExplainOptions};
use millrace_postgres::error::SqlResult;

use super::analyze::json;
use crate::query::Providers;
use crate::session::Session;
use crate::statement::select;

/// Predicts a query.
pub(super) async fn query(
    session: &Arc<Session>,
    scope: &Scope,
    sql: &mut ast::Statement,
    query_text: String,
    options: &ExplainOptions,
) -> SqlResult<Vec<String>> {
    let begun = Instant::now();
    let (plan, _) = select::bind(session, scope, sql, select::Purpose::Run)?;
    let physical = session.physical_plan(plan, &Providers::new()).await?;
    let planning = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let found = of_plan(session.database(), &query_text, &physical, planning);
    match options.format {
        ExplainFormat::Text => Ok(forecast_text(&found)),
        _ => json(&Document::new(Predicted { forecast: found })),
    }
}

/// The forecast of a plan. Runs of the same text count alone.
pub(super) fn of_plan(
    database: &Database,
    query_text: &str,
    plan: &Arc<dyn ExecutionPlan>,
    planning: u64,
) -> Forecast {
    let recent = database.profiles().all();
    let same: Vec<_> = recent.iter().filter(|run| run.query == query_text).collect();
    let rates = match same.is_empty() {
        true => Rates::of(recent.iter().map(|run| &run.profile), slowness()),
        false => Rates::of(same.iter().map(|run| &run.profile), slowness()),
    };
    let scanned = |leaf: &dyn ExecutionPlan| scanned_rows(leaf).map(|rows| rows as f64);
    let operators = planned_operators(plan.as_ref(), &rates, &scanned);
    let partitions = partitions(plan.as_ref());
    forecast(&operators, &rates, database.cores(), partitions, planning)
}
