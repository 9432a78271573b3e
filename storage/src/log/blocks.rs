//! Which blocks of a log are durable, and where they are: what readers go by.

use std::collections::BTreeMap;

use crate::log::block::BlockHeader;

/// Where a block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BlockEntry {
    pub(super) first_offset: u64,
    pub(super) rows: u32,
    /// Header and payload.
    pub(super) bytes: u32,
    pub(super) position: u64,
    /// The first offset of the segment, which names its file.
    pub(super) segment: u64,
    /// In milliseconds since 1970-01-01 UTC; 0 if that is not known.
    pub(super) written_at_ms: i64,
}

impl BlockEntry {
    /// Whether a block with this header is the one that is meant. The number of rows counts too: a merged block may be as
    /// long as the first of those that it was made of.
    pub(super) fn is_of(&self, header: &BlockHeader) -> bool {
        header.block_bytes() == u64::from(self.bytes)
            && header.first_offset == self.first_offset
            && header.rows == self.rows
    }

    /// The offset behind its last row.
    pub(super) fn end_offset(&self) -> u64 {
        self.first_offset + u64::from(self.rows)
    }
}

/// What is durable, for readers.
#[derive(Debug, Default)]
pub(super) struct Index {
    pub(super) blocks: Vec<BlockEntry>,
    /// The offset of the next row.
    pub(super) head: u64,
    /// The offset of the first row that is kept.
    pub(super) first: u64,
    /// How often blocks that readers may know were moved to other files.
    pub(super) moves: u64,
    /// The offsets from which on rows are held, by the number of the hold.
    pub(super) holds: BTreeMap<u64, u64>,
    pub(super) next_hold: u64,
}

impl Index {
    /// The position in `blocks` of the one with this offset, or of the first behind it.
    pub(super) fn position_of(&self, offset: u64) -> usize {
        self.blocks.partition_point(|entry| entry.end_offset() <= offset)
    }

    /// The first offset that somebody holds.
    pub(super) fn lowest_hold(&self) -> u64 {
        self.holds.values().min().copied().unwrap_or(u64::MAX)
    }
}
