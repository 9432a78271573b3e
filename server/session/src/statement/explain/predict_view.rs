//! EXPLAIN (PREDICT) of a new view: how long it will take to fill, and whether it will keep up with its inputs, whose changes
//! are counted for a while.

use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_catalog::QueryDef;
use millrace_clarity::forecast::freshness::freshness_forecast;
use millrace_clarity::forecast::view::{
    PlannedInput, PlannedStage, Room, RowsFrom, SeenStage, SeenView, ViewForecast, forecast_view,
};
use millrace_clarity::profile::Nanoseconds;
use millrace_clarity::render::forecast::view_forecast_text;
use millrace_clarity::render::json::{Document, PredictedView};
use millrace_database::database::forecasts::Kind;
use millrace_engine::{ActivityCounts, PipelineStatus, ViewStatus};
use millrace_parser::ast::{ExplainFormat, ExplainOptions};
use millrace_planner::{RelationId, Stage, StageGraph, explain};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_storage::ObjectId;

use super::analyze::json;
use super::watch::{self, task_counts};
use crate::forecasting::nanoseconds;
use crate::session::Session;

/// For how long the inputs are watched if the statement does not say.
const DURATION_DEFAULT: Duration = Duration::from_secs(1);

/// Predicts a view.
pub(super) async fn view(
    session: &Arc<Session>,
    definition: &QueryDef,
    options: &ExplainOptions,
) -> SqlResult<Vec<String>> {
    let duration = watch::duration(options, DURATION_DEFAULT)?;
    let database = session.database();
    let scope = session.scope();
    let planned = database.plan_materialized(&scope.catalog, &scope.database, definition)?;
    let before = Counts::of(session, &planned.graph);
    let begun = Instant::now();
    tokio::time::sleep(duration).await;
    let elapsed = begun.elapsed();
    let after = Counts::of(session, &planned.graph);
    let mut found = of_graph(session, &planned.graph, (&before, &after), elapsed, &[]).ok_or_else(|| {
        SqlError::new(
            SqlState::ObjectNotInPrerequisiteState,
            "no measurements of views on this machine yet",
        )
        .with_hint(
            "Predictions are based on materialized views that were back-filled or have read some \
                    thousand rows: create one first.",
        )
    })?;
    let default = database.tuning().freshness_target;
    let target = definition.freshness_us.map(Duration::from_micros).or(default);
    if let Some(target) = target.filter(|target| !target.is_zero()) {
        let epoch = epoch_now(session, &planned.graph);
        found.freshness = Some(freshness_forecast(nanoseconds(target), epoch, &found));
    }
    match options.format {
        ExplainFormat::Text => Ok(view_forecast_text(&found)),
        _ => json(&Document::new(PredictedView { view_forecast: found })),
    }
}

/// What an epoch takes in 19 of 20 cases of the pipelines that the view will be part of, without what waited for company.
fn epoch_now(session: &Session, graph: &StageGraph) -> Option<Nanoseconds> {
    let pipelines = session.database().runtime().pipelines();
    let reads = |status: &&PipelineStatus| {
        let known = &status.pipeline;
        (graph.inputs.iter())
            .any(|input| known.sources.contains(&input.id) || known.views.contains(&input.id))
    };
    let epochs = pipelines
        .iter()
        .filter(reads)
        .flat_map(|status| &status.pipeline.epochs);
    let mut took: Vec<Nanoseconds> = epochs.map(|epoch| epoch.elapsed_ns).collect();
    took.sort_unstable();
    took.get(took.len().saturating_sub(1) * 95 / 100).copied()
}

/// The views that are planned again for the forecast of another: of more it is not worth while.
const SEEN_MAX: usize = 64;

