//! `mr_catalog.sinks`: one row a sink, with what it has delivered.

use std::sync::Arc;

use arrow::array::{Float64Array, StringArray, TimestampMicrosecondArray};
use millrace_catalog::Definition;
use millrace_database::Database;
use millrace_database::clock::now_ms;
use millrace_storage::ObjectKind;

use super::{Columns, numbers, optional_numbers, texts};

pub(super) fn columns(database: &Database) -> Columns {
    let catalog = database.catalog();
    let mut sinks = vec![];
    for (id, status) in database.sinks().list() {
        if let Some(object) = catalog
            .object(id)
            .filter(|object| object.kind == ObjectKind::Sink)
            && let Definition::Sink(def) = &object.definition
        {
            let relation = catalog.object(def.relation).map(|object| object.display_name());
            sinks.push((object.display_name(), relation, Arc::clone(def), status));
        }
    }
    let now = now_ms();
    let committed = sinks
        .iter()
        .map(|(_, _, _, status)| Some(status.committed_at_ms?.saturating_mul(1_000)));
    vec![
        ("name", texts(sinks.iter().map(|(name, ..)| name.clone()))),
        (
            "relation",
            Arc::new(StringArray::from_iter(
                sinks.iter().map(|(_, relation, ..)| relation.clone()),
            )),
        ),
        (
            "connector",
            texts(
                sinks
                    .iter()
                    .map(|(_, _, def, _)| def.target.connector().to_owned()),
            ),
        ),
        (
            "type",
            texts(sinks.iter().map(|(_, _, def, _)| def.sink_type.name().to_owned())),
        ),
        (
            "delivery",
            texts((sinks.iter()).map(|(_, _, def, _)| def.target.delivery().name().to_owned())),
        ),
        (
            "format",
            texts(sinks.iter().map(|(_, _, def, _)| def.target.format().to_owned())),
        ),
        (
            "path",
            texts(sinks.iter().map(|(_, _, def, _)| def.target.place())),
        ),
        (
            "state",
            texts((sinks.iter()).map(|(_, _, _, status)| status.state().to_owned())),
        ),
        ("files", numbers(sinks.iter().map(|(.., status)| status.files))),
        ("rows", numbers(sinks.iter().map(|(.., status)| status.rows))),
        ("bytes", numbers(sinks.iter().map(|(.., status)| status.bytes))),
        (
            "committed_at",
            Arc::new(TimestampMicrosecondArray::from_iter(committed).with_timezone("UTC")),
        ),
        (
            "lag_rows",
            optional_numbers(sinks.iter().map(|(.., status)| status.known_waiting())),
        ),
        (
            "lag_seconds",
            Arc::new(Float64Array::from_iter(
                sinks.iter().map(|(.., status)| status.lag_seconds(now)),
            )),
        ),
        (
            "error",
            Arc::new(StringArray::from_iter(
                sinks.iter().map(|(.., status)| status.error.clone()),
            )),
        ),
    ]
}
