//! Where a plan is cut: the leaf of one stage, and all of the stage below it.
//!
//! To DataFusion it is an operator with an input, like the one that it stands for; but the input is executed by tasks of its
//! own on the cpu schedulers, one a partition, which begin when the first rows are asked for. That late: what an operator
//! above does before (the value of a subquery, the build side of a join) is then done.

use std::collections::VecDeque;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Instant;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::physical_expr::{LexOrdering, PhysicalExpr};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet, Time,
};
use datafusion::physical_plan::repartition::BatchPartitioner;
use datafusion::physical_plan::sorts::streaming_merge::StreamingMergeBuilder;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning, PlanProperties,
    RecordBatchStream, ReplaceChildrenOptions, SendableRecordBatchStream,
};
use futures::{FutureExt, Stream, StreamExt};
use millrace_resource::cpu::{CpuGate, panic_message, should_yield};
use millrace_resource::gate::Gate;
use millrace_storage::rows_bytes;
use parking_lot::Mutex;

use super::exchange::{Exchange, Producer, Reader, Shape};
use super::run::QueryRun;
use crate::error::RuntimeError;

/// How rows find their consumer.
#[derive(Debug, Clone)]
pub enum Routing {
    /// By the partitioning that the plan asks for, the order of each producer kept or not.
    Partitioned { keeps_order: bool },
    /// All to one, at most so many.
    Single { fetch: Option<usize> },
    /// Each producer's to the consumer with its number.
    Straight,
}

/// See the module.
pub struct StageBoundary {
    input: Arc<dyn ExecutionPlan>,
    routing: Routing,
    /// As that of the operator that it stands for.
    properties: Arc<PlanProperties>,
    run: Weak<QueryRun>,
    /// The number of the stage below.
    pub stage: usize,
    /// Made by the first that executes a partition.
    execution: Mutex<Option<Arc<Execution>>>,
    metrics: ExecutionPlanMetricsSet,
}

/// One execution of the stage below.
struct Execution {
    exchange: Arc<Exchange>,
    has_begun: AtomicBool,
    /// Tasks that have not begun, in order: see [`Execution::at_once`].
    waiting: Mutex<VecDeque<(usize, Producer)>>,
    input: Arc<dyn ExecutionPlan>,
    routing: Routing,
    partitioning: Partitioning,
    context: Arc<TaskContext>,
    run: Weak<QueryRun>,
    stage: usize,
}

