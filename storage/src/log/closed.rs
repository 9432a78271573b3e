//! The segments of a log that are not written to any more: what maintenance decides by.

use crate::log::blocks::BlockEntry;

/// What decides which segments are closed, and where they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ClosedState {
    pub(super) open: u64,
    pub(super) moves: u64,
    pub(super) first: u64,
}

/// A segment that is not written to any more.
#[derive(Debug, Clone, Copy)]
pub(super) struct Closed {
    pub(super) first_offset: u64,
    pub(super) end_offset: u64,
    pub(super) bytes: u64,
    pub(super) oldest_ms: i64,
    pub(super) newest_ms: i64,
    /// Readers know all of it. If not, the writer is at work on blocks at its end, and may take it back: nothing may be
    /// done to it now.
    pub(super) is_whole: bool,
}

/// The closed segments among blocks, with `open` as the one that is written to.
pub(super) fn among(blocks: &[BlockEntry], open: u64) -> Vec<Closed> {
    let segments = blocks.chunk_by(|a, b| a.segment == b.segment);
    let mut segments: Vec<Closed> = segments
        .take_while(|blocks| blocks[0].segment < open)
        .map(|blocks| Closed {
            first_offset: blocks[0].segment,
            end_offset: blocks[blocks.len() - 1].end_offset(),
            bytes: blocks.iter().map(|block| u64::from(block.bytes)).sum(),
            oldest_ms: blocks.iter().map(|block| block.written_at_ms).min().unwrap_or(0),
            newest_ms: blocks.iter().map(|block| block.written_at_ms).max().unwrap_or(0),
            is_whole: true,
        })
        .collect();
    // Only of the last one the writer may have more, which nobody was shown yet.
    if let Some(last) = segments.last_mut() {
        let behind = blocks.get(blocks.partition_point(|block| block.segment <= last.first_offset));
        last.is_whole = last.end_offset == behind.map_or(open, |block| block.segment);
    }
    segments
}
