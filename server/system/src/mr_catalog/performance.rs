//! `mr_catalog.profiles`, `.monotasks` and `.resources`: the runs that were analysed last, and what they did with each resource.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Float64Array, StringArray, TimestampMicrosecondArray};
use millrace_catalog::role::MONITOR;
use millrace_catalog::scope::Acting;
use millrace_clarity::analysis::UsageAnalysis;
use millrace_clarity::model::model;
use millrace_clarity::profile::{Machine, Monotask, Resource, StageProfile, TaskProfile};
use millrace_clarity::render::text::{kind_name, resource_name};
use millrace_clarity::{Profile, Scenario, analyse, verdict};
use millrace_database::Database;
use millrace_database::database::forecasts::Kept;
use millrace_database::database::profiles::RecentProfile;

use super::{Columns, numbers, texts};
use crate::pg_catalog::activity::HIDDEN;

/// One row a run that was analysed lately: the query, what it took in milliseconds, and what held it back.
pub fn profiles(database: &Database, viewer: Acting) -> Columns {
    let runs = database.profiles().all();
    let may_see = !viewer.is_checked || database.catalog().has_role(viewer.role, MONITOR);
    let query = |run: &Arc<RecentProfile>| {
        if may_see || run.role == viewer.role {
            run.query.clone()
        } else {
            HIDDEN.to_owned()
        }
    };
    let millis = |time: fn(&Profile) -> u64| {
        let values = runs.iter().map(|run| time(&run.profile) as f64 / 1e6);
        Arc::new(Float64Array::from_iter_values(values))
    };
    let verdicts = runs
        .iter()
        .map(|run| verdict(&run.profile, &model(&run.profile, &Scenario::default())));
    vec![
        ("id", numbers(runs.iter().map(|run| run.id))),
        ("query", texts(runs.iter().map(query))),
        ("planning_ms", millis(|profile| profile.planning)),
        ("elapsed_ms", millis(|profile| profile.planning + profile.end)),
        (
            "stages",
            numbers(runs.iter().map(|run| run.profile.stages.len() as u64)),
        ),
        ("verdict", texts(verdicts)),
    ]
}

/// One row a query or back-fill that took some time lately: what was forecast, and what it took, in milliseconds.
pub fn forecasts(database: &Database, viewer: Acting) -> Columns {
    let kept = database.forecasts().all();
    let may_see = !viewer.is_checked || database.catalog().has_role(viewer.role, MONITOR);
    let subject = |forecast: &Arc<Kept>| match may_see || forecast.role == viewer.role {
        true => forecast.subject.clone(),
        false => HIDDEN.to_owned(),
    };
    let millis = |time: fn(&Kept) -> u64| -> ArrayRef {
        let values = kept.iter().map(|forecast| time(forecast) as f64 / 1e6);
        Arc::new(Float64Array::from_iter_values(values))
    };
    let ratio = kept.iter().map(|forecast| forecast.outcome.ratio());
    let inside: BooleanArray = kept
        .iter()
        .map(|forecast| Some(forecast.outcome.is_inside()))
        .collect();
    let at = kept.iter().map(|forecast| (forecast.at_ns / 1_000) as i64);
    vec![
        (
            "at",
            Arc::new(TimestampMicrosecondArray::from_iter_values(at).with_timezone("UTC")),
        ),
        (
            "kind",
            texts(kept.iter().map(|forecast| forecast.kind.name().to_owned())),
        ),
        ("subject", texts(kept.iter().map(subject))),
        ("expected_ms", millis(|forecast| forecast.outcome.time.expected)),
        ("low_ms", millis(|forecast| forecast.outcome.time.low)),
        ("high_ms", millis(|forecast| forecast.outcome.time.high)),
        (
            "certainty",
            texts(
                kept.iter()
                    .map(|forecast| forecast.outcome.certainty.name().to_owned()),
            ),
        ),
        ("runs", numbers(kept.iter().map(|forecast| forecast.runs as u64))),
        ("took_ms", millis(|forecast| forecast.outcome.took)),
        ("ratio", Arc::new(Float64Array::from_iter_values(ratio))),
        ("inside", Arc::new(inside)),
    ]
}

