//! The projection: each row becomes one of computed columns.

use futures::FutureExt;
use futures::future::BoxFuture;
use millrace_resource::gate::Gate;
use millrace_state::steps::Steps;
use millrace_storage::ChangeBatch;

use super::expression::ErrorCounter;
use super::inputs::Inputs;
use super::instance::{Delivery, Operator, OperatorInstance};
use super::output::{Output, Stepping};
use super::projection::Projection;
use crate::error::Result;

/// See the module.
pub(super) struct ProjectInstance {
    pub projection: Projection,
    pub steps: Steps,
}

impl Operator for ProjectInstance {
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
                steps: &mut self.steps,
                apply: |chunk: &ChangeBatch, made: &mut Vec<ChangeBatch>, errors: &ErrorCounter| {
                    made.push(self.projection.of(chunk, errors)?);
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

    fn projection(&self) -> Option<&Projection> {
        Some(&self.projection)
    }
}
