//! `mr_catalog.batches` (SHOW BATCHES) and `.groups`: the pipelines, and their groups of epochs.

use std::sync::Arc;

use arrow::array::Float64Array;
use millrace_database::Database;
use millrace_engine::PipelineStatus;
use millrace_planner::Priority;
use millrace_schedule::driver::{GroupRecord, PipelineRecord};

use super::{Columns, numbers, optional_numbers, texts};

/// One row a pipeline: its last committed epoch, what belongs to it, and what waits.
pub(super) fn batches(database: &Database) -> Columns {
    let pipelines = database.runtime().pipelines();
    let micros = |time: fn(&GroupRecord) -> u64| {
        let of_last =
            |pipeline: &PipelineStatus| pipeline.pipeline.groups.last().map(|group| time(group) / 1_000);
        optional_numbers(pipelines.iter().map(of_last))
    };
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
        // Of the group that ended last.
        ("scheduling_us", micros(|group| group.costs.scheduling_ns)),
        ("execution_us", micros(|group| group.costs.execution_ns)),
        ("idle_us", micros(|group| group.idle_ns)),
        (
            "workers",
            numbers(pipelines.iter().map(|pipeline| pipeline.pipeline.workers as u64)),
        ),
        (
            "writes_waiting",
            numbers(pipelines.iter().map(|pipeline| pipeline.writes_waiting as u64)),
        ),
        (
            "epochs_under_way",
            numbers(
                pipelines
                    .iter()
                    .map(|pipeline| pipeline.under_way.map_or(0, |under_way| under_way.epochs as u64)),
            ),
        ),
        // Of the oldest of them.
        (
            "epoch_age_us",
            optional_numbers(pipelines.iter().map(epoch_age_us)),
        ),
    ]
}

/// Since the oldest epoch that is not committed was cut.
pub(super) fn epoch_age_us(pipeline: &PipelineStatus) -> Option<u64> {
    Some(pipeline.under_way?.age.as_micros() as u64)
}

/// One row a group of epochs that ended lately, the newest of a pipeline last. Times are in microseconds.
pub(super) fn groups(database: &Database) -> Columns {
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
