//! Reading a segment front to back.

use std::io;
use std::sync::Arc;

use arrow::buffer::{Buffer, MutableBuffer};

use crate::disk::DiskFile;

/// Bytes read at once when blocks are small.
const READ_AHEAD_BYTES: u64 = 1 << 20;

/// Reads a file front to back in large pieces, handing out slices without copying them.
#[derive(Debug)]
pub(super) struct ReadAhead {
    file: Arc<dyn DiskFile>,
    piece: Buffer,
    piece_position: u64,
}

impl ReadAhead {
    pub(super) fn new(file: Arc<dyn DiskFile>) -> Self {
        ReadAhead {
            file,
            piece: Buffer::default(),
            piece_position: 0,
        }
    }

    /// So many bytes at `position` and nothing else, in memory that is aligned for Arrow.
    pub(super) fn exactly(&self, position: u64, bytes: usize) -> io::Result<Buffer> {
        let mut piece = MutableBuffer::from_len_zeroed(bytes);
        self.file.read_exact_at(piece.as_slice_mut(), position)?;
        Ok(piece.into())
    }

    /// `bytes` bytes at `position`. `end` bounds what may be read ahead: bytes behind it may still change.
    ///
    /// A piece starts where a block does and its memory is aligned for Arrow, so that blocks, which take a
    /// multiple of 64 bytes each, are aligned too.
    pub(super) fn get(&mut self, position: u64, bytes: u64, end: u64) -> io::Result<Buffer> {
        let piece_end = self.piece_position + self.piece.len() as u64;
        if position < self.piece_position || position + bytes > piece_end {
            let wanted = bytes.max(READ_AHEAD_BYTES.min(end.saturating_sub(position)));
            let mut piece = MutableBuffer::from_len_zeroed(wanted as usize);
            self.file.read_exact_at(piece.as_slice_mut(), position)?;
            self.piece = piece.into();
            self.piece_position = position;
        }
        Ok(self
            .piece
            .slice_with_length((position - self.piece_position) as usize, bytes as usize))
    }
}
