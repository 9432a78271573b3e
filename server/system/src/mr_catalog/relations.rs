//! `mr_catalog.relations` and `.dependencies`: everything that rows flow through, with what is counted of it, and what feeds what.
//!
//! Counters only grow (until the server starts again): whoever asks twice has the rate.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int64Array, StringArray, TimestampMicrosecondArray};
use millrace_catalog::event_time::EventTimeDef;
use millrace_catalog::temporary::is_temporary;
use millrace_catalog::{Definition, Object, kind_name};
use millrace_database::Database;
use millrace_database::clock::now_ms;
use millrace_database::database::jobs::JobInfo;
use millrace_database::database::sinks::SinkStatus;
use millrace_database::database::sources::Progress;
use millrace_engine::{ActivityCounts, PipelineStatus, ViewStatus, WatermarkStatus};
use millrace_planner::RelationId;
use millrace_postgres::from_internal::view_message;
use millrace_resource::memory::{AccountStatus, Holder};
use millrace_storage::{ObjectId, ObjectKind};

use super::batches::epoch_age_us;
use super::{Columns, numbers, optional_numbers, texts};

/// What rows flow through.
fn carries_rows(object: &Object) -> bool {
    matches!(
        object.kind,
        ObjectKind::Stream
            | ObjectKind::Table
            | ObjectKind::View
            | ObjectKind::MaterializedView
            | ObjectKind::ExternalTable
            | ObjectKind::Sink
            | ObjectKind::Subscription
    ) && !is_temporary(&object.schema)
}

/// What is known of one of them.
#[derive(Default)]
struct Row {
    connector: Option<String>,
    pipeline: Option<u64>,
    epoch: Option<u64>,
    /// Of the oldest epoch of its pipeline that is under way.
    epoch_age_us: Option<u64>,
    /// Rows that wait for their epoch in its pipeline.
    waiting: Option<u64>,
    rows: Option<u64>,
    changes: Option<u64>,
    bytes: u64,
    on_disk_bytes: u64,
    busy_us: Option<u64>,
    freshness_us: Option<u64>,
    freshness_target_us: Option<u64>,
    freshness_met: Option<f64>,
    watermark: Option<i64>,
    late_rows: Option<u64>,
    lag_seconds: Option<f64>,
    state: Option<String>,
    error: Option<String>,
}

/// What the runtime says, by relation, asked once.
struct Seen {
    views: HashMap<RelationId, ViewStatus>,
    pipelines: Vec<PipelineStatus>,
    /// Of the last epochs of a pipeline, from the arrival of input to the end of the epoch: the median.
    freshness_us: BTreeMap<u64, u64>,
    waiting: BTreeMap<u64, u64>,
    accounts: HashMap<RelationId, AccountStatus>,
    watermarks: HashMap<RelationId, WatermarkStatus>,
    sources: HashMap<ObjectId, Progress>,
    sinks: HashMap<ObjectId, SinkStatus>,
    jobs: HashMap<ObjectId, JobInfo>,
}

impl Seen {
    fn of(database: &Database) -> Seen {
        let runtime = database.runtime();
        let pipelines = runtime.pipelines();
        let accounts = runtime.memory().accounts().into_iter();
        let sources = database.sources().list().into_iter();
        let jobs = database.job_infos().into_iter();
        Seen {
            views: (runtime.views().into_iter())
                .map(|view| (view.relation, view))
                .collect(),
            freshness_us: (pipelines.iter())
                .filter_map(|status| Some((status.pipeline.id.0, freshness_us(status)?)))
                .collect(),
            waiting: (runtime.feeds().into_iter())
                .map(|feed| (feed.pipeline.0, feed.size.rows as u64))
                .collect(),
            pipelines,
            accounts: accounts
                .filter_map(|account| match account.holder {
                    Holder::Relation(id) => Some((id, account)),
                    _ => None,
                })
                .collect(),
            watermarks: (runtime.watermarks().into_iter())
                .map(|status| (status.relation, status))
                .collect(),
            sources: sources.map(|info| (info.stream, info.progress)).collect(),
            sinks: database.sinks().list().into_iter().collect(),
            jobs: jobs.map(|job| (job.id, job)).collect(),
        }
    }

