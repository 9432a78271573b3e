//! The fix-point of WITH RECURSIVE, maintained from changes.
//!
//! The working table is the relation W of rows with the iteration in which they are there: W(0) is the base, and the body,
//! which is an incremental plan over W and other relations, makes of the rows of W(i) the candidates of iteration i + 1.
//!
//! ```text
//!  base ----------> candidates, by iteration --step i--> changes of W(i) --+--> the rows of the query
//!                      ^                                                   |
//!                      +---------------------- body <----------------------+
//! ```
//! * UNION ALL: W(i) is the candidates of iteration i, each as often as it was made.
//! * UNION: W(i) is the rows whose *first* candidate is of iteration i. For each row the number of its candidates in each
//!   iteration is kept.
//!
//! An epoch first lets the body see what changed in the other relations, against W as it was (the body is linear in W, so
//! that the rest is what W's own changes bring), and then takes the iterations in order. The candidates of an iteration
//! come from the iteration before, so at step i those of iteration i are final, and the row's membership in W(i) can be
//! decided for good. A row that lost its first candidate is not looked at again before the step of its next one; by then
//! that candidate has been taken back too if all that supported it was the row itself, along a cycle. This is why nothing
//! is counted to infinity when a cycle loses its base, which keeping counts or the latest support alone does not give
//! (F. McSherry and others, "Differential Dataflow", CIDR 2013, orders changes by iteration for the same reason).
//!
//! The cost of an epoch is that of the rows that enter, leave, or change their iteration.

mod image;
mod rows;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array};
use arrow::datatypes::{Int64Type, SchemaRef};
use arrow::row::{RowConverter, SortField};
use datafusion::common::utils::normalize_float_zero;
use futures::future::BoxFuture;
use futures::{FutureExt, TryFutureExt};
use millrace_planner::stage::recursion::{Recursion, RecursionLimits};
use millrace_resource::gate::Gate;
use millrace_schedule::cpu::CHUNK_ROWS;
use millrace_state::width::COPIED_BYTES_MAX;
use millrace_storage::{ChangeBatch, rows_bytes};

use super::batches::batch_of;
use super::expression::ErrorCounter;
use super::image::{Part, Parts};
use super::inputs::Inputs;
use super::instance::{Delivery, Operator, OperatorInstance};
use super::output::{HELD_BYTES_MIN, Output};
use crate::error::{OperatorError, Result};
use rows::{RowId, Rows};

type Iteration = i64;

/// Changes of candidates that are kept as they come.
const PENDING_MIN: usize = 65_536;

/// The state of a recursion beside its body's.
pub struct RecursionInstance {
    name: String,
    distinct: bool,
    limits: RecursionLimits,
    schema: SchemaRef,
    /// The columns of the rows and the iteration.
    working_table: SchemaRef,
    converter: RowConverter,
    rows: Rows,
    /// Between steps: changes of candidates that are still to be looked at. A change of 0 only asks for the row.
    pending: BTreeMap<Iteration, Pending>,
}

/// Changes of an iteration's candidates.
#[derive(Debug, Default)]
struct Pending {
    changes: Vec<(RowId, i64)>,
    /// So many different rows were among them when they were last added up.
    rows: usize,
}

impl Pending {
    fn push(&mut self, row: RowId, weight: i64) {
        // However often the body derives a row, it takes the room of one or two.
        if self.changes.len() >= PENDING_MIN.max(2 * self.rows) {
            self.changes.sort_unstable_by_key(|(row, _)| *row);
            self.changes.dedup_by(|later, first| {
                let is_same = later.0 == first.0;
                if is_same {
                    first.1 += later.1;
                }
                is_same
            });
            self.rows = self.changes.len();
        }
        self.changes.push((row, weight));
    }
}

/// Behind the body: notes what it derives while it makes it.
struct Deriving<'a> {
    recursion: &'a mut RecursionInstance,
    rows_made: &'a mut usize,
    gate: &'a dyn Gate,
}

impl Output for Deriving<'_> {
    fn push(&mut self, batch: ChangeBatch) -> BoxFuture<'_, Result<()>> {
        if let Err(error) = self.recursion.derived(&batch, self.rows_made) {
            return std::future::ready(Err(error)).boxed();
        }
        match rows_bytes(&batch.rows) {
            0..HELD_BYTES_MIN => std::future::ready(Ok(())).boxed(),
            bytes => self.gate.hold(bytes).map_err(OperatorError::from).boxed(),
        }
    }
}

/// A change of the working table.
struct Change {
    iteration: Iteration,
    row: RowId,
    weight: i64,
}

