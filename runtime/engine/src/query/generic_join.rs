//! The generic join of a query: all relations but one are kept, the rows of that one are looked at in turn.
//!
//! ```text
//!  relation ---> kept, by what is asked of it --+
//!  relation ---> kept                         --+--> search, depth first --> batches, one at a time
//!  largest relation, batch by batch ------------+
//! ```
//! The search stands still between two batches, at whatever depth it is: what is in flight is one batch, however many results
//! there are (Faucet, section 4.1). The relations are charged to the query.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{LogicalPlan, UserDefinedLogicalNode};
use datafusion::physical_expr::{Distribution, EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::distribution_requirements::InputDistributionRequirements;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties, ReplaceChildrenOptions,
    SendableRecordBatchStream,
};
use datafusion::physical_planner::{ExtensionPlanner, PhysicalPlanner};
use futures::{StreamExt, TryStreamExt};
use millrace_operator::{Found, GenericJoinInstance};
use millrace_planner::query::generic_join::GenericJoinNode;
use millrace_planner::stage::generic_join::GenericJoinShape;
use millrace_storage::ChangeBatch;

use super::gate::give_way;
use crate::RuntimeError;

/// Plans [`GenericJoinNode`]s.
pub struct NodePlanner;

#[async_trait]
impl ExtensionPlanner for NodePlanner {
    async fn plan_extension(
        &self,
        _: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _: &[&LogicalPlan],
        inputs: &[Arc<dyn ExecutionPlan>],
        _: &dyn Session,
        _: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let Some(node) = node.as_any().downcast_ref::<GenericJoinNode>() else {
            return Ok(None);
        };
        let schema = Arc::new(node.schema().as_arrow().clone());
        let join = GenericJoinExec::new(inputs.to_vec(), node.clone(), schema);
        Ok(Some(Arc::new(join)))
    }
}

/// See the module.
#[derive(Debug)]
pub struct GenericJoinExec {
    inputs: Vec<Arc<dyn ExecutionPlan>>,
    node: GenericJoinNode,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl GenericJoinExec {
    fn new(inputs: Vec<Arc<dyn ExecutionPlan>>, node: GenericJoinNode, schema: SchemaRef) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&schema)),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        GenericJoinExec {
            inputs,
            node,
            schema,
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }
}

impl GenericJoinExec {
    fn over(&self, inputs: Vec<Arc<dyn ExecutionPlan>>) -> Arc<dyn ExecutionPlan> {
        Arc::new(GenericJoinExec::new(
            inputs,
            self.node.clone(),
            Arc::clone(&self.schema),
        ))
    }
}

impl DisplayAs for GenericJoinExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GenericJoinNode {
            names,
            attributes,
            driving,
            reason,
            ..
        } = &self.node;
        let named = |of: &Vec<usize>| {
            let of: Vec<&str> = of.iter().map(|attribute| names[*attribute].as_str()).collect();
            format!("({})", of.join(", "))
        };
        let relations: Vec<String> = attributes.iter().map(named).collect();
        write!(
            f,
            "GenericJoinExec: {}, driven by {}, 1 batch in flight, because {reason}",
            relations.join(" "),
            driving + 1
        )
    }
}

