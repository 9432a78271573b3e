//! The lookup join: each change of the left side meets the right side as it is in that epoch. What it gave stays, however
//! the right side changes later.
//!
//! ```text
//!  left row comes  -->  pairs with the right rows of its key now  -->  emitted, and kept by left row
//!  left row goes   -->  what was kept for it, taken back
//! ```
//! Where left rows only arrive nothing is kept of them. Of equal left rows the first that came goes first. Rows that existed
//! before the view come in any order: the left ones wait until all are there.

mod image;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int64Array, RecordBatch, new_null_array};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{Schema, SchemaRef};
use arrow::row::{RowConverter, SortField};
use datafusion::physical_expr::PhysicalExpr;
use futures::FutureExt;
use futures::future::BoxFuture;
use millrace_planner::stage::lookup_join::LookupJoin;
use millrace_resource::gate::Gate;
use millrace_schedule::cpu::CHUNK_ROWS;
use millrace_state::row_table::{RowTable, split};
use millrace_storage::ChangeBatch;

use super::batches::{batch_of, concat, nullable, take_columns};
use super::consolidate::consolidate;
use super::expression::{ErrorCounter, evaluate_predicate};
use super::image::{Part, Parts};
use super::inputs::Inputs;
use super::instance::{Operator, OperatorInstance};
use super::output::{Output, push_all};
use crate::error::{OperatorError, Result};

/// A row, as comparable bytes.
type Bytes = Box<[u8]>;

/// The join with the right side's rows.
pub struct LookupJoinInstance {
    left_keys: Vec<usize>,
    left_width: usize,
    right_width: usize,
    is_outer: bool,
    filter: Option<Arc<dyn PhysicalExpr>>,
    right_append_only: bool,
    right: RowTable,
    /// None if there are no keys: every right row is a match.
    index: Option<usize>,
    schema: SchemaRef,
    /// None if left rows only arrive.
    memory: Option<Memory>,
    waiting: Waiting,
}

/// Left rows that existed before the view, with how often each is there.
struct Waiting {
    form: RowConverter,
    schema: SchemaRef,
    rows: HashMap<Bytes, i64>,
}

/// What left rows were joined with.
struct Memory {
    left: RowConverter,
    output: RowConverter,
    /// For each left row, for each time that it came: the rows that were emitted.
    given: HashMap<Bytes, VecDeque<Vec<Bytes>>>,
    bytes: usize,
}

impl Operator for LookupJoinInstance {
    fn run<'a>(
        &'a mut self,
        inputs: &'a mut [OperatorInstance],
        epoch: &'a mut Inputs,
        gate: &'a dyn Gate,
        errors: &'a ErrorCounter,
        output: &'a mut dyn Output,
    ) -> BoxFuture<'a, Result<()>> {
        async move {
            let left = inputs[0].collect(epoch, gate, errors).await?;
            let right = inputs[1].collect(epoch, gate, errors).await?;
            let changes = self.advance(left, right, epoch.is_filling, gate, errors).await?;
            push_all(output, changes).await
        }
        .boxed()
    }

    /// Whether nothing waits to be joined.
    fn idle_without_input(&self, _is_bulk: bool) -> bool {
        self.waiting.rows.is_empty()
    }

    fn state_bytes(&self) -> usize {
        self.right.memory_bytes() + self.memory.as_ref().map_or(0, |memory| memory.bytes)
    }

    fn can_leave(&self) -> bool {
        // What waits in it is not told.
        false
    }

    fn image(&mut self, parts: &mut Vec<Part>) -> Result<()> {
        self.add_parts(parts);
        Ok(())
    }

    fn restore(&mut self, parts: &mut Parts) -> Result<()> {
        self.take_parts(parts)
    }
}

