//! Functions of whole partitions (OVER windows): a partition that changed is computed again, before and after the change,
//! and the difference is put out.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::{ExecutionPlan, collect};
use millrace_planner::stage::Recompute;
use millrace_planner::view::PartitionRows;
use millrace_storage::ChangeBatch;

use super::aggregate::{GroupKeys, consolidate};
use super::{Gate, batch_of, nullable};
use crate::error::Result;
use crate::state::RowTable;
use crate::state::row_table::arrow_error;

/// The rows of every partition, indexed by what tells partitions apart.
pub struct RecomputeInstance {
    partition_by: Vec<usize>,
    plan: Arc<dyn ExecutionPlan>,
    input_schema: SchemaRef,
    schema: SchemaRef,
    rows: RowTable,
    index: Option<usize>,
}

impl RecomputeInstance {
    pub fn new(plan: &Recompute) -> Result<Self> {
        let input_schema = Arc::clone(plan.input.schema());
        let identity = (!plan.input_append_only).then(|| (0..input_schema.fields().len()).collect());
        let mut rows = RowTable::new(nullable(&input_schema), identity);
        let index = if plan.partition_by.is_empty() {
            None
        } else {
            Some(rows.add_index(plan.partition_by.clone())?)
        };
        Ok(RecomputeInstance {
            partition_by: plan.partition_by.clone(),
            plan: Arc::clone(&plan.plan),
            input_schema,
            schema: Arc::clone(&plan.schema),
            rows,
            index,
        })
    }

    pub fn state_bytes(&self) -> usize {
        self.rows.memory_bytes()
    }

    /// Applies what changed and puts out how the results of the changed partitions differ.
    pub async fn run(&mut self, batches: Vec<ChangeBatch>, gate: &dyn Gate) -> Result<Vec<ChangeBatch>> {
        let Some(changes) = consolidate(batches)? else {
            return Ok(vec![]);
        };
        let keys = self.changed_partitions(&changes)?;
        let before = self.compute(&keys).await?;
        gate.checkpoint().await;
        let rows = RecordBatch::try_new(Arc::clone(self.rows.schema()), changes.rows.columns().to_vec());
        let changes = ChangeBatch {
            rows: rows.map_err(arrow_error)?,
            weights: changes.weights,
        };
        self.rows.apply(&changes, 0, u64::MAX - 1)?;
        let after = self.compute(&keys).await?;
        gate.checkpoint().await;
        let mut output = vec![];
        for (batches, weight) in [(before, -1), (after, 1)] {
            for batch in batches {
                let rows = batch_of(
                    &nullable(&self.schema),
                    batch.columns().to_vec(),
                    batch.num_rows(),
                )?;
                output.push(ChangeBatch {
                    weights: Some(Int64Array::from(vec![weight; rows.num_rows()])),
                    rows,
                });
            }
        }
        Ok(consolidate(output)?.into_iter().collect())
    }

    /// The keys of the partitions that the changes touch, each once.
    fn changed_partitions(&self, changes: &ChangeBatch) -> Result<Vec<ArrayRef>> {
        if self.index.is_none() {
            return Ok(vec![]);
        }
        let columns = changes.rows.project(&self.partition_by).map_err(arrow_error)?;
        let mut partitions = GroupKeys::new(&columns.schema(), columns.num_columns())?;
        let ids = partitions.intern(columns.columns(), columns.num_rows())?;
        let mut first = vec![u32::MAX; partitions.len()];
        for (row, id) in ids.iter().enumerate() {
            first[*id] = first[*id].min(row as u32);
        }
        let positions = UInt32Array::from(first);
        columns
            .columns()
            .iter()
            .map(|column| take(column, &positions, None).map_err(arrow_error))
            .collect()
    }

    /// The plan's answer over the rows of these partitions as they are now.
    async fn compute(&self, keys: &[ArrayRef]) -> Result<Vec<RecordBatch>> {
        let numbers = match self.index {
            Some(index) => self.rows.probe(index, keys, true)?.rows,
            None => self.rows.live_row_numbers(),
        };
        if numbers.is_empty() {
            return Ok(vec![]);
        }
        let rows = self.rows.rows(&numbers)?;
        let rows = RecordBatch::try_new(Arc::clone(&self.input_schema), rows.columns().to_vec())
            .or_else(|_| RecordBatch::try_new(nullable(&self.input_schema), rows.columns().to_vec()))
            .map_err(arrow_error)?;
        let schema = rows.schema();
        let leaf = MemorySourceConfig::try_new_exec(&[vec![rows]], schema, None)?;
        let plan = Arc::clone(&self.plan)
            .transform_up(|node| {
                Ok(if node.is::<PartitionRows>() {
                    Transformed::yes(Arc::clone(&leaf) as Arc<dyn ExecutionPlan>)
                } else {
                    Transformed::no(node)
                })
            })?
            .data;
        Ok(collect(plan, Arc::new(TaskContext::default())).await?)
    }
}
