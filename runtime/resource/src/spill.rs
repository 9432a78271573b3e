//! Rows that left memory for a disk, as scratch: nothing of it is synced, nothing outlives the process.
//!
//! Two kinds, because they are used differently. What a query spills is written in order by an operator in the middle of a poll,
//! behind DataFusion's interface for such files, and read once in the same order ([`query`]). The state of a view is written by
//! a task that awaits it, and each of its blocks is read at any time, by whoever reads the view ([`state`]).

pub mod query;
pub mod state;
