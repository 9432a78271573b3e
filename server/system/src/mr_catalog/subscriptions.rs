//! `mr_catalog.subscriptions`: one row a subscription, with what it keeps.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Float64Array, StringArray};
use millrace_catalog::{Definition, Object};
use millrace_database::Database;
use millrace_database::clock::now_ms;
use millrace_database::database::sinks::SinkStatus;
use millrace_database::database::subscriptions::KeptInfo;
use millrace_storage::{ObjectId, ObjectKind};

use super::{Columns, optional_numbers, texts};

struct Row {
    object: Arc<Object>,
    relation: Option<String>,
    /// For how long, in milliseconds, and how many bytes are kept.
    kept: (Option<u64>, Option<u64>),
    status: SinkStatus,
    info: Option<KeptInfo>,
}

pub(super) fn columns(database: &Database) -> Columns {
    let catalog = database.catalog();
    let mut states: BTreeMap<ObjectId, SinkStatus> = database.sinks().list().into_iter().collect();
    let mut rows = vec![];
    for object in catalog
        .objects()
        .filter(|object| object.kind == ObjectKind::Subscription)
    {
        let Definition::Sink(def) = &object.definition else {
            continue;
        };
        let Some(sink) = def.kept() else { continue };
        let (time, bytes) = sink.kept.kept();
        rows.push(Row {
            object: Arc::clone(object),
            relation: catalog.object(def.relation).map(|object| object.display_name()),
            kept: (time.and_then(|time| u64::try_from(time).ok()), bytes),
            status: states.remove(&object.id).unwrap_or_default(),
            info: database.subscriptions().kept_info(object.id),
        });
    }
    let now = now_ms();
    let lag = |row: &Row| match row.status.behind_since_ms {
        Some(since) => now.saturating_sub(since).max(0) as f64 / 1_000.0,
        None => 0.0,
    };
    let numbers =
        |number: fn(&KeptInfo) -> u64| optional_numbers(rows.iter().map(|row| row.info.as_ref().map(number)));
    vec![
        ("name", texts(rows.iter().map(|row| row.object.display_name()))),
        (
            "relation",
            Arc::new(StringArray::from_iter(
                rows.iter().map(|row| row.relation.clone()),
            )),
        ),
        (
            "state",
            texts(rows.iter().map(|row| row.status.state().to_owned())),
        ),
        (
            "retention_ms",
            optional_numbers(rows.iter().map(|row| row.kept.0)),
        ),
        (
            "retention_bytes",
            optional_numbers(rows.iter().map(|row| row.kept.1)),
        ),
        ("oldest_epoch", numbers(|info| info.oldest_epoch)),
        ("newest_epoch", numbers(|info| info.newest_epoch)),
        ("rows", numbers(|info| info.rows)),
        ("readers", numbers(|info| info.readers)),
        (
            "lag_seconds",
            Arc::new(Float64Array::from_iter_values(rows.iter().map(lag))),
        ),
        (
            "error",
            Arc::new(StringArray::from_iter(
                rows.iter().map(|row| row.status.error.clone()),
            )),
        ),
    ]
}
