//! What a task reads in one epoch: the changes that came to it, the time, and how the view stands.

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_planner::watermark::Watermarks;
use millrace_storage::{ChangeBatch, rows_bytes};

use super::combiner::Combiner;

/// What a task reads in one epoch.
#[derive(Debug, Default)]
pub struct Inputs {
    /// A map stage's share of its relation's changes.
    pub source: Vec<ChangeBatch>,
    /// What each upstream stage sent to this partition.
    pub exchanges: BTreeMap<usize, Vec<ChangeBatch>>,
    /// Inside a recursion: what changed in the working table.
    pub working_table: Vec<ChangeBatch>,
    /// Whether this is the first epoch of the view, on partition 0: fixed rows appear now.
    pub first: bool,
    /// The epoch's time, in microseconds since 1970-01-01 00:00 UTC.
    pub now: i64,
    /// The watermarks of the pipeline's streams, as of this epoch.
    pub watermarks: Arc<Watermarks>,
    /// Whether it pays to combine rows before the exchange.
    pub combiner: Arc<Combiner>,
    /// Whether rows that existed before the view are still to come, for operators that wait for them.
    pub is_filling: bool,
    /// Whether the view is filled, and nobody sees it: what would be taken back again may be emitted once, later.
    pub is_bulk: bool,
    /// Whether further parts of the epoch's input follow: what they may take back again is emitted with the last one.
    pub has_more: bool,
}

impl Inputs {
    /// Changes that came in.
    pub fn rows(&self) -> u64 {
        let batches = self.source.iter().chain(self.exchanges.values().flatten());
        batches.map(|batch| batch.num_rows() as u64).sum()
    }

    /// And their bytes.
    pub fn bytes(&self) -> usize {
        let batches = self.source.iter().chain(self.exchanges.values().flatten());
        batches.map(|batch| rows_bytes(&batch.rows)).sum()
    }
}