impl StageBoundary {
    /// A boundary with the properties of the operator for which it stands.
    pub fn new(
        input: Arc<dyn ExecutionPlan>,
        routing: Routing,
        properties: Arc<PlanProperties>,
        run: &Arc<QueryRun>,
        stage: usize,
    ) -> Self {
        StageBoundary {
            input,
            routing,
            properties,
            run: Arc::downgrade(run),
            stage,
            execution: Mutex::default(),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    fn again(&self, input: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        Arc::new(StageBoundary {
            input,
            routing: self.routing.clone(),
            properties: Arc::clone(&self.properties),
            run: Weak::clone(&self.run),
            stage: self.stage,
            execution: Mutex::default(),
            metrics: ExecutionPlanMetricsSet::new(),
        })
    }

    fn shape(&self, context: &TaskContext) -> Shape {
        let producers = self.input.output_partitioning().partition_count();
        let (lanes, consumers, rows_a_take) = match &self.routing {
            Routing::Partitioned { keeps_order } => {
                let partitioning = &self.properties.partitioning;
                let scatters = !matches!(partitioning, Partitioning::RoundRobinBatch(_));
                let take = match scatters && !keeps_order {
                    true => context.session_config().batch_size(),
                    false => 1,
                };
                let lanes = if *keeps_order { producers } else { 1 };
                (lanes, partitioning.partition_count(), take)
            }
            Routing::Single { .. } => (1, 1, 1),
            Routing::Straight => (producers, 1, 1),
        };
        Shape {
            producers,
            lanes,
            consumers,
            rows_a_take,
        }
    }

    fn execution(&self, context: &Arc<TaskContext>) -> Arc<Execution> {
        let mut execution = self.execution.lock();
        let execution = execution.get_or_insert_with(|| {
            let network = self.run.upgrade().and_then(|run| run.network());
            let (shape, schema) = (self.shape(context), self.input.schema());
            Arc::new(Execution {
                exchange: Exchange::new(shape, &schema, context, &self.metrics, network),
                has_begun: AtomicBool::new(false),
                waiting: Mutex::default(),
                input: Arc::clone(&self.input),
                routing: self.routing.clone(),
                partitioning: self.properties.partitioning.clone(),
                context: Arc::clone(context),
                run: Weak::clone(&self.run),
                stage: self.stage,
            })
        });
        Arc::clone(execution)
    }
}

impl Execution {
    /// So many of its tasks are under way at a time. A stage that reads the query's input begins no more than keep every
    /// resource at work: others would hold memory and wait. All of them at once where one may wait for another: where rows
    /// keep their order, and above joins, some of which wait until all partitions have their tables.
    fn at_once(&self, run: &QueryRun) -> usize {
        let keeps_order = match &self.routing {
            Routing::Partitioned { keeps_order } => *keeps_order,
            Routing::Single { .. } => false,
            Routing::Straight => true,
        };
        if keeps_order || !is_chain(&self.input) {
            return usize::MAX;
        }
        run.tasks_in_flight()
    }

    /// Starts the tasks of the stage, once.
    fn begin(self: &Arc<Self>) -> Result<()> {
        if self.has_begun.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let run = self.run.upgrade().ok_or_else(|| {
            DataFusionError::Internal("a stage was asked for rows after the end of its query".into())
        })?;
        let partitions = 0..self.input.output_partitioning().partition_count();
        let producers = partitions.map(|partition| (partition, self.exchange.producer(partition)));
        *self.waiting.lock() = producers.collect();
        for _ in 0..self.at_once(&run) {
            if !self.start_next(&run)? {
                break;
            }
        }
        Ok(())
    }

    /// Starts the next task; false: all have begun, or nobody wants their rows.
    fn start_next(self: &Arc<Self>, run: &QueryRun) -> Result<bool> {
        let Some((partition, mut producer)) = self.waiting.lock().pop_front() else {
            return Ok(false);
        };
        if !producer.is_wanted() {
            let others = std::mem::take(&mut *self.waiting.lock());
            producer.end();
            others.into_iter().for_each(|(_, producer)| producer.end());
            return Ok(false);
        }
        let execution = Arc::clone(self);
        run.spawn(self.stage, partition, move |gate| async move {
            producer.begins(&gate);
            execution.produce(partition, producer, &gate).await;
            execution.follow();
        })
        .map_err(|error| DataFusionError::External(Box::new(error)))?;
        Ok(true)
    }

    /// A task has ended: another one begins.
    fn follow(self: &Arc<Self>) {
        let run = self.run.upgrade();
        let followed = run.map(|run| self.start_next(&run));
        if !matches!(followed, Some(Ok(_))) {
            // The query has ended, or the runtime has: readers that are left are told so.
            let left = std::mem::take(&mut *self.waiting.lock());
            drop(left);
        }
    }

    /// One task.
    async fn produce(&self, partition: usize, producer: Producer, gate: &CpuGate) {
        let rows = AssertUnwindSafe(self.produce_rows(partition, &producer, gate));
        match rows.catch_unwind().await {
            Ok(Ok(())) => producer.end(),
            Ok(Err(error)) => producer.fail(error),
            Err(panic) => producer.fail(DataFusionError::External(Box::new(RuntimeError::Internal(
                format!("a task panicked: {}", panic_message(&*panic)),
            )))),
        }
    }

    async fn produce_rows(&self, partition: usize, producer: &Producer, gate: &CpuGate) -> Result<()> {
        let mut partitioner = self.partitioner(partition)?;
        let mut rows = self.input.execute(partition, Arc::clone(&self.context))?;
        while let Some(batch) = rows.next().await {
            let batch = batch?;
            if batch.num_rows() > 0 {
                gate.put_out(batch.num_rows(), rows_bytes(&batch));
                match &mut partitioner {
                    Some(partitioner) => {
                        let begin = Instant::now();
                        partitioner.partition(batch, |consumer, part| producer.push(consumer, part))?;
                        gate.divided(begin.elapsed());
                    }
                    // The only reader of the lane, or of all.
                    None => producer.push(0, batch)?,
                }
            }
            if !producer.room().await {
                return Ok(());
            }
            gate.checkpoint().await;
        }
        Ok(())
    }

    fn partitioner(&self, partition: usize) -> Result<Option<BatchPartitioner>> {
        match &self.routing {
            Routing::Partitioned { .. } => {
                let producers = self.input.output_partitioning().partition_count();
                BatchPartitioner::try_new(self.partitioning.clone(), Time::new(), partition, producers)
                    .map(Some)
            }
            Routing::Single { .. } | Routing::Straight => Ok(None),
        }
    }
}

/// Whether a plan is one operator over another, down to one that reads the query's input.
fn is_chain(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let children = plan.children();
    !plan.is::<StageBoundary>() && children.len() <= 1 && children.into_iter().all(is_chain)
}

impl fmt::Debug for StageBoundary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StageBoundary")
            .field("stage", &self.stage)
            .field("routing", &self.routing)
            .finish_non_exhaustive()
    }
}

