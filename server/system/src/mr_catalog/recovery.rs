//! Checkpoints that were written, and how views came up at the start.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, Float64Array, Int64Array, StringArray, TimestampMicrosecondArray};
use millrace_database::Database;
use millrace_engine::CheckpointState;

use super::{Columns, numbers, texts};

/// Milliseconds with three digits behind the point.
fn milliseconds(durations: impl Iterator<Item = Duration>) -> ArrayRef {
    Arc::new(Float64Array::from_iter_values(
        durations.map(|duration| duration.as_micros() as f64 / 1e3),
    ))
}

/// One row a checkpoint of a pipeline, of the last ones: what it cost, and how it came out.
pub(super) fn checkpoints(database: &Database) -> Columns {
    let records = database.runtime().checkpoint_records();
    let state = |state: &CheckpointState| match state {
        CheckpointState::Writing => "writing",
        CheckpointState::Done => "done",
        CheckpointState::Failed(_) => "failed",
    };
    let error = |state: &CheckpointState| match state {
        CheckpointState::Failed(why) => Some(why.clone()),
        CheckpointState::Writing | CheckpointState::Done => None,
    };
    let taken = records
        .iter()
        .map(|record| record.taken_at_ms.saturating_mul(1000));
    vec![
        ("id", numbers(records.iter().map(|record| record.number))),
        (
            "pipeline",
            numbers(records.iter().map(|record| record.pipeline.0)),
        ),
        ("epoch", numbers(records.iter().map(|record| record.epoch))),
        ("views", numbers(records.iter().map(|record| record.views as u64))),
        (
            "sources",
            numbers(records.iter().map(|record| record.sources as u64)),
        ),
        (
            "state",
            texts(records.iter().map(|record| state(&record.state).to_owned())),
        ),
        (
            "bytes_written",
            numbers(records.iter().map(|record| record.bytes_written)),
        ),
        (
            "bytes_total",
            numbers(records.iter().map(|record| record.bytes_total)),
        ),
        ("files", numbers(records.iter().map(|record| record.files as u64))),
        (
            "waited_ms",
            milliseconds(records.iter().map(|record| record.waited)),
        ),
        (
            "written_ms",
            milliseconds(records.iter().map(|record| record.written_in)),
        ),
        (
            "taken_at",
            Arc::new(TimestampMicrosecondArray::from_iter_values(taken).with_timezone("UTC")),
        ),
        (
            "error",
            Arc::new(StringArray::from_iter(
                records.iter().map(|record| error(&record.state)),
            )),
        ),
    ]
}

/// One row a view that was there at the start: whether it came from a checkpoint, and if not, why it was filled.
pub(super) fn recovery(database: &Database) -> Columns {
    let catalog = database.catalog();
    let views: Vec<_> = (database.recovery().views().into_iter())
        .filter_map(|view| Some((catalog.object(view.id)?.display_name(), view)))
        .collect();
    let catching_up = database.views_catching_up();
    let state = views.iter().map(|(_, view)| match view.epoch {
        Some(_) if catching_up.contains(&view.id) => "replaying",
        Some(_) => "restored",
        None => "filled",
    });
    let epochs = views.iter().map(|(_, view)| i64::try_from(view.epoch?).ok());
    let (rows, epochs_replayed, elapsed) = database.recovery().replayed();
    vec![
        ("view", texts(views.iter().map(|(name, _)| name.clone()))),
        ("state", texts(state.map(str::to_owned))),
        ("epoch", Arc::new(Int64Array::from_iter(epochs))),
        (
            "why_filled",
            Arc::new(StringArray::from_iter(
                views.iter().map(|(_, view)| view.why_filled.clone()),
            )),
        ),
        (
            "elapsed_ms",
            milliseconds(views.iter().map(|(_, view)| view.elapsed)),
        ),
        ("rows_replayed", numbers(views.iter().map(|_| rows))),
        ("epochs_replayed", numbers(views.iter().map(|_| epochs_replayed))),
        ("replay_ms", milliseconds(views.iter().map(|_| elapsed))),
    ]
}
