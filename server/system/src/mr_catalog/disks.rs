//! `mr_catalog.disks`: what each device has done since the start of the server.

use std::sync::Arc;

use arrow::array::Float64Array;
use millrace_database::Database;
use millrace_resource::disk::Totals;

use super::{Columns, numbers, texts};

/// One row a device and kind of monotask that it has served. Times are in microseconds.
pub fn columns(database: &Database) -> Columns {
    struct Row {
        disk: String,
        kind: &'static str,
        totals: Totals,
        at_once: usize,
    }
    let mut rows = vec![];
    for disk in database.runtime().disks().all() {
        let totals = disk.totals();
        // The log has one writer, which goes before all others.
        let kinds = [
            ("log", 1, totals.log),
            ("read", disk.concurrency(), totals.read),
            ("write", disk.concurrency(), totals.write),
            ("reread", disk.concurrency(), totals.reread),
        ];
        let served = kinds.into_iter().filter(|(.., totals)| totals.monotasks > 0);
        rows.extend(served.map(|(kind, at_once, totals)| Row {
            disk: disk.name().to_owned(),
            kind,
            totals,
            at_once,
        }));
    }
    let micros = |time: fn(&Totals) -> f64| {
        let values = rows.iter().map(|row| time(&row.totals) * 1e6);
        Arc::new(Float64Array::from_iter_values(values))
    };
    vec![
        ("disk", texts(rows.iter().map(|row| row.disk.clone()))),
        ("kind", texts(rows.iter().map(|row| row.kind.to_owned()))),
        ("monotasks", numbers(rows.iter().map(|row| row.totals.monotasks))),
        ("service_us", micros(|totals| totals.service.as_secs_f64())),
        ("queue_us", micros(|totals| totals.queue.as_secs_f64())),
        ("bytes", numbers(rows.iter().map(|row| row.totals.bytes))),
        ("at_once", numbers(rows.iter().map(|row| row.at_once as u64))),
    ]
}
