//! Base relations for DataFusion, which give whatever rows they have when a plan runs: so a query is planned once and run as
//! often as one likes.

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Constraint, Constraints, Statistics};
use datafusion::error::Result as DataFusionResult;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::memory::MemoryStream;
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties, ReplaceChildrenOptions,
    SendableRecordBatchStream,
};
use parking_lot::Mutex;

use crate::rows::reversed;

/// Rows of a base relation, shared by all plans over it.
type Rows = Arc<Mutex<Vec<RecordBatch>>>;

/// A base relation.
pub struct Base {
    schema: SchemaRef,
    key: Option<Vec<usize>>,
    rows: Rows,
}

impl Base {
    /// A relation without rows. A key, if there is one, is what GROUP BY may rely on.
    pub fn new(schema: SchemaRef, key: Option<Vec<usize>>) -> Base {
        Base {
            schema,
            key,
            rows: Rows::default(),
        }
    }

    /// The rows of this moment.
    pub fn rows(&self) -> Vec<RecordBatch> {
        self.rows.lock().clone()
    }

    /// Makes these the rows.
    pub fn set_rows(&self, rows: Vec<RecordBatch>) {
        *self.rows.lock() = rows;
    }

    /// The same rows in another order.
    ///
    /// # Errors
    /// A type cannot be taken by position.
    pub fn reverse(&self) -> Result<(), ArrowError> {
        let mut rows = self.rows.lock();
        *rows = rows.iter().rev().map(reversed).collect::<Result<_, _>>()?;
        Ok(())
    }

    /// The relation for DataFusion, with its key or without, read in so many partitions.
    pub fn table(&self, with_key: bool, partitions: usize) -> Arc<dyn TableProvider> {
        let constraints = match &self.key {
            Some(key) if with_key && !key.is_empty() => {
                Constraints::new_unverified(vec![Constraint::PrimaryKey(key.clone())])
            }
            _ => Constraints::default(),
        };
        Arc::new(BaseTable {
            schema: Arc::clone(&self.schema),
            rows: Arc::clone(&self.rows),
            constraints,
            partitions,
        })
    }
}

#[derive(Debug)]
struct BaseTable {
    schema: SchemaRef,
    rows: Rows,
    constraints: Constraints,
    partitions: usize,
}

#[async_trait]
impl TableProvider for BaseTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn constraints(&self) -> Option<&Constraints> {
        Some(&self.constraints)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        _: Option<usize>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let schema = match projection {
            Some(columns) => Arc::new(self.schema.project(columns)?),
            None => Arc::clone(&self.schema),
        };
        Ok(Arc::new(BaseScan {
            rows: Arc::clone(&self.rows),
            projection: projection.cloned(),
            properties: Arc::new(PlanProperties::new(
                EquivalenceProperties::new(schema),
                Partitioning::UnknownPartitioning(self.partitions),
                EmissionType::Incremental,
                Boundedness::Bounded,
            )),
        }))
    }
}

/// Reads the rows that a base relation has when the plan is run; every so-manieth batch is in one partition.
#[derive(Debug)]
struct BaseScan {
    rows: Rows,
    projection: Option<Vec<usize>>,
    properties: Arc<PlanProperties>,
}

impl DisplayAs for BaseScan {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BaseScan")
    }
}

impl ExecutionPlan for BaseScan {
    fn name(&self) -> &'static str {
        "BaseScan"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> DataFusionResult<TreeNodeRecursion>,
    ) -> DataFusionResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_new_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    /// The number of rows orders joins well. It is not exact, because the plan is kept while the rows change.
    fn statistics_from_inputs(
        &self,
        _: &[Arc<Statistics>],
        _: &StatisticsArgs,
    ) -> DataFusionResult<Arc<Statistics>> {
        let rows = self.rows.lock().iter().map(RecordBatch::num_rows).sum();
        let mut statistics = Statistics::new_unknown(&self.schema());
        statistics.num_rows = Precision::Inexact(rows);
        Ok(Arc::new(statistics))
    }

    fn execute(&self, partition: usize, _: Arc<TaskContext>) -> DataFusionResult<SendableRecordBatchStream> {
        let partitions = self.properties.partitioning.partition_count();
        let rows = self.rows.lock();
        let rows = rows.iter().skip(partition).step_by(partitions).cloned();
        let stream = MemoryStream::try_new(rows.collect(), self.schema(), self.projection.clone())?;
        Ok(Box::pin(stream))
    }
}