    fn row(&self, database: &Database, object: &Object) -> Row {
        let relation = RelationId(object.id.0);
        let mut row = Row::default();
        if let Definition::FailedToLoad(why) = &object.definition {
            row.error = Some(why.clone());
            row.state = Some("failed".to_owned());
        }
        let reads = |status: &&PipelineStatus| {
            status.pipeline.sources.contains(&relation) || status.pipeline.views.contains(&relation)
        };
        if let Some(status) = self.pipelines.iter().find(reads) {
            let pipeline = status.pipeline.id.0;
            row.pipeline = Some(pipeline);
            row.epoch = Some(status.pipeline.committed);
            row.epoch_age_us = epoch_age_us(status);
            row.waiting = self.waiting.get(&pipeline).copied();
            if object.kind == ObjectKind::MaterializedView {
                row.freshness_us = self.freshness_us.get(&pipeline).copied();
            }
        }
        row.rows = database.runtime().rows(relation);
        row.changes = database.runtime().changes(relation);
        if let Some(account) = self.accounts.get(&relation) {
            row.bytes = account.total() as u64;
            row.on_disk_bytes = account.on_disk as u64;
        }
        let target = (self.views.get(&relation)).and_then(|view| view.freshness_target);
        if let Some(target) = target {
            row.freshness_target_us = Some(target.as_micros() as u64);
            let status = self.pipelines.iter().find(reads);
            row.freshness_met =
                status.and_then(|status| status.pipeline.share_within(target.as_nanos() as u64));
        }
        if let Some(view) = self.views.get(&relation) {
            let activity = ActivityCounts::sum(view.activity.iter().flatten());
            row.busy_us = Some(activity.busy_ns / 1_000);
            row.bytes = row.bytes.max(view.state_bytes as u64);
            row.state = Some(
                if view.failure.is_some() {
                    "failed"
                } else {
                    "running"
                }
                .to_owned(),
            );
            let error = view.failure.as_deref().or(view.last_expression_error.as_deref());
            row.error = error.map(view_message);
        }
        if let Some(job) = self.jobs.get(&object.id) {
            row.state = Some(job.state.to_owned());
            row.waiting = Some(job.rows_total.saturating_sub(job.rows_done));
            row.error = job.error.clone();
        }
        if let Some(status) = self.watermarks.get(&relation) {
            row.watermark = status.watermark;
            row.late_rows = Some(status.late_rows);
        }
        if let Some(stored) = object.relation() {
            row.connector = stored
                .connector
                .as_ref()
                .map(|connector| connector.name().to_owned());
        }
        if let Some(progress) = self.sources.get(&object.id) {
            row.state = Some(progress.state.name().to_owned());
            row.error = progress.error.clone().or(row.error);
            row.lag_seconds = progress.lag_ms(now_ms()).map(|lag| lag as f64 / 1e3);
        }
        if let (Some(status), Definition::Sink(def)) = (self.sinks.get(&object.id), &object.definition) {
            row.connector = Some(def.target.connector().to_owned());
            row.rows = Some(status.rows);
            row.changes = Some(status.rows);
            row.waiting = status.known_waiting();
            row.state = Some(status.state().to_owned());
            row.error = status.error.clone();
            row.lag_seconds = status.lag_seconds(now_ms());
        }
        row
    }
}

/// The median over the epochs that are remembered.
fn freshness_us(status: &PipelineStatus) -> Option<u64> {
    let epochs = status.pipeline.epochs.iter().rev().take(64);
    let mut times: Vec<u64> = epochs.map(|epoch| epoch.freshness_ns()).collect();
    times.sort_unstable();
    Some(times.get(times.len() / 2)? / 1_000)
}

/// What carries rows, or will when it has been filled; in the order in which it was made.
fn carriers(database: &Database) -> Vec<Arc<Object>> {
    let catalog = database.catalog();
    let made = database.being_made().into_iter();
    let made = made.filter(|object| catalog.object(object.id).is_none());
    let all = catalog.objects().cloned().chain(made);
    let mut carriers: Vec<Arc<Object>> = all.filter(|object| carries_rows(object)).collect();
    carriers.sort_by_key(|object| object.id);
    carriers
}

