//! The leaf of a batch plan: a relation's rows at a version, chunk by chunk, with a suspension point after each.

use std::fmt;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::Statistics;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties, RecordBatchStream,
    ReplaceChildrenOptions, SendableRecordBatchStream,
};
use futures::future::BoxFuture;
use futures::{FutureExt, Stream};
use millrace_resource::cpu::{Waits, should_yield, used_disk, waits_for};
use millrace_resource::disk::DiskScheduler;
use millrace_resource::monotask::{DiskUse, Moved, Phase};
use millrace_state::chunk::Chunk;
use millrace_state::row_table::TableView;
use millrace_storage::LogReader;

use super::provider::known_columns;
use super::{Frozen, FrozenRows};
use crate::relation::Relation;

/// A share of a relation's rows.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    /// Chunks of the views of a table, from one (included) to another (not included), as (view, chunk).
    Chunks {
        from: (usize, usize),
        to: (usize, usize),
    },
    /// Rows of a large chunk, which is there.
    Rows {
        view: usize,
        chunk: usize,
        places: Range<usize>,
    },
    /// Offsets of a log.
    Offsets(Range<u64>),
}

/// Divides a relation's rows into about so many shares of similar size, in their order.
fn parts_of(frozen: &Frozen, most: usize) -> Vec<Part> {
    let most = most.max(1);
    let views = match &frozen.rows {
        FrozenRows::Log(..) => {
            let rows = frozen.version;
            let each = rows.div_ceil(most as u64).max(LOG_PART_ROWS_MIN);
            let shares =
                (0..rows.div_ceil(each).max(1)).map(|part| part * each..((part + 1) * each).min(rows));
            return shares.map(Part::Offsets).collect();
        }
        FrozenRows::Table(views) => views,
    };
    let each = frozen.rows_max().div_ceil(most).max(1);
    let (mut parts, mut from, mut rows) = (vec![], (0, 0), 0);
    for (number, view) in views.iter().enumerate() {
        for chunk in 0..view.num_chunks() {
            if rows >= each && parts.len() + 1 < most {
                let to = (number, chunk);
                parts.push(Part::Chunks { from, to });
                (from, rows) = (to, 0);
            }
            let of_chunk = view.chunk_rows_max(chunk);
            // What was written at once is one chunk, however large. One that is on the disk is read as a whole.
            let pieces = (of_chunk / each).min(most.saturating_sub(parts.len()));
            if pieces < 2 || view.is_spilled(chunk) {
                rows += of_chunk;
                continue;
            }
            if rows > 0 {
                let to = (number, chunk);
                parts.push(Part::Chunks { from, to });
            }
            let end = |piece: usize| of_chunk * piece / pieces;
            parts.extend((0..pieces).map(|piece| Part::Rows {
                view: number,
                chunk,
                places: end(piece)..end(piece + 1),
            }));
            (from, rows) = ((number, chunk + 1), 0);
        }
    }
    let to = (views.len(), 0);
    if rows > 0 || parts.is_empty() {
        parts.push(Part::Chunks { from, to });
    }
    parts
}

/// Offsets of a log that are worth a reader of their own.
const LOG_PART_ROWS_MIN: u64 = 16_384;

/// Blocks of a log are read together until they have so many bytes.
const LOG_PIECE_BYTES: usize = 1 << 20;

