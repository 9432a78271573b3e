//! EXPLAIN (PREDICT) of a query: what it will take, from the rows that it will read and the runs that were analysed before.

use std::sync::Arc;
use std::time::Instant;

use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::statistics::StatisticsContext;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, displayable};
use datafusion::sql::sqlparser::ast;
use millrace_clarity::forecast::{Forecast, PlannedOperator, Rates, forecast};
use millrace_clarity::render::{ForecastDocument, forecast_text};
use millrace_parser::ast::{ExplainFormat, ExplainOptions};
use millrace_runtime::scanned_rows;

use super::analyze::json;
use super::slowness::slowness;
use crate::database::Database;
use crate::error::SqlResult;
use crate::session::Session;
use crate::session::query::Providers;
use crate::session::statement::select;

/// The share of its rows that a filter is taken to let through, as DataFusion has it.
const FILTER_SHARE: f64 = 0.2;
/// The share of its rows that become groups.
const GROUP_SHARE: f64 = 0.1;
/// Rows of a leaf that says nothing.
const UNKNOWN_ROWS: f64 = 1_000.0;

/// Predicts a query.
pub(super) async fn query(
    session: &Arc<Session>,
    sql: &mut ast::Statement,
    options: &ExplainOptions,
) -> SqlResult<Vec<String>> {
    let begun = Instant::now();
    let scope = session.scope();
    let query_text = sql.to_string();
    let (plan, _) = select::bind(session, &scope, sql, select::Purpose::Run)?;
    let physical = session.physical_plan(plan, &Providers::new()).await?;
    let planning = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let found = of_plan(session.database(), &query_text, &physical, planning);
    match options.format {
        ExplainFormat::Text => Ok(forecast_text(&found)),
        _ => json(&ForecastDocument::new(found)),
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
    let mut operators = vec![];
    walk(plan.as_ref(), &rates, &mut operators);
    let partitions = partitions(plan.as_ref());
    forecast(&operators, &rates, database.cores(), partitions, planning)
}

/// Tasks that may run side by side.
fn partitions(plan: &dyn ExecutionPlan) -> usize {
    let own = plan.output_partitioning().partition_count();
    let inputs = plan
        .children()
        .into_iter()
        .map(|input| partitions(input.as_ref()));
    inputs.max().unwrap_or(1).max(own)
}

/// Rows that an operator puts out, and whether that is known.
fn walk(plan: &dyn ExecutionPlan, rates: &Rates, operators: &mut Vec<PlannedOperator>) -> (f64, bool) {
    let position = operators.len();
    operators.push(PlannedOperator {
        name: displayable(plan).one_line().to_string().trim().to_owned(),
        rows_in: 0.0,
        is_exact: true,
    });
    let inputs: Vec<(f64, bool)> = plan
        .children()
        .into_iter()
        .map(|input| walk(input.as_ref(), rates, operators))
        .collect();
    let share = rates.share(&operators[position].name);
    let out = rows_out(plan, share, &inputs);
    let (rows_in, is_exact) = match inputs.is_empty() {
        true => out,
        false => (
            inputs.iter().map(|(rows, _)| rows).sum(),
            inputs.iter().all(|(_, is_exact)| *is_exact),
        ),
    };
    operators[position].rows_in = rows_in;
    operators[position].is_exact = is_exact;
    out
}

/// `share`: what operators of its kind were seen to put out for each row.
fn rows_out(plan: &dyn ExecutionPlan, share: Option<f64>, inputs: &[(f64, bool)]) -> (f64, bool) {
    if let Some(rows) = scanned_rows(plan) {
        return (rows as f64, true);
    }
    let known = StatisticsContext::default()
        .compute(plan, &Default::default())
        .ok()
        .and_then(|statistics| statistics.num_rows.get_value().copied());
    let is_leaf = inputs.is_empty();
    let total: f64 = inputs.iter().map(|(rows, _)| rows).sum();
    let most = inputs.iter().map(|(rows, _)| *rows).fold(0.0, f64::max);
    let is_exact = inputs.iter().all(|(_, is_exact)| *is_exact);
    if is_leaf {
        known.map_or((UNKNOWN_ROWS, false), |rows| (rows as f64, true))
    } else if plan.is::<FilterExec>() {
        (total * share.unwrap_or(FILTER_SHARE), false)
    } else if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        match aggregate.group_expr().is_empty() {
            true => (1.0, true),
            false => ((total * share.unwrap_or(GROUP_SHARE)).max(1.0), false),
        }
    } else if let (Some(rows), true) = (known, inputs.len() > 1) {
        (rows as f64, false)
    } else if inputs.len() > 1 {
        (most, false)
    } else {
        let rows = plan.fetch().map_or(total, |fetch| total.min(fetch as f64));
        (rows, is_exact)
    }
}
