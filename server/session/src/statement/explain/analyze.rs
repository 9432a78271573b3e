//! EXPLAIN ANALYZE of a query: runs it and says where its time went (see `millrace_clarity`).

use std::sync::Arc;
use std::time::Instant;

use datafusion::physical_plan::display::DisplayableExecutionPlan;
use datafusion::sql::sqlparser::ast;
use millrace_catalog::role::MONITOR;
use millrace_catalog::scope::Scope;
use millrace_clarity::memory;
use millrace_clarity::profile::MemoryUse;
use millrace_clarity::render::forecast::forecast_line;
use millrace_clarity::render::json::{Document, Run};
use millrace_clarity::render::text::text;
use millrace_clarity::{Scenario, Speed, analyse};
use millrace_database::database::forecasts::FORECAST_MIN;
use millrace_database::database::profiles::{Recent, RecentProfile};
use millrace_parser::ast::{self as statements, ExplainFormat, ExplainOptions};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::units;
use millrace_resource::cpu::stolen_time;
use serde::Serialize;

use super::{split, watch};
use crate::access::check_role;
use crate::forecasting::{self, nanoseconds, of_plan};
use crate::query::Providers;
use crate::session::Session;
use crate::statement::select;

/// Runs a query for its profile; its rows are thrown away.
pub(super) async fn query(
    session: &Arc<Session>,
    scope: &Scope,
    sql: &mut ast::Statement,
    query_text: String,
    options: &ExplainOptions,
) -> SqlResult<Vec<String>> {
    let (begun, stolen) = (Instant::now(), stolen_time());
    let (plan, _) = select::bind(session, scope, sql, select::Purpose::Run)?;
    let physical = session.physical_plan(plan, &Providers::new()).await?;
    let planning = begun.elapsed();
    // What would have been said before: this run is not among those that it rests on.
    let forecast = of_plan(session.database(), &query_text, &physical, nanoseconds(planning));
    let mut profile = session.profile_physical(Arc::clone(&physical), planning).await?;
    profile.machine.stolen = nanoseconds(stolen_time().saturating_sub(stolen));
    let took = profile.planning + profile.end;
    if took >= nanoseconds(FORECAST_MIN) {
        let database = session.database();
        forecasting::keep(database, &query_text, scope.acting.role, &forecast, took);
    }
    let by = (scope.acting.role, session.id());
    let kept = (session.database().profiles()).keep(by, query_text, profile);
    let mut lines = shown(&kept, options)?;
    let id = kept.id;
    if options.format == ExplainFormat::Text {
        if options.verbose {
            let plan = DisplayableExecutionPlan::with_metrics(physical.as_ref()).indent(true);
            let at = lines.len() - 1;
            lines.splice(
                at..at,
                split(&plan.to_string()).into_iter().chain([String::new()]),
            );
        }
        let at = lines.len() - 1;
        // A guess without any run is for those who cannot run it.
        if forecast.runs > 0 {
            lines.insert(at, format!("before it ran, {}", forecast_line(&forecast)));
        }
        lines.insert(
            at,
            format!("profile {id}: GET /api/jobs/{id}/profile, as a trace with ?format=trace"),
        );
    }
    Ok(lines)
}

/// A run that was analysed before, or a view that was watched, in the light of another question. What others' were is for members of
/// `pg_monitor`.
pub(super) fn kept(session: &Session, id: u64, options: &ExplainOptions) -> SqlResult<Vec<String>> {
    let kept = session.database().profiles().get(id).ok_or_else(|| {
        SqlError::new(
            SqlState::UndefinedObject,
            format!("profile {id} does not exist; only those of the last runs are stored"),
        )
        .with_hint("SELECT id, query FROM mr_catalog.profiles lists them.")
    })?;
    let scope = session.scope();
    if kept.role() != scope.acting.role {
        check_role(&scope, MONITOR, "see how others' statements ran")?;
    }
    match kept {
        Recent::Run(run) => shown(&run, options),
        Recent::View(view) => {
            let asked = options.what_if.as_ref().map(scenario).transpose()?;
            watch::shown(&view, asked, options)
        }
    }
}

/// A profile in the form that was asked for.
fn shown(run: &RecentProfile, options: &ExplainOptions) -> SqlResult<Vec<String>> {
    let asked = options.what_if.as_ref().map(scenario).transpose()?;
    check_memory(run.profile.machine.memory, asked)?;
    let analysis = analyse(&run.profile, asked);
    match options.format {
        ExplainFormat::Text => Ok(text(&run.profile, &analysis)),
        ExplainFormat::Json | ExplainFormat::Dot => json(&Document::new(Run {
            id: Some(run.id),
            profile: run.profile.clone(),
            analysis,
        })),
    }
}

/// Refuses to say what another amount of memory would change where the model cannot know.
pub(super) fn check_memory(used: Option<MemoryUse>, asked: Option<Scenario>) -> SqlResult<()> {
    let Some(memory) = asked.and_then(|asked| asked.memory) else {
        return Ok(());
    };
    memory::check(used, memory).map_err(|why| {
        let error = SqlError::new(
            SqlState::InvalidParameterValue,
            format!("EXPLAIN option WHAT IF cannot tell what \"memory\" would change: {why}"),
        );
        match used {
            Some(used) => error.with_hint(format!("Ask for {} or more.", units::size_text(used.needed()))),
            None => error.with_hint("Ask about one view: EXPLAIN ANALYZE (WHAT IF (..)) MATERIALIZED VIEW."),
        }
    })
}

/// A document as the one row of FORMAT JSON.
pub(super) fn json(document: &impl Serialize) -> SqlResult<Vec<String>> {
    serde_json::to_string_pretty(document)
        .map(|json| vec![json])
        .map_err(|error| SqlError::internal(format!("an explanation as JSON: {error}")))
}

/// What the statement wants to be different, for the model.
///
/// # Errors
/// A size of memory that is none.
pub(super) fn scenario(what_if: &statements::WhatIf) -> SqlResult<Scenario> {
    let speed = |asked: Option<statements::Speed>| match asked {
        None => Speed::default(),
        Some(statements::Speed::Times(factor)) => Speed::Times(factor),
        Some(statements::Speed::Infinite) => Speed::Infinite,
    };
    let memory = what_if.memory.as_ref().map(|text| {
        units::size(text).map_err(|why| {
            let message = format!("invalid value for \"memory\" in WHAT IF: \"{text}\"");
            SqlError::new(SqlState::InvalidParameterValue, message).with_hint(why)
        })
    });
    Ok(Scenario {
        cores: what_if.cores,
        disks: what_if.disks,
        disk: speed(what_if.disk),
        network: speed(what_if.network),
        memory: memory.transpose()?,
        input_in_memory: what_if.input_in_memory,
    })
}
