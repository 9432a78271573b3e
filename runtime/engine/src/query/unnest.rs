//! UNNEST of a query, with a faucet: the operator of views ([`millrace_operator::unnest`]) over a query's batches.
//!
//! DataFusion's makes all rows of one list at once, and the projection below it all lists of a batch. Here lists are made of as
//! many rows as make a few megabytes of them, and their rows are made when they are asked for, a batch of B at a time, so that
//! what is in flight follows from the batch and not from the lists (Faucet, section 4). At most N batches wait for the client.

use std::fmt;
use std::sync::Arc;

use arrow::array::{Array, RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use datafusion::common::NullHandling;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::unnest::UnnestExec;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, ReplaceChildrenOptions,
    SendableRecordBatchStream,
};
use futures::StreamExt;
use millrace_operator::unnest::{Expansion, list_steps};
use millrace_planner::stage::flow::{Explosion, FlowLimits};
use millrace_planner::stage::unnest::UnnestColumn;
use millrace_state::steps::Steps;
use millrace_storage::{ChangeBatch, rows_bytes};

use super::gate::give_way;
use super::generic_join::external;

/// Puts [`FlowingUnnest`] in the place of every UNNEST of lists.
///
/// # Errors
/// DataFusion cannot make the plan again over its new inputs.
pub fn place(plan: Arc<dyn ExecutionPlan>, flow: FlowLimits) -> Result<Arc<dyn ExecutionPlan>> {
    let placed = plan.transform_up(|node| {
        let found = node.downcast_ref::<UnnestExec>();
        Ok(match found.and_then(|unnest| FlowingUnnest::of(unnest, flow)) {
            Some(unnest) => Transformed::yes(Arc::new(unnest)),
            None => Transformed::no(node),
        })
    })?;
    Ok(placed.data)
}

/// How many batches of a plan's result may wait for the client, if it has a faucet.
pub fn batches_in_flight(plan: &Arc<dyn ExecutionPlan>) -> Option<usize> {
    let own = plan.downcast_ref::<FlowingUnnest>();
    let below = || plan.children().into_iter().filter_map(batches_in_flight).min();
    own.map(|unnest| unnest.flow.batches).or_else(below)
}

/// See the module.
#[derive(Debug, Clone)]
pub struct FlowingUnnest {
    input: Arc<dyn ExecutionPlan>,
    /// Makes the lists, unless they are columns of the input.
    lists: Option<Arc<[ProjectionExpr]>>,
    /// Of the projection.
    listed: SchemaRef,
    columns: Arc<[UnnestColumn]>,
    null_handling: NullHandling,
    flow: FlowLimits,
    /// Those of the operator that it stands for.
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl FlowingUnnest {
    /// In place of DataFusion's; none where that takes structs apart, or lists of lists at once.
    fn of(unnest: &UnnestExec, flow: FlowLimits) -> Option<FlowingUnnest> {
        let lists = unnest.list_column_indices();
        let below = unnest.input();
        let width = below.schema().fields().len();
        if lists.is_empty()
            || !unnest.struct_column_indices().is_empty()
            || lists.iter().any(|list| list.depth != 1)
            || unnest.schema().fields().len() != width
        {
            return None;
        }
        let is_list = |column: usize| lists.iter().any(|list| list.index_in_input_schema == column);
        let columns = (0..width).map(|column| match is_list(column) {
            true => UnnestColumn::Elements(column),
            false => UnnestColumn::Kept(column),
        });
        let projection = below.downcast_ref::<ProjectionExec>();
        Some(FlowingUnnest {
            input: Arc::clone(projection.map_or(below, ProjectionExec::input)),
            lists: projection.map(|projection| projection.expr().into()),
            listed: below.schema(),
            columns: columns.collect(),
            null_handling: unnest.options().null_handling,
            flow,
            properties: Arc::clone(unnest.properties()),
            metrics: ExecutionPlanMetricsSet::new(),
        })
    }

    fn over(&self, input: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        Arc::new(FlowingUnnest {
            input,
            metrics: ExecutionPlanMetricsSet::new(),
            ..self.clone()
        })
    }
}

impl DisplayAs for FlowingUnnest {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UnnestExec: {}, because {}", self.flow, Explosion::Unnest)?;
        match &self.lists {
            Some(lists) => {
                let lists: Vec<String> = lists.iter().map(ToString::to_string).collect();
                write!(f, ", projection=[{}]", lists.join(", "))
            }
            None => Ok(()),
        }
    }
}

