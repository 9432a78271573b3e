//! The join: both sides are kept, each indexed by its keys.
//!
//! ```text
//!  out = dL >< R  +  (L + dL) >< dR          a bilinear form: only what changed is joined again
//! ```
//! A side whose rows appear without a match too (outer, anti), or at most once (semi), keeps a count of matches with each
//! row. Every pair that comes or goes changes the counts; where one leaves or reaches zero, the row's own appearance
//! changes. One side is worked off after the other, so that a pair of two new rows is met once.
//!
//! A few rows may match very many: pairs are made step by step, and each step is pushed on before the next is begun.
//!
//! While a view is filled nobody sees its rows. Indexes then are brought up to date only where the other side asks for
//! them, and a join whose rows would appear and disappear keeps what comes and joins it once, at the end.

mod appearance;
mod change;
mod image;
mod joining;
mod side;

use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use datafusion::physical_expr::PhysicalExpr;
use futures::FutureExt;
use futures::future::BoxFuture;
use millrace_planner::stage::join::{Join, JoinKind};
use millrace_planner::watermark::Watermarks;
use millrace_resource::gate::Gate;
use millrace_schedule::cpu::CHUNK_ROWS;
use millrace_state::row_table::split;
use millrace_storage::ChangeBatch;

use super::batches::{concat, nullable};
use super::consolidate::consolidate_parts;
use super::expression::ErrorCounter;
use super::image::{Part, Parts};
use super::inputs::Inputs;
use super::instance::{Delivery, Operator, OperatorInstance};
use joining::Joining;

use super::output::Output;
use crate::error::Result;
use side::{Appearance, Side};

/// Rows that one step of a join may emit at most, before it pushes them on and looks at the gate again.
const OUTPUT_ROWS_STEP: usize = 65_536;
/// Rows whose counts changed are looked through for doubles when there are this many more.
const TOUCHED_ROWS_STEP: usize = 1 << 20;

/// A join with its state.
pub struct JoinInstance {
    /// Left, right.
    sides: [Side; 2],
    emits_pairs: bool,
    null_equals_null: bool,
    filter: Option<Arc<dyn PhysicalExpr>>,
    /// Left columns, then right columns: what the filter sees.
    joined: SchemaRef,
    schema: SchemaRef,
    /// Rows were kept that are still to be joined.
    is_deferred: bool,
}

const LEFT: usize = 0;
const RIGHT: usize = 1;

/// Whether pairs are emitted, and how the left and right rows appear by themselves.
fn shape(kind: JoinKind) -> (bool, Appearance, Appearance) {
    use Appearance::*;
    match kind {
        JoinKind::Inner => (true, Paired, Paired),
        JoinKind::Left => (true, NullExtended, Paired),
        JoinKind::Right => (true, Paired, NullExtended),
        JoinKind::Full => (true, NullExtended, NullExtended),
        JoinKind::LeftSemi => (false, Matched, Paired),
        JoinKind::LeftAnti => (false, Unmatched, Paired),
        JoinKind::LeftMark => (false, Marked, Paired),
        JoinKind::RightSemi => (false, Paired, Matched),
        JoinKind::RightAnti => (false, Paired, Unmatched),
    }
}

impl Operator for JoinInstance {
    fn run<'a>(
        &'a mut self,
        inputs: &'a mut [OperatorInstance],
        epoch: &'a mut Inputs,
        gate: &'a dyn Gate,
        errors: &'a ErrorCounter,
        output: &'a mut dyn Output,
    ) -> BoxFuture<'a, Result<()>> {
        async move {
            self.begin(epoch.is_bulk, gate, errors, output).await?;
            for (side, input) in [LEFT, RIGHT].into_iter().zip(inputs) {
                if input.is_lazy() {
                    let mut joining = Joining::new(self, side, gate, errors, output);
                    input.run(epoch, gate, errors, &mut joining).await?;
                } else {
                    let batches = input.collect(epoch, gate, errors).await?;
                    self.advance(side, batches, gate, errors, output).await?;
                }
            }
            if !epoch.has_more {
                self.forget(epoch.is_bulk, &epoch.watermarks)?;
            }
            Ok(())
        }
        .boxed()
    }

    fn delivery(&self) -> Delivery {
        Delivery::Lazy
    }

    fn idle_without_input(&self, is_bulk: bool) -> bool {
        is_bulk || (!self.is_deferred && !self.sides.iter().any(|side| side.table.is_lazy()))
    }

    fn state_bytes(&self) -> usize {
        self.sides.iter().map(|side| side.table.memory_bytes()).sum()
    }

    fn puts_off(&self) -> bool {
        self.is_deferred
    }

    fn put_off(&mut self) {
        self.is_deferred = true;
    }

    fn image(&mut self, parts: &mut Vec<Part>) -> Result<()> {
        self.add_parts(parts);
        Ok(())
    }

    fn restore(&mut self, parts: &mut Parts) -> Result<()> {
        self.take_parts(parts)
    }
}

