//! The leaf of a batch plan: a relation's rows at a version, chunk by chunk, with a suspension point after each.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{ScalarValue, Statistics};
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
use millrace_planner::query::values::count_values;
use millrace_resource::cpu::{Waits, should_yield, used_disk, waits_for};
use millrace_resource::disk::DiskScheduler;
use millrace_resource::monotask::{DiskUse, Moved, Phase};
use millrace_state::bounds::{are_known, union};
use millrace_state::chunk::Chunk;
use millrace_state::row_table::TableView;
use millrace_storage::LogReader;

use super::parts::{Part, Place, parts_of};
use super::provider::known_columns;
use super::{Frozen, FrozenRows};
use crate::relation::Relation;
use crate::stream_values::StreamValues;

/// Blocks of a log are read together until they have so many bytes.
const LOG_PIECE_BYTES: usize = 1 << 20;

/// The leaf; see the module.
pub struct SnapshotScan {
    frozen: Frozen,
    /// What each partition reads.
    parts: Vec<Part>,
    projection: Vec<usize>,
    says_rows: bool,
    /// What a planner is told of all parts, once it has asked.
    statistics: OnceLock<Statistics>,
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
            statistics: OnceLock::new(),
            projection,
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
        })
    }
}

/// Beyond so many chunks nothing is said of columns: who plans does not look at each.
const CHUNKS_MAX: usize = 4_096;

impl SnapshotScan {
    /// How many rows there are, and between which values the columns lie: by that DataFusion estimates how many rows a join has, and how
    /// many groups there are.
    fn statistics(&self) -> &Statistics {
        self.statistics.get_or_init(|| {
            let schema = self.schema();
            let mut statistics = Statistics::new_unknown(&schema);
            statistics.num_rows = Precision::Inexact(self.frozen.rows_max());
            let fields = schema.fields().iter().zip(&self.projection);
            for (known, (field, column)) in statistics.column_statistics.iter_mut().zip(fields) {
                let kind = field.data_type();
                let range = are_known(kind).then(|| self.bounds(*column)).flatten();
                let Some((least, greatest)) = range else { continue };
                let values = value_of(kind, least).zip(value_of(kind, greatest));
                if let Some((least, greatest)) = values {
                    known.min_value = Precision::Inexact(least);
                    known.max_value = Precision::Inexact(greatest);
                }
            }
            count_values(&mut statistics);
            statistics
        })
    }

    fn bounds(&self, column: usize) -> Option<(i64, i64)> {
        match (&self.frozen.rows, self.frozen.relation.as_ref()) {
            (FrozenRows::Table(views), _) => bounds(views, column),
            (FrozenRows::Log(..), Relation::Stream(stream)) => {
                stream.values.range(column, self.frozen.version)
            }
            (FrozenRows::Log(..), _) => None,
        }
    }
}

/// `None`: it is not known in every part, or there are too many.
fn bounds(views: &[TableView], column: usize) -> Option<(i64, i64)> {
    if views.iter().map(TableView::num_chunks).sum::<usize>() > CHUNKS_MAX {
        return None;
    }
    let with_rows = views.iter().filter(|view| view.rows_max() > 0);
    let bounds: Option<Vec<_>> = with_rows.map(|view| view.bounds(column)).collect();
    let all = bounds?.into_iter();
    all.reduce(union)
}

/// What a column of this type keeps as this number.
fn value_of(kind: &DataType, number: i64) -> Option<ScalarValue> {
    ScalarValue::Int64(Some(number)).cast_to(kind).ok().or_else(|| {
        // A date is no number to a cast of one of 64 bits.
        let days = i32::try_from(number).ok()?;
        ScalarValue::Int32(Some(days)).cast_to(kind).ok()
    })
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
        if !self.says_rows {
            return Ok(Arc::new(Statistics::new_unknown(&self.schema())));
        }
        let mut statistics = self.statistics().clone();
        if args.partition().is_some() {
            let rows = self.frozen.rows_max().div_ceil(self.parts.len());
            statistics.num_rows = Precision::Inexact(rows);
        }
        Ok(Arc::new(statistics))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let part = self.parts.get(partition).ok_or_else(|| {
            DataFusionError::Internal(format!("a snapshot scan has no partition {partition}"))
        })?;
        let rows = match (&self.frozen.rows, part) {
            (FrozenRows::Table(views), Part::Rows(share)) => Rows::Table {
                views: views.clone(),
                next: share.start,
                end: share.end,
                coming: None,
            },
            (FrozenRows::Log(logs, disk), Part::Offsets(offsets)) => {
                let reader = logs
                    .read(self.frozen.relation.id().0, offsets.start, offsets.end)
                    .map_err(external)?
                    .with_columns(self.projection.clone());
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
        let seen = match self.frozen.relation.as_ref() {
            Relation::Stream(stream) => {
                let mut columns = self.projection.iter();
                let is_short = columns.any(|column| stream.values.is_short(*column, self.frozen.version));
                is_short.then(StreamValues::default)
            }
            Relation::Table(_) | Relation::View(_) => None,
        };
        Ok(Box::pin(ScanStream {
            schema: self.schema(),
            projection: self.projection.clone(),
            seen,
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
    /// What is to be told of a stream.
    seen: Option<StreamValues>,
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
        next: Place,
        end: Place,
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
                next,
                end,
                coming,
            } => loop {
                if *next >= *end {
                    return Poll::Ready(None);
                }
                let Some(view) = views.get(next.view) else {
                    return Poll::Ready(None);
                };
                if next.chunk == view.num_chunks() {
                    *next = Place {
                        view: next.view + 1,
                        ..Place::default()
                    };
                    continue;
                }
                let is_last = (next.view, next.chunk) == (end.view, end.chunk);
                let all = view.chunk_rows_max(next.chunk);
                let rows = next.row..if is_last { end.row } else { all };
                let batch = if view.is_spilled(next.chunk) {
                    let future = coming.get_or_insert_with(|| {
                        let (view, chunk) = (view.clone(), next.chunk);
                        async move { view.chunk(chunk).await }.boxed()
                    });
                    let Poll::Ready(chunk) = future.poll_unpin(context) else {
                        return Poll::Pending;
                    };
                    *coming = None;
                    chunk.and_then(|chunk| view.rows_in(&chunk, &rows, &self.projection))
                } else {
                    view.rows_of(next.chunk, &rows, &self.projection)
                };
                let batch = batch.map_err(|error| external(crate::RuntimeError::from(error)));
                *next = match is_last {
                    true => *end,
                    false => Place {
                        view: next.view,
                        chunk: next.chunk + 1,
                        row: 0,
                    },
                };
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
                            let before = reader.bytes_read();
                            let rows = reader.next_rows(rows_max, LOG_PIECE_BYTES);
                            let block = rows.map(|changes| changes.map(|changes| changes.rows));
                            let moved = match &block {
                                Some(Ok(rows)) => Moved {
                                    bytes: reader.bytes_read() - before,
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
                            if let (Relation::Stream(stream), Some(seen)) =
                                (self.relation.as_ref(), &self.seen)
                            {
                                stream.values.merge(seen);
                            }
                            *state = LogState::Idle(None);
                            return Poll::Ready(None);
                        };
                        *state = LogState::Idle(Some(reader));
                        let batch = block.map_err(external).and_then(|rows| {
                            if let Some(seen) = &self.seen
                                && rows.num_columns() == self.projection.len()
                            {
                                seen.note(&rows, self.projection.iter().copied());
                            }
                            let rows = self.relation.widen_columns(rows, &self.projection);
                            rows.map_err(external)
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

fn external(error: impl std::error::Error + Send + Sync + 'static) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}