/// What is forecast of the filling of a view by others than `new`, whatever comes meanwhile. None: nothing is known, or it would take long
/// to find out.
pub(crate) fn filling(
    session: &Session,
    name: &str,
    graph: &StageGraph,
    new: &[RelationId],
) -> Option<ViewForecast> {
    let database = session.database();
    if database.runtime().views().len() > SEEN_MAX {
        return None;
    }
    let now = Counts::of(session, graph);
    let mut said = of_graph(session, graph, (&now, &now), Duration::ZERO, new)?;
    let kept = database.forecasts();
    (said.time, said.certainty) = kept.calibrated(Kind::BackFill, name, said.time, said.certainty);
    Some(said)
}

/// What was counted at one moment.
struct Counts {
    /// Changes of each input of the view.
    changes: Vec<u64>,
    /// Time in which the cores were busy with queries and views, in nanoseconds.
    busy_ns: u64,
}

impl Counts {
    fn of(session: &Session, graph: &StageGraph) -> Counts {
        let runtime = session.database().runtime();
        let changes = |input: RelationId| runtime.changes(input).unwrap_or(0);
        Counts {
            changes: graph.inputs.iter().map(|input| changes(input.id)).collect(),
            busy_ns: runtime.workers().iter().map(|worker| worker.cpu_ns).sum(),
        }
    }
}

fn of_graph(
    session: &Session,
    graph: &StageGraph,
    (before, after): (&Counts, &Counts),
    elapsed: Duration,
    without: &[RelationId],
) -> Option<ViewForecast> {
    let database = session.database();
    let runtime = database.runtime();
    let cores = database.cores();
    let seconds = elapsed.as_secs_f64().max(1e-9);
    let inputs = (graph.inputs.iter().enumerate())
        .map(|(position, input)| PlannedInput {
            name: input.name.clone(),
            rows: runtime.rows(input.id).unwrap_or(0),
            rows_per_second: after.changes[position].saturating_sub(before.changes[position]) as f64
                / seconds,
        })
        .collect();
    let busy = after.busy_ns.saturating_sub(before.busy_ns) as f64 / 1e9;
    let room = Room {
        cores,
        partitions: graph.partitions,
        free: (1.0 - busy / (seconds * cores as f64)).clamp(0.0, 1.0),
    };
    let plan: Vec<PlannedStage> = graph.stages.iter().map(|stage| planned(graph, stage)).collect();
    let seen: Vec<SeenView> = (runtime.views().iter())
        .filter(|status| !without.contains(&status.relation))
        .filter_map(|status| seen(session, status, cores))
        .collect();
    forecast_view(&plan, inputs, &seen, room)
}

fn planned(graph: &StageGraph, stage: &Stage) -> PlannedStage {
    let source = stage.source().and_then(|source| {
        let input = graph.inputs.iter().position(|input| input.id == source);
        input.map(RowsFrom::Input)
    });
    PlannedStage {
        name: explain::stage_name(stage),
        operators: explain::stage_operators(stage),
        inputs: (source.into_iter())
            .chain(stage.upstream().into_iter().map(RowsFrom::Stage))
            .collect(),
    }
}

/// What a view has done so far. Its plan is made again: the runtime keeps none that could be looked at.
fn seen(session: &Session, status: &ViewStatus, cores: usize) -> Option<SeenView> {
    let scope = session.scope();
    let object = scope.catalog.object(ObjectId(status.relation.0))?;
    let definition = object.relation()?.query.clone()?;
    let database = session.database();
    let planned = database
        .plan_materialized(&scope.catalog, &scope.database, &definition)
        .ok()?;
    let filled = status.filled.as_ref();
    let stages = (planned.graph.stages.iter().zip(&status.activity).enumerate())
        .map(|(id, (stage, activity))| {
            let all = task_counts(&ActivityCounts::sum(activity));
            let filling = filled
                .and_then(|filled| filled.activity.get(id))
                .map(task_counts)
                .unwrap_or_default();
            SeenStage {
                operators: explain::stage_operators(stage),
                filling,
                running: all.since(filling),
            }
        })
        .collect();
    Some(SeenView {
        stages,
        filled_in: filled.and_then(|filled| filled.elapsed).map(nanoseconds),
        cores: cores.min(planned.graph.partitions).max(1),
    })
}
