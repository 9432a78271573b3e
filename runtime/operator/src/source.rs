//! The changes of a stored relation in this epoch: the leaf of a map stage.

use futures::FutureExt;
use futures::future::BoxFuture;
use millrace_resource::gate::Gate;

use super::expression::ErrorCounter;
use super::inputs::Inputs;
use super::instance::{Operator, OperatorInstance};
use super::output::Output;
use crate::error::Result;

/// The columns of the relation that are read.
pub(super) struct SourceInstance {
    pub projection: Vec<usize>,
}

impl Operator for SourceInstance {
    fn run<'a>(
        &'a mut self,
        _inputs: &'a mut [OperatorInstance],
        epoch: &'a mut Inputs,
        _gate: &'a dyn Gate,
        _errors: &'a ErrorCounter,
        output: &'a mut dyn Output,
    ) -> BoxFuture<'a, Result<()>> {
        async move {
            for batch in epoch.source.drain(..) {
                output.push(batch.project(&self.projection)?).await?;
            }
            Ok(())
        }
        .boxed()
    }
}
