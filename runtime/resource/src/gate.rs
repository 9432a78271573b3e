//! Where a task may be suspended.

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
}
