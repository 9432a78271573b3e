//! The relations of `mr_catalog`: what the runtime knows of itself, at the moment when a statement is bound.

mod disks;
pub mod flow;
mod memory;
mod performance;
mod recovery;
mod sinks;
mod stages;
mod subscriptions;
mod tasks;

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{
    ArrayRef, Float64Array, Int64Array, IntervalMonthDayNanoArray, RecordBatch, StringArray,
    TimestampMicrosecondArray,
};
use arrow::datatypes::IntervalMonthDayNano;
use datafusion::catalog::{MemTable, TableProvider};
use millrace_planner::Priority;

use millrace_catalog::Object;
use millrace_database::Database;
use millrace_database::database::jobs::JobInfo;
use millrace_engine::WatermarkStatus;
use millrace_planner::growth::GrowingState;
use millrace_postgres::error::SqlResult;
use millrace_postgres::from_internal::{self, df};
use millrace_schedule::driver::{GroupRecord, PipelineRecord};
use millrace_storage::ObjectId;

use crate::pg_catalog::SystemRelation;

/// The names of the relations.
pub const RELATIONS: [&str; 21] = [
    "batches",
    "checkpoints",
    "disks",
    "feeds",
    "flow",
    "generators",
    "groups",
    "jobs",
    "late_rows",
    "memory",
    "monotasks",
    "recovery",
    "resources",
    "sinks",
    "stages",
    "subscriptions",
    "tasks",
    "unbounded_state",
    "views",
    "watermarks",
    "workers",
];

/// All of them with their columns.
///
/// # Errors
/// The rows of one could not be put together.
pub fn shapes(database: &Database) -> SqlResult<Vec<SystemRelation>> {
    let shape = |name: &'static str| Ok((name, relation(database, name)?));
    let found: Vec<_> = RELATIONS.into_iter().map(shape).collect::<SqlResult<_>>()?;
    let shapes = found.into_iter();
    Ok(shapes
        .filter_map(|(name, relation)| Some((name, relation?.schema())))
        .collect())
}

/// A relation by name; `None`: there is none.
///
/// # Errors
/// Its rows could not be put together.
pub fn relation(database: &Database, name: &str) -> SqlResult<Option<Arc<dyn TableProvider>>> {
    let columns = match name {
        "batches" => batches(database),
        "checkpoints" => recovery::checkpoints(database),
        "disks" => disks::columns(database),
        "feeds" => flow::feeds(database),
        "flow" => flow::columns(database),
        "generators" => generators(database),
        "groups" => groups(database),
        "jobs" => jobs(database),
        "late_rows" => late_rows(database),
        "memory" => memory::columns(database),
        "monotasks" => performance::monotasks(database),
        "recovery" => recovery::recovery(database),
        "resources" => performance::resources(database),
        "sinks" => sinks::columns(database),
        "stages" => stages::columns(database),
        "subscriptions" => subscriptions::columns(database),
        "tasks" => tasks::columns(database),
        "unbounded_state" => unbounded_state(database),
        "views" => views(database),
        "watermarks" => watermarks(database),
        "workers" => workers(database),
        _ => return Ok(None),
    };
    let batch = RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, array)| (name, array, true)),
    )
    .map_err(from_internal::arrow)?;
    Ok(Some(Arc::new(df(MemTable::try_new(
        batch.schema(),
        vec![vec![batch]],
    ))?)))
}

type Columns = Vec<(&'static str, ArrayRef)>;

fn numbers(values: impl Iterator<Item = u64>) -> ArrayRef {
    Arc::new(Int64Array::from_iter(
        values.map(|value| i64::try_from(value).ok()),
    ))
}

fn optional_numbers(values: impl Iterator<Item = Option<u64>>) -> ArrayRef {
    Arc::new(Int64Array::from_iter(
        values.map(|value| value.and_then(|value| i64::try_from(value).ok())),
    ))
}

fn texts(values: impl Iterator<Item = String>) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(values))
}

