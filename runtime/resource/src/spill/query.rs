//! What queries spill: files whose reads and writes are disk monotasks.
//!
//! ```text
//!   operator on a slot --write--> buffer --full--> write monotask --> file (no name, gone with its last user)
//!   operator on a slot <--rows--- reread monotask <--- when all of it is written
//! ```
//!
//! An operator writes from within its computation, and goes on at once: the bytes are handed to the disk scheduler. Bytes
//! that wait to be written are memory, which is short when operators spill. So there is a bound on them, and an operator
//! that reaches it waits until some are written; that is the only wait for a disk on a slot, and counts as the task's time
//! blocked on disk.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use bytes::Bytes;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::spill_file::{SpillFile, SpillWriter, TempFileFactory};
use futures::{Stream, stream};
use parking_lot::{Condvar, Mutex};
use tokio::sync::watch;

use crate::cpu::{Waits, running_task, used_disk, waits_for};
use crate::disk::{DiskScheduler, Disks};
use crate::monotask::{Moved, Phase};

/// What one monotask writes or reads.
const PIECE_BYTES: usize = 4 << 20;
/// Bytes that may wait to be written, of all queries.
const UNWRITTEN_BYTES_MAX: usize = 8 * PIECE_BYTES;
/// What all files together may take of the disk.
const FILES_BYTES_MAX: u64 = 100 << 30;

/// What all files share.
struct Shared {
    disk: Arc<DiskScheduler>,
    directory: PathBuf,
    /// Whether a write ends when the device has it, or when the system's cache does.
    flushes: Arc<AtomicBool>,
    unwritten_bytes: Mutex<usize>,
    written: Condvar,
    files_bytes: AtomicU64,
}

impl Shared {
    /// Reserves space for bytes that are to be written, and waits while there is none. A piece larger than the bound goes alone.
    fn take_room(&self, bytes: usize) {
        let mut unwritten = self.unwritten_bytes.lock();
        if *unwritten > 0 && *unwritten + bytes > UNWRITTEN_BYTES_MAX {
            let since = Instant::now();
            while *unwritten > 0 && *unwritten + bytes > UNWRITTEN_BYTES_MAX {
                self.written.wait(&mut unwritten);
            }
            if let Some(task) = running_task() {
                task.waited(Waits::Disk, since.elapsed());
            }
        }
        *unwritten += bytes;
    }
}

/// Room that a piece takes until it is written, or has failed.
struct Room(Arc<Shared>, usize);

impl Drop for Room {
    fn drop(&mut self) {
        *self.0.unwritten_bytes.lock() -= self.1;
        self.0.written.notify_all();
    }
}

/// Makes the files; see the module. For DataFusion's disk manager.
pub struct SpillFiles {
    shared: Arc<Shared>,
}

impl SpillFiles {
    /// Files in a directory. `flushes`: whether writes wait for the device.
    pub fn new(disks: &Disks, directory: PathBuf, flushes: &Arc<AtomicBool>) -> SpillFiles {
        SpillFiles {
            shared: Arc::new(Shared {
                disk: disks.of(&directory.join("file")),
                directory,
                flushes: Arc::clone(flushes),
                unwritten_bytes: Mutex::new(0),
                written: Condvar::new(),
                files_bytes: AtomicU64::new(0),
            }),
        }
    }
}

impl TempFileFactory for SpillFiles {
    fn create_temp_file(&self, description: &str) -> Result<Arc<dyn SpillFile>> {
        let file = tempfile::tempfile_in(&self.shared.directory).map_err(|error| {
            let directory = self.shared.directory.display();
            let message = format!("cannot create a file in {directory} for {description}: {error}");
            DataFusionError::IoError(io::Error::new(error.kind(), message))
        })?;
        Ok(Arc::new(Spilled(Arc::new(Content {
            shared: Arc::clone(&self.shared),
            file,
            bytes: AtomicU64::new(0),
            progress: watch::Sender::new(Progress::default()),
        }))))
    }
}

/// Of a file's writes.
#[derive(Debug, Default)]
struct Progress {
    under_way: usize,
    failure: Option<Arc<io::Error>>,
}

impl Progress {
    fn check(&self) -> io::Result<()> {
        match &self.failure {
            None => Ok(()),
            Some(error) => Err(io::Error::new(error.kind(), error.to_string())),
        }
    }
}

