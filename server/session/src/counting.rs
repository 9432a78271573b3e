//! What a statement answers with, counted: see [`crate::call`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;

use crate::call::{Call, Timed, key};
use crate::outcome::{Outcome, TagRows};
use crate::session::Session;

/// Counts a statement that was begun then: now, or when its rows are there.
pub(crate) fn counted(session: &Arc<Session>, outcome: Outcome, started: Instant) -> Outcome {
    let took = started.elapsed();
    match outcome {
        Outcome::Done { tag } => {
            let rows = match tag.rows {
                TagRows::Known(rows) => rows,
                TagRows::None | TagRows::Sent => 0,
            };
            if let Some(key) = key(session) {
                session.database().statements().count(&key, rows, took);
            }
            Outcome::Done { tag }
        }
        Outcome::Rows { schema, stream, tag } => {
            let rows = Arc::new(AtomicU64::new(0));
            let call = Call::begun(session, Arc::clone(&rows), took);
            let counted = stream.inspect(move |batch| {
                let sent = batch.as_ref().map_or(0, RecordBatch::num_rows);
                rows.fetch_add(sent as u64, Ordering::Relaxed);
            });
            let timed = Timed::new(counted.boxed(), call);
            let stream = Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&schema), timed));
            Outcome::Rows { schema, stream, tag }
        }
        Outcome::CopyOut(mut copy) => {
            let call = Call::begun(session, copy.row_counter(), took);
            copy.stream = Timed::new(copy.stream, call).boxed();
            Outcome::CopyOut(copy)
        }
        Outcome::CopyIn(mut copy) => {
            copy.call = Call::begun(session, Arc::default(), Duration::ZERO).map(|call| (call, started));
            Outcome::CopyIn(copy)
        }
        Outcome::Empty => Outcome::Empty,
    }
}
