//! A write between being encoded and getting its place in the order.

use std::sync::Arc;

use crate::log::block::Frame;
use crate::log::relation::RelationLog;

/// A write that is checked and encoded, and has no place in the order yet.
///
/// Made by [`LogStore::prepare`](super::LogStore::prepare), which is the expensive half and needs no lock;
/// taken by [`LogStore::submit`](super::LogStore::submit), which is quick.
#[derive(Debug)]
pub struct PreparedWrite {
    /// One entry for each `LogWrite`, in its order.
    pub(super) parts: Vec<PreparedPart>,
    /// Encoded size of all parts.
    pub(super) bytes: usize,
}

#[derive(Debug)]
pub(super) struct PreparedPart {
    pub(super) relation: Arc<RelationLog>,
    pub(super) rows: u64,
    /// The blocks, in order; none if there are no rows.
    pub(super) frames: Vec<Frame>,
}