/// The leaf; see the module.
pub struct SnapshotScan {
    frozen: Frozen,
    /// What each partition reads.
    parts: Vec<Part>,
    projection: Vec<usize>,
    says_rows: bool,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl SnapshotScan {
    /// A scan of the first columns of a relation, under the names of `known`, or of some of them.
    ///
    /// In about so many partitions; with one, in one, which then says nothing of how many rows there are: plans over
    /// little data are as they were written.
    pub(super) fn new(
        frozen: Frozen,
        known: &SchemaRef,
        projection: Option<Vec<usize>>,
        partitions: usize,
    ) -> Result<Self> {
        let parts = parts_of(&frozen, partitions);
        let says_rows = partitions > 1;
        let projection = projection.unwrap_or_else(|| (0..known.fields().len()).collect());
        let schema = Arc::new(known.project(&projection)?);
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(parts.len()),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Ok(SnapshotScan {
            frozen,
            parts,
            says_rows,
            projection,
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
        })
    }
}

/// Rows that a leaf may read of a stored relation; `None`: it reads none.
pub fn scanned_rows(plan: &dyn ExecutionPlan) -> Option<usize> {
    plan.downcast_ref::<SnapshotScan>()
        .map(|scan| scan.frozen.rows_max())
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

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn statistics_from_inputs(
        &self,
        _: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        let mut statistics = Statistics::new_unknown(&self.schema());
        if self.says_rows {
            let all = self.frozen.rows_max();
            let rows = match args.partition() {
                None => all,
                Some(_) => all.div_ceil(self.parts.len()),
            };
            statistics.num_rows = Precision::Inexact(rows);
        }
        Ok(Arc::new(statistics))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let part = self.parts.get(partition).ok_or_else(|| {
            DataFusionError::Internal(format!("a snapshot scan has no partition {partition}"))
        })?;
        let rows = match (&self.frozen.rows, part) {
            (FrozenRows::Table(views), Part::Chunks { from, to }) => Rows::Table {
                views: views.clone(),
                view: from.0,
                chunk: from.1,
                end: *to,
                places: None,
                coming: None,
            },
            (FrozenRows::Table(views), Part::Rows { view, chunk, places }) => Rows::Table {
                views: views.clone(),
                view: *view,
                chunk: *chunk,
                end: (*view, chunk + 1),
                places: Some(places.clone()),
                coming: None,
            },
            (FrozenRows::Log(logs, disk), Part::Offsets(offsets)) => {
                let reader = logs
                    .read(self.frozen.relation.id().0, offsets.start, offsets.end)
                    .map_err(external)?;
                Rows::Log {
                    state: LogState::Idle(Some(Box::new(reader))),
                    disk: Arc::clone(disk),
                    block_bytes: 0,
                }
            }
            _ => {
                return Err(DataFusionError::Internal(
                    "a table is read by a share of a log, or a log by a share of a table".into(),
                ));
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
            metrics: BaselineMetrics::new(&self.metrics, partition),
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
    metrics: BaselineMetrics,
}

enum Rows {
    Table {
        views: Vec<TableView>,
        view: usize,
        chunk: usize,
        end: (usize, usize),
        /// Of the only chunk, if not all of it.
        places: Option<Range<usize>>,
        /// Of the chunk, as long as its rows come from the disk.
        coming:
            Option<BoxFuture<'static, std::result::Result<Arc<Chunk>, millrace_state::error::StateError>>>,
    },
    Log {
        state: LogState,
        disk: Arc<DiskScheduler>,
        /// Of the last block, which stands for the next one's.
        block_bytes: usize,
    },
}

/// What reading a block gave.
type Block = Result<RecordBatch, millrace_storage::StorageError>;

/// A reader, and what it read.
type Read = (Box<LogReader>, Option<Block>);

/// Blocks of the log are read by the disk scheduler, never on a cpu slot.
enum LogState {
    Idle(Option<Box<LogReader>>),
    Reading(BoxFuture<'static, std::io::Result<(Read, DiskUse)>>),
}

impl ScanStream {
    fn poll_chunk(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<RecordBatch>>> {
        match &mut self.rows {
            Rows::Table {
                views,
                view,
                chunk,
                end,
                places,
                coming,
            } => loop {
                if (*view, *chunk) == *end {
                    return Poll::Ready(None);
                }
                let Some(current) = views.get(*view) else {
                    return Poll::Ready(None);
                };
                if *chunk == current.num_chunks() {
                    *view += 1;
                    *chunk = 0;
                    continue;
                }
                let batch = if current.is_spilled(*chunk) {
                    let future = coming.get_or_insert_with(|| {
                        let (view, chunk) = (current.clone(), *chunk);
                        async move { view.chunk(chunk).await }.boxed()
                    });
                    let Poll::Ready(rows) = future.poll_unpin(context) else {
                        return Poll::Pending;
                    };
                    *coming = None;
                    rows.and_then(|rows| match places {
                        Some(places) => current.rows_in(&rows, places, &self.projection),
                        None => current.batch_in(&rows, Some(&self.projection)),
                    })
                } else {
                    match places {
                        Some(places) => current.rows_of(*chunk, places, &self.projection),
                        None => current.batch(*chunk, Some(&self.projection)),
                    }
                };
                let batch = batch.map_err(|error| external(crate::RuntimeError::from(error)));
                *chunk += 1;
                if !matches!(&batch, Ok(batch) if batch.num_rows() == 0) {
                    return Poll::Ready(Some(batch));
                }
            },
            Rows::Log {
                state,
                disk,
                block_bytes,
            } => loop {
                match state {
                    LogState::Idle(reader) => {
                        let Some(mut reader) = reader.take() else {
                            return Poll::Ready(None);
                        };
                        let rows_max = self.rows_max;
                        let read = move || {
                            let rows = reader.next_rows(rows_max, LOG_PIECE_BYTES);
                            let block = rows.map(|changes| changes.map(|changes| changes.rows));
                            let moved = match &block {
                                Some(Ok(rows)) => Moved {
                                    bytes: slice_bytes(rows) as u64,
                                    rows: rows.num_rows() as u64,
                                },
                                _ => Moved::default(),
                            };
                            ((reader, block), moved)
                        };
                        let (disk, bytes) = (Arc::clone(disk), *block_bytes);
                        let read = async move { disk.serve(Phase::Read, bytes, read).await };
                        *state = LogState::Reading(read.boxed());
                    }
                    LogState::Reading(handle) => {
                        let Poll::Ready(outcome) = handle.poll_unpin(context) else {
                            waits_for(Waits::Disk);
                            return Poll::Pending;
                        };
                        let ((reader, block), used) = match outcome {
                            Ok(read) => read,
                            Err(error) => return Poll::Ready(Some(Err(external(error)))),
                        };
                        used_disk(used);
                        *block_bytes = used.moved.bytes as usize;
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

impl ScanStream {
    fn poll_batch(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<RecordBatch>>> {
        let batch = match self.pending.take() {
            Some(batch) => batch,
            None => match self.poll_chunk(context) {
                Poll::Ready(Some(Ok(batch))) => batch,
                other => return other,
            },
        };
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

impl Stream for ScanStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if !self.gave_way && should_yield() {
            self.gave_way = true;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let time = self.metrics.elapsed_compute().clone();
        let timer = time.timer();
        let polled = self.poll_batch(context);
        timer.done();
        if let Poll::Ready(Some(Ok(batch))) = &polled {
            self.gave_way = false;
            self.metrics.record_output(batch.num_rows());
        }
        polled
    }
}

impl RecordBatchStream for ScanStream {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

/// Bytes of these rows alone: blocks of one file may share their buffers.
fn slice_bytes(rows: &RecordBatch) -> usize {
    let columns = rows.columns().iter();
    columns
        .map(|column| column.to_data().get_slice_memory_size().unwrap_or(0))
        .sum()
}

fn external(error: impl std::error::Error + Send + Sync + 'static) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}
