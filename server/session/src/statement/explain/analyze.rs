//! EXPLAIN ANALYZE of a query: runs it and says where its time went (see `millrace_clarity`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::physical_plan::display::DisplayableExecutionPlan;
use datafusion::sql::sqlparser::ast;
use millrace_catalog::scope::Scope;
use millrace_clarity::render::forecast::forecast_line;
use millrace_clarity::render::json::{Document, Run};
use millrace_clarity::render::text::text;
use millrace_clarity::{Scenario, Speed, analyse};
use millrace_database::database::profiles::RecentProfile;
use millrace_parser::ast::{self as statements, ExplainFormat, ExplainOptions};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_resource::cpu::stolen_time;
use serde::Serialize;

use super::{predict, split};
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
    let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let forecast = predict::of_plan(session.database(), &query_text, &physical, nanoseconds(planning));
    let mut profile = session.profile_physical(Arc::clone(&physical), planning).await?;
    profile.machine.stolen = nanoseconds(stolen_time().saturating_sub(stolen));
    let kept = (session.database().profiles()).keep(session.id(), query_text, profile);
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

/// A run that was analysed before, in the light of another question.
pub(super) fn kept(session: &Session, id: u64, options: &ExplainOptions) -> SqlResult<Vec<String>> {
    let kept = session.database().profiles().get(id).ok_or_else(|| {
        SqlError::new(
            SqlState::UndefinedObject,
            format!("profile {id} does not exist; only those of the last runs are stored"),
        )
        .with_hint("SELECT id, query FROM mr_catalog.profiles lists them.")
    })?;
    shown(&kept, options)
}

/// A profile in the form that was asked for.
fn shown(run: &RecentProfile, options: &ExplainOptions) -> SqlResult<Vec<String>> {
    let analysis = analyse(&run.profile, options.what_if.as_ref().map(scenario));
    match options.format {
        ExplainFormat::Text => Ok(text(&run.profile, &analysis)),
        ExplainFormat::Json | ExplainFormat::Dot => json(&Document::new(Run {
            id: Some(run.id),
            profile: run.profile.clone(),
            analysis,
        })),
    }
}

/// A document as the one row of FORMAT JSON.
pub(super) fn json(document: &impl Serialize) -> SqlResult<Vec<String>> {
    serde_json::to_string_pretty(document)
        .map(|json| vec![json])
        .map_err(|error| SqlError::internal(format!("an explanation as JSON: {error}")))
}

/// What the statement wants to be different, for the model.
pub(super) fn scenario(what_if: &statements::WhatIf) -> Scenario {
    let speed = |asked: Option<statements::Speed>| match asked {
        None => Speed::default(),
        Some(statements::Speed::Times(factor)) => Speed::Times(factor),
        Some(statements::Speed::Infinite) => Speed::Infinite,
    };
    Scenario {
        cores: what_if.cores,
        disks: what_if.disks,
        disk: speed(what_if.disk),
        network: speed(what_if.network),
        input_in_memory: what_if.input_in_memory,
    }
}
