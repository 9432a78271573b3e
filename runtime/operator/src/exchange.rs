//! What upstream stages sent to this partition: the leaf of a reduce stage.

use futures::FutureExt;
use futures::future::BoxFuture;
use millrace_resource::gate::Gate;

use super::expression::ErrorCounter;
use super::inputs::Inputs;
use super::instance::{Operator, OperatorInstance};
use super::output::{Output, push_all};
use crate::error::Result;

/// The stages that are read.
pub(super) struct ExchangeInstance {
    pub stages: Vec<usize>,
}

impl Operator for ExchangeInstance {
    fn run<'a>(
        &'a mut self,
        _inputs: &'a mut [OperatorInstance],
        epoch: &'a mut Inputs,
        _gate: &'a dyn Gate,
        _errors: &'a ErrorCounter,
        output: &'a mut dyn Output,
    ) -> BoxFuture<'a, Result<()>> {
        async move {
            for stage in &self.stages {
                let batches = epoch.exchanges.remove(stage).unwrap_or_default();
                push_all(output, batches).await?;
            }
            Ok(())
        }
        .boxed()
    }
}