/// One row a stream that a connector fills: rows that were made, of how many, at which rate, and why it stopped.
fn generators(database: &Database) -> Columns {
    let catalog = database.catalog();
    let all: Vec<_> = (database.generators().list().into_iter())
        .filter_map(|info| Some((catalog.object(info.stream)?.clone(), info)))
        .collect();
    let connector = |object: &Object| -> String {
        let relation = object.relation();
        let connector = relation.and_then(|relation| relation.connector.as_ref());
        connector
            .map(|connector| connector.name().to_owned())
            .unwrap_or_default()
    };
    vec![
        ("name", texts(all.iter().map(|(object, _)| object.display_name()))),
        (
            "connector",
            texts(all.iter().map(|(object, _)| connector(object))),
        ),
        (
            "rows_done",
            numbers(all.iter().map(|(_, info)| info.progress.position)),
        ),
        (
            "rows_total",
            optional_numbers(all.iter().map(|(_, info)| info.rows_max)),
        ),
        ("rate", optional_numbers(all.iter().map(|(_, info)| info.rate))),
        (
            "state",
            texts(all.iter().map(|(_, info)| {
                let progress = &info.progress;
                match (progress.ended, &progress.failure) {
                    (_, Some(_)) => "failed",
                    (true, None) => "ended",
                    (false, None) => "running",
                }
                .to_owned()
            })),
        ),
        (
            "error",
            Arc::new(StringArray::from_iter(
                all.iter().map(|(_, info)| info.progress.failure.clone()),
            )),
        ),
    ]
}

/// One row a pipeline: its last committed epoch, what belongs to it, and what waits.
fn batches(database: &Database) -> Columns {
    let pipelines = database.runtime().pipelines();
    vec![
        (
            "pipeline",
            numbers(pipelines.iter().map(|pipeline| pipeline.pipeline.id.0)),
        ),
        (
            "epoch",
            numbers(pipelines.iter().map(|pipeline| pipeline.pipeline.committed)),
        ),
        (
            "sources",
            numbers(
                pipelines
                    .iter()
                    .map(|pipeline| pipeline.pipeline.sources.len() as u64),
            ),
        ),
        (
            "views",
            numbers(
                pipelines
                    .iter()
                    .map(|pipeline| pipeline.pipeline.views.len() as u64),
            ),
        ),
        (
            "group_size",
            numbers(pipelines.iter().map(|pipeline| pipeline.pipeline.group_size)),
        ),
        (
            "workers",
            numbers(pipelines.iter().map(|pipeline| pipeline.pipeline.workers as u64)),
        ),
        (
            "writes_waiting",
            numbers(pipelines.iter().map(|pipeline| pipeline.writes_waiting as u64)),
        ),
    ]
}

/// One row a view that is being made, or could not be.
fn jobs(database: &Database) -> Columns {
    let jobs = database.job_infos();
    let time = |value: Option<Duration>| {
        let nanoseconds = i64::try_from(value?.as_nanos()).ok()?;
        Some(IntervalMonthDayNano::new(0, 0, nanoseconds))
    };
    let elapsed = jobs.iter().map(|job| time(Some(job.elapsed)));
    let time_left = jobs.iter().map(|job| time(job.time_left));
    vec![
        ("id", numbers(jobs.iter().map(|job| job.id.0))),
        ("view", texts(jobs.iter().map(|job| job.view.clone()))),
        ("state", texts(jobs.iter().map(|job| job.state.to_string()))),
        ("rows_done", numbers(jobs.iter().map(|job| job.rows_done))),
        ("rows_total", numbers(jobs.iter().map(|job| job.rows_total))),
        (
            "percent",
            Arc::new(Float64Array::from_iter_values(jobs.iter().map(JobInfo::percent))),
        ),
        ("elapsed", Arc::new(IntervalMonthDayNanoArray::from_iter(elapsed))),
        (
            "time_left",
            Arc::new(IntervalMonthDayNanoArray::from_iter(time_left)),
        ),
        ("on_disk_bytes", numbers(jobs.iter().map(|job| job.on_disk_bytes))),
        (
            "error",
            Arc::new(StringArray::from_iter(jobs.iter().map(|job| job.error.clone()))),
        ),
    ]
}