impl LookupJoinInstance {
    pub fn new(plan: &LookupJoin) -> Result<Self> {
        let (left, right) = (plan.left.schema(), plan.right.schema());
        let identity = (!plan.right_append_only).then(|| (0..right.fields().len()).collect());
        let mut table = RowTable::new(nullable(right), identity);
        let (left_keys, right_keys): (Vec<usize>, Vec<usize>) = plan.keys.iter().copied().unzip();
        let index = if right_keys.is_empty() {
            None
        } else {
            Some(table.add_index(right_keys)?)
        };
        let converter = |schema: &SchemaRef| {
            let fields = schema.fields().iter();
            let fields = fields
                .map(|field| SortField::new(field.data_type().clone()))
                .collect();
            RowConverter::new(fields).map_err(OperatorError::from)
        };
        let memory = if plan.left_append_only {
            None
        } else {
            Some(Memory {
                left: converter(left)?,
                output: converter(&plan.schema)?,
                given: HashMap::new(),
                bytes: 0,
            })
        };
        Ok(LookupJoinInstance {
            left_keys,
            left_width: plan.left_width,
            right_width: plan.right_width,
            is_outer: plan.is_outer,
            filter: plan.filter.clone(),
            right_append_only: plan.right_append_only,
            right: table,
            index,
            schema: Arc::clone(&plan.schema),
            memory,
            waiting: Waiting {
                form: converter(left)?,
                schema: nullable(left),
                rows: HashMap::new(),
            },
        })
    }

    /// Applies the right side's changes, then joins those of the left side.
    pub async fn advance(
        &mut self,
        left: Vec<ChangeBatch>,
        right: Vec<ChangeBatch>,
        is_filling: bool,
        gate: &dyn Gate,
        errors: &ErrorCounter,
    ) -> Result<Vec<ChangeBatch>> {
        let right = if self.right_append_only {
            concat(right)?
        } else {
            consolidate(right)?
        };
        if let Some(batch) = right {
            let columns = batch.rows.columns().to_vec();
            let batch = ChangeBatch {
                rows: batch_of(self.right.schema(), columns, batch.num_rows())?,
                weights: batch.weights,
            };
            self.right.apply(&batch, 0, u64::MAX - 1)?;
            gate.checkpoint().await;
        }
        if is_filling {
            self.waiting.add(&left)?;
            return Ok(vec![]);
        }
        let mut left = left;
        if !self.waiting.rows.is_empty() {
            left.push(self.waiting.take()?);
        }
        let left = if left.iter().all(|batch| batch.weights.is_none()) {
            concat(left)?
        } else {
            consolidate(left)?
        };
        let Some(left) = left else { return Ok(vec![]) };
        let (inserted, deleted) = match &left.weights {
            None => (left.rows.clone(), left.rows.slice(0, 0)),
            Some(weights) => split(&left.rows, weights)?,
        };
        let mut output = vec![];
        for (rows, is_insertion) in [(deleted, false), (inserted, true)] {
            for start in (0..rows.num_rows()).step_by(CHUNK_ROWS) {
                let rows = rows.slice(start, CHUNK_ROWS.min(rows.num_rows() - start));
                if is_insertion {
                    self.insert(&rows, &mut output, errors)?;
                } else {
                    self.delete(&rows, &mut output)?;
                }
                gate.checkpoint().await;
            }
        }
        Ok(output)
    }

    fn insert(
        &mut self,
        rows: &RecordBatch,
        output: &mut Vec<ChangeBatch>,
        errors: &ErrorCounter,
    ) -> Result<()> {
        let (of_left, columns) = self.pairs(rows, errors)?;
        let count = of_left.len();
        if let Some(memory) = &mut self.memory {
            memory.remember(rows, &of_left, &columns)?;
        }
        if count > 0 {
            output.push(ChangeBatch::insertions(batch_of(&self.schema, columns, count)?));
        }
        Ok(())
    }

