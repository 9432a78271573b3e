//! `mr_catalog.cpu`: what the cores do, by class of work.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::Float64Array;
use millrace_database::Database;
use millrace_resource::cpu::Durations;
use millrace_schedule::cpu::QueryClass;

use super::{Columns, numbers, texts};

/// One row a class. Times are in microseconds since the start of the server, those of all cores together. What waits is not busy: only
/// processor time is.
pub(super) fn columns(database: &Database) -> Columns {
    let runtime = database.runtime();
    let times = runtime.cpu_times();
    let paused = runtime.paused_tasks();
    let classes = QueryClass::ALL;
    let micros = |durations: &[Durations], of: fn(&Durations) -> Duration| {
        let values = durations
            .iter()
            .map(|durations| of(durations).as_secs_f64() * 1e6);
        Arc::new(Float64Array::from_iter_values(values))
    };
    let processor = times.busy.iter().map(|busy| busy.as_secs_f64() * 1e6);
    let processor = Arc::new(Float64Array::from_iter_values(processor));
    vec![
        ("class", texts(classes.iter().map(ToString::to_string))),
        ("monotasks", numbers(times.poll.iter().map(Durations::count))),
        ("busy_us", processor),
        ("queue_us", micros(&times.wait, |wait| wait.sum)),
        ("queue_p50_us", micros(&times.wait, |wait| wait.percentile(0.5))),
        ("queue_p99_us", micros(&times.wait, |wait| wait.percentile(0.99))),
        (
            "tasks_waiting",
            numbers(classes.iter().map(|class| runtime.tasks_waiting(*class) as u64)),
        ),
        (
            "tasks_paused",
            numbers(classes.iter().map(|class| {
                let of_class = paused.iter().filter(|(_, task)| task.class == *class);
                of_class.count() as u64
            })),
        ),
    ]
}