/// One row a materialized view: its size, how often an expression of it failed, and why it failed, if it did.
fn views(database: &Database) -> Columns {
    let catalog = database.catalog();
    let mut views = database.runtime().views();
    for view in &mut views {
        // It may have been renamed since it was made.
        if let Some(object) = catalog.object(ObjectId(view.relation.0)) {
            view.name = object.name.clone();
        }
    }
    let optional = |values: Vec<Option<String>>| -> ArrayRef { Arc::new(StringArray::from(values)) };
    vec![
        ("relation", numbers(views.iter().map(|view| view.relation.0))),
        ("name", texts(views.iter().map(|view| view.name.clone()))),
        ("rows", numbers(views.iter().map(|view| view.rows as u64))),
        (
            "state_bytes",
            numbers(views.iter().map(|view| view.state_bytes as u64)),
        ),
        (
            "on_disk_bytes",
            numbers(views.iter().map(|view| view.on_disk_bytes as u64)),
        ),
        (
            "expression_errors",
            numbers(views.iter().map(|view| view.expression_errors)),
        ),
        (
            "last_expression_error",
            optional(
                views
                    .iter()
                    .map(|view| view.last_expression_error.clone())
                    .collect(),
            ),
        ),
        (
            "failure",
            optional(views.iter().map(|view| view.failure.clone()).collect()),
        ),
    ]
}

/// One row an operator of a materialized view whose state grows without bound.
fn unbounded_state(database: &Database) -> Columns {
    let catalog = database.catalog();
    let growing: Vec<(&Object, &GrowingState)> = catalog
        .objects()
        .filter_map(|object| Some((object.as_ref(), object.relation()?)))
        .flat_map(|(object, relation)| relation.growth.state.iter().map(move |state| (object, state)))
        .collect();
    vec![
        ("relation", numbers(growing.iter().map(|(object, _)| object.id.0))),
        (
            "name",
            texts(growing.iter().map(|(object, _)| object.name.clone())),
        ),
        (
            "operator",
            texts(growing.iter().map(|(_, state)| state.operator.clone())),
        ),
        (
            "keeps",
            texts(growing.iter().map(|(_, state)| state.keeps.clone())),
        ),
        (
            "stream",
            texts(growing.iter().map(|(_, state)| state.stream.clone())),
        ),
    ]
}

/// One row a group of epochs that ended lately, the newest of a pipeline last. Times are in microseconds.
fn groups(database: &Database) -> Columns {
    let pipelines = database.runtime().pipelines();
    let groups: Vec<(&PipelineRecord, &GroupRecord)> = pipelines
        .iter()
        .flat_map(|status| {
            let pipeline = &status.pipeline;
            pipeline.groups.iter().map(move |group| (pipeline, group))
        })
        .collect();
    let micros = |time: fn(&GroupRecord) -> u64| numbers(groups.iter().map(|(_, group)| time(group) / 1000));
    let counts = |count: fn(&GroupRecord) -> u64| numbers(groups.iter().map(|(_, group)| count(group)));
    let priority = |pipeline: &PipelineRecord| match pipeline.gives_way {
        true => Priority::Batch,
        false => Priority::Stream,
    };
    vec![
        (
            "pipeline",
            numbers(groups.iter().map(|(pipeline, _)| pipeline.id.0)),
        ),
        (
            "priority",
            texts(
                groups
                    .iter()
                    .map(|(pipeline, _)| priority(pipeline).name().to_owned()),
            ),
        ),
        ("first_epoch", counts(|group| group.first_epoch)),
        ("last_epoch", counts(|group| group.last_epoch)),
        ("epochs", counts(|group| group.last_epoch + 1 - group.first_epoch)),
        ("rows", counts(|group| group.rows)),
        ("tasks", counts(|group| group.tasks)),
        ("tasks_skipped", counts(|group| group.tasks_skipped)),
        ("tasks_copied", counts(|group| group.tasks_copied)),
        ("copies_won", counts(|group| group.copies_won)),
        ("scheduling_us", micros(|group| group.costs.scheduling_ns)),
        ("waited_us", micros(|group| group.costs.waited_ns)),
        ("execution_us", micros(|group| group.costs.execution_ns)),
        ("idle_us", micros(|group| group.idle_ns)),
        ("busy_us", micros(|group| group.busy_ns)),
        (
            "coordination_share",
            Arc::new(Float64Array::from_iter_values(
                groups.iter().map(|(_, group)| group.share),
            )),
        ),
    ]
}

