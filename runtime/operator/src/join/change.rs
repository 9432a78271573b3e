//! What a change of one side makes: its rows meet those of the other side, step by step.

use std::sync::Arc;

use arrow::array::RecordBatch;
use millrace_storage::ChangeBatch;

use super::joining::Touched;
use super::side::Appearance;
use super::{JoinInstance, LEFT, OUTPUT_ROWS_STEP, RIGHT};
use crate::batches::{batch_of, take_columns};
use crate::error::Result;
use crate::expression::{ErrorCounter, evaluate_predicate};
use crate::output::{Output, push_all};
use millrace_resource::gate::Gate;
use millrace_schedule::cpu::CHUNK_ROWS;
use millrace_state::row_table::Matches;
use millrace_state::width::COPIED_BYTES_MAX;

impl JoinInstance {
    /// Inserts (`weight` 1) or deletes (-1) rows of one side.
    pub(super) async fn change(
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

    /// Joins the sides as they are; nothing of them has been emitted yet.
    pub(super) async fn join_all(
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
}
