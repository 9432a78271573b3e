//! Blocks column by column: who wants some columns of many rows reads only those.
//!
//! Behind the members and the note is a directory, with a checksum of its own; each column is an Arrow IPC record batch of one column, with
//! its own checksum. `docs/formats/log.md` gives every byte.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, RecordBatchOptions};
use arrow::buffer::Buffer;
use arrow::datatypes::{Field, Fields, Schema};

use super::{
    ALIGNMENT, BlockHeader, HEADER_BYTES, MEMBER_BYTES, NOTE_ALIGNMENT, encode_arrow, record_batch, u32_at,
    with_weights,
};
use crate::StorageError;

/// Blocks of fewer rows stay in one piece: a directory would take more than it saves.
const ROWS_MIN: usize = 4_096;
/// The number of columns, and the checksum.
const HEAD_BYTES: usize = 8;
const ENTRY_BYTES: usize = 16;

/// Where a column is in its block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::log) struct Place {
    /// From the start of the block; a multiple of 64.
    pub start: u32,
    /// Of the Arrow message, which its body follows at the next multiple of 64.
    metadata_bytes: u32,
    /// Message and body.
    pub bytes: u32,
    crc: u32,
}

/// Whether these rows are written column by column.
pub(super) fn is_worth_it(rows: &RecordBatch) -> bool {
    rows.num_rows() >= ROWS_MIN && rows.num_columns() > 1
}

/// Appends directory and columns to a block that has its header, its members and its note.
pub(super) fn encode(
    bytes: &mut Vec<u8>,
    rows: &RecordBatch,
    weights: Option<&Int64Array>,
) -> Result<(), StorageError> {
    let schema = match weights {
        Some(_) => with_weights(&rows.schema()),
        None => rows.schema(),
    };
    let weights = weights.map(|weights| Arc::new(weights.clone()) as ArrayRef);
    let columns: Vec<&ArrayRef> = rows.columns().iter().chain(&weights).collect();
    let directory = bytes.len();
    bytes.extend_from_slice(&(columns.len() as u32).to_le_bytes());
    bytes.resize(directory + HEAD_BYTES + columns.len() * ENTRY_BYTES, 0);
    for (at, column) in columns.iter().enumerate() {
        let one = Arc::new(Schema::new(vec![Arc::clone(&schema.fields()[at])]));
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        let batch = RecordBatch::try_new_with_options(one, vec![Arc::clone(column)], &options);
        let message = encode_arrow(
            &batch.map_err(|e| StorageError::InvalidChange { why: e.to_string() })?,
            None,
        )?;
        let start = bytes.len().next_multiple_of(ALIGNMENT);
        bytes.resize(start, 0);
        bytes.extend_from_slice(&message.ipc_message);
        bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
        bytes.extend_from_slice(&message.arrow_data);
        let place = [
            start as u32,
            message.ipc_message.len() as u32,
            (bytes.len() - start) as u32,
            crc32c::crc32c(&bytes[start..]),
        ];
        let entry = directory + HEAD_BYTES + at * ENTRY_BYTES;
        for (number, to) in place
            .iter()
            .zip(bytes[entry..entry + ENTRY_BYTES].chunks_exact_mut(4))
        {
            to.copy_from_slice(&number.to_le_bytes());
        }
    }
    let end = directory + HEAD_BYTES + columns.len() * ENTRY_BYTES;
    let crc = head_crc(bytes, directory, end);
    bytes[directory + 4..directory + HEAD_BYTES].copy_from_slice(&crc.to_le_bytes());
    Ok(())
}

/// Over all from the header's end to the directory's, but for the checksum itself.
fn head_crc(block: &[u8], directory: usize, end: usize) -> u32 {
    let before = crc32c::crc32c(&block[HEADER_BYTES..directory + 4]);
    crc32c::crc32c_append(before, &block[directory + HEAD_BYTES..end])
}

/// Bytes from the block's start to the directory's end, of a block with so many columns, weights included.
pub(in crate::log) fn head_bytes(header: &BlockHeader, columns: usize) -> usize {
    directory_of(header) + HEAD_BYTES + columns * ENTRY_BYTES
}

fn directory_of(header: &BlockHeader) -> usize {
    let note_bytes = (header.note_bytes as usize).next_multiple_of(NOTE_ALIGNMENT);
    HEADER_BYTES + usize::from(header.members) * MEMBER_BYTES + note_bytes
}

/// Where the columns are, by the first [`head_bytes`] of a block, which are checked; so is that they lie in the block.
pub(in crate::log) fn places(
    head: &[u8],
    header: &BlockHeader,
    columns: usize,
) -> Result<Vec<Place>, String> {
    let (directory, end) = (directory_of(header), head_bytes(header, columns));
    if head.len() < end {
        return Err("the block is shorter than its directory".to_owned());
    }
    if u32_at(head, directory) as usize != columns {
        return Err("the block's directory has another number of columns than the block".to_owned());
    }
    if u32_at(head, directory + 4) != head_crc(head, directory, end) {
        return Err("the checksum of the block's directory is wrong".to_owned());
    }
    let entries = head[directory + HEAD_BYTES..end].chunks_exact(ENTRY_BYTES);
    entries
        .map(|entry| {
            let place = Place {
                start: u32_at(entry, 0),
                metadata_bytes: u32_at(entry, 4),
                bytes: u32_at(entry, 8),
                crc: u32_at(entry, 12),
            };
            let is_inside = u64::from(place.start) + u64::from(place.bytes) <= header.block_bytes();
            let is_aligned = (place.start as usize).is_multiple_of(ALIGNMENT);
            match is_inside && is_aligned && place.metadata_bytes <= place.bytes {
                true => Ok(place),
                false => Err("a column lies outside its block".to_owned()),
            }
        })
        .collect()
}

/// A column of its bytes, checked against their checksum if the block was not.
pub(in crate::log) fn decode(
    column: &Buffer,
    place: &Place,
    field: &Arc<Field>,
    rows: u32,
    is_checked: bool,
) -> Result<ArrayRef, String> {
    if !is_checked && crc32c::crc32c(column) != place.crc {
        return Err(format!(
            "the checksum of column \"{}\" of the block is wrong",
            field.name()
        ));
    }
    let fields = Fields::from(vec![Arc::clone(field)]);
    let found = record_batch(column, 0..place.metadata_bytes as usize, fields, &[0], rows)?;
    Ok(Arc::clone(found.column(0)))
}