struct Content {
    shared: Arc<Shared>,
    file: File,
    /// Handed to the scheduler.
    bytes: AtomicU64,
    progress: watch::Sender<Progress>,
}

impl Drop for Content {
    fn drop(&mut self) {
        let bytes = self.bytes.load(Ordering::Relaxed);
        self.shared.files_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Counts a write as under way until it is dropped.
struct UnderWay {
    content: Arc<Content>,
    outcome: io::Result<()>,
    room: Option<Room>,
}

impl UnderWay {
    fn ends(mut self, outcome: io::Result<()>) {
        self.outcome = outcome;
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let outcome = std::mem::replace(&mut self.outcome, Ok(()));
        drop(self.room.take());
        self.content.progress.send_modify(|progress| {
            progress.under_way -= 1;
            if let Err(error) = outcome {
                progress.failure.get_or_insert(Arc::new(error));
            }
        });
    }
}

impl Content {
    /// Hands bytes to the disk scheduler.
    fn append(self: &Arc<Self>, bytes: Vec<u8>) -> io::Result<()> {
        self.progress.borrow().check()?;
        let length = bytes.len() as u64;
        if self.shared.files_bytes.load(Ordering::Relaxed) + length > FILES_BYTES_MAX {
            let message = format!("queries may spill at most {} GB", FILES_BYTES_MAX >> 30);
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, message));
        }
        self.shared.files_bytes.fetch_add(length, Ordering::Relaxed);
        let at = self.bytes.fetch_add(length, Ordering::Relaxed);
        self.shared.take_room(bytes.len());
        self.progress.send_modify(|progress| progress.under_way += 1);
        let under_way = UnderWay {
            content: Arc::clone(self),
            // Until it is known better: a monotask that panics is dropped.
            outcome: Err(io::Error::other("a write was abandoned")),
            room: Some(Room(Arc::clone(&self.shared), bytes.len())),
        };
        let content = Arc::clone(self);
        let write = move || {
            let flushes = content.shared.flushes.load(Ordering::Relaxed);
            let written = write_all_at(&content.file, &bytes, at);
            let written = written.and_then(|()| if flushes { content.file.sync_data() } else { Ok(()) });
            let moved = Moved {
                bytes: length,
                rows: 0,
            };
            (written, moved)
        };
        let task = running_task();
        self.shared
            .disk
            .start(Phase::Write, 0, write, move |written, used| {
                if let Some(task) = task {
                    task.used_disk(used);
                }
                under_way.ends(written);
            })
    }

    /// The bytes from an offset on, as many as one monotask reads; none at the end.
    async fn read(self: &Arc<Self>, at: u64) -> Result<Option<Bytes>> {
        let mut progress = self.progress.subscribe();
        waits_for(Waits::Disk);
        let ended = progress.wait_for(|progress| progress.under_way == 0).await;
        ended
            .map_err(|error| DataFusionError::External(Box::new(error)))?
            .check()?;
        let left = self.bytes.load(Ordering::Relaxed) - at;
        let length = left.min(PIECE_BYTES as u64) as usize;
        if length == 0 {
            return Ok(None);
        }
        let content = Arc::clone(self);
        let read = move || {
            let mut bytes = vec![0; length];
            let read = read_exact_at(&content.file, &mut bytes, at);
            let moved = Moved {
                bytes: length as u64,
                rows: 0,
            };
            (read.map(|()| Bytes::from(bytes)), moved)
        };
        waits_for(Waits::Disk);
        let (bytes, used) = self.shared.disk.serve(Phase::Reread, length, read).await?;
        used_disk(used);
        Ok(Some(bytes?))
    }
}

/// A file of spilled rows.
struct Spilled(Arc<Content>);

impl SpillFile for Spilled {
    fn size(&self) -> Option<u64> {
        Some(self.0.bytes.load(Ordering::Relaxed))
    }

    fn read_stream(&self) -> Result<Pin<Box<dyn Stream<Item = Result<Bytes>> + Send>>> {
        let content = Arc::clone(&self.0);
        Ok(Box::pin(stream::try_unfold(0, move |at| {
            let content = Arc::clone(&content);
            async move {
                let bytes = content.read(at).await?;
                Ok(bytes.map(|bytes| {
                    let next = at + bytes.len() as u64;
                    (bytes, next)
                }))
            }
        })))
    }

    fn open_writer(&self) -> Result<Box<dyn SpillWriter>> {
        Ok(Box::new(Writer {
            content: Arc::clone(&self.0),
            buffer: vec![],
        }))
    }
}

