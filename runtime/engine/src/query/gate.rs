//! Suspension points: above a leaf that has none of its own, and within operators of ours.

use std::pin::Pin;
use std::task::{Context, Poll};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::{RecordBatchStream, SendableRecordBatchStream};
use futures::{Stream, StreamExt};
use millrace_resource::cpu::should_yield;

use super::wrap::Wrap;

/// Lets what is more urgent have the core first.
pub async fn give_way() {
    let mut gave_way = false;
    futures::future::poll_fn(|context| {
        if !gave_way && should_yield() {
            gave_way = true;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    })
    .await;
}

/// Passes its input's rows on, and gives way after a batch when something more urgent waits for a slot.
pub struct Gating;

impl Wrap for Gating {
    fn wrap(
        &self,
        rows: SendableRecordBatchStream,
        _: SchemaRef,
        _: &TaskContext,
    ) -> Result<SendableRecordBatchStream> {
        Ok(Box::pin(GatedStream {
            rows,
            gave_way: false,
        }))
    }
}

struct GatedStream {
    rows: SendableRecordBatchStream,
    gave_way: bool,
}

impl Stream for GatedStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if !self.gave_way && should_yield() {
            self.gave_way = true;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let polled = self.rows.poll_next_unpin(context);
        if polled.is_ready() {
            self.gave_way = false;
        }
        polled
    }
}

impl RecordBatchStream for GatedStream {
    fn schema(&self) -> SchemaRef {
        self.rows.schema()
    }
}
