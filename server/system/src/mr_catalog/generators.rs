//! `mr_catalog.generators`: streams that are filled with made-up rows.

use std::sync::Arc;

use arrow::array::StringArray;
use millrace_catalog::Object;
use millrace_database::Database;

use super::{Columns, numbers, optional_numbers, texts};

/// One row a stream that a connector fills: rows that were made, of how many, at which rate, and why it stopped.
pub(super) fn columns(database: &Database) -> Columns {
    let catalog = database.catalog();
    let all: Vec<_> = (database.sources().list().into_iter())
        .filter_map(|info| Some((catalog.object(info.stream)?.clone(), info.made?, info.progress)))
        .collect();
    let connector = |object: &Object| -> String {
        let relation = object.relation();
        let connector = relation.and_then(|relation| relation.connector.as_ref());
        connector
            .map(|connector| connector.name().to_owned())
            .unwrap_or_default()
    };
    vec![
        (
            "name",
            texts(all.iter().map(|(object, ..)| object.display_name())),
        ),
        (
            "connector",
            texts(all.iter().map(|(object, ..)| connector(object))),
        ),
        (
            "rows_done",
            numbers(all.iter().map(|(.., progress)| progress.rows)),
        ),
        (
            "rows_total",
            optional_numbers(all.iter().map(|(_, made, _)| made.rows_max)),
        ),
        ("rate", optional_numbers(all.iter().map(|(_, made, _)| made.rate))),
        (
            "state",
            texts((all.iter()).map(|(.., progress)| progress.state.name().to_owned())),
        ),
        (
            "error",
            Arc::new(StringArray::from_iter(
                all.iter().map(|(.., progress)| progress.error.clone()),
            )),
        ),
    ]
}
