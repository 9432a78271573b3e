//! The bytes of blocks: an Arrow IPC stream of one batch, or marks, a bit for each row.

use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow::array::RecordBatch;
use arrow::buffer::{BooleanBuffer, Buffer};
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamDecoder;
use arrow::ipc::writer::StreamWriter;
use bytes::Bytes;

use crate::memory::rows_bytes;

/// What an IPC stream has beside the values, about.
const ENVELOPE_BYTES: usize = 4 << 10;

/// Rows as bytes.
///
/// # Errors
/// A type has no form in Arrow IPC.
pub fn encode_rows(rows: &RecordBatch) -> Result<Vec<u8>, ArrowError> {
    // Enough at once: to grow would take twice as much for a moment.
    let mut bytes = Vec::with_capacity(rows_bytes(rows) + ENVELOPE_BYTES);
    let mut writer = StreamWriter::try_new(&mut bytes, &rows.schema())?;
    writer.write(rows)?;
    writer.finish()?;
    drop(writer);
    Ok(bytes)
}

/// The rows of a block. They share its memory.
///
/// # Errors
/// The bytes are not one batch. Where Arrow's decoder panics over them, that is an error too.
pub fn decode_rows(bytes: Bytes) -> Result<RecordBatch, ArrowError> {
    let decoded = catch_unwind(AssertUnwindSafe(|| {
        let mut buffer = Buffer::from(bytes);
        StreamDecoder::new().decode(&mut buffer)
    }));
    let damaged = |why: &str| ArrowError::IpcError(why.to_owned());
    let batch = decoded.map_err(|_| damaged("the Arrow message is inconsistent"))?;
    batch?.ok_or_else(|| damaged("a block without rows"))
}

/// Marks as bytes: eight to a byte, the first in the lowest bit.
pub fn pack_marks(marks: &BooleanBuffer) -> Vec<u8> {
    let mut bytes = marks.sliced().to_vec();
    bytes.truncate(marks.len().div_ceil(8));
    // What is behind the last mark is nobody's.
    if let (Some(last), rest @ 1..) = (bytes.last_mut(), marks.len() % 8) {
        *last &= (1 << rest) - 1;
    }
    bytes
}

/// So many marks; none if the bytes are those of another number.
pub fn unpack_marks(bytes: Bytes, len: usize) -> Option<BooleanBuffer> {
    (bytes.len() == len.div_ceil(8)).then(|| BooleanBuffer::new(Buffer::from(bytes), 0, len))
}
