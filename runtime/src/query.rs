//! Batch queries: a DataFusion plan as one coroutine on the cpu scheduler.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::{
    ExecutionPlan, ExecutionPlanProperties, RecordBatchStream, SendableRecordBatchStream,
};
use futures::{FutureExt, Stream, StreamExt};
use tokio::sync::mpsc;

use crate::error::Result;
use crate::runtime::Runtime;
use crate::worker::cpu::{CpuTask, QueryClass};

/// Batches that wait for a slow client; the query pauses when they are not taken.
const RESULT_BATCHES_MAX: usize = 4;

/// How a query is to run.
pub struct QueryOptions {
    pub class: QueryClass,
    /// DataFusion's context: functions, memory pool, batch size.
    pub context: Arc<TaskContext>,
}

impl Runtime {
    /// Runs a piece of work on the cpu scheduler: what is neither a plan nor an epoch, such as converting what a client sent.
    /// Dropping the handle cancels it, if it has not begun.
    ///
    /// # Errors
    /// The runtime is shutting down.
    pub fn compute<T: Send + 'static>(
        &self,
        class: QueryClass,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<CpuTask<T>> {
        self.inner
            .spawn(class, move |_| async move { Ok(work()) }.boxed())
    }

    /// Runs a physical plan. Dropping the stream cancels the query at its next suspension point.
    ///
    /// # Errors
    /// The runtime is shutting down. A failing plan ends the stream with its error.
    pub fn execute(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        options: QueryOptions,
    ) -> Result<SendableRecordBatchStream> {
        let schema = plan.schema();
        let (sender, receiver) = mpsc::channel(RESULT_BATCHES_MAX);
        let QueryOptions { class, context } = options;
        let task = self.inner.spawn(class, move |_| {
            async move {
                for partition in 0..plan.output_partitioning().partition_count() {
                    let mut rows = match plan.execute(partition, Arc::clone(&context)) {
                        Ok(rows) => rows,
                        Err(error) => {
                            // A receiver that is gone wants no error either.
                            let _ = sender.send(Err(error)).await;
                            return Ok(());
                        }
                    };
                    while let Some(batch) = rows.next().await {
                        let is_error = batch.is_err();
                        if sender.send(batch).await.is_err() || is_error {
                            return Ok(());
                        }
                    }
                }
                Ok(())
            }
            .boxed()
        })?;
        Ok(Box::pin(QueryStream {
            schema,
            receiver,
            task: Some(task),
        }))
    }
}

/// The rows of a running query.
struct QueryStream {
    schema: SchemaRef,
    receiver: mpsc::Receiver<DataFusionResult<RecordBatch>>,
    /// Dropped with the stream: that cancels it.
    task: Option<CpuTask<()>>,
}

impl Stream for QueryStream {
    type Item = DataFusionResult<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match self.receiver.poll_recv(context) {
            Poll::Ready(None) => {}
            other => return other,
        }
        // The channel is closed: the task has ended, well or with a panic.
        let Some(task) = &mut self.task else {
            return Poll::Ready(None);
        };
        match task.poll_unpin(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(outcome) => {
                self.task = None;
                Poll::Ready(
                    outcome
                        .err()
                        .map(|error| Err(DataFusionError::External(Box::new(error)))),
                )
            }
        }
    }
}

impl RecordBatchStream for QueryStream {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
