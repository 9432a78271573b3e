//! What goes on between a join and its surroundings in one epoch: rows that come while they are made, and rows whose counts
//! of matches change.

use futures::FutureExt;
use futures::future::BoxFuture;
use millrace_resource::gate::Gate;
use millrace_storage::ChangeBatch;

use super::{JoinInstance, TOUCHED_ROWS_STEP};
use crate::error::Result;
use crate::expression::ErrorCounter;
use crate::output::Output;

/// In front of one side of a join: each batch is joined by itself.
pub(super) struct Joining<'a> {
    join: &'a mut JoinInstance,
    side: usize,
    gate: &'a dyn Gate,
    errors: &'a ErrorCounter,
    output: &'a mut dyn Output,
}

impl<'a> Joining<'a> {
    pub fn new(
        join: &'a mut JoinInstance,
        side: usize,
        gate: &'a dyn Gate,
        errors: &'a ErrorCounter,
        output: &'a mut dyn Output,
    ) -> Self {
        Joining {
            join,
            side,
            gate,
            errors,
            output,
        }
    }
}

impl Output for Joining<'_> {
    fn push(&mut self, batch: ChangeBatch) -> BoxFuture<'_, Result<()>> {
        self.join
            .advance(self.side, vec![batch], self.gate, self.errors, self.output)
            .boxed()
    }
}

/// Rows of a side whose counts of matches change, each with its count before.
#[derive(Debug, Default)]
pub(super) struct Touched {
    rows: Vec<(u32, u32)>,
    /// So many of them are different.
    known: usize,
}

impl Touched {
    pub fn add(&mut self, row: u32, before: u32) {
        self.rows.push((row, before));
        if self.rows.len() >= 2 * self.known + TOUCHED_ROWS_STEP {
            self.settle();
        }
    }

    /// Each row once, in order.
    pub fn rows(mut self) -> Vec<(u32, u32)> {
        self.settle();
        self.rows
    }

    /// The first mention of a row is from before the change.
    fn settle(&mut self) {
        self.rows.sort_by_key(|(row, _)| *row);
        self.rows.dedup_by_key(|(row, _)| *row);
        self.known = self.rows.len();
    }
}
