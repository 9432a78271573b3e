//! Where an operator's rows go: batch by batch, to whoever is behind it.
//!
//! An operator that may multiply rows does not return them all at once. It *pushes* each batch that it has made, and is
//! suspended in the middle of its work until what is behind it has space again: the task is a coroutine, so that an expansion
//! is an iterator without anybody having to write one (Faucet, section 4: the batcher's lazy transformation).

use futures::FutureExt;
use futures::future::BoxFuture;
use millrace_resource::gate::Gate;
use millrace_storage::ChangeBatch;

use super::batches::chunks;
use crate::error::Result;

/// See the module.
pub trait Output: Send {
    /// Takes a batch. Resolves when there is space for the next one.
    fn push(&mut self, batch: ChangeBatch) -> BoxFuture<'_, Result<()>>;
}

/// Room for everything.
impl Output for Vec<ChangeBatch> {
    fn push(&mut self, batch: ChangeBatch) -> BoxFuture<'_, Result<()>> {
        Vec::push(self, batch);
        std::future::ready(Ok(())).boxed()
    }
}

/// Pushes what was made at once, in its order.
pub(super) async fn push_all(output: &mut dyn Output, batches: Vec<ChangeBatch>) -> Result<()> {
    for batch in batches {
        output.push(batch).await?;
    }
    Ok(())
}

/// A linear operator in front of an output: each chunk is passed through it by itself.
pub(super) struct Through<'a, F> {
    pub apply: F,
    pub gate: &'a dyn Gate,
    pub output: &'a mut dyn Output,
}

impl<F> Output for Through<'_, F>
where
    F: FnMut(&ChangeBatch, &mut Vec<ChangeBatch>) -> Result<()> + Send,
{
    fn push(&mut self, batch: ChangeBatch) -> BoxFuture<'_, Result<()>> {
        async move {
            let mut made = vec![];
            for chunk in chunks(&batch) {
                (self.apply)(&chunk, &mut made)?;
                for batch in made.drain(..).filter(|batch| batch.num_rows() > 0) {
                    self.output.push(batch).await?;
                }
                self.gate.checkpoint().await;
            }
            Ok(())
        }
        .boxed()
    }
}
