//! Functions of whole partitions (OVER windows): a partition that changed is computed again, before and after the change,
//! and the difference is emitted. An epoch costs what its partitions hold, and a logarithm for their order.

mod image;

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int64Array, RecordBatch, UInt32Array, new_null_array};
use arrow::compute::take;
use arrow::datatypes::{DataType, SchemaRef};
use arrow::row::{RowConverter, SortField};
use datafusion::physical_expr::window::WindowExpr;
use futures::FutureExt;
use futures::future::BoxFuture;
use millrace_planner::stage::recompute::Recompute;
use millrace_planner::watermark::Watermarks;
use millrace_resource::cpu::is_unwanted;
use millrace_resource::gate::Gate;
use millrace_schedule::cpu::CHUNK_ROWS;
use millrace_state::row_table::{Matches, RowTable};
use millrace_storage::ChangeBatch;

use super::batches::{batch_of, nullable};
use super::closing::Closer;
use super::consolidate::{consolidate, consolidate_parts};
use super::expression::{ErrorCounter, conform};
use super::group_keys::GroupKeys;
use super::image::{Part, Parts};
use super::inputs::Inputs;
use super::instance::{Operator, OperatorInstance};
use super::output::{Output, push_all};
use crate::error::{OperatorError, Result};
use crate::windows::{Sizes, WideFunction};

/// The rows of every partition, indexed by what tells partitions apart.
pub struct RecomputeInstance {
    partition_by: Vec<usize>,
    order_by: Vec<usize>,
    functions: Vec<Arc<dyn WindowExpr>>,
    wide: Vec<WideFunction>,
    schema: SchemaRef,
    rows: RowTable,
    index: Option<usize>,
    /// The partition, what orders its rows, and all their columns, as comparable bytes.
    order: RowConverter,
    closer: Option<Closer>,
}

impl Operator for RecomputeInstance {
    fn run<'a>(
        &'a mut self,
        inputs: &'a mut [OperatorInstance],
        epoch: &'a mut Inputs,
        gate: &'a dyn Gate,
        errors: &'a ErrorCounter,
        output: &'a mut dyn Output,
    ) -> BoxFuture<'a, Result<()>> {
        async move {
            let batches = inputs[0].collect(epoch, gate, errors).await?;
            let changes = self.advance(batches, gate, errors).await?;
            self.forget(&epoch.watermarks)?;
            push_all(output, changes).await
        }
        .boxed()
    }

    fn state_bytes(&self) -> usize {
        self.rows.memory_bytes()
    }

    fn image(&mut self, parts: &mut Vec<Part>) -> Result<()> {
        self.add_parts(parts);
        Ok(())
    }

    fn restore(&mut self, parts: &mut Parts) -> Result<()> {
        self.take_parts(parts)
    }
}

impl RecomputeInstance {
    pub fn new(plan: &Recompute) -> Result<Self> {
        let input = plan.input.schema();
        let identity = (!plan.input_append_only).then(|| (0..input.fields().len()).collect());
        let mut rows = RowTable::new(nullable(input), identity);
        let index = if plan.partition_by.is_empty() {
            None
        } else {
            Some(rows.add_index(plan.partition_by.clone())?)
        };
        let mut order = vec![SortField::new(DataType::UInt32)];
        order.extend(plan.order_by.iter().map(|(column, options)| {
            SortField::new_with_options(input.field(*column).data_type().clone(), *options)
        }));
        let columns = input.fields().iter();
        order.extend(columns.map(|field| SortField::new(field.data_type().clone())));
        Ok(RecomputeInstance {
            partition_by: plan.partition_by.clone(),
            order_by: plan.order_by.iter().map(|(column, _)| *column).collect(),
            functions: plan.functions.clone(),
            wide: WideFunction::of(&plan.functions, &plan.schema),
            schema: nullable(&plan.schema),
            rows,
            index,
            order: RowConverter::new(order)?,
            closer: Closer::new(plan.closes.as_ref()),
        })
    }

    /// Forgets the partitions that do not change any more.
    pub fn forget(&mut self, watermarks: &Watermarks) -> Result<()> {
        let Some(closer) = &mut self.closer else {
            return Ok(());
        };
        if let Some(bound) = closer.due(self.rows.live_rows(), watermarks)? {
            self.rows.forget(|rows| closer.is_final(rows, &bound))?;
            closer.swept(self.rows.live_rows());
        }
        Ok(())
    }

    /// Applies what changed and emits how the results of the changed partitions differ.
    pub async fn advance(
        &mut self,
        batches: Vec<ChangeBatch>,
        gate: &dyn Gate,
        errors: &ErrorCounter,
    ) -> Result<Vec<ChangeBatch>> {
        let Some(changes) = consolidate(batches)? else {
            return Ok(vec![]);
        };
        let keys = self.changed_partitions(&changes)?;
        let before = self.compute(&keys, gate, None).await?;
        let rows = RecordBatch::try_new(Arc::clone(self.rows.schema()), changes.rows.columns().to_vec());
        let changes = ChangeBatch {
            rows: rows?,
            weights: changes.weights,
        };
        self.rows.apply(&changes, 0, u64::MAX - 1)?;
        let after = self.compute(&keys, gate, Some(errors)).await?;
        let mut output = vec![];
        for (rows, weight) in [(before, -1), (after, 1)] {
            output.extend(rows.map(|rows| ChangeBatch {
                weights: Some(Int64Array::from(vec![weight; rows.num_rows()])),
                rows,
            }));
        }
        consolidate_parts(output)
    }

