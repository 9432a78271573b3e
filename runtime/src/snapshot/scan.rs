//! The leaf of a batch plan: a relation's rows at a version, chunk by chunk, with a suspension point after each.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties, RecordBatchStream,
    ReplaceChildrenOptions, SendableRecordBatchStream,
};
use futures::{FutureExt, Stream};
use millrace_storage::LogReader;
use tokio::task::JoinHandle;

use super::provider::known_columns;
use super::{Frozen, FrozenRows};
use crate::relation::Relation;
use crate::state::TableView;
use crate::worker::cpu::should_yield;

pub(super) struct SnapshotScan {
    frozen: Frozen,
    projection: Vec<usize>,
    properties: Arc<PlanProperties>,
}

impl SnapshotScan {
    /// A scan of the first columns of a relation, under the names of `known`, or of some of them.
    pub fn new(frozen: Frozen, known: &SchemaRef, projection: Option<Vec<usize>>) -> Result<Self> {
        let projection = projection.unwrap_or_else(|| (0..known.fields().len()).collect());
        let schema = Arc::new(known.project(&projection)?);
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Ok(SnapshotScan {
            frozen,
            projection,
            properties: Arc::new(properties),
        })
    }
}

impl fmt::Debug for SnapshotScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SnapshotScan")
            .field("version", &self.frozen.version)
            .finish_non_exhaustive()
    }
}

impl DisplayAs for SnapshotScan {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self
            .schema()
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .collect();
        write!(
            f,
            "SnapshotScan: relation={}, columns=[{}]",
            self.frozen.relation.name(),
            names.join(", ")
        )
    }
}

impl ExecutionPlan for SnapshotScan {
    fn name(&self) -> &'static str {
        "SnapshotScan"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_new_children(self: Arc<Self>, _: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        if partition > 0 {
            return Err(DataFusionError::Internal(format!(
                "a snapshot scan has no partition {partition}"
            )));
        }
        let rows = match &self.frozen.rows {
            FrozenRows::Table(views) => Rows::Table {
                views: views.clone(),
                view: 0,
                chunk: 0,
            },
            FrozenRows::Log(logs) => {
                let reader = logs
                    .read(self.frozen.relation.id().0, 0, self.frozen.version)
                    .map_err(external)?;
                Rows::Log {
                    state: LogState::Idle(Some(Box::new(reader))),
                }
            }
        };
        Ok(Box::pin(ScanStream {
            schema: self.schema(),
            projection: self.projection.clone(),
            relation: Arc::clone(&self.frozen.relation),
            rows,
            pending: None,
            rows_max: context.session_config().batch_size(),
            gave_way: false,
        }))
    }
}

struct ScanStream {
    schema: SchemaRef,
    relation: Arc<Relation>,
    projection: Vec<usize>,
    rows: Rows,
    /// The rest of a chunk that is larger than a batch.
    pending: Option<RecordBatch>,
    rows_max: usize,
    gave_way: bool,
}

enum Rows {
    Table {
        views: Vec<TableView>,
        view: usize,
        chunk: usize,
    },
    Log {
        state: LogState,
    },
}

/// What reading a block gave.
type Block = Result<RecordBatch, millrace_storage::StorageError>;

/// Blocks of the log are read on the I/O runtime, never on a cpu slot.
enum LogState {
    Idle(Option<Box<LogReader>>),
    Reading(JoinHandle<(Box<LogReader>, Option<Block>)>),
}

impl ScanStream {
    fn poll_chunk(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<RecordBatch>>> {
        match &mut self.rows {
            Rows::Table { views, view, chunk } => loop {
                let Some(current) = views.get(*view) else {
                    return Poll::Ready(None);
                };
                if *chunk == current.num_chunks() {
                    *view += 1;
                    *chunk = 0;
                    continue;
                }
                let batch = current.batch(*chunk, Some(&self.projection)).map_err(external);
                *chunk += 1;
                if !matches!(&batch, Ok(batch) if batch.num_rows() == 0) {
                    return Poll::Ready(Some(batch));
                }
            },
            Rows::Log { state } => loop {
                match state {
                    LogState::Idle(reader) => {
                        let Some(mut reader) = reader.take() else {
                            return Poll::Ready(None);
                        };
                        *state = LogState::Reading(tokio::task::spawn_blocking(move || {
                            let block = reader.next().map(|block| block.map(|block| block.changes.rows));
                            (reader, block)
                        }));
                    }
                    LogState::Reading(handle) => {
                        let Poll::Ready(outcome) = handle.poll_unpin(context) else {
                            return Poll::Pending;
                        };
                        let (reader, block) = match outcome {
                            Ok(read) => read,
                            Err(error) => {
                                return Poll::Ready(Some(Err(DataFusionError::External(Box::new(error)))));
                            }
                        };
                        let Some(block) = block else {
                            *state = LogState::Idle(None);
                            return Poll::Ready(None);
                        };
                        *state = LogState::Idle(Some(reader));
                        let batch = block.map_err(external).and_then(|rows| {
                            let rows = self.relation.widen(rows).map_err(external)?;
                            Ok(rows.project(&self.projection)?)
                        });
                        return Poll::Ready(Some(batch));
                    }
                }
            },
        }
    }
}

impl Stream for ScanStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if !self.gave_way && should_yield() {
            self.gave_way = true;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let batch = match self.pending.take() {
            Some(batch) => batch,
            None => match self.poll_chunk(context) {
                Poll::Ready(Some(Ok(batch))) => batch,
                other => return other,
            },
        };
        self.gave_way = false;
        let batch = match known_columns(&batch, &self.schema) {
            Ok(batch) => batch,
            Err(error) => return Poll::Ready(Some(Err(error))),
        };
        if batch.num_rows() > self.rows_max {
            self.pending = Some(batch.slice(self.rows_max, batch.num_rows() - self.rows_max));
            return Poll::Ready(Some(Ok(batch.slice(0, self.rows_max))));
        }
        Poll::Ready(Some(Ok(batch)))
    }
}

impl RecordBatchStream for ScanStream {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

fn external(error: impl std::error::Error + Send + Sync + 'static) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}