/// One row a monotask of a recent run, by stage, partition and start. Times are in microseconds, instants since the run began.
pub fn monotasks(database: &Database) -> Columns {
    struct Row<'a> {
        run: &'a RecentProfile,
        stage: &'a StageProfile,
        task: &'a TaskProfile,
        monotask: &'a Monotask,
    }
    let runs = database.profiles().all();
    let mut rows: Vec<Row<'_>> = vec![];
    for run in &runs {
        for stage in &run.profile.stages {
            for task in &stage.tasks {
                rows.extend(task.monotasks.iter().map(|monotask| Row {
                    run,
                    stage,
                    task,
                    monotask,
                }));
            }
        }
    }
    let micros = |time: fn(&Monotask) -> u64| {
        let values = rows.iter().map(|row| time(row.monotask) as f64 / 1e3);
        Arc::new(Float64Array::from_iter_values(values))
    };
    vec![
        ("profile", numbers(rows.iter().map(|row| row.run.id))),
        ("stage", numbers(rows.iter().map(|row| row.stage.id as u64))),
        (
            "partition",
            numbers(rows.iter().map(|row| row.task.partition as u64)),
        ),
        (
            "worker",
            numbers(rows.iter().map(|row| u64::from(row.task.worker))),
        ),
        (
            "resource",
            texts(
                rows.iter()
                    .map(|row| resource_name(&row.run.profile, row.monotask.resource)),
            ),
        ),
        (
            "kind",
            texts(rows.iter().map(|row| kind_name(row.monotask.kind).to_owned())),
        ),
        ("queued_us", micros(|monotask| monotask.queued_at)),
        ("started_us", micros(|monotask| monotask.started_at)),
        ("service_us", micros(|monotask| monotask.service)),
        ("bytes", numbers(rows.iter().map(|row| row.monotask.bytes))),
        ("rows", numbers(rows.iter().map(|row| row.monotask.rows))),
    ]
}

/// One row a resource and kind of monotask that a recent run used.
pub fn resources(database: &Database) -> Columns {
    let runs = database.profiles().all();
    let rows: Vec<(&RecentProfile, usize, UsageAnalysis)> = runs
        .iter()
        .flat_map(|run| {
            let stages = analyse(&run.profile, None).stages;
            stages
                .into_iter()
                .flat_map(move |stage| stage.usage.into_iter().map(move |usage| (stage.id, usage)))
                .map(move |(stage, usage)| (run.as_ref(), stage, usage))
        })
        .collect();
    let micros = |time: fn(&UsageAnalysis) -> f64| {
        let values = rows.iter().map(|(.., usage)| time(usage) / 1e3);
        Arc::new(Float64Array::from_iter_values(values))
    };
    vec![
        ("profile", numbers(rows.iter().map(|(run, ..)| run.id))),
        ("stage", numbers(rows.iter().map(|(_, stage, _)| *stage as u64))),
        (
            "resource",
            texts(
                rows.iter()
                    .map(|(run, _, usage)| resource_name(&run.profile, usage.resource)),
            ),
        ),
        (
            "kind",
            Arc::new(StringArray::from_iter(
                rows.iter().map(|(.., usage)| usage.kind.map(kind_name)),
            )),
        ),
        (
            "monotasks",
            numbers(rows.iter().map(|(.., usage)| usage.monotasks)),
        ),
        ("service_us", micros(|usage| usage.service as f64)),
        ("queue_us", micros(|usage| usage.queue as f64)),
        ("ideal_us", micros(|usage| usage.ideal)),
        (
            "utilisation",
            Arc::new(Float64Array::from_iter_values(
                rows.iter().map(|(.., usage)| usage.utilisation),
            )),
        ),
        ("bytes", numbers(rows.iter().map(|(.., usage)| usage.bytes))),
        ("rows", numbers(rows.iter().map(|(.., usage)| usage.rows))),
        (
            "at_once",
            numbers(
                rows.iter()
                    .map(|(run, _, usage)| at_once(&run.profile.machine, usage.resource) as u64),
            ),
        ),
        (
            "tasks_at_once",
            numbers(
                rows.iter()
                    .map(|(run, ..)| run.profile.machine.tasks_in_flight as u64),
            ),
        ),
    ]
}

/// Monotasks that a resource's scheduler lets run at once.
fn at_once(machine: &Machine, resource: Resource) -> usize {
    match resource {
        Resource::Cpu => machine.cores,
        Resource::Disk(disk) => machine.disks.get(disk).map_or(0, |disk| disk.concurrency),
        Resource::Network => machine.network.as_ref().map_or(0, |network| network.concurrency),
    }
}
