//! An aggregate over rows that come while they are made: it takes them in parts.

use futures::FutureExt;
use futures::future::BoxFuture;
use millrace_resource::gate::Gate;
use millrace_storage::ChangeBatch;

use super::AggregateInstance;
use crate::error::Result;
use crate::expression::ErrorCounter;
use crate::output::Output;

/// In front of the reduce half: merges each batch, and emits nothing that a later one may change.
pub(super) struct Merging<'a> {
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
        let parts = vec![batch];
        (self.aggregate)
            .advance(parts, self.is_bulk, false, self.gate, self.errors, self.output)
            .boxed()
    }
}
