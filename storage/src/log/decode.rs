//! The log's decoders from bytes alone, for fuzzing.

use std::path::Path;

use arrow::buffer::{Buffer, MutableBuffer};

use crate::disk::DiskFile;
use crate::log::block::{self, BlockHeader};
use crate::log::first::First;
use crate::log::index::SegmentIndex;
use crate::log::segment::SegmentHeader;

/// A segment's header and a block behind it, whatever the checksums say.
pub(crate) fn decode_block(bytes: &[u8]) -> Result<(), String> {
    let (schema, rest) = SegmentHeader::decode_unchecked(bytes)?;
    let header = BlockHeader::parse(rest)?;
    let block = usize::try_from(header.block_bytes())
        .ok()
        .and_then(|bytes| rest.get(..bytes))
        .ok_or("the block is shorter than it says")?;
    block::members(block, &header)?;
    block::note(block, &header)?;
    // As the reader has it: aligned.
    let mut aligned = MutableBuffer::with_capacity(block.len());
    aligned.extend_from_slice(block);
    block::decode(&Buffer::from(aligned), &header, &schema, None).map(|_| ())
}

/// `FIRST`.
pub(crate) fn decode_first(bytes: &[u8]) -> Result<(), String> {
    First::decode(bytes).map(|_| ())
}

/// The index of a segment.
pub(crate) fn decode_index(bytes: &[u8]) -> Result<(), String> {
    SegmentIndex::decode(bytes).map(|_| ())
}

/// The header of a segment.
pub(crate) fn decode_segment_header(file: &dyn DiskFile) -> Result<(), String> {
    let read = SegmentHeader::read(file, Path::new("segment"));
    read.map(|_| ()).map_err(|e| e.to_string())
}
