//! `mr_catalog.flow`: where rows of views go on in batches, and who waits for room. SHOW BACKPRESSURE is what waits now.

use std::time::Instant;

use millrace_planner::RelationId;
use millrace_runtime::worker::flow::FlowStatus;

use super::{Columns, numbers, texts};
use crate::database::Database;

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

/// How long tasks have been waiting, in microseconds; 0 if none does.
fn waiting_us(since: Option<Instant>) -> u64 {
    since.map_or(0, |since| since.elapsed().as_micros() as u64)
}

/// One row a stage that may multiply rows: why, how much of a task of it may be in flight, what went on in batches since the
/// view was made, how many tasks wait for room now, and how long it has been so.
pub fn columns(database: &Database) -> Columns {
    let all = flows(database);
    let counts = || all.iter().map(|(_, _, flow)| flow.counts);
    let limits = || all.iter().map(|(_, _, flow)| flow.limits);
    vec![
        ("relation", numbers(all.iter().map(|(relation, _, _)| relation.0))),
        ("stage", numbers(all.iter().map(|(_, _, flow)| flow.stage as u64))),
        (
            "reason",
            texts(all.iter().map(|(_, _, flow)| flow.reason.clone())),
        ),
        (
            "flow_batches",
            numbers(limits().map(|limits| limits.batches as u64)),
        ),
        (
            "flow_batch_rows",
            numbers(limits().map(|limits| limits.batch_rows as u64)),
        ),
        ("batches", numbers(counts().map(|counts| counts.batches))),
        ("rows", numbers(counts().map(|counts| counts.rows))),
        (
            "waited_us",
            numbers(counts().map(|counts| counts.waited_ns / 1_000)),
        ),
        (
            "tasks_waiting",
            numbers(counts().map(|counts| counts.waiting as u64)),
        ),
        (
            "waiting_us",
            numbers(counts().map(|counts| waiting_us(counts.since))),
        ),
    ]
}

/// What waits for room now: view, stage, what it waits for, tasks, microseconds.
pub fn waiting(database: &Database) -> Vec<[String; 5]> {
    let waiting = flows(database)
        .into_iter()
        .filter(|(_, _, flow)| flow.counts.waiting > 0);
    waiting
        .map(|(_, name, flow)| {
            let resource = format!("{} batches in flight", flow.limits.batches);
            let (tasks, since) = (flow.counts.waiting, waiting_us(flow.counts.since));
            [
                name,
                flow.stage.to_string(),
                resource,
                tasks.to_string(),
                since.to_string(),
            ]
        })
        .collect()
}