impl ExecutionPlan for GenericJoinExec {
    fn name(&self) -> &'static str {
        "GenericJoinExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.inputs.iter().collect()
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        InputDistributionRequirements::new(vec![Distribution::SinglePartition; self.inputs.len()])
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self.over(children))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self.over(children))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let shape = GenericJoinShape {
            attributes: self.node.attributes.clone(),
            names: self.node.names.clone(),
            types: self.node.types.clone(),
            output: self.node.output.clone(),
            schema: Arc::clone(&self.schema),
        };
        let driving = self.node.driving;
        let mut relations: BTreeMap<usize, SendableRecordBatchStream> = (self.inputs.iter().enumerate())
            .map(|(number, input)| Ok((number, input.execute(partition, Arc::clone(&context))?)))
            .collect::<Result<_>>()?;
        let Some(driver) = relations.remove(&driving) else {
            return Err(DataFusionError::Internal(
                "a generic join has no relation that drives it".into(),
            ));
        };
        let reservation = MemoryConsumer::new("GenericJoin").register(context.memory_pool());
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let rows_max = context.session_config().batch_size();
        let begun = async move {
            let mut join = GenericJoinInstance::for_query(&shape, driving).map_err(external)?;
            for (relation, mut rows) in relations {
                while let Some(batch) = rows.next().await {
                    let batch = ChangeBatch::insertions(batch?);
                    join.keep(relation, &batch).map_err(external)?;
                    reservation.try_resize(join.memory_bytes())?;
                    give_way().await;
                }
            }
            let found = join.find(driving, rows_max);
            let searching = Searching {
                join,
                found,
                driver,
                rows: None,
                rows_max,
                reservation,
                metrics,
            };
            Ok::<_, DataFusionError>(futures::stream::try_unfold(
                searching,
                |mut searching| async move {
                    let batch = searching.next().await?;
                    Ok::<_, DataFusionError>(batch.map(|batch| (batch, searching)))
                },
            ))
        };
        let rows = futures::stream::once(begun).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            Arc::clone(&self.schema),
            rows,
        )))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// An error of the runtime's operators, as DataFusion's.
pub fn external(error: impl Into<RuntimeError>) -> DataFusionError {
    DataFusionError::External(Box::new(error.into()))
}

/// A join whose relations are there.
struct Searching {
    join: GenericJoinInstance,
    found: Found,
    driver: SendableRecordBatchStream,
    /// What was found and not emitted: each row is there so many times.
    rows: Option<Copies>,
    rows_max: usize,
    reservation: MemoryReservation,
    metrics: BaselineMetrics,
}

impl Searching {
    /// The next rows; none when there are no more.
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(rows) = &mut self.rows {
                if let Some(batch) = rows.next(self.rows_max)? {
                    self.metrics.output_rows().add(batch.num_rows());
                    return Ok(Some(batch));
                }
                self.rows = None;
            }
            give_way().await;
            let timer = self.metrics.elapsed_compute().timer();
            let rows = self.join.next_found(&mut self.found).map_err(external)?;
            timer.done();
            if let Some(rows) = rows {
                self.rows = Some(Copies::of(rows));
                continue;
            }
            if !self.found.is_over() {
                continue;
            }
            let Some(batch) = self.driver.next().await else {
                return Ok(None);
            };
            let batch = ChangeBatch::insertions(batch?);
            self.join.look_at(&mut self.found, &batch).map_err(external)?;
            self.reservation.try_resize(self.join.memory_bytes())?;
        }
    }
}

/// Rows, each as many times as its weight says.
struct Copies {
    rows: ChangeBatch,
    row: usize,
    /// Of this row, so many were emitted.
    copies: i64,
}

impl Copies {
    fn of(rows: ChangeBatch) -> Copies {
        Copies {
            rows,
            row: 0,
            copies: 0,
        }
    }

    fn next(&mut self, rows_max: usize) -> Result<Option<RecordBatch>> {
        let Some(weights) = &self.rows.weights else {
            let all = self.rows.rows.clone();
            let is_new = std::mem::replace(&mut self.row, all.num_rows()) == 0;
            return Ok((is_new && all.num_rows() > 0).then_some(all));
        };
        let mut taken: Vec<u32> = vec![];
        while self.row < weights.len() && taken.len() < rows_max {
            let left = weights.value(self.row) - self.copies;
            let now = left.min((rows_max - taken.len()) as i64);
            taken.extend(std::iter::repeat_n(self.row as u32, now.max(0) as usize));
            if now < left {
                self.copies += now;
            } else {
                (self.row, self.copies) = (self.row + 1, 0);
            }
        }
        match taken.is_empty() {
            true => Ok(None),
            false => Ok(Some(take_record_batch(
                &self.rows.rows,
                &UInt32Array::from(taken),
            )?)),
        }
    }
}

#[cfg(test)]
mod tests;
