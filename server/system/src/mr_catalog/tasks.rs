//! `mr_catalog.tasks`: the tasks of the queries under way, and whatever else is paused.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{Float64Array, Int64Array};
use millrace_database::Database;
use millrace_resource::cpu::TaskStatus;

use super::{Columns, numbers, texts};

/// One row a task. Times are in milliseconds, those of a pause in microseconds.
pub fn columns(database: &Database) -> Columns {
    let runtime = database.runtime();
    let of_queries = runtime.query_tasks();
    let of_queries = of_queries
        .into_iter()
        .filter_map(|task| Some((task.label?.worker, task)));
    // Those of queries are there already.
    let others = runtime
        .paused_tasks()
        .into_iter()
        .filter(|(_, task)| task.label.is_none());
    let tasks: Vec<(u32, TaskStatus)> = of_queries.chain(others).collect();
    let all = || tasks.iter().map(|(_, task)| task);
    let optional = |value: fn(&TaskStatus) -> Option<u64>| -> Arc<Int64Array> {
        Arc::new(
            all()
                .map(|task| value(task).and_then(|value| i64::try_from(value).ok()))
                .collect(),
        )
    };
    let millis = |value: fn(&TaskStatus) -> Duration| -> Arc<Float64Array> {
        Arc::new(all().map(|task| Some(value(task).as_secs_f64() * 1e3)).collect())
    };
    let micros = |value: fn(&TaskStatus) -> Duration| -> Arc<Float64Array> {
        Arc::new(all().map(|task| Some(value(task).as_secs_f64() * 1e6)).collect())
    };
    vec![
        ("query", optional(|task| task.label.map(|label| label.query))),
        (
            "stage",
            optional(|task| task.label.map(|label| label.stage as u64)),
        ),
        (
            "partition",
            optional(|task| task.label.map(|label| label.partition as u64)),
        ),
        (
            "worker",
            numbers(tasks.iter().map(|(worker, _)| u64::from(*worker))),
        ),
        ("class", texts(all().map(|task| task.class.to_string()))),
        ("state", texts(all().map(|task| task.state.to_string()))),
        ("rows", numbers(all().map(|task| task.rows))),
        ("held_bytes", numbers(all().map(|task| task.held as u64))),
        ("polls", numbers(all().map(|task| task.polls))),
        ("cpu_ms", millis(|task| task.cpu)),
        ("poll_max_us", micros(|task| task.poll_max)),
        ("wait_ms", millis(|task| task.wait)),
        ("pauses", numbers(all().map(|task| task.pauses))),
        ("paused_ms", millis(|task| task.paused)),
        ("pause_latency_max_us", micros(|task| task.pause_latency_max)),
    ]
}
