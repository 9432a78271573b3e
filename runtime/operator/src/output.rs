//! Where an operator's rows go: batch by batch, to whoever is behind it.
//!
//! An operator that may multiply rows does not return them all at once. It *pushes* each batch that it has made, and is
//! suspended in the middle of its work until what is behind it has space again: the task is a coroutine, so that an expansion
//! is an iterator without anybody having to write one (Faucet, section 4: the batcher's lazy transformation).

use futures::future::BoxFuture;
use futures::{FutureExt, TryFutureExt};
use millrace_resource::gate::Gate;
use millrace_resource::step;
use millrace_state::steps::Steps;
use millrace_state::width::COPIED_BYTES_MAX;
use millrace_storage::{ChangeBatch, rows_bytes};

use super::expression::ErrorCounter;
use crate::error::{OperatorError, Result};

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

/// Less than this is not told to the gate: it is measured with the state, once the task has ended.
pub(super) const HELD_BYTES_MIN: usize = 1 << 20;
/// What an operator that collects much of its input has of it before it ends: the batches, one of all rows, its state, and what
/// it emits.
const COPIES: usize = 4;

/// Keeps everything for an operator that needs all of it, and tells the gate how much that is.
pub(super) struct Collecting<'a> {
    pub batches: Vec<ChangeBatch>,
    bytes: usize,
    /// Of those the ones that the gate was told of, and the first few megabytes, which is what comes of a stage at a time.
    told: usize,
    gate: &'a dyn Gate,
}

impl<'a> Collecting<'a> {
    pub fn new(gate: &'a dyn Gate) -> Self {
        Collecting {
            batches: vec![],
            bytes: 0,
            told: COPIED_BYTES_MAX,
            gate,
        }
    }
}

impl Output for Collecting<'_> {
    fn push(&mut self, batch: ChangeBatch) -> BoxFuture<'_, Result<()>> {
        self.bytes += rows_bytes(&batch.rows);
        self.batches.push(batch);
        if self.bytes < self.told + HELD_BYTES_MIN {
            return std::future::ready(Ok(())).boxed();
        }
        let bytes = self.bytes - self.told;
        self.told = self.bytes;
        self.gate
            .hold(COPIES * bytes)
            .map_err(OperatorError::from)
            .boxed()
    }
}

/// Pushes what was made at once, in its order.
pub(super) async fn push_all(output: &mut dyn Output, batches: Vec<ChangeBatch>) -> Result<()> {
    for batch in batches {
        output.push(batch).await?;
    }
    Ok(())
}

/// Bytes that a function may make of several rows in one step.
const STEP_BYTES_MAX: usize = 2 * COPIED_BYTES_MAX;

/// A linear operator in front of an output: rows are passed through it in steps, of so few at a time that what is made of them
/// fits. Where a step makes too much, or there is no memory for it, a shorter one is tried.
pub(super) struct Stepping<'a, F> {
    /// Adds what it makes of some rows to the batches. It may be tried again with fewer of them.
    pub apply: F,
    pub steps: &'a mut Steps,
    pub gate: &'a dyn Gate,
    pub errors: &'a ErrorCounter,
    pub output: &'a mut dyn Output,
}

impl<F> Output for Stepping<'_, F>
where
    F: FnMut(&ChangeBatch, &mut Vec<ChangeBatch>, &ErrorCounter) -> Result<()> + Send,
{
    fn push(&mut self, batch: ChangeBatch) -> BoxFuture<'_, Result<()>> {
        async move {
            let mut made = vec![];
            // Counted once the step is through: those of one that is tried again would be counted twice.
            let errors = self.errors.of_a_step();
            let mut start = 0;
            while start < batch.num_rows() {
                let rows = self.steps.next(batch.num_rows() - start);
                let slice = batch.slice(start, rows);
                match step::within(STEP_BYTES_MAX, || (self.apply)(&slice, &mut made, &errors)) {
                    Ok(()) => self.errors.add(&errors),
                    Err(error) if error.is_out_of_memory() && self.steps.was_refused(rows) => {
                        made.clear();
                        errors.clear();
                        self.gate.checkpoint().await;
                        continue;
                    }
                    Err(error) => return Err(error),
                }
                start += rows;
                let bytes: usize = made.iter().map(|batch| rows_bytes(&batch.rows)).sum();
                self.steps.made(rows, bytes.div_ceil(rows));
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
