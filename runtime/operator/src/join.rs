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

mod image;
mod joining;
mod side;

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Int64Array, RecordBatch, UInt32Array, new_null_array};
use arrow::compute::take;
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::physical_expr::PhysicalExpr;
use futures::FutureExt;
use futures::future::BoxFuture;
use millrace_planner::stage::{Join, JoinKind};
use millrace_planner::watermark::Watermarks;
use millrace_resource::gate::Gate;
use millrace_schedule::cpu::CHUNK_ROWS;
use millrace_state::row_table::{Matches, split};
use millrace_state::width::COPIED_BYTES_MAX;
use millrace_storage::ChangeBatch;

use super::batches::{batch_of, concat, nullable};
use super::consolidate::consolidate;
use super::expression::{ErrorCounter, evaluate_predicate};
use super::image::{Part, Parts};
use super::inputs::Inputs;
use super::instance::{Delivery, Operator, OperatorInstance};
use super::output::{Output, push_all};
use crate::error::{OperatorError, Result};
use joining::{Joining, Touched};
use side::{Appearance, Side};

/// Rows that one step of a join may put out at most, before it pushes them on and looks at the gate again.
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

/// Whether pairs are put out, and how the left and right rows appear by themselves.
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
            return Ok(consolidate(batches)?.into_iter().collect());
        }
        if batches.iter().any(|batch| batch.num_rows() >= CHUNK_ROWS) {
            return Ok(batches);
        }
        Ok(concat(batches)?.into_iter().collect())
    }

    /// Inserts (`weight` 1) or deletes (-1) rows of one side.
    async fn change(
        &mut self,
        side: usize,
        rows: &RecordBatch,
        weight: i32,
        gate: &dyn Gate,
        errors: &ErrorCounter,
        output: &mut dyn Output,
    ) -> Result<()> {
        if rows.num_rows() == 0 {
            return Ok(());
        }
        let stored = RecordBatch::try_new(
            Arc::clone(self.sides[side].table.schema()),
            rows.columns().to_vec(),
        )?;
        let table = &mut self.sides[side].table;
        let first = if weight > 0 {
            table.insert(stored.clone(), 0)?
        } else {
            table.delete(&stored, 0)?;
            0
        };
        gate.checkpoint().await;
        if self.is_deferred {
            return Ok(());
        }
        let other = 1 - side;
        // Of each touched row of the other side: its count before this change.
        let mut touched = Touched::default();
        for start in (0..rows.num_rows()).step_by(CHUNK_ROWS) {
            let rows = stored.slice(start, CHUNK_ROWS.min(rows.num_rows() - start));
            let own_matches = self
                .meet(side, &rows, weight, &mut touched, gate, errors, output)
                .await?;
            if weight > 0 && self.sides[side].appearance != Appearance::Paired {
                for (row, count) in own_matches.iter().enumerate() {
                    self.sides[side]
                        .table
                        .set_tag(first + (start + row) as u32, *count);
                }
            }
            let mut alone = vec![];
            self.appear(side, &rows, i64::from(weight), &own_matches, &mut alone)?;
            push_all(output, alone).await?;
        }
        for touched in touched.rows().chunks(OUTPUT_ROWS_STEP) {
            let mut alone = vec![];
            self.reappear(other, touched, &mut alone)?;
            push_all(output, alone).await?;
            gate.checkpoint().await;
        }
        Ok(())
    }

    /// Where the pairs end that are made in the step that begins with this one: earlier, where rows are large.
    fn step_end(&self, side: usize, rows: &RecordBatch, matches: &Matches, start: usize) -> usize {
        let end = matches.rows.len().min(start + OUTPUT_ROWS_STEP);
        if !self.emits_pairs && self.filter.is_none() {
            return end;
        }
        let (own, others) = (&self.sides[side], &self.sides[1 - side]);
        if let (Some(own), Some(others)) = (own.copied.constant(), others.copied.constant()) {
            return end.min(start + (COPIED_BYTES_MAX / (own + others)).max(1));
        }
        let mut bytes = 0;
        let fit = (start..end).take_while(|pair| {
            bytes += own.copied.row_bytes(rows, matches.probe[*pair] as usize);
            bytes += others.table.copied_bytes(&others.copied, matches.rows[*pair]);
            bytes <= COPIED_BYTES_MAX
        });
        start + fit.count().clamp(1, end - start)
    }

    /// Pushes the pairs of these rows with the other side; returns how many each is in. `touched`: rows of the other side
    /// whose counts change, each with its count before.
    #[expect(clippy::too_many_arguments, reason = "one step of a join, in two halves")]
    async fn meet(
        &mut self,
        side: usize,
        rows: &RecordBatch,
        weight: i32,
        touched: &mut Touched,
        gate: &dyn Gate,
        errors: &ErrorCounter,
        output: &mut dyn Output,
    ) -> Result<Vec<u32>> {
        let (other, null_equals_null) = (1 - side, self.null_equals_null);
        let [left, right] = &mut self.sides;
        let (own, others) = if side == LEFT {
            (left, right)
        } else {
            (right, left)
        };
        let mut matching = others.begin_matching(rows, &own.keys)?;
        let mut own_matches = vec![0_u32; rows.num_rows()];
        while let Some(matches) = self.sides[other].next_matches(&mut matching, null_equals_null)? {
            gate.checkpoint().await;
            let mut start = 0;
            while start < matches.rows.len() {
                let end = self.step_end(side, rows, &matches, start);
                let candidates = Matches {
                    probe: matches.probe[start..end].to_vec(),
                    rows: matches.rows[start..end].to_vec(),
                };
                let mut pairs = vec![];
                let Matches { probe, rows: met } =
                    self.pair(side, rows, i64::from(weight), candidates, &mut pairs, errors)?;
                let counts_others = self.sides[other].appearance != Appearance::Paired;
                for (probe, met) in probe.iter().zip(&met) {
                    own_matches[*probe as usize] += 1;
                    if counts_others {
                        let before = self.sides[other].table.add_to_tag(*met, weight);
                        touched.add(*met, before);
                    }
                }
                push_all(output, pairs).await?;
                gate.checkpoint().await;
                start = end;
            }
        }
        Ok(own_matches)
    }

    /// Joins the sides as they are; nothing of them has been put out yet.
    async fn join_all(
        &mut self,
        gate: &dyn Gate,
        errors: &ErrorCounter,
        output: &mut dyn Output,
    ) -> Result<()> {
        for numbers in self.sides[LEFT].table.live_row_numbers().chunks(CHUNK_ROWS) {
            let rows = self.sides[LEFT].table.rows(numbers)?;
            let matches = self
                .meet(LEFT, &rows, 1, &mut Touched::default(), gate, errors, output)
                .await?;
            for (number, count) in numbers.iter().zip(&matches) {
                self.sides[LEFT].table.set_tag(*number, *count);
            }
            let mut alone = vec![];
            self.appear(LEFT, &rows, 1, &matches, &mut alone)?;
            push_all(output, alone).await?;
        }
        if self.sides[RIGHT].appearance == Appearance::Paired {
            return Ok(());
        }
        for numbers in self.sides[RIGHT].table.live_row_numbers().chunks(CHUNK_ROWS) {
            let table = &self.sides[RIGHT].table;
            let matches: Vec<u32> = numbers.iter().map(|number| table.tag(*number)).collect();
            let rows = table.rows(numbers)?;
            let mut alone = vec![];
            self.appear(RIGHT, &rows, 1, &matches, &mut alone)?;
            push_all(output, alone).await?;
            gate.checkpoint().await;
        }
        Ok(())
    }

    /// Puts out the pairs that meet the filter, and says which they are.
    fn pair(
        &self,
        side: usize,
        rows: &RecordBatch,
        weight: i64,
        mut matches: Matches,
        output: &mut Vec<ChangeBatch>,
        errors: &ErrorCounter,
    ) -> Result<Matches> {
        if !self.emits_pairs && self.filter.is_none() {
            return Ok(matches);
        }
        let own = take_columns(rows, self.sides[side].width, &matches.probe)?;
        let other = &self.sides[1 - side];
        let others = other
            .table
            .gather(&matches.rows, &(0..other.width).collect::<Vec<_>>())?;
        let columns = if side == LEFT {
            [own, others].concat()
        } else {
            [others, own].concat()
        };
        let mut pairs = batch_of(&self.joined, columns, matches.probe.len())?;
        if let Some(filter) = &self.filter {
            let mask = evaluate_predicate(filter, &pairs, errors)?;
            if mask.true_count() < mask.len() {
                pairs = arrow::compute::filter_record_batch(&pairs, &mask)?;
                let kept: Vec<usize> = mask.values().set_indices().collect();
                matches = Matches {
                    probe: kept.iter().map(|pair| matches.probe[*pair]).collect(),
                    rows: kept.iter().map(|pair| matches.rows[*pair]).collect(),
                };
            }
        }
        if self.emits_pairs && pairs.num_rows() > 0 {
            self.emit(pairs.columns().to_vec(), pairs.num_rows(), weight, output)?;
        }
        Ok(matches)
    }

    /// How rows that come (or go) appear by themselves.
    fn appear(
        &self,
        side: usize,
        rows: &RecordBatch,
        weight: i64,
        matches: &[u32],
        output: &mut Vec<ChangeBatch>,
    ) -> Result<()> {
        let pick = |wanted: bool| -> Vec<u32> {
            (0..matches.len())
                .filter(|row| (matches[*row] > 0) == wanted)
                .map(|row| row as u32)
                .collect()
        };
        let width = self.sides[side].width;
        let marks: &[bool] = match self.sides[side].appearance {
            Appearance::Paired => &[],
            Appearance::NullExtended | Appearance::Unmatched => &[false],
            Appearance::Matched => &[true],
            Appearance::Marked => &[false, true],
        };
        for mark in marks {
            let picked = pick(*mark);
            let columns = take_columns(rows, width, &picked)?;
            self.emit_alone(side, columns, picked.len(), *mark, weight, output)?;
        }
        Ok(())
    }

    /// How rows whose count of matches changed appear now.
    fn reappear(&self, side: usize, touched: &[(u32, u32)], output: &mut Vec<ChangeBatch>) -> Result<()> {
        let table = &self.sides[side].table;
        let (mut gained, mut lost) = (vec![], vec![]);
        for (row, before) in touched {
            match (*before > 0, table.tag(*row) > 0) {
                (false, true) => gained.push(*row),
                (true, false) => lost.push(*row),
                _ => {}
            }
        }
        let columns: Vec<usize> = (0..self.sides[side].width).collect();
        for (rows, has_match) in [(gained, true), (lost, false)] {
            if rows.is_empty() {
                continue;
            }
            let values = table.gather(&rows, &columns)?;
            let rows = rows.len();
            match self.sides[side].appearance {
                Appearance::Paired => {}
                Appearance::NullExtended | Appearance::Unmatched => {
                    self.emit_alone(side, values, rows, false, if has_match { -1 } else { 1 }, output)?;
                }
                Appearance::Matched => {
                    self.emit_alone(side, values, rows, true, if has_match { 1 } else { -1 }, output)?;
                }
                Appearance::Marked => {
                    self.emit_alone(side, values.clone(), rows, !has_match, -1, output)?;
                    self.emit_alone(side, values, rows, has_match, 1, output)?;
                }
            }
        }
        Ok(())
    }

    /// Rows of one side in the form of the output. They are counted, because there may be no column.
    fn emit_alone(
        &self,
        side: usize,
        columns: Vec<ArrayRef>,
        rows: usize,
        mark: bool,
        weight: i64,
        output: &mut Vec<ChangeBatch>,
    ) -> Result<()> {
        if rows == 0 {
            return Ok(());
        }
        let columns = match self.sides[side].appearance {
            Appearance::NullExtended => {
                let width = self.sides[LEFT].width;
                let others = if side == LEFT {
                    width..self.joined.fields().len()
                } else {
                    0..width
                };
                let nulls: Vec<ArrayRef> = others
                    .map(|column| new_null_array(self.joined.field(column).data_type(), rows))
                    .collect();
                if side == LEFT {
                    [columns, nulls].concat()
                } else {
                    [nulls, columns].concat()
                }
            }
            Appearance::Marked => {
                let marks: ArrayRef = Arc::new(BooleanArray::from(vec![mark; rows]));
                [columns, vec![marks]].concat()
            }
            _ => columns,
        };
        self.emit(columns, rows, weight, output)
    }

    fn emit(
        &self,
        columns: Vec<ArrayRef>,
        rows: usize,
        weight: i64,
        output: &mut Vec<ChangeBatch>,
    ) -> Result<()> {
        let weights = (weight != 1).then(|| Int64Array::from(vec![weight; rows]));
        output.push(ChangeBatch {
            rows: batch_of(&self.schema, columns, rows)?,
            weights,
        });
        Ok(())
    }
}

fn take_columns(rows: &RecordBatch, width: usize, positions: &[u32]) -> Result<Vec<ArrayRef>> {
    let positions = UInt32Array::from(positions.to_vec());
    (0..width)
        .map(|column| take(rows.column(column), &positions, None).map_err(OperatorError::from))
        .collect()
}

#[cfg(test)]
mod tests;