impl DisplayAs for StageBoundary {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StageBoundary: stage={}, ", self.stage)?;
        match &self.routing {
            Routing::Partitioned { .. } => write!(f, "partitioning={}", self.properties.partitioning),
            Routing::Single { fetch: None } => write!(f, "to one"),
            Routing::Single { fetch: Some(fetch) } => write!(f, "to one, fetch={fetch}"),
            Routing::Straight => write!(f, "straight"),
        }
    }
}

impl ExecutionPlan for StageBoundary {
    fn name(&self) -> &'static str {
        "StageBoundary"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![match &self.routing {
            Routing::Partitioned { keeps_order } => *keeps_order,
            Routing::Single { .. } => false,
            Routing::Straight => true,
        }]
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
        Ok(self.again(children.swap_remove(0)))
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self.again(children.swap_remove(0)))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let execution = self.execution(&context);
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let bytes = MetricBuilder::new(&self.metrics).output_bytes(partition);
        let exchange = &execution.exchange;
        let readers: Vec<Reader> = match self.routing {
            Routing::Straight => vec![exchange.reader(partition, 0)],
            _ => (0..exchange.shape().lanes)
                .map(|lane| exchange.reader(lane, partition))
                .collect(),
        };
        let streams: Vec<SendableRecordBatchStream> = readers
            .into_iter()
            .map(|reader| -> SendableRecordBatchStream {
                Box::pin(StageStream {
                    schema: self.schema(),
                    execution: Arc::clone(&execution),
                    reader,
                    rows_left: match self.routing {
                        Routing::Single { fetch } => fetch,
                        _ => None,
                    },
                    gave_way: false,
                    metrics: metrics.clone(),
                    bytes: bytes.clone(),
                })
            })
            .collect();
        match <[SendableRecordBatchStream; 1]>::try_from(streams) {
            Ok([stream]) => Ok(stream),
            Err(streams) => self.merged(streams, metrics, &context),
        }
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

impl StageBoundary {
    /// Producers' rows that are each in order, as rows in order.
    fn merged(
        &self,
        streams: Vec<SendableRecordBatchStream>,
        metrics: BaselineMetrics,
        context: &Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let ordering: Option<&LexOrdering> = self.input.output_ordering();
        let reservation = MemoryConsumer::new("StageBoundary merge").register(context.memory_pool());
        let merge = StreamingMergeBuilder::new()
            .with_streams(streams)
            .with_schema(self.schema())
            .with_metrics(metrics)
            .with_batch_size(context.session_config().batch_size())
            .with_reservation(reservation);
        match ordering {
            Some(ordering) => merge.with_expressions(ordering).build(),
            None => Err(DataFusionError::Internal(
                "an exchange is to keep the order of rows that have none".into(),
            )),
        }
    }
}

/// The rows of one queue, with a suspension point after each batch.
struct StageStream {
    schema: SchemaRef,
    execution: Arc<Execution>,
    reader: Reader,
    rows_left: Option<usize>,
    gave_way: bool,
    metrics: BaselineMetrics,
    bytes: Count,
}

impl Stream for StageStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if this.rows_left == Some(0) {
            return Poll::Ready(None);
        }
        if !this.gave_way && should_yield() {
            this.gave_way = true;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        if let Err(error) = this.execution.begin() {
            return Poll::Ready(Some(Err(error)));
        }
        let polled = match this.reader.poll_next(context) {
            Poll::Ready(Some(Ok(mut batch))) => {
                this.gave_way = false;
                if let Some(left) = &mut this.rows_left {
                    batch = batch.slice(0, batch.num_rows().min(*left));
                    *left -= batch.num_rows();
                }
                // Of the rows alone: a batch may be a part of a larger one.
                this.bytes.add(rows_bytes(&batch));
                this.metrics.record_output(batch.num_rows());
                Poll::Ready(Some(Ok(batch)))
            }
            other => other,
        };
        if let Poll::Ready(None | Some(Err(_))) = polled {
            this.metrics.done();
        }
        polled
    }
}

impl RecordBatchStream for StageStream {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
