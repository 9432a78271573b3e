//! The join: both sides are kept, each indexed by its keys.
//!
//! ```text
//!  out = dL >< R  +  (L + dL) >< dR          a bilinear form: only what changed is joined again
//! ```

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, Int64Array, RecordBatch, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::physical_expr::PhysicalExpr;
use millrace_planner::stage::{Join, JoinKind};
use millrace_storage::ChangeBatch;

use super::expression::{ErrorCounter, evaluate_predicate};
use super::{Gate, aggregate::consolidate, batch_of, chunks, concat, filter_changes};
use crate::error::{Result, RuntimeError};
use crate::state::RowTable;
use crate::state::row_table::{Matches, arrow_error};

/// Rows that one step of a join may put out at most, before it looks at the gate again.
const OUTPUT_ROWS_STEP: usize = 65_536;

/// One side's rows.
struct Side {
    table: RowTable,
    index: Option<usize>,
    keys: Vec<usize>,
    width: usize,
    append_only: bool,
}

/// A join with its state.
pub struct JoinInstance {
    left: Side,
    right: Side,
    null_equals_null: bool,
    filter: Option<Arc<dyn PhysicalExpr>>,
    /// Left columns, then right columns: what the filter sees.
    joined: SchemaRef,
    schema: SchemaRef,
}

impl Side {
    fn new(schema: &SchemaRef, keys: Vec<usize>, width: usize, append_only: bool) -> Result<Side> {
        let identity = (!append_only).then(|| (0..schema.fields().len()).collect());
        let mut table = RowTable::new(super::nullable(schema), identity);
        let index = if keys.is_empty() { None } else { Some(table.add_index(keys.clone())?) };
        Ok(Side { table, index, keys, width, append_only })
    }

    /// Rows whose key is NULL match nothing.
    fn joinable(&self, batch: ChangeBatch, null_equals_null: bool) -> Result<ChangeBatch> {
        if null_equals_null {
            return Ok(batch);
        }
        let nulls: Vec<_> = self.keys.iter().filter_map(|key| batch.rows.column(*key).logical_nulls()).collect();
        if nulls.iter().all(|nulls| nulls.null_count() == 0) {
            return Ok(batch);
        }
        let mask: BooleanArray =
            (0..batch.num_rows()).map(|row| Some(nulls.iter().all(|nulls| nulls.is_valid(row)))).collect();
        filter_changes(&batch, &mask)
    }

    fn apply(&mut self, batch: &ChangeBatch) -> Result<()> {
        let rows = RecordBatch::try_new(Arc::clone(self.table.schema()), batch.rows.columns().to_vec());
        let batch = ChangeBatch { rows: rows.map_err(arrow_error)?, weights: batch.weights.clone() };
        self.table.apply(&batch, 0, u64::MAX - 1)
    }

    /// The rows of this side that match rows of the other.
    fn matches(&self, other: &RecordBatch, other_keys: &[usize], null_equals_null: bool) -> Result<Matches> {
        match self.index {
            Some(index) => {
                let keys: Vec<ArrayRef> = other_keys.iter().map(|key| Arc::clone(other.column(*key))).collect();
                self.table.probe(index, &keys, null_equals_null)
            }
            None => {
                let rows = self.table.live_row_numbers();
                let probe = (0..other.num_rows() as u32).flat_map(|row| std::iter::repeat_n(row, rows.len())).collect();
                let rows = std::iter::repeat_n(rows, other.num_rows()).flatten().collect();
                Ok(Matches { probe, rows })
            }
        }
    }
}

impl JoinInstance {
    pub fn new(plan: &Join) -> Result<Self> {
        if plan.kind != JoinKind::Inner {
            return Err(RuntimeError::Internal(format!("no operator for a {:?} join", plan.kind)));
        }
        let (left_keys, right_keys) = plan.keys.iter().copied().unzip();
        let (left, right) = (plan.left.schema(), plan.right.schema());
        let fields = left.fields()[..plan.left_width].iter().chain(&right.fields()[..plan.right_width]).cloned();
        Ok(JoinInstance {
            joined: Arc::new(Schema::new(fields.collect::<Vec<_>>())),
            left: Side::new(left, left_keys, plan.left_width, plan.left_append_only)?,
            right: Side::new(right, right_keys, plan.right_width, plan.right_append_only)?,
            null_equals_null: plan.null_equals_null,
            filter: plan.filter.clone(),
            schema: Arc::clone(&plan.schema),
        })
    }

