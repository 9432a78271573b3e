//! The filter: the rows for which a condition holds.

use std::sync::Arc;

use datafusion::physical_expr::PhysicalExpr;
use futures::FutureExt;
use futures::future::BoxFuture;
use millrace_resource::gate::Gate;
use millrace_schedule::cpu::CHUNK_ROWS;
use millrace_state::steps::Steps;
use millrace_storage::ChangeBatch;

use super::batches::filter_changes;
use super::expression::{ErrorCounter, evaluate_predicate};
use super::inputs::Inputs;
use super::instance::{Delivery, Operator, OperatorInstance};
use super::output::{Output, Stepping};
use crate::error::Result;

/// See the module.
pub(super) struct FilterInstance {
    pub predicate: Arc<dyn PhysicalExpr>,
}

impl Operator for FilterInstance {
    fn run<'a>(
        &'a mut self,
        inputs: &'a mut [OperatorInstance],
        epoch: &'a mut Inputs,
        gate: &'a dyn Gate,
        errors: &'a ErrorCounter,
        output: &'a mut dyn Output,
    ) -> BoxFuture<'a, Result<()>> {
        async move {
            let mut stepping = Stepping {
                // No row is larger than it was.
                steps: &mut Steps::new(CHUNK_ROWS, CHUNK_ROWS, usize::MAX),
                apply: |chunk: &ChangeBatch, made: &mut Vec<ChangeBatch>, errors: &ErrorCounter| {
                    let mask = evaluate_predicate(&self.predicate, &chunk.rows, errors)?;
                    made.push(filter_changes(chunk, &mask)?);
                    Ok(())
                },
                gate,
                errors,
                output,
            };
            inputs[0].run(epoch, gate, errors, &mut stepping).await
        }
        .boxed()
    }

    fn delivery(&self) -> Delivery {
        Delivery::AsInput
    }
}
