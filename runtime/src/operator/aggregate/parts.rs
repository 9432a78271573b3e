//! Aggregates over rows that come while they are made: both halves take them in parts.

use futures::FutureExt;
use futures::future::BoxFuture;
use millrace_storage::ChangeBatch;

use super::{AggregateInstance, Combiner, PartialAggregate};
use crate::error::Result;
use crate::operator::output::push_all;
use crate::operator::{ErrorCounter, Gate, Output};

/// Rows that are combined at a time where they come out of a join: more would combine better, and take memory.
const COMBINED_ROWS_MAX: usize = 262_144;

/// In front of the map half: gathers rows, all of them, or as many as are combined at a time.
pub(in crate::operator) struct Combining<'a> {
    aggregate: &'a PartialAggregate,
    combiner: &'a Combiner,
    rows_max: usize,
    gate: &'a dyn Gate,
    output: &'a mut dyn Output,
    gathered: Vec<ChangeBatch>,
    rows: usize,
}

impl<'a> Combining<'a> {
    pub fn new(
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
        }
    }

    /// Combines what was gathered last.
    pub async fn end(mut self) -> Result<()> {
        self.combine().await
    }

    async fn combine(&mut self) -> Result<()> {
        self.rows = 0;
        let gathered = std::mem::take(&mut self.gathered);
        let combined = self.aggregate.run(gathered, self.combiner, self.gate).await?;
        push_all(self.output, combined).await
    }
}

impl Output for Combining<'_> {
    fn push(&mut self, batch: ChangeBatch) -> BoxFuture<'_, Result<()>> {
        self.rows += batch.num_rows();
        self.gathered.push(batch);
        if self.rows < self.rows_max {
            return std::future::ready(Ok(())).boxed();
        }
        self.combine().boxed()
    }
}

/// In front of the reduce half: merges each batch, and emits nothing that a later one may change.
pub(in crate::operator) struct Merging<'a> {
    aggregate: &'a mut AggregateInstance,
    is_bulk: bool,
    gate: &'a dyn Gate,
    errors: &'a ErrorCounter,
    output: &'a mut dyn Output,
}

impl<'a> Merging<'a> {
    pub fn new(
        aggregate: &'a mut AggregateInstance,
        is_bulk: bool,
        gate: &'a dyn Gate,
        errors: &'a ErrorCounter,
        output: &'a mut dyn Output,
    ) -> Self {
        Merging {
            aggregate,
            is_bulk,
            gate,
            errors,
            output,
        }
    }
}

impl Output for Merging<'_> {
    fn push(&mut self, batch: ChangeBatch) -> BoxFuture<'_, Result<()>> {
        async move {
            let merged = (self.aggregate)
                .run(vec![batch], self.is_bulk, false, self.gate, self.errors)
                .await?;
            push_all(self.output, merged).await
        }
        .boxed()
    }
}
