//! The few file operations that the log needs, behind a trait, so that tests can fail any of them.

use std::fmt::Debug;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use arrow::buffer::{Buffer, MutableBuffer};

/// A segment's file: read and written at positions, so that readers and the writer share no cursor.
pub(crate) trait SegmentFile: Debug + Send + Sync {
    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()>;
    fn read_exact_at(&self, bytes: &mut [u8], position: u64) -> io::Result<()>;
    fn size(&self) -> io::Result<u64>;
    fn set_size(&self, bytes: u64) -> io::Result<()>;
    /// Returns when content and size are on the disk.
    fn sync(&self) -> io::Result<()>;
}

/// Makes and opens segment files.
pub(crate) trait SegmentFiles: Debug + Send + Sync {
    /// A new file, to read and write; an error if there is one.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn SegmentFile>>;
    /// An existing file, to read and write.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn SegmentFile>>;
}

/// Files of the operating system.
#[derive(Debug)]
pub(crate) struct OsFiles;

impl SegmentFiles for OsFiles {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn SegmentFile>> {
        Ok(Arc::new(
            OpenOptions::new()
                .read(true)
                .write(true)
                .create_new(true)
                .open(path)?,
        ))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn SegmentFile>> {
        Ok(Arc::new(OpenOptions::new().read(true).write(true).open(path)?))
    }
}

impl SegmentFile for File {
    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        FileExt::write_all_at(self, bytes, position)
    }

    fn read_exact_at(&self, bytes: &mut [u8], position: u64) -> io::Result<()> {
        FileExt::read_exact_at(self, bytes, position)
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn set_size(&self, bytes: u64) -> io::Result<()> {
        self.set_len(bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}

/// Bytes read at once when blocks are small.
const READ_AHEAD_BYTES: u64 = 1 << 20;

/// Reads a file front to back in large pieces, handing out slices without copying them.
#[derive(Debug)]
pub(super) struct ReadAhead {
    file: Arc<dyn SegmentFile>,
    piece: Buffer,
    piece_position: u64,
}

impl ReadAhead {
    pub(super) fn new(file: Arc<dyn SegmentFile>) -> Self {
        ReadAhead {
            file,
            piece: Buffer::default(),
            piece_position: 0,
        }
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
