//! `mr_catalog.stages`: what the stages of views did in their last group of epochs, which the driver goes by, and whether
//! rows are combined before they are sent to their groups, which tasks find out by themselves.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Float64Array, Int64Array};
use millrace_database::Database;
use millrace_operator::CombinerCounts;
use millrace_planner::RelationId;
use millrace_schedule::message::StageCosts;

use super::{Columns, numbers};

struct Row {
    relation: RelationId,
    stage: usize,
    /// The last epoch of the group, and what was done in it.
    group: Option<(u64, StageCosts)>,
    /// Since the view was made.
    combiner: Option<CombinerCounts>,
}

/// One row a stage of a view. What is of a group is NULL before the first one in which the stage ran has ended.
pub fn columns(database: &Database) -> Columns {
    let mut last: HashMap<(RelationId, usize), (u64, StageCosts)> = HashMap::new();
    for status in database.runtime().pipelines() {
        for group in status.pipeline.groups {
            for costs in group.stages {
                last.insert((costs.view, costs.stage), (group.last_epoch, costs));
            }
        }
    }
    let mut rows = vec![];
    for view in database.runtime().views() {
        let mut combiners: HashMap<usize, CombinerCounts> = view.combiners.into_iter().collect();
        rows.extend((0..view.activity.len()).map(|stage| Row {
            relation: view.relation,
            stage,
            group: last.remove(&(view.relation, stage)),
            combiner: combiners.remove(&stage),
        }));
    }
    let of_group = |value: fn(&StageCosts) -> u64| -> ArrayRef {
        let values = rows.iter().map(|row| row.group.as_ref());
        let values = values.map(|group| group.and_then(|(_, costs)| i64::try_from(value(costs)).ok()));
        Arc::new(Int64Array::from_iter(values))
    };
    let share = |part: fn(&StageCosts) -> u64, whole: fn(&StageCosts) -> u64| -> ArrayRef {
        let shares = rows.iter().map(|row| {
            let (_, costs) = row.group.as_ref()?;
            (whole(costs) > 0).then(|| part(costs) as f64 / whole(costs) as f64)
        });
        Arc::new(Float64Array::from_iter(shares))
    };
    let of_combiner = |value: fn(&CombinerCounts) -> u64| -> ArrayRef {
        let values = rows.iter().map(|row| row.combiner.as_ref());
        let values = values.map(|counts| counts.and_then(|counts| i64::try_from(value(counts)).ok()));
        Arc::new(Int64Array::from_iter(values))
    };
    let last_epochs = rows.iter().map(|row| {
        let (epoch, _) = row.group.as_ref()?;
        i64::try_from(*epoch).ok()
    });
    let is_combining = rows
        .iter()
        .map(|row| row.combiner.map(|counts| counts.is_combining));
    vec![
        ("relation", numbers(rows.iter().map(|row| row.relation.0))),
        ("stage", numbers(rows.iter().map(|row| row.stage as u64))),
        ("last_epoch", Arc::new(Int64Array::from_iter(last_epochs))),
        ("tasks", of_group(|costs| costs.tasks)),
        ("rows_in", of_group(|costs| costs.rows_in)),
        ("rows_out", of_group(|costs| costs.rows_out)),
        (
            "selectivity",
            share(|costs| costs.rows_out, |costs| costs.rows_in),
        ),
        ("bytes_out", of_group(|costs| costs.bytes_out)),
        ("busy_us", of_group(|costs| costs.busy_ns / 1000)),
        (
            "busiest_share",
            share(|costs| costs.busiest_ns, |costs| costs.busy_ns),
        ),
        ("rows_combined", of_combiner(|counts| counts.combined)),
        ("rows_left", of_combiner(|counts| counts.left)),
        ("rows_passed", of_combiner(|counts| counts.passed)),
        ("is_combining", Arc::new(BooleanArray::from_iter(is_combining))),
    ]
}
