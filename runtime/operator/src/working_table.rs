//! Inside a recursion's body: what changed in its working table. [`super::recursion`] gives it.

use futures::FutureExt;
use futures::future::BoxFuture;
use millrace_resource::gate::Gate;

use super::expression::ErrorCounter;
use super::inputs::Inputs;
use super::instance::{Operator, OperatorInstance};
use super::output::{Output, push_all};
use crate::error::Result;

/// See the module.
pub(super) struct WorkingTableInstance;

impl Operator for WorkingTableInstance {
    fn run<'a>(
        &'a mut self,
        _inputs: &'a mut [OperatorInstance],
        epoch: &'a mut Inputs,
        _gate: &'a dyn Gate,
        _errors: &'a ErrorCounter,
        output: &'a mut dyn Output,
    ) -> BoxFuture<'a, Result<()>> {
        async move { push_all(output, std::mem::take(&mut epoch.working_table)).await }.boxed()
    }
}