impl JoinInstance {
    pub fn new(plan: &Join) -> Result<Self> {
        let (left_keys, right_keys) = plan.keys.iter().copied().unzip();
        let (left, right) = (plan.left.schema(), plan.right.schema());
        let fields = left.fields()[..plan.left_width]
            .iter()
            .chain(&right.fields()[..plan.right_width])
            .cloned();
        let (emits_pairs, left_appears, right_appears) = shape(plan.kind);
        Ok(JoinInstance {
            joined: nullable(&Arc::new(Schema::new(fields.collect::<Vec<_>>()))),
            sides: [
                Side::new(
                    left,
                    left_keys,
                    plan.left_width,
                    plan.left_append_only,
                    plan.left_key.as_deref(),
                    left_appears,
                    plan.left_closes.as_ref(),
                )?,
                Side::new(
                    right,
                    right_keys,
                    plan.right_width,
                    plan.right_append_only,
                    plan.right_key.as_deref(),
                    right_appears,
                    plan.right_closes.as_ref(),
                )?,
            ],
            emits_pairs,
            null_equals_null: plan.null_equals_null,
            filter: plan.filter.clone(),
            schema: Arc::clone(&plan.schema),
            is_deferred: false,
        })
    }

    /// Forgets the rows that no row to come matches.
    pub fn forget(&mut self, is_bulk: bool, watermarks: &Watermarks) -> Result<()> {
        if is_bulk || self.is_deferred {
            return Ok(());
        }
        for Side { table, closer, .. } in &mut self.sides {
            let Some(closer) = closer else { continue };
            if let Some(bound) = closer.due(table.live_rows(), watermarks)? {
                table.forget(|rows| closer.is_final(rows, &bound))?;
                closer.swept(table.live_rows());
            }
        }
        Ok(())
    }

    /// Whether the output would be taken back again while the sides are filled.
    fn defers(&self) -> bool {
        self.sides
            .iter()
            .any(|side| side.appearance != Appearance::Paired)
    }

    /// Before an epoch's changes, or a part of them. `is_bulk`: the view is being filled.
    pub async fn begin(
        &mut self,
        is_bulk: bool,
        gate: &dyn Gate,
        errors: &ErrorCounter,
        output: &mut dyn Output,
    ) -> Result<()> {
        for side in &mut self.sides {
            side.table.set_lazy(is_bulk)?;
            gate.checkpoint().await;
        }
        if std::mem::take(&mut self.is_deferred) && !is_bulk {
            self.join_all(gate, errors, output).await?;
        }
        self.is_deferred = is_bulk && self.defers();
        Ok(())
    }

    /// Joins what changed in one side, keeps it, and pushes what that changes.
    pub async fn advance(
        &mut self,
        side: usize,
        batches: Vec<ChangeBatch>,
        gate: &dyn Gate,
        errors: &ErrorCounter,
        output: &mut dyn Output,
    ) -> Result<()> {
        for batch in self.gathered(side, batches)? {
            let batch = self.sides[side].relevant(batch, self.null_equals_null)?;
            let (inserted, deleted) = match &batch.weights {
                None => (batch.rows.clone(), batch.rows.slice(0, 0)),
                Some(weights) => split(&batch.rows, weights)?,
            };
            for (rows, weight) in [(deleted, -1), (inserted, 1)] {
                self.change(side, &rows, weight, gate, errors, output).await?;
            }
        }
        for side in &mut self.sides {
            side.table.tidy(u64::MAX - 1)?;
        }
        Ok(())
    }

    /// What changed in a side, so that no row is looked for before it is there.
    fn gathered(&self, side: usize, batches: Vec<ChangeBatch>) -> Result<Vec<ChangeBatch>> {
        let grows = self.sides[side].append_only || batches.iter().all(|batch| batch.weights.is_none());
        if !grows {
            // A row that came and went within the epoch is left out.
            return consolidate_parts(batches);
        }
        if batches.iter().any(|batch| batch.num_rows() >= CHUNK_ROWS) {
            return Ok(batches);
        }
        Ok(concat(batches)?.into_iter().collect())
    }
}

#[cfg(test)]
mod tests;
