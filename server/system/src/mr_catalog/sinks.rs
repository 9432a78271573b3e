//! `mr_catalog.sinks`: one row a sink, with what it has delivered.

use std::sync::Arc;

use arrow::array::{StringArray, TimestampMicrosecondArray};
use millrace_catalog::Definition;
use millrace_database::Database;

use super::{Columns, numbers, texts};

pub(super) fn columns(database: &Database) -> Columns {
    let catalog = database.catalog();
    let mut sinks = vec![];
    for (id, status) in database.sinks().list() {
        if let Some(object) = catalog.object(id)
            && let Definition::Sink(def) = &object.definition
        {
            let relation = catalog.object(def.relation).map(|object| object.display_name());
            sinks.push((object.display_name(), relation, Arc::clone(def), status));
        }
    }
    let state = |error: &Option<String>, is_running: bool| match (error, is_running) {
        (Some(_), _) => "failing",
        (None, true) => "running",
        (None, false) => "starting",
    };
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
            "type",
            texts(sinks.iter().map(|(_, _, def, _)| def.sink_type.name().to_owned())),
        ),
        (
            "format",
            texts(sinks.iter().map(|(_, _, def, _)| def.format.name().to_owned())),
        ),
        (
            "path",
            texts(sinks.iter().map(|(_, _, def, _)| def.path.display().to_string())),
        ),
        (
            "state",
            texts((sinks.iter()).map(|(_, _, _, status)| state(&status.error, status.is_running).to_owned())),
        ),
        ("files", numbers(sinks.iter().map(|(.., status)| status.files))),
        ("rows", numbers(sinks.iter().map(|(.., status)| status.rows))),
        ("bytes", numbers(sinks.iter().map(|(.., status)| status.bytes))),
        (
            "committed_at",
            Arc::new(TimestampMicrosecondArray::from_iter(committed).with_timezone("UTC")),
        ),
        (
            "error",
            Arc::new(StringArray::from_iter(
                sinks.iter().map(|(.., status)| status.error.clone()),
            )),
        ),
    ]
}
