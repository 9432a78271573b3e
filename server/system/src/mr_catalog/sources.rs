//! `mr_catalog.sources`: streams that are fed.

use std::sync::Arc;

use arrow::array::{IntervalMonthDayNanoArray, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::IntervalMonthDayNano;
use millrace_catalog::Object;
use millrace_database::Database;

use super::{Columns, numbers, optional_numbers, texts};

/// One row a stream that is fed: what it is doing, how far it is, how far behind, and what went wrong.
pub(super) fn columns(database: &Database) -> Columns {
    let catalog = database.catalog();
    let all: Vec<_> = (database.sources().list().into_iter())
        .filter_map(|info| Some((catalog.object(info.stream)?.clone(), info.progress)))
        .collect();
    let connector = |object: &Object| -> String {
        let connector = object.relation().and_then(|relation| relation.connector.as_ref());
        connector.map_or_else(String::new, |connector| connector.name().to_owned())
    };
    let errors = all.iter().map(|(object, _)| {
        let errors = catalog.object(object.relation()?.errors?)?;
        Some(errors.display_name())
    });
    let newest = all.iter().map(|(_, progress)| {
        let newest = progress.newest_ms?;
        Some(newest.saturating_mul(1000))
    });
    let position = all.iter().map(|(_, progress)| {
        let position = &progress.place.position;
        if let Some(file) = &position.file {
            return serde_json::json!({ &file.path: file.at }).to_string();
        }
        let splits = (position.splits.iter()).map(|(split, offset)| (split.to_string(), (*offset).into()));
        let file = position
            .file
            .iter()
            .map(|file| (file.path.clone(), file.at.into()));
        let places: serde_json::Map<String, serde_json::Value> = splits.chain(file).collect();
        serde_json::Value::Object(places).to_string()
    });
    let now_ms = database.runtime().now() / 1000;
    let lag: IntervalMonthDayNanoArray = (all.iter())
        .map(|(_, progress)| {
            let lag = progress.lag_ms(now_ms)?;
            Some(IntervalMonthDayNano::new(0, 0, lag.saturating_mul(1_000_000)))
        })
        .collect();
    vec![
        ("name", texts(all.iter().map(|(object, _)| object.display_name()))),
        (
            "connector",
            texts(all.iter().map(|(object, _)| connector(object))),
        ),
        (
            "state",
            texts(all.iter().map(|(_, progress)| progress.state.name().to_owned())),
        ),
        ("rows", numbers(all.iter().map(|(_, progress)| progress.rows))),
        (
            "bad_records",
            numbers(all.iter().map(|(_, progress)| progress.bad)),
        ),
        ("errors", Arc::new(StringArray::from_iter(errors))),
        (
            "lag_records",
            optional_numbers(all.iter().map(|(_, progress)| progress.lag_records)),
        ),
        (
            "lag_bytes",
            optional_numbers(all.iter().map(|(_, progress)| progress.lag_bytes)),
        ),
        ("lag", Arc::new(lag)),
        (
            "newest_record",
            Arc::new(TimestampMicrosecondArray::from_iter(newest).with_timezone("UTC")),
        ),
        ("position", texts(position)),
        (
            "error",
            Arc::new(StringArray::from_iter(
                all.iter().map(|(_, progress)| progress.error.clone()),
            )),
        ),
    ]
}