/// One row a stream, table, view, materialized view, file that is read, or sink.
pub(super) fn relations(database: &Database) -> Columns {
    let objects = carriers(database);
    let seen = Seen::of(database);
    let rows: Vec<Row> = objects.iter().map(|object| seen.row(database, object)).collect();
    let optional = |of: fn(&Row) -> Option<u64>| optional_numbers(rows.iter().map(of));
    let text =
        |of: fn(&Row) -> Option<&str>| -> ArrayRef { Arc::new(StringArray::from_iter(rows.iter().map(of))) };
    let watermarks = TimestampMicrosecondArray::from_iter(rows.iter().map(|row| row.watermark));
    vec![
        ("id", numbers(objects.iter().map(|object| object.id.0))),
        (
            "database",
            texts(objects.iter().map(|object| object.database.clone())),
        ),
        (
            "schema",
            texts(objects.iter().map(|object| object.schema.clone())),
        ),
        ("name", texts(objects.iter().map(|object| object.name.clone()))),
        (
            "kind",
            texts(objects.iter().map(|object| kind_name(object.kind).to_owned())),
        ),
        ("connector", text(|row| row.connector.as_deref())),
        ("state", text(|row| row.state.as_deref())),
        ("pipeline", optional(|row| row.pipeline)),
        ("epoch", optional(|row| row.epoch)),
        ("epoch_age_us", optional(|row| row.epoch_age_us)),
        ("rows", optional(|row| row.rows)),
        ("changes", optional(|row| row.changes)),
        ("rows_waiting", optional(|row| row.waiting)),
        ("bytes", numbers(rows.iter().map(|row| row.bytes))),
        ("on_disk_bytes", numbers(rows.iter().map(|row| row.on_disk_bytes))),
        ("busy_us", optional(|row| row.busy_us)),
        ("freshness_us", optional(|row| row.freshness_us)),
        ("freshness_target_us", optional(|row| row.freshness_target_us)),
        (
            "freshness_met",
            Arc::new(Float64Array::from_iter(rows.iter().map(|row| row.freshness_met))),
        ),
        ("watermark", Arc::new(watermarks.with_timezone("UTC"))),
        ("late_rows", optional(|row| row.late_rows)),
        (
            "lag_seconds",
            Arc::new(Float64Array::from_iter(rows.iter().map(|row| row.lag_seconds))),
        ),
        ("error", text(|row| row.error.as_deref())),
    ]
}

/// One row for each relation that another one reads, and which rows of it that are: all, or those that it could not take.
pub(super) fn dependencies(database: &Database) -> Columns {
    let objects = carriers(database);
    let known: BTreeSet<ObjectId> = objects.iter().map(|object| object.id).collect();
    let mut edges: BTreeMap<(ObjectId, ObjectId), &str> = BTreeMap::new();
    for object in &objects {
        // What a stream could not take goes to streams beside it: it depends on them, and they are fed by it.
        let relation = object.relation();
        let event_time = relation.and_then(|relation| relation.event_time.as_ref());
        let late = event_time.and_then(EventTimeDef::late_stream);
        let bad = relation.and_then(|relation| relation.errors);
        let reads = object.depends.iter().filter(|id| known.contains(id));
        let reads = reads.filter(|id| Some(**id) != late && Some(**id) != bad);
        edges.extend(reads.map(|id| ((object.id, *id), "rows")));
        edges.extend(late.map(|late| ((late, object.id), "late rows")));
        edges.extend(bad.map(|bad| ((bad, object.id), "bad records")));
    }
    let column = |of: fn(&(ObjectId, ObjectId)) -> ObjectId| -> ArrayRef {
        let ids = edges.keys().map(|edge| i64::try_from(of(edge).0).ok());
        Arc::new(ids.collect::<Int64Array>())
    };
    vec![
        ("relation", column(|(relation, _)| *relation)),
        ("reads", column(|(_, reads)| *reads)),
        ("what", texts(edges.values().map(|what| (*what).to_owned()))),
    ]
}
