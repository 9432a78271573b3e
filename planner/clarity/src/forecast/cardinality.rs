//! Guesses how many rows each operator of a plan will be given, before it has run: from what its leaves have, from what operators
//! of its kind were seen to emit, and from DataFusion's statistics.

use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::statistics::StatisticsContext;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, displayable};

use super::query::{PlannedOperator, Rates};

/// The share of its rows that a filter is taken to let through, as DataFusion has it.
const FILTER_SHARE: f64 = 0.2;
/// The share of its rows that become groups.
const GROUP_SHARE: f64 = 0.1;
/// Rows of a leaf that says nothing.
const UNKNOWN_ROWS: f64 = 1_000.0;

/// Rows of a leaf, where whoever runs the plan knows them.
pub type Scanned<'a> = dyn Fn(&dyn ExecutionPlan) -> Option<f64> + 'a;

/// The operators of a plan, an operator before its inputs, with the rows that each will be given.
pub fn planned_operators(
    plan: &dyn ExecutionPlan,
    rates: &Rates,
    scanned: &Scanned<'_>,
) -> Vec<PlannedOperator> {
    let mut operators = vec![];
    walk(plan, rates, scanned, &mut operators);
    operators
}

/// Tasks that may run side by side.
pub fn partitions(plan: &dyn ExecutionPlan) -> usize {
    let own = plan.output_partitioning().partition_count();
    let inputs = plan
        .children()
        .into_iter()
        .map(|input| partitions(input.as_ref()));
    inputs.max().unwrap_or(1).max(own)
}

/// Rows that an operator emits, and whether that is known.
fn walk(
    plan: &dyn ExecutionPlan,
    rates: &Rates,
    scanned: &Scanned<'_>,
    operators: &mut Vec<PlannedOperator>,
) -> (f64, bool) {
    let position = operators.len();
    operators.push(PlannedOperator {
        name: displayable(plan).one_line().to_string().trim().to_owned(),
        rows_in: 0.0,
        is_exact: true,
    });
    let inputs: Vec<(f64, bool)> = plan
        .children()
        .into_iter()
        .map(|input| walk(input.as_ref(), rates, scanned, operators))
        .collect();
    let share = rates.share(&operators[position].name);
    let out = rows_out(plan, share, scanned, &inputs);
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

/// `share`: what operators of its kind were seen to emit for each row.
fn rows_out(
    plan: &dyn ExecutionPlan,
    share: Option<f64>,
    scanned: &Scanned<'_>,
    inputs: &[(f64, bool)],
) -> (f64, bool) {
    if let Some(rows) = scanned(plan) {
        return (rows, true);
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
