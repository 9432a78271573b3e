//! The map half of GROUP BY: an epoch's rows to one row a group (the combiner), before they go to the partitions that keep the
//! groups. What it sends, [`super::aggregate`] merges. It keeps nothing between epochs.

use std::sync::Arc;

use arrow::array::Int64Array;
use arrow::datatypes::SchemaRef;
use futures::FutureExt;
use futures::future::BoxFuture;
use millrace_planner::stage::aggregation::{AggregateCall, Aggregation, ExchangeForm};
use millrace_resource::gate::Gate;
use millrace_state::width::COPIED_BYTES_MAX;
use millrace_storage::{ChangeBatch, rows_bytes};

use super::batches::{batch_of, chunks, weights_of};
use super::combiner::Combiner;
use super::consolidate::consolidate_parts;
use super::expression::ErrorCounter;
use super::group_keys::GroupKeys;
use super::groups::Groups;
use super::inputs::Inputs;
use super::instance::{Operator, OperatorInstance};
use super::output::{Output, push_all};
use crate::error::Result;

/// Rows that are combined at a time where they come out of a join: more would combine better, and take memory.
const COMBINED_ROWS_MAX: usize = 262_144;
/// Of rows that take so many bytes as many are combined at a time as may be copied: there are several copies while they are.
const WIDE_BYTES: usize = 1 << 10;

/// The map half. It keeps nothing between epochs.
pub struct PartialAggregate {
    group_columns: usize,
    calls: Vec<AggregateCall>,
    exchange: ExchangeForm,
    schema: SchemaRef,
}

impl Operator for PartialAggregate {
    fn run<'a>(
        &'a mut self,
        inputs: &'a mut [OperatorInstance],
        epoch: &'a mut Inputs,
        gate: &'a dyn Gate,
        errors: &'a ErrorCounter,
        output: &'a mut dyn Output,
    ) -> BoxFuture<'a, Result<()>> {
        async move {
            let combiner = Arc::clone(&epoch.combiner);
            let input = &mut inputs[0];
            let mut combining = Combining::new(self, &combiner, input.multiplies(), gate, output);
            input.run(epoch, gate, errors, &mut combining).await?;
            combining.end().await
        }
        .boxed()
    }
}

impl PartialAggregate {
    pub fn new(plan: &Aggregation) -> Self {
        PartialAggregate {
            group_columns: plan.group_columns,
            calls: plan.calls.clone(),
            exchange: plan.exchange,
            schema: Arc::clone(&plan.schema),
        }
    }

    /// One row a group, or the consolidated rows; or all of them, where that would be nearly as many.
    pub async fn advance(
        &self,
        batches: Vec<ChangeBatch>,
        combiner: &Combiner,
        gate: &dyn Gate,
    ) -> Result<Vec<ChangeBatch>> {
        let arrived: usize = batches.iter().map(ChangeBatch::num_rows).sum();
        if arrived == 0 {
            return Ok(vec![]);
        }
        if self.group_columns > 0 && !combiner.combines(arrived) {
            combiner.passed(arrived);
            return self.pass(batches, gate).await;
        }
        if self.exchange == ExchangeForm::Rows {
            let output: Vec<ChangeBatch> = consolidate_parts(batches)?;
            combiner.combined(arrived, output.iter().map(ChangeBatch::num_rows).sum());
            return Ok(output);
        }
        let input_schema = batches[0].schema();
        let keys = GroupKeys::passing(&input_schema, self.group_columns)?;
        let mut groups = Groups::new(keys, &self.calls)?;
        for batch in &batches {
            for chunk in chunks(batch) {
                groups.apply_rows(&chunk, &self.calls)?;
                gate.checkpoint().await;
            }
        }
        let mut columns = groups.keys.take_all()?;
        columns.push(Arc::new(Int64Array::from(std::mem::take(&mut groups.rows))));
        for state in &mut groups.states {
            columns.extend(state.partial()?);
        }
        let rows = columns[self.group_columns].len();
        combiner.combined(arrived, rows);
        Ok(vec![ChangeBatch::insertions(batch_of(
            &self.schema,
            columns,
            rows,
        )?)])
    }

    /// Every row as it is, or as a partial state of its own.
    async fn pass(&self, batches: Vec<ChangeBatch>, gate: &dyn Gate) -> Result<Vec<ChangeBatch>> {
        if self.exchange == ExchangeForm::Rows {
            return Ok(batches);
        }
        let mut output = vec![];
        for batch in &batches {
            for chunk in chunks(batch) {
                let rows = chunk.num_rows();
                if rows == 0 {
                    continue;
                }
                // A group a row: no key is looked at.
                let mut groups = Groups::new(GroupKeys::passing(&chunk.schema(), 0)?, &self.calls)?;
                groups.rows = vec![0; rows];
                for state in &mut groups.states {
                    state.resize(rows);
                }
                let ids: Vec<usize> = (0..rows).collect();
                groups.apply(&chunk.rows, &ids, weights_of(&chunk).values(), &self.calls)?;
                let mut columns = chunk.rows.columns()[..self.group_columns].to_vec();
                columns.push(Arc::new(Int64Array::from(groups.rows)));
                for state in &mut groups.states {
                    columns.extend(state.partial()?);
                }
                output.push(ChangeBatch::insertions(batch_of(&self.schema, columns, rows)?));
                gate.checkpoint().await;
            }
        }
        Ok(output)
    }
}

/// In front of the map half: gathers rows, all of them, or as many as are combined at a time.
struct Combining<'a> {
    aggregate: &'a PartialAggregate,
    combiner: &'a Combiner,
    rows_max: usize,
    gate: &'a dyn Gate,
    output: &'a mut dyn Output,
    gathered: Vec<ChangeBatch>,
    rows: usize,
    bytes: usize,
}

impl<'a> Combining<'a> {
    fn new(
        aggregate: &'a PartialAggregate,
        combiner: &'a Combiner,
        in_parts: bool,
        gate: &'a dyn Gate,
        output: &'a mut dyn Output,
    ) -> Self {
        Combining {
            aggregate,
            combiner,
            rows_max: if in_parts { COMBINED_ROWS_MAX } else { usize::MAX },
            gate,
            output,
            gathered: vec![],
            rows: 0,
            bytes: 0,
        }
    }

    /// Combines what was gathered last.
    async fn end(mut self) -> Result<()> {
        self.combine().await
    }

    async fn combine(&mut self) -> Result<()> {
        (self.rows, self.bytes) = (0, 0);
        let gathered = std::mem::take(&mut self.gathered);
        let combined = self.aggregate.advance(gathered, self.combiner, self.gate).await?;
        push_all(self.output, combined).await
    }
}

impl Output for Combining<'_> {
    fn push(&mut self, batch: ChangeBatch) -> BoxFuture<'_, Result<()>> {
        self.rows += batch.num_rows();
        self.bytes += rows_bytes(&batch.rows);
        self.gathered.push(batch);
        let is_wide = self.bytes >= COPIED_BYTES_MAX && self.bytes / self.rows.max(1) >= WIDE_BYTES;
        if self.rows < self.rows_max && !is_wide {
            return std::future::ready(Ok(())).boxed();
        }
        self.combine().boxed()
    }
}
