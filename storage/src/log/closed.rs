//! The segments of a log that are not written to any more: what maintenance decides by.

use std::collections::VecDeque;

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

/// Neighbours that are put together are at least so many.
const TOGETHER_MIN: usize = 4;

/// The first neighbours that are worth to be put together, from offset to offset: many and small, and within `span_max`
/// milliseconds. None is larger than those that follow it: each time that rows are copied they come into a segment of at least
/// twice the size, so that they are copied a few times only.
pub(super) fn small_neighbours(segments: &[Closed], span_max: i64, bytes_max: u64) -> Option<(u64, u64)> {
    let mut run: VecDeque<Closed> = VecDeque::new();
    let mut found = None;
    for segment in segments {
        run.push_back(*segment);
        let is_too_much = |run: &VecDeque<Closed>| {
            let bytes: u64 = run.iter().map(|segment| segment.bytes).sum();
            let oldest = run.iter().map(|segment| segment.oldest_ms).min().unwrap_or(0);
            bytes > bytes_max || segment.newest_ms.saturating_sub(oldest) > span_max
        };
        if is_too_much(&run) {
            if found.is_some() {
                break;
            }
            while !run.is_empty() && is_too_much(&run) {
                run.pop_front();
            }
        }
        found = together(&run).or(found);
    }
    found
}

/// What of these is worth to be put together, the first ones left out where they are large.
fn together(run: &VecDeque<Closed>) -> Option<(u64, u64)> {
    let mut rest: u64 = run.iter().map(|segment| segment.bytes).sum();
    let first = run.iter().position(|segment| {
        rest -= segment.bytes;
        segment.bytes <= rest
    })?;
    let (first, last) = (run.range(first..), run.back()?);
    (first.len() >= TOGETHER_MIN)
        .then(|| {
            first
                .clone()
                .next()
                .map(|first| (first.first_offset, last.end_offset))
        })
        .flatten()
}
