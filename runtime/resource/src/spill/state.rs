//! State of views on disk, where it is because memory is short. It is scratch: the directory is emptied at the start, nothing is
//! synced, and a file goes with the last who refers to it.
//!
//! A file holds what one part of a view kept when it left memory: blocks of rows in the form that checkpoints have
//! (`docs/formats/checkpoints.md`). Files are written and read by the disk scheduler, away from the cpu slots.

use std::fmt;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use arrow::array::RecordBatch;
use bytes::Bytes;
use millrace_storage::checkpoint::{decode_rows, encode_rows};
use millrace_storage::private;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use twox_hash::XxHash3_64;

use crate::cpu::{Waits, used_disk, waits_for};
use crate::disk::DiskScheduler;
use crate::error::{ResourceError, Result};
use crate::memory::Memory;
use crate::monotask::{Moved, Phase};

/// Where state of views goes when memory is short.
#[derive(Debug, Clone)]
pub struct SpillOptions {
    /// It is emptied.
    pub directory: PathBuf,
    /// Parts leave now and then though there is memory: for tests.
    pub by_chance: bool,
}

impl SpillOptions {
    /// When memory is short, to this directory.
    pub fn new(directory: PathBuf) -> SpillOptions {
        SpillOptions {
            directory,
            by_chance: false,
        }
    }
}

/// A directory for state that is not in memory.
pub struct Spill {
    directory: PathBuf,
    by_chance: bool,
    /// Rows that somebody still reads do not keep the threads of a runtime that has ended.
    disk: Weak<DiskScheduler>,
    io: Handle,
    /// Files that nobody refers to any more and that are still there.
    gone: Mutex<Vec<PathBuf>>,
    next: AtomicU64,
    memory: Arc<Memory>,
}

impl fmt::Debug for Spill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Spill").field(&self.directory).finish()
    }
}

impl Spill {
    /// Empties the directory, or makes it.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn open(
        options: &SpillOptions,
        disk: &Arc<DiskScheduler>,
        memory: &Arc<Memory>,
        io: Handle,
    ) -> std::io::Result<Arc<Spill>> {
        let directory = &options.directory;
        match std::fs::remove_dir_all(directory) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        private::create_directory_all(directory)?;
        Ok(Arc::new(Spill {
            directory: directory.clone(),
            by_chance: options.by_chance,
            disk: Arc::downgrade(disk),
            io,
            gone: Mutex::default(),
            next: AtomicU64::new(1),
            memory: Arc::clone(memory),
        }))
    }

    /// Whether parts leave though there is memory.
    pub fn is_by_chance(&self) -> bool {
        self.by_chance
    }

    /// A new file.
    pub fn begin(self: &Arc<Self>) -> SpillWriter {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let file = SpillFile {
            path: self.directory.join(format!("{number:016x}")),
            spill: Arc::clone(self),
        };
        SpillWriter {
            file: Arc::new(file),
            handle: None,
            bytes: 0,
        }
    }

    /// Removes the files that nobody refers to, also those of which this comes to be true meanwhile. One that stays goes at the next
    /// start.
    fn remove_gone(&self) {
        let mut removed = 0;
        loop {
            let paths = {
                let mut gone = self.gone.lock();
                if gone.len() == removed {
                    // Whoever adds the next one sees to it.
                    gone.clear();
                    return;
                }
                let paths = gone[removed..].to_vec();
                removed = gone.len();
                paths
            };
            for path in paths {
                _ = std::fs::remove_file(path);
            }
        }
    }

    /// Does something with a file that takes so many bytes, away from the cpu slots.
    async fn serve<T: Send + 'static>(
        &self,
        phase: Phase,
        bytes: u64,
        work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
    ) -> Result<T> {
        let disk = self.disk.upgrade().ok_or(ResourceError::ShuttingDown)?;
        waits_for(Waits::Disk);
        let request = move || {
            let done = work();
            let moved = Moved {
                bytes: if done.is_ok() { bytes } else { 0 },
                ..Moved::default()
            };
            (done, moved)
        };
        let served = disk.serve(phase, usize::try_from(bytes).unwrap_or(usize::MAX), request);
        let (done, used) = served.await.map_err(failed)?;
        used_disk(used);
        match phase {
            Phase::Read | Phase::Reread => self.memory.note_brought_back(bytes),
            Phase::Write => self.memory.note_spilled(bytes),
        }
        done.map_err(failed)
    }
}