    pub fn state_bytes(&self) -> usize {
        self.left.table.memory_bytes() + self.right.table.memory_bytes()
    }

    /// Joins what changed and keeps it.
    pub async fn run(
        &mut self,
        left: Vec<ChangeBatch>,
        right: Vec<ChangeBatch>,
        gate: &dyn Gate,
        errors: &ErrorCounter,
    ) -> Result<Vec<ChangeBatch>> {
        let mut output = vec![];
        if let Some(left) = self.arriving(left, true)? {
            for chunk in chunks(&left) {
                self.join_chunk(&chunk, true, &mut output, gate, errors).await?;
            }
            self.left.apply(&left)?;
        }
        if let Some(right) = self.arriving(right, false)? {
            for chunk in chunks(&right) {
                self.join_chunk(&chunk, false, &mut output, gate, errors).await?;
            }
            self.right.apply(&right)?;
        }
        Ok(output)
    }

    fn arriving(&self, batches: Vec<ChangeBatch>, is_left: bool) -> Result<Option<ChangeBatch>> {
        let side = if is_left { &self.left } else { &self.right };
        // A row that came and went within the epoch must not be looked for before it is there.
        let batch = if side.append_only { concat(batches)? } else { consolidate(batches)? };
        batch.map(|batch| side.joinable(batch, self.null_equals_null)).transpose()
    }

    /// Joins one chunk of one side with all of the other.
    async fn join_chunk(
        &self,
        chunk: &ChangeBatch,
        is_left: bool,
        output: &mut Vec<ChangeBatch>,
        gate: &dyn Gate,
        errors: &ErrorCounter,
    ) -> Result<()> {
        let (side, other) = if is_left { (&self.left, &self.right) } else { (&self.right, &self.left) };
        let matches = other.matches(&chunk.rows, &side.keys, self.null_equals_null)?;
        gate.checkpoint().await;
        let mut start = 0;
        while start < matches.rows.len() {
            let end = (start + OUTPUT_ROWS_STEP).min(matches.rows.len());
            let joined = self.pair(chunk, is_left, &matches.probe[start..end], &matches.rows[start..end])?;
            let joined = match &self.filter {
                Some(filter) => {
                    let mask = evaluate_predicate(filter, &joined.rows, errors)?;
                    filter_changes(&joined, &mask)?
                }
                None => joined,
            };
            if joined.num_rows() > 0 {
                let rows = batch_of(&self.schema, joined.rows.columns().to_vec(), joined.num_rows())?;
                output.push(ChangeBatch { rows, weights: joined.weights });
            }
            start = end;
            gate.checkpoint().await;
        }
        Ok(())
    }

    /// The joined rows of some pairs.
    fn pair(&self, chunk: &ChangeBatch, is_left: bool, probe: &[u32], rows: &[u32]) -> Result<ChangeBatch> {
        let (side, other) = if is_left { (&self.left, &self.right) } else { (&self.right, &self.left) };
        let positions = UInt32Array::from(probe.to_vec());
        let own = (0..side.width)
            .map(|column| take(chunk.rows.column(column), &positions, None).map_err(arrow_error))
            .collect::<Result<Vec<_>>>()?;
        let met = other.table.gather(rows, &(0..other.width).collect::<Vec<_>>())?;
        let columns: Vec<ArrayRef> =
            if is_left { own.into_iter().chain(met).collect() } else { met.into_iter().chain(own).collect() };
        let weights = chunk
            .weights
            .as_ref()
            .map(|weights| Int64Array::from_iter_values(probe.iter().map(|row| weights.value(*row as usize))));
        Ok(ChangeBatch { rows: batch_of(&self.joined, columns, probe.len())?, weights })
    }
}
