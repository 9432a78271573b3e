//! `mr_catalog.workers` (SHOW WORKERS).

use std::sync::Arc;

use arrow::array::Float64Array;
use millrace_database::Database;

use super::{Columns, numbers, optional_numbers, optional_texts, texts};

/// One row a worker, of this process or of another one.
pub(super) fn columns(database: &Database) -> Columns {
    let workers = database.runtime().workers();
    let hosts = || workers.iter().map(|worker| worker.host.as_ref());
    vec![
        ("id", numbers(workers.iter().map(|worker| u64::from(worker.id)))),
        (
            "address",
            texts(workers.iter().map(|worker| match &worker.host {
                Some(host) => host.address.clone(),
                None => "in process".to_owned(),
            })),
        ),
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
        (
            "memory_limit",
            optional_numbers(hosts().map(|host| host.map(|host| host.memory_limit))),
        ),
        (
            "build",
            optional_texts(hosts().map(|host| host.map(|host| host.build.clone()))),
        ),
        (
            "process",
            optional_numbers(hosts().map(|host| host.map(|host| u64::from(host.process)))),
        ),
        (
            "age_seconds",
            optional_numbers(hosts().map(|host| host.map(|host| host.age.as_secs()))),
        ),
    ]
}