impl Operator for RecursionInstance {
    fn run<'a>(
        &'a mut self,
        inputs: &'a mut [OperatorInstance],
        epoch: &'a mut Inputs,
        gate: &'a dyn Gate,
        errors: &'a ErrorCounter,
        output: &'a mut dyn Output,
    ) -> BoxFuture<'a, Result<()>> {
        async move {
            let base = inputs[0].collect(epoch, gate, errors).await?;
            // What the body emits decides what it is given next.
            let is_bulk = std::mem::take(&mut epoch.is_bulk);
            let done = self
                .advance(base, &mut inputs[1], epoch, gate, errors, output)
                .await;
            epoch.is_bulk = is_bulk;
            done
        }
        .boxed()
    }

    fn delivery(&self) -> Delivery {
        Delivery::Lazy
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

impl RecursionInstance {
    pub fn new(plan: &Recursion) -> Result<Self> {
        let fields = plan.schema.fields().iter();
        let fields = fields.map(|field| SortField::new(field.data_type().clone()));
        let columns = plan.schema.fields().len();
        let body = plan.body.schema();
        let working_table = plan
            .schema
            .fields()
            .iter()
            .chain([&body.fields()[columns]])
            .cloned();
        Ok(RecursionInstance {
            name: plan.name.clone(),
            distinct: plan.distinct,
            limits: plan.limits,
            schema: Arc::clone(&plan.schema),
            working_table: Arc::new(arrow::datatypes::Schema::new(working_table.collect::<Vec<_>>())),
            converter: RowConverter::new(fields.collect())?,
            rows: Rows::default(),
            pending: BTreeMap::new(),
        })
    }

    /// Brings the fix-point up to date and pushes how the query's rows change: each once. What changed in the base is `base`; what
    /// changed in the body's other inputs, the body takes from `inputs`.
    ///
    /// # Errors
    /// A limit was reached, or an operator failed. The state is then of no use any more.
    pub async fn advance(
        &mut self,
        base: Vec<ChangeBatch>,
        body: &mut OperatorInstance,
        inputs: &mut Inputs,
        gate: &dyn Gate,
        errors: &ErrorCounter,
        output: &mut dyn Output,
    ) -> Result<()> {
        for batch in &base {
            self.candidates(batch, |_| 0)?;
        }
        let mut rows_made = 0;
        let mut deriving = Deriving {
            recursion: self,
            rows_made: &mut rows_made,
            gate,
        };
        body.run(inputs, gate, errors, &mut deriving).await?;
        let mut changed: BTreeMap<RowId, i64> = BTreeMap::new();
        while let Some((iteration, pending)) = self.pending.pop_first() {
            if iteration > self.limits.iterations as Iteration {
                return Err(self.endless(format!("{} iterations", self.limits.iterations)));
            }
            let changes = self.step(iteration, pending.changes)?;
            for change in &changes {
                *changed.entry(change.row).or_default() += change.weight;
            }
            for part in parts(changes, |row| self.rows.bytes(row).len()) {
                inputs.working_table = vec![self.changes_of_working_table(&part)?];
                let mut deriving = Deriving {
                    recursion: self,
                    rows_made: &mut rows_made,
                    gate,
                };
                body.run(inputs, gate, errors, &mut deriving).await?;
                gate.checkpoint().await;
            }
        }
        changed.retain(|_, weight| *weight != 0);
        let changed: Vec<(RowId, i64)> = changed.into_iter().collect();
        let mut left = &changed[..];
        while !left.is_empty() {
            let (chunk, later) = left.split_at(self.chunk(left));
            left = later;
            let columns = self.columns(chunk.iter().map(|(row, _)| *row))?;
            let weights: Vec<i64> = chunk.iter().map(|(_, weight)| *weight).collect();
            let rows = batch_of(&self.schema, columns, chunk.len())?;
            let weights = Some(weights.into());
            output.push(ChangeBatch { rows, weights }).await?;
            gate.checkpoint().await;
        }
        self.rows.forget(self.distinct);
        Ok(())
    }

    /// Notes what the body emitted, and how much that is.
    fn derived(&mut self, batch: &ChangeBatch, rows_made: &mut usize) -> Result<()> {
        *rows_made += match &batch.weights {
            Some(weights) => weights
                .values()
                .iter()
                .map(|weight| weight.unsigned_abs() as usize)
                .sum(),
            None => batch.num_rows(),
        };
        if *rows_made > self.limits.rows {
            return Err(self.endless(format!("{} rows", self.limits.rows)));
        }
        let iterations = batch.rows.column(self.schema.fields().len());
        let iterations = iterations.as_primitive::<Int64Type>().clone();
        self.candidates(batch, |row| iterations.value(row) + 1)
    }

    fn endless(&self, limit: String) -> OperatorError {
        OperatorError::EndlessRecursion {
            query: self.name.clone(),
            limit,
        }
    }

    /// Notes changes of candidates for the steps of their iterations.
    fn candidates(&mut self, batch: &ChangeBatch, iteration: impl Fn(usize) -> Iteration) -> Result<()> {
        let columns: Vec<ArrayRef> = batch.rows.columns()[..self.schema.fields().len()]
            .iter()
            .map(normalize_float_zero)
            .collect();
        let rows = self.converter.convert_columns(&columns)?;
        for row in 0..batch.num_rows() {
            let id = self.rows.intern(rows.row(row).data());
            let pending = self.pending.entry(iteration(row)).or_default();
            pending.push(id, batch.weight(row));
        }
        Ok(())
    }

    /// Applies the changes of one iteration's candidates and says how the working table changes.
    fn step(&mut self, iteration: Iteration, mut candidates: Vec<(RowId, i64)>) -> Result<Vec<Change>> {
        candidates.sort_unstable_by_key(|(row, _)| *row);
        let mut changes = vec![];
        for same in candidates.chunk_by(|(left, _), (right, _)| left == right) {
            let row = same[0].0;
            let weight: i64 = same.iter().map(|(_, weight)| *weight).sum();
            if !self.distinct {
                if weight != 0 {
                    changes.push(Change {
                        iteration,
                        row,
                        weight,
                    });
                }
                continue;
            }
            let kept = self.rows.kept(row);
            kept.count(iteration, weight)?;
            match kept.first() {
                // An earlier iteration has it: that step saw to it.
                Some(first) if first < iteration => {}
                Some(first) if first == iteration => {
                    if kept.member() != Some(iteration) {
                        changes.extend(kept.member().map(|old| Change {
                            iteration: old,
                            row,
                            weight: -1,
                        }));
                        changes.push(Change {
                            iteration,
                            row,
                            weight: 1,
                        });
                        kept.set_member(Some(iteration));
                    }
                }
                later => {
                    if kept.member() == Some(iteration) {
                        changes.push(Change {
                            iteration,
                            row,
                            weight: -1,
                        });
                        kept.set_member(None);
                    }
                    // Whether the next candidate stands is known at its step, and not before.
                    if let (Some(next), None) = (later, kept.member()) {
                        self.pending.entry(next).or_default().push(row, 0);
                    }
                }
            }
        }
        Ok(changes)
    }

    fn changes_of_working_table(&self, changes: &[Change]) -> Result<ChangeBatch> {
        let mut columns = self.columns(changes.iter().map(|change| change.row))?;
        columns.push(Arc::new(Int64Array::from_iter_values(
            changes.iter().map(|change| change.iteration),
        )));
        Ok(ChangeBatch {
            rows: batch_of(&self.working_table, columns, changes.len())?,
            weights: Some(
                changes
                    .iter()
                    .map(|change| change.weight)
                    .collect::<Vec<_>>()
                    .into(),
            ),
        })
    }

    /// How many of these rows are emitted in one batch.
    fn chunk(&self, rows: &[(RowId, i64)]) -> usize {
        let mut bytes = 0;
        let fit = rows.iter().take(CHUNK_ROWS).take_while(|(row, _)| {
            bytes += self.rows.bytes(*row).len();
            bytes <= COPIED_BYTES_MAX
        });
        fit.count().max(1)
    }

    fn columns(&self, rows: impl Iterator<Item = RowId>) -> Result<Vec<ArrayRef>> {
        let parser = self.converter.parser();
        let rows = rows.map(|row| parser.parse(self.rows.bytes(row)));
        self.converter.convert_rows(rows).map_err(OperatorError::from)
    }
}

/// The changes in parts that are small enough for one stretch of work: a row with a weight is as many rows to a join.
/// `bytes_of` tells how large a row is.
fn parts(changes: Vec<Change>, bytes_of: impl Fn(RowId) -> usize) -> Vec<Vec<Change>> {
    let (mut parts, mut part, mut size, mut bytes) = (vec![], vec![], 0, 0);
    for mut change in changes {
        bytes += bytes_of(change.row);
        if bytes > COPIED_BYTES_MAX && !part.is_empty() {
            parts.push(std::mem::take(&mut part));
            (size, bytes) = (0, bytes_of(change.row));
        }
        while change.weight != 0 {
            let room = (CHUNK_ROWS - size) as i64;
            let weight = change.weight.clamp(-room, room);
            part.push(Change { weight, ..change });
            change.weight -= weight;
            size += weight.unsigned_abs() as usize;
            if size == CHUNK_ROWS {
                parts.push(std::mem::take(&mut part));
                (size, bytes) = (0, 0);
            }
        }
    }
    if !part.is_empty() {
        parts.push(part);
    }
    parts
}

#[cfg(test)]
mod tests;
