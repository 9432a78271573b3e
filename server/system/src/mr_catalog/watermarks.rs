//! `mr_catalog.watermarks` (SHOW WATERMARKS) and `.late_rows`: streams with event time.

use std::sync::Arc;

use arrow::array::{StringArray, TimestampMicrosecondArray};
use millrace_database::Database;
use millrace_engine::WatermarkStatus;
use millrace_storage::ObjectId;

use super::{Columns, numbers, texts};

/// One row for each stream with a watermark.
pub(super) fn watermarks(database: &Database) -> Columns {
    let known = database.runtime().watermarks();
    let catalog = database.catalog();
    let names = known.iter().map(|status| {
        let object = catalog.object(ObjectId(status.relation.0));
        object.map(|object| object.display_name()).unwrap_or_default()
    });
    let watermarks = TimestampMicrosecondArray::from_iter(known.iter().map(|status| status.watermark));
    vec![
        ("relation", texts(names)),
        ("watermark", Arc::new(watermarks.with_timezone("UTC"))),
        ("late_rows", numbers(known.iter().map(|status| status.late_rows))),
        (
            "future_rows",
            numbers(known.iter().map(|status| status.future_rows)),
        ),
    ]
}

/// One row for each stream with a watermark: what did not enter it since the start of the server, and which stream has it.
pub(super) fn late_rows(database: &Database) -> Columns {
    let known = database.runtime().watermarks();
    let catalog = database.catalog();
    let objects = || {
        known
            .iter()
            .map(|status| catalog.object(ObjectId(status.relation.0)))
    };
    let names = objects().map(|object| object.map(|object| object.display_name()).unwrap_or_default());
    let kept_in = objects().map(|object| {
        let event_time = object?.relation()?.event_time.as_ref()?;
        Some(catalog.object(event_time.late_stream()?)?.display_name())
    });
    let number = |count: fn(&WatermarkStatus) -> u64| numbers(known.iter().map(count));
    vec![
        ("relation", texts(names)),
        ("late_rows", number(|status| status.late_rows)),
        ("future_rows", number(|status| status.future_rows)),
        ("kept_in", Arc::new(kept_in.collect::<StringArray>())),
    ]
}
