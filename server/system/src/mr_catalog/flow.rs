//! `mr_catalog.flow` and `.feeds`: where rows wait. SHOW BACKPRESSURE is what waits now: tasks that put out more than may be in
//! flight, writes for which there is no space, and queries whose clients do not take what they have.

use std::sync::Arc;
use std::time::Instant;

use arrow::array::{ArrayRef, BooleanArray, StringArray, TimestampMicrosecondArray};
use millrace_database::Database;
use millrace_database::clock::now_ms;
use millrace_engine::worker::flow::FlowStatus;
use millrace_engine::{FeedStatus, Lack};
use millrace_planner::RelationId;
use millrace_resource::memory::{AccountStatus, Holder};
use millrace_schedule::driver::FaucetRecord;
use millrace_storage::ObjectId;

use super::{Columns, numbers, optional_numbers, texts};

/// The stages that may put out batches, by view.
fn flows(database: &Database) -> Vec<(RelationId, String, FlowStatus)> {
    let views = database.runtime().views().into_iter();
    views
        .flat_map(|view| {
            let (relation, name) = (view.relation, view.name);
            view.flows
                .into_iter()
                .map(move |flow| (relation, name.clone(), flow))
        })
        .collect()
}

fn name_of(database: &Database, relation: RelationId) -> String {
    let catalog = database.catalog();
    let object = catalog.object(ObjectId(relation.0));
    object.map(|object| object.display_name()).unwrap_or_default()
}

/// Who holds the most memory: a view or table, or what its account is called.
fn holds_most(database: &Database) -> (Option<RelationId>, String) {
    let accounts = database.runtime().memory().accounts().into_iter();
    match accounts.max_by_key(AccountStatus::total) {
        Some(most) => match most.holder {
            Holder::Relation(relation) => (Some(relation), name_of(database, relation)),
            Holder::Query(_) | Holder::Clients => (None, most.name),
        },
        None => (None, String::new()),
    }
}

/// The streams and tables of a pipeline.
fn sources(database: &Database, feed: &FeedStatus) -> String {
    let names: Vec<String> = feed.sources.iter().map(|id| name_of(database, *id)).collect();
    names.join(", ")
}

/// How long there has been someone who waits, in microseconds; 0 if nobody does.
fn waiting_us(since: Option<Instant>) -> u64 {
    since.map_or(0, |since| since.elapsed().as_micros() as u64)
}

fn times(since: Vec<Option<Instant>>) -> ArrayRef {
    let now = now_ms() * 1_000;
    let times = since
        .into_iter()
        .map(|since| Some(now - since?.elapsed().as_micros() as i64));
    Arc::new(TimestampMicrosecondArray::from_iter(times).with_timezone("UTC"))
}

/// Something that may wait.
struct Row {
    /// The query that waits for its client.
    query: Option<u64>,
    /// The view that has to go on first.
    view: Option<RelationId>,
    view_name: String,
    stage: Option<u64>,
    reason: String,
    flow: Option<FlowStatus>,
    waits_for: Option<String>,
    waiting: usize,
    since: Option<Instant>,
    waited_us: u64,
    source: Option<String>,
    /// Whether the stage has a faucet now, and why or why not.
    placement: Option<FaucetRecord>,
}

fn rows(database: &Database) -> Vec<Row> {
    let flows = flows(database).into_iter();
    let pipelines = database.runtime().pipelines().into_iter();
    let placements: Vec<FaucetRecord> = pipelines.flat_map(|status| status.pipeline.faucets).collect();
    let placement = |view, stage| {
        let mut placements = placements.iter();
        let found = placements.find(|placement| (placement.view, placement.stage) == (view, stage));
        found.cloned()
    };
    let mut rows: Vec<Row> = flows
        .map(|(view, view_name, flow)| Row {
            query: None,
            view: Some(view),
            view_name,
            stage: Some(flow.stage as u64),
            reason: flow.reason.clone(),
            waits_for: (flow.counts.waiting > 0)
                .then(|| format!("{} batches in flight", flow.limits.batches)),
            waiting: flow.counts.waiting,
            since: flow.counts.since,
            waited_us: flow.counts.waited_ns / 1_000,
            placement: placement(view, flow.stage),
            flow: Some(flow),
            source: None,
        })
        .collect();
    let feeds = database.runtime().feeds().into_iter();
    let waiting = feeds.filter(|feed| feed.writes_waiting > 0);
    rows.extend(waiting.map(|feed| {
        let (view, stage, view_name) = match (feed.lack, feed.behind) {
            (Some(Lack::Memory), _) => {
                let (relation, name) = holds_most(database);
                (relation, None, name)
            }
            (_, Some((view, stage, _))) => (Some(view), Some(stage as u64), name_of(database, view)),
            (_, None) => (None, None, String::new()),
        };
        Row {
            query: None,
            view,
            view_name,
            stage,
            reason: "backpressure: writes wait".to_owned(),
            flow: None,
            placement: None,
            waits_for: feed.lack.map(|lack| lack.to_string()),
            waiting: feed.writes_waiting,
            since: feed.since,
            waited_us: feed.waited.as_micros() as u64,
            source: Some(sources(database, &feed)),
        }
    }));
    let clients = database.runtime().waiting_for_clients().into_iter();
    rows.extend(clients.map(|client| Row {
        query: Some(client.query),
        view: None,
        view_name: format!("query {}", client.query),
        stage: Some(client.stage as u64),
        reason: "the client does not read its rows".to_owned(),
        flow: None,
        placement: None,
        waits_for: Some(format!(
            "{} batches not yet read by the client",
            client.batches_max
        )),
        waiting: 1,
        since: Some(client.since),
        waited_us: client.waited.as_micros() as u64,
        source: None,
    }));
    rows
}

