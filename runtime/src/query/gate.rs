//! Suspension points: above a leaf that has none of its own, and within operators of ours.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, RecordBatchStream, ReplaceChildrenOptions,
    SendableRecordBatchStream,
};
use futures::{Stream, StreamExt};

use crate::worker::cpu::should_yield;

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
#[derive(Debug)]
pub struct Gated {
    input: Arc<dyn ExecutionPlan>,
}

impl Gated {
    pub fn new(input: Arc<dyn ExecutionPlan>) -> Self {
        Gated { input }
    }
}

impl DisplayAs for Gated {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gate")
    }
}

impl ExecutionPlan for Gated {
    fn name(&self) -> &'static str {
        "Gate"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Gated::new(children.swap_remove(0))))
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Gated::new(children.swap_remove(0))))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        Ok(Box::pin(GatedStream {
            rows: self.input.execute(partition, context)?,
            gave_way: false,
        }))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        None
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