struct Writer {
    content: Arc<Content>,
    buffer: Vec<u8>,
}

impl io::Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(PIECE_BYTES - self.buffer.len());
        self.buffer.extend_from_slice(&bytes[..taken]);
        if self.buffer.len() == PIECE_BYTES {
            self.flush()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        self.content.append(std::mem::take(&mut self.buffer))
    }
}

impl SpillWriter for Writer {
    fn finish(&mut self) -> Result<()> {
        Ok(io::Write::flush(self)?)
    }
}

#[cfg(unix)]
fn write_all_at(file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, at)
}

#[cfg(unix)]
fn read_exact_at(file: &File, bytes: &mut [u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, at)
}

#[cfg(windows)]
fn write_all_at(file: &File, mut bytes: &[u8], mut at: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = std::os::windows::fs::FileExt::seek_write(file, bytes, at)?;
        (bytes, at) = (&bytes[written..], at + written as u64);
    }
    Ok(())
}

#[cfg(windows)]
fn read_exact_at(file: &File, bytes: &mut [u8], at: u64) -> io::Result<()> {
    let mut read = 0;
    while read < bytes.len() {
        match std::os::windows::fs::FileExt::seek_read(file, &mut bytes[read..], at + read as u64)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            some => read += some,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use futures::TryStreamExt;

    use super::*;
    use crate::memory::{Memory, Resident};

    /// Those of a directory of their own.
    fn spill_files() -> (tempfile::TempDir, SpillFiles) {
        let directory = tempfile::tempdir().unwrap();
        let disks = Disks::new(directory.path(), &Memory::new(None, Resident::Unknown));
        let flushes = Arc::new(AtomicBool::new(true));
        let files = SpillFiles::new(&disks, directory.path().to_owned(), &flushes);
        (directory, files)
    }

    #[tokio::test]
    async fn what_is_read_is_what_was_written() {
        let (directory, files) = spill_files();
        let file = files.create_temp_file("a test").unwrap();
        // More than may wait to be written.
        let content: Vec<u8> = (0..UNWRITTEN_BYTES_MAX + PIECE_BYTES + 77)
            .map(|byte| (byte / 3) as u8)
            .collect();
        let mut writer = file.open_writer().unwrap();
        for piece in content.chunks(1_000_003) {
            io::Write::write_all(&mut writer, piece).unwrap();
        }
        writer.finish().unwrap();
        assert_eq!(file.size(), Some(content.len() as u64));
        for _ in 0..2 {
            let pieces: Vec<Bytes> = file.read_stream().unwrap().try_collect().await.unwrap();
            assert!(pieces.len() > 9 && pieces.concat() == content);
        }
        assert_eq!(*files.shared.unwritten_bytes.lock(), 0);
        assert_eq!(
            files.shared.files_bytes.load(Ordering::Relaxed),
            content.len() as u64
        );
        drop((file, writer));
        assert_eq!(files.shared.files_bytes.load(Ordering::Relaxed), 0);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn all_files_together_take_so_much_of_the_disk() {
        let (_directory, files) = spill_files();
        let file = files.create_temp_file("a test").unwrap();
        // As if other queries had spilled nearly all that may be.
        let shared = &files.shared;
        shared.files_bytes.store(FILES_BYTES_MAX - 150, Ordering::Relaxed);
        let write = |bytes: usize| {
            let mut writer = file.open_writer().unwrap();
            io::Write::write_all(&mut writer, &vec![7; bytes]).unwrap();
            writer.finish()
        };
        write(100).unwrap();
        let error = write(100).unwrap_err();
        assert!(
            error.to_string().contains("queries may spill at most 100 GB"),
            "{error}"
        );
        write(50).unwrap();
    }

    #[tokio::test]
    async fn a_write_that_fails_fails_whoever_reads() {
        let (directory, files) = spill_files();
        let path = directory.path().join("only to be read");
        std::fs::write(&path, "").unwrap();
        let content = Arc::new(Content {
            shared: Arc::clone(&files.shared),
            file: File::open(&path).unwrap(),
            bytes: AtomicU64::new(0),
            progress: watch::Sender::new(Progress::default()),
        });
        content.append(vec![1; 100]).unwrap();
        assert!(content.read(0).await.is_err());
        assert!(content.append(vec![1]).is_err());
        assert_eq!(*files.shared.unwritten_bytes.lock(), 0);
    }
}