impl ExecutionPlan for FlowingUnnest {
    fn name(&self) -> &'static str {
        "UnnestExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        let mut goes_on = TreeNodeRecursion::Continue;
        for list in self.lists.iter().flat_map(|lists| lists.iter()) {
            goes_on = visit(&list.expr)?;
            if goes_on == TreeNodeRecursion::Stop {
                break;
            }
        }
        Ok(goes_on)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self.over(children.swap_remove(0)))
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self.over(children.swap_remove(0)))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let reservation = MemoryConsumer::new("UNNEST").register(context.memory_pool());
        let unnesting = Unnesting {
            rows: self.input.execute(partition, context)?,
            lists: self.lists.clone(),
            listed: Arc::clone(&self.listed),
            columns: Arc::clone(&self.columns),
            null_handling: self.null_handling,
            schema: self.schema(),
            batch_rows: self.flow.batch_rows,
            batch: None,
            steps: list_steps(),
            expansion: None,
            reservation,
            metrics: BaselineMetrics::new(&self.metrics, partition),
        };
        let rows = futures::stream::try_unfold(unnesting, |mut unnesting| async move {
            let rows = unnesting.next().await?;
            Ok::<_, DataFusionError>(rows.map(|rows| (rows, unnesting)))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// One partition.
struct Unnesting {
    rows: SendableRecordBatchStream,
    lists: Option<Arc<[ProjectionExpr]>>,
    listed: SchemaRef,
    columns: Arc<[UnnestColumn]>,
    null_handling: NullHandling,
    schema: SchemaRef,
    batch_rows: usize,
    /// Rows of which the lists have not been made.
    batch: Option<RecordBatch>,
    steps: Steps,
    /// Rows of which the lists were made and not all rows emitted.
    expansion: Option<Expansion>,
    /// For the lists.
    reservation: MemoryReservation,
    metrics: BaselineMetrics,
}

impl Unnesting {
    /// The next rows; none when there are no more.
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            give_way().await;
            if self.expansion.is_none() && !self.list()? {
                let Some(batch) = self.rows.next().await else {
                    return Ok(None);
                };
                self.batch = Some(batch?);
                continue;
            }
            let Some(expansion) = &mut self.expansion else {
                continue;
            };
            let timer = self.metrics.elapsed_compute().timer();
            let rows = expansion.next(&self.columns, &self.schema, self.batch_rows);
            timer.done();
            match rows.map_err(external)? {
                Some(rows) if rows.num_rows() > 0 => {
                    self.metrics.output_rows().add(rows.num_rows());
                    return Ok(Some(rows.rows));
                }
                Some(_) => {}
                None => {
                    self.expansion = None;
                    self.reservation.free();
                }
            }
        }
    }

    /// Makes the lists of the next rows; false if there are no rows.
    fn list(&mut self) -> Result<bool> {
        let Some(batch) = self.batch.take().filter(|batch| batch.num_rows() > 0) else {
            return Ok(false);
        };
        let timer = self.metrics.elapsed_compute().timer();
        let listed = match &self.lists {
            None => batch,
            Some(lists) => {
                let step = self.steps.next(batch.num_rows());
                let listed = project(lists, &self.listed, &batch.slice(0, step))?;
                self.batch = Some(batch.slice(step, batch.num_rows() - step));
                let bytes = rows_bytes(&listed);
                self.steps.made(step, bytes.div_ceil(step));
                self.reservation.try_resize(bytes)?;
                listed
            }
        };
        let listed = ChangeBatch::insertions(listed);
        let expansion = Expansion::of(listed, &self.columns, self.null_handling).map_err(external)?;
        timer.done();
        self.expansion = Some(expansion);
        Ok(true)
    }
}

fn project(lists: &[ProjectionExpr], schema: &SchemaRef, batch: &RecordBatch) -> Result<RecordBatch> {
    let rows = batch.num_rows();
    let columns = lists
        .iter()
        .map(|list| list.expr.evaluate(batch)?.into_array(rows));
    let columns = columns.collect::<Result<Vec<Arc<dyn Array>>>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(
        Arc::clone(schema),
        columns,
        &options,
    )?)
}