/// One row for each stream with a watermark.
fn watermarks(database: &Database) -> Columns {
    let known = database.runtime().watermarks();
    let catalog = database.catalog();
    let names = known.iter().map(|status| {
        let object = catalog.object(ObjectId(status.relation.0));
        object.map(|object| object.display_name()).unwrap_or_default()
    });
    let watermarks = TimestampMicrosecondArray::from_iter(known.iter().map(|status| status.watermark));
    vec![
        ("relation", texts(names)),
        ("watermark", Arc::new(watermarks.with_timezone("UTC"))),
        ("late_rows", numbers(known.iter().map(|status| status.late_rows))),
        (
            "future_rows",
            numbers(known.iter().map(|status| status.future_rows)),
        ),
    ]
}

/// One row for each stream with a watermark: what did not enter it since the start of the server, and which stream has it.
fn late_rows(database: &Database) -> Columns {
    let known = database.runtime().watermarks();
    let catalog = database.catalog();
    let objects = || {
        known
            .iter()
            .map(|status| catalog.object(ObjectId(status.relation.0)))
    };
    let names = objects().map(|object| object.map(|object| object.display_name()).unwrap_or_default());
    let kept_in = objects().map(|object| {
        let event_time = object?.relation()?.event_time.as_ref()?;
        Some(catalog.object(event_time.late_stream()?)?.display_name())
    });
    let number = |count: fn(&WatermarkStatus) -> u64| numbers(known.iter().map(count));
    vec![
        ("relation", texts(names)),
        ("late_rows", number(|status| status.late_rows)),
        ("future_rows", number(|status| status.future_rows)),
        ("kept_in", Arc::new(kept_in.collect::<StringArray>())),
    ]
}

/// One row a worker; all of them are in this process.
fn workers(database: &Database) -> Columns {
    let workers = database.runtime().workers();
    vec![
        ("id", numbers(workers.iter().map(|worker| u64::from(worker.id)))),
        ("address", texts(workers.iter().map(|_| "in process".to_string()))),
        (
            "state",
            texts(workers.iter().map(|worker| worker.state().to_owned())),
        ),
        ("cores", numbers(workers.iter().map(|worker| worker.cores as u64))),
        (
            "partitions",
            numbers(workers.iter().map(|worker| worker.partitions as u64)),
        ),
        (
            "tasks_waiting",
            numbers(workers.iter().map(|worker| worker.tasks_waiting as u64)),
        ),
        (
            "busy_share",
            Arc::new(Float64Array::from_iter_values(
                workers.iter().map(|worker| worker.busy),
            )),
        ),
        (
            "state_bytes",
            numbers(workers.iter().map(|worker| worker.state_bytes)),
        ),
        (
            "query_bytes",
            numbers(workers.iter().map(|worker| worker.query_bytes)),
        ),
        (
            "in_flight_bytes",
            numbers(workers.iter().map(|worker| worker.in_flight_bytes)),
        ),
    ]
}