/// One row a stage that may multiply rows: why, whether it has a faucet and since when, how much of a task of it may be in flight, what went on in batches since the
/// view was made, how many tasks wait for space now, and how long it has been so. One row more for each pipeline of which writes
/// wait: the view whose task has been running for the longest, or who holds the most memory if that is what is lacking, how many
/// writes wait, and since when. And one for each query that waits for its client.
pub fn columns(database: &Database) -> Columns {
    let all = rows(database);
    let of_flow =
        |value: fn(&FlowStatus) -> u64| optional_numbers(all.iter().map(|row| row.flow.as_ref().map(value)));
    let optional = |value: fn(&Row) -> Option<String>| -> ArrayRef {
        Arc::new(StringArray::from_iter(all.iter().map(value)))
    };
    vec![
        (
            "relation",
            optional_numbers(all.iter().map(|row| row.view.map(|view| view.0))),
        ),
        ("view", texts(all.iter().map(|row| row.view_name.clone()))),
        ("stage", optional_numbers(all.iter().map(|row| row.stage))),
        ("reason", texts(all.iter().map(|row| row.reason.clone()))),
        (
            "is_placed",
            Arc::new(BooleanArray::from_iter(all.iter().map(|row| {
                row.placement.as_ref().map(|placement| placement.is_placed)
            }))),
        ),
        (
            "placement",
            Arc::new(StringArray::from_iter(all.iter().map(|row| {
                row.placement
                    .as_ref()
                    .map(|placement| placement.cause.to_string())
            }))),
        ),
        ("flow_batches", of_flow(|flow| flow.limits.batches as u64)),
        ("flow_batch_rows", of_flow(|flow| flow.limits.batch_rows as u64)),
        ("batches", of_flow(|flow| flow.counts.batches)),
        ("rows", of_flow(|flow| flow.counts.rows)),
        ("waited_us", numbers(all.iter().map(|row| row.waited_us))),
        ("tasks_waiting", numbers(all.iter().map(|row| row.waiting as u64))),
        ("waiting_us", numbers(all.iter().map(|row| waiting_us(row.since)))),
        ("waits_for", optional(|row| row.waits_for.clone())),
        ("since", times(all.iter().map(|row| row.since).collect())),
        ("source", optional(|row| row.source.clone())),
        ("query", optional_numbers(all.iter().map(|row| row.query))),
    ]
}

/// One row a pipeline: what waits for its epochs, how much of that there may be, and the writes that wait for space, or have
/// waited.
pub fn feeds(database: &Database) -> Columns {
    let all = database.runtime().feeds();
    let count = |value: fn(&FeedStatus) -> u64| numbers(all.iter().map(value));
    vec![
        ("pipeline", count(|feed| feed.pipeline.0)),
        ("sources", texts(all.iter().map(|feed| sources(database, feed)))),
        ("writes", count(|feed| feed.size.writes as u64)),
        ("rows", count(|feed| feed.size.rows as u64)),
        ("bytes", count(|feed| feed.size.bytes as u64)),
        ("rows_max", count(|feed| feed.limits.rows as u64)),
        ("bytes_max", count(|feed| feed.limits.bytes as u64)),
        ("writes_waiting", count(|feed| feed.writes_waiting as u64)),
        ("waiting_us", count(|feed| waiting_us(feed.since))),
        ("writes_waited", count(|feed| feed.writes_waited)),
        ("waited_us", count(|feed| feed.waited.as_micros() as u64)),
    ]
}