    /// The keys of the partitions that the changes touch, each once.
    fn changed_partitions(&self, changes: &ChangeBatch) -> Result<Vec<ArrayRef>> {
        if self.index.is_none() {
            return Ok(vec![]);
        }
        let columns = changes.rows.project(&self.partition_by)?;
        let mut partitions = GroupKeys::passing(&columns.schema(), columns.num_columns())?;
        let ids = partitions.intern(columns.columns(), columns.num_rows())?;
        let mut first = vec![u32::MAX; partitions.len()];
        for (row, id) in ids.iter().enumerate() {
            first[*id] = first[*id].min(row as u32);
        }
        let positions = UInt32Array::from(first);
        columns
            .columns()
            .iter()
            .map(|column| take(column, &positions, None).map_err(OperatorError::from))
            .collect()
    }

    /// The rows of these partitions as they are now, with the functions' values; `None` if there are none.
    async fn compute(
        &mut self,
        keys: &[ArrayRef],
        gate: &dyn Gate,
        errors: Option<&ErrorCounter>,
    ) -> Result<Option<RecordBatch>> {
        let Matches { probe, rows } = match self.index {
            Some(index) => self.rows.probe(index, keys, true)?,
            None => {
                let rows = self.rows.live_row_numbers();
                Matches {
                    probe: vec![0; rows.len()],
                    rows,
                }
            }
        };
        if rows.is_empty() {
            return Ok(None);
        }
        let (sorted, ends) = self.in_order(probe, &rows)?;
        gate.checkpoint().await;
        let width = sorted.num_columns();
        let mut values: Vec<Vec<ArrayRef>> = vec![vec![]; self.functions.len()];
        let (mut start, mut since, mut made) = (0, 0, 0_usize);
        for end in ends {
            let partition = sorted.slice(start, end - start);
            made = made.saturating_add(self.wide_bytes(&partition));
            gate.room(made)?;
            for (position, function) in self.functions.iter().enumerate() {
                let data_type = self.schema.field(width + position).data_type();
                values[position].push(evaluate(function, &partition, data_type, errors)?);
            }
            since += end - start;
            start = end;
            if since >= CHUNK_ROWS {
                since = 0;
                gate.checkpoint().await;
            }
        }
        let mut columns = sorted.columns().to_vec();
        for partitions in &values {
            let partitions: Vec<&dyn Array> = partitions.iter().map(AsRef::as_ref).collect();
            columns.push(arrow::compute::concat(&partitions)?);
        }
        Ok(Some(batch_of(&self.schema, columns, sorted.num_rows())?))
    }

    /// What functions whose values differ in size will make of a partition.
    fn wide_bytes(&self, partition: &RecordBatch) -> usize {
        let mut bytes = 0_usize;
        for function in &self.wide {
            // Where its arguments fail, so does the function, and is NULL.
            let read = function.reads(partition);
            if let Ok(read) = read.and_then(|values| Sizes::of(&values, 0..partition.num_rows())) {
                bytes = bytes.saturating_add(function.bytes(partition.num_rows(), read));
            }
        }
        bytes
    }

    /// The rows, partition by partition, and where each of these ends.
    fn in_order(&mut self, partitions: Vec<u32>, rows: &[u32]) -> Result<(RecordBatch, Vec<usize>)> {
        let rows = self.rows.rows(rows)?;
        let mut columns: Vec<ArrayRef> = vec![Arc::new(UInt32Array::from(partitions.clone()))];
        columns.extend(
            self.order_by
                .iter()
                .map(|column| Arc::clone(rows.column(*column))),
        );
        columns.extend(rows.columns().iter().cloned());
        let keys = self.order.convert_columns(&columns)?;
        let mut positions: Vec<u32> = (0..rows.num_rows() as u32).collect();
        positions.sort_unstable_by(|left, right| keys.row(*left as usize).cmp(&keys.row(*right as usize)));
        let mut ends = vec![];
        for (position, next) in positions.iter().zip(positions.iter().skip(1)).enumerate() {
            if partitions[*next.0 as usize] != partitions[*next.1 as usize] {
                ends.push(position + 1);
            }
        }
        ends.push(rows.num_rows());
        let sorted = arrow::compute::take_record_batch(&rows, &UInt32Array::from(positions));
        Ok((sorted?, ends))
    }
}

/// A function over one partition. Where it fails it is NULL for the whole partition, and that is counted.
fn evaluate(
    function: &Arc<dyn WindowExpr>,
    partition: &RecordBatch,
    data_type: &DataType,
    errors: Option<&ErrorCounter>,
) -> Result<ArrayRef> {
    match function.evaluate(partition) {
        Ok(values) => conform(values, data_type),
        // It gave up, and has not failed.
        Err(error) if is_unwanted() => Err(error.into()),
        Err(error) => {
            if let Some(errors) = errors {
                errors.note(error);
            }
            Ok(new_null_array(data_type, partition.num_rows()))
        }
    }
}