    /// The joined rows, each with the position of its left row.
    fn pairs(&self, rows: &RecordBatch, errors: &ErrorCounter) -> Result<(Vec<u32>, Vec<ArrayRef>)> {
        let (mut of_left, of_right) = match self.index {
            Some(index) => {
                let keys: Vec<ArrayRef> = self
                    .left_keys
                    .iter()
                    .map(|key| Arc::clone(rows.column(*key)))
                    .collect();
                let matches = self.right.probe(index, &keys, false)?;
                (matches.probe, matches.rows)
            }
            None => {
                let all = self.right.live_row_numbers();
                let left = 0..rows.num_rows() as u32;
                let of_left = left
                    .clone()
                    .flat_map(|row| std::iter::repeat_n(row, all.len()))
                    .collect();
                (of_left, left.flat_map(|_| all.iter().copied()).collect())
            }
        };
        let mut columns = take_columns(rows, self.left_width, &of_left)?;
        columns.extend(
            self.right
                .gather(&of_right, &(0..self.right_width).collect::<Vec<_>>())?,
        );
        if let Some(filter) = &self.filter {
            let fields: Vec<_> = self.schema.fields().iter().cloned().collect();
            let joined = batch_of(&nullable(&Arc::new(Schema::new(fields))), columns, of_left.len())?;
            let mask = evaluate_predicate(filter, &joined, errors)?;
            columns = filter_record_batch(&joined, &mask)?.columns().to_vec();
            of_left = mask.values().set_indices().map(|pair| of_left[pair]).collect();
        }
        if self.is_outer {
            let mut is_matched = vec![false; rows.num_rows()];
            of_left.iter().for_each(|row| is_matched[*row as usize] = true);
            let alone: Vec<u32> = (0..rows.num_rows() as u32)
                .filter(|row| !is_matched[*row as usize])
                .collect();
            let mut extended = take_columns(rows, self.left_width, &alone)?;
            let right = &self.schema.fields()[self.left_width..];
            extended.extend(
                right
                    .iter()
                    .map(|field| new_null_array(field.data_type(), alone.len())),
            );
            columns = columns
                .iter()
                .zip(&extended)
                .map(|(paired, alone)| {
                    arrow::compute::concat(&[paired.as_ref() as &dyn Array, alone.as_ref()])
                        .map_err(OperatorError::from)
                })
                .collect::<Result<_>>()?;
            of_left.extend(alone);
        }
        Ok((of_left, columns))
    }

    fn delete(&mut self, rows: &RecordBatch, output: &mut Vec<ChangeBatch>) -> Result<()> {
        let Some(memory) = &mut self.memory else {
            return Ok(());
        };
        let given = memory.forget(rows)?;
        if given.is_empty() {
            return Ok(());
        }
        let parser = memory.output.parser();
        let columns = memory
            .output
            .convert_rows(given.iter().map(|row| parser.parse(row)))?;
        output.push(ChangeBatch {
            rows: batch_of(&self.schema, columns, given.len())?,
            weights: Some(Int64Array::from(vec![-1; given.len()])),
        });
        Ok(())
    }
}

impl Waiting {
    fn add(&mut self, batches: &[ChangeBatch]) -> Result<()> {
        for batch in batches {
            let rows = self.form.convert_columns(batch.rows.columns())?;
            for (position, row) in rows.iter().enumerate() {
                let weight = batch.weight(position);
                match self.rows.get_mut(row.data()) {
                    Some(count) => {
                        *count += weight;
                        if *count == 0 {
                            self.rows.remove(row.data());
                        }
                    }
                    None => {
                        self.rows.insert(row.data().into(), weight);
                    }
                }
            }
        }
        Ok(())
    }

    fn take(&mut self) -> Result<ChangeBatch> {
        let rows = std::mem::take(&mut self.rows);
        let parser = self.form.parser();
        let columns = self.form.convert_rows(rows.keys().map(|row| parser.parse(row)))?;
        Ok(ChangeBatch {
            rows: batch_of(&self.schema, columns, rows.len())?,
            weights: Some(Int64Array::from_iter_values(rows.values().copied())),
        })
    }
}

impl Memory {
    fn remember(&mut self, rows: &RecordBatch, of_left: &[u32], output: &[ArrayRef]) -> Result<()> {
        let mut given: Vec<Vec<Bytes>> = vec![vec![]; rows.num_rows()];
        let output = self.output.convert_columns(output)?;
        for (row, left) in output.iter().zip(of_left) {
            self.bytes += row.data().len();
            given[*left as usize].push(row.data().into());
        }
        let left = self.left.convert_columns(rows.columns())?;
        for (row, given) in left.iter().zip(given) {
            self.bytes += row.data().len();
            self.given.entry(row.data().into()).or_default().push_back(given);
        }
        Ok(())
    }

    fn forget(&mut self, rows: &RecordBatch) -> Result<Vec<Bytes>> {
        let mut forgotten = vec![];
        let left = self.left.convert_columns(rows.columns())?;
        for row in left.iter() {
            let Some(times) = self.given.get_mut(row.data()) else {
                continue;
            };
            let given = times.pop_front().unwrap_or_default();
            if times.is_empty() {
                self.given.remove(row.data());
            }
            self.bytes -= row.data().len() + given.iter().map(|row| row.len()).sum::<usize>();
            forgotten.extend(given);
        }
        Ok(forgotten)
    }
}