fn failed(error: std::io::Error) -> ResourceError {
    ResourceError::Spill(error.to_string())
}

/// A file, which is removed when nobody refers to it any more.
#[derive(Debug)]
struct SpillFile {
    path: PathBuf,
    spill: Arc<Spill>,
}

impl Drop for SpillFile {
    fn drop(&mut self) {
        let mut gone = self.spill.gone.lock();
        gone.push(std::mem::take(&mut self.path));
        // A view that goes leaves hundreds: one thread removes them.
        if gone.len() == 1 {
            let spill = Arc::clone(&self.spill);
            self.spill.io.spawn_blocking(move || spill.remove_gone());
        }
    }
}

/// A file that is being written.
pub struct SpillWriter {
    file: Arc<SpillFile>,
    handle: Option<File>,
    bytes: u64,
}

impl SpillWriter {
    /// Adds rows.
    ///
    /// # Errors
    /// The disk is full, or out of order.
    pub async fn put(&mut self, rows: &RecordBatch) -> Result<SpilledRows> {
        let block = encode_rows(rows)?;
        let (at, bytes, hash) = (self.bytes, block.len() as u64, XxHash3_64::oneshot(&block));
        let (handle, path) = (self.handle.take(), self.file.path.clone());
        let write = move || {
            let mut file = match handle {
                Some(file) => file,
                None => private::create_new(&path)?,
            };
            file.write_all(&block)?;
            Ok(file)
        };
        let written = self.file.spill.serve(Phase::Write, bytes, write).await?;
        self.handle = Some(written);
        self.bytes += bytes;
        Ok(SpilledRows {
            file: Arc::clone(&self.file),
            at,
            bytes,
            hash,
        })
    }

    /// Bytes that it has.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Rows in a file.
#[derive(Debug, Clone)]
pub struct SpilledRows {
    file: Arc<SpillFile>,
    at: u64,
    bytes: u64,
    hash: u64,
}

impl SpilledRows {
    /// The rows as they are in the file.
    ///
    /// # Errors
    /// The disk is out of order.
    pub async fn read(&self) -> Result<Bytes> {
        let (path, at, bytes) = (self.file.path.clone(), self.at, self.bytes);
        let read = move || {
            let mut block = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX)];
            File::open(path)?.read_exact_at(&mut block, at)?;
            Ok(block)
        };
        let block = self.file.spill.serve(Phase::Reread, bytes, read).await?;
        if XxHash3_64::oneshot(&block) != self.hash {
            return Err(ResourceError::Spill(
                "the bytes read are not those written".into(),
            ));
        }
        Ok(block.into())
    }

    /// The rows.
    ///
    /// # Errors
    /// As [`SpilledRows::read`].
    pub async fn load(&self) -> Result<RecordBatch> {
        Ok(decode_rows(self.read().await?)?)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array};

    use super::*;
    use crate::memory::Resident;

    fn rows(values: std::ops::Range<i64>) -> RecordBatch {
        let values: ArrayRef = Arc::new(Int64Array::from_iter_values(values));
        RecordBatch::try_from_iter([("v", values)]).unwrap()
    }

    #[tokio::test]
    async fn rows_come_back_and_damage_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("spill");
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("left"), b"over").unwrap();
        let memory = Memory::new(None, Resident::Unknown);
        let disk = DiskScheduler::new("data", 0, 1, &memory);
        let spill = Spill::open(
            &SpillOptions::new(path.clone()),
            &disk,
            &memory,
            Handle::current(),
        )
        .unwrap();
        let files = || std::fs::read_dir(&path).unwrap().count();
        assert_eq!(files(), 0);
        let mut writer = spill.begin();
        let first = writer.put(&rows(0..100)).await.unwrap();
        let second = writer.put(&rows(100..300)).await.unwrap();
        assert_eq!(second.load().await.unwrap(), rows(100..300));
        assert_eq!(first.load().await.unwrap(), rows(0..100));
        assert_eq!(files(), 1);
        let file = std::fs::read_dir(&path).unwrap().next().unwrap().unwrap().path();
        let mut bytes = std::fs::read(&file).unwrap();
        bytes[first.bytes as usize / 2] ^= 1;
        std::fs::write(&file, &bytes).unwrap();
        assert!(first.load().await.is_err());
        assert_eq!(second.load().await.unwrap(), rows(100..300));
        assert_eq!(memory.status().spilled, bytes.len() as u64);
        drop((writer, first, second));
        while files() > 0 {
            tokio::task::yield_now().await;
        }
    }
}
