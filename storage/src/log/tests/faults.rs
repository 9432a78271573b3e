//! Files that fail on demand, and a gate that holds the writer.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use crate::disk::{Disk, DiskFile, OsDisk};

#[derive(Debug, Default)]
pub(super) struct Faults {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Bytes that may still be written; what goes beyond is cut off.
    room_bytes: Option<u64>,
    /// Files whose path contains this cannot be synced.
    unsyncable: Option<String>,
    /// Whether writes wait.
    gate_closed: bool,
    waiting_at_gate: bool,
    /// Writes after which the gate is closed.
    passing: Option<u64>,
    /// What is to be done before the next file is opened.
    before_open: Option<Hook>,
    bytes_written: u64,
    syncs: u64,
}

struct Hook(Box<dyn FnOnce() + Send>);

impl std::fmt::Debug for Hook {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Hook")
    }
}

impl Faults {
    /// Does something before the next file is opened.
    pub(super) fn before_open(&self, hook: impl FnOnce() + Send + 'static) {
        self.state.lock().before_open = Some(Hook(Box::new(hook)));
    }

    /// Opens the gate for so many writes, and returns when the writer stands before it again.
    pub(super) fn let_pass(&self, writes: u64) {
        let mut state = self.state.lock();
        state.passing = Some(writes);
        state.gate_closed = false;
        state.waiting_at_gate = false;
        drop(state);
        self.changed.notify_all();
        self.await_writer_at_gate();
    }

    pub(super) fn set_room(&self, bytes: Option<u64>) {
        self.state.lock().room_bytes = bytes;
    }

    pub(super) fn fail_syncs_of(&self, path_part: Option<&str>) {
        self.state.lock().unsyncable = path_part.map(str::to_owned);
    }

    pub(super) fn bytes_written(&self) -> u64 {
        self.state.lock().bytes_written
    }

    pub(super) fn syncs(&self) -> u64 {
        self.state.lock().syncs
    }

    pub(super) fn close_gate(&self) {
        self.state.lock().gate_closed = true;
    }

    /// Returns when the writer stands before the closed gate.
    pub(super) fn await_writer_at_gate(&self) {
        let mut state = self.state.lock();
        while !state.waiting_at_gate {
            self.changed.wait(&mut state);
        }
    }

    pub(super) fn open_gate(&self) {
        self.state.lock().gate_closed = false;
        self.changed.notify_all();
    }

    /// How many of `wanted` bytes may be written.
    fn admit(&self, wanted: u64) -> u64 {
        let mut state = self.state.lock();
        // Whoever else writes is let through.
        let is_writer = std::thread::current().name() == Some("log-writer");
        if let Some(left) = state.passing.filter(|_| is_writer) {
            state.gate_closed = left == 0;
            state.passing = left.checked_sub(1);
        }
        while is_writer && state.gate_closed {
            state.waiting_at_gate = true;
            self.changed.notify_all();
            self.changed.wait(&mut state);
        }
        if is_writer {
            state.waiting_at_gate = false;
        }
        let admitted = state.room_bytes.map_or(wanted, |room| room.min(wanted));
        if let Some(room) = &mut state.room_bytes {
            *room -= admitted;
        }
        state.bytes_written += admitted;
        admitted
    }
}

/// Files that obey a [`Faults`].
#[derive(Debug)]
pub(super) struct FaultyDisk(pub(super) Arc<Faults>);

#[derive(Debug)]
struct FaultyFile {
    inner: Arc<dyn DiskFile>,
    path: PathBuf,
    faults: Arc<Faults>,
}

impl FaultyDisk {
    fn wrap(&self, inner: Arc<dyn DiskFile>, path: &Path) -> Arc<dyn DiskFile> {
        Arc::new(FaultyFile {
            inner,
            path: path.to_owned(),
            faults: self.0.clone(),
        })
    }
}

impl Disk for FaultyDisk {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.wrap(OsDisk.create(path)?, path))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let hook = self.0.state.lock().before_open.take();
        if let Some(Hook(hook)) = hook {
            hook();
        }
        Ok(self.wrap(OsDisk.open(path)?, path))
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<PathBuf>> {
        OsDisk.list(directory)
    }

    fn exists(&self, path: &Path) -> bool {
        OsDisk.exists(path)
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        OsDisk.create_directory(path)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        OsDisk.remove(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        OsDisk.remove_directory(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        OsDisk.rename(from, to)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        OsDisk.sync_directory(path)
    }
}

impl DiskFile for FaultyFile {
    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        let admitted = self.faults.admit(bytes.len() as u64) as usize;
        self.inner.write_all_at(&bytes[..admitted], position)?;
        if admitted < bytes.len() {
            Err(ErrorKind::StorageFull.into())
        } else {
            Ok(())
        }
    }

    fn read_exact_at(&self, bytes: &mut [u8], position: u64) -> io::Result<()> {
        self.inner.read_exact_at(bytes, position)
    }

    fn size(&self) -> io::Result<u64> {
        self.inner.size()
    }

    fn set_size(&self, bytes: u64) -> io::Result<()> {
        self.inner.set_size(bytes)
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.faults.state.lock();
        state.syncs += 1;
        let path = self.path.to_string_lossy();
        match &state.unsyncable {
            Some(part) if path.contains(part.as_str()) => Err(io::Error::other("the disk is gone")),
            _ => self.inner.sync(),
        }
    }
}

/// Copies a directory tree, as a kill at this moment would leave it.
pub(super) fn snapshot(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            snapshot(&entry.path(), &target);
        } else {
            io::copy(
                &mut File::open(entry.path()).unwrap(),
                &mut File::create(&target).unwrap(),
            )
            .unwrap();
        }
    }
}
