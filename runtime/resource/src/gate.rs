//! Where a task may be suspended.

use futures::FutureExt;
use futures::future::BoxFuture;

use crate::error::Result;

/// What the scheduler offers a task: a place where it may be suspended.
pub trait Gate: Send + Sync {
    /// Resolves at once unless the scheduler wants the core.
    fn checkpoint(&self) -> BoxFuture<'_, ()>;

    /// To be asked before so many bytes are taken in one step.
    ///
    /// # Errors
    /// There is no memory for them.
    fn room(&self, _bytes: usize) -> Result<()> {
        Ok(())
    }

    /// So many bytes more are held until the operators have run over their input.
    ///
    /// # Errors
    /// There is no memory for them.
    fn hold(&self, _bytes: usize) -> BoxFuture<'_, Result<()>> {
        std::future::ready(Ok(())).boxed()
    }
}
