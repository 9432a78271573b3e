//! A disk in memory with everything that a real one may do: it keeps what was synced, and of the rest whatever it likes.
//!
//! * Written bytes reach the disk in sectors, each by itself: writes are torn and reordered. A name (created, renamed,
//!   removed) lasts when its directory was synced; of what came since, a crash keeps a prefix in each directory.
//! * A failed sync loses what was written before, sector by sector, for good: a later sync that succeeds does not bring
//!   it back, while reads may still see it, as with the page cache of Linux.
//! * Any operation may fail, half done; there may be no space; a disk may lie about its syncs.
//! * After [`SimulatedDisk::crash`] whoever holds the old disk gets nothing but errors.
//!
//! All chance comes from a seed.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::{Disk, DiskFile};

const SECTOR_BYTES: usize = 512;

/// What shall go wrong.
#[derive(Debug, Clone, Default)]
pub(crate) struct Faults {
    /// The operation (counted from 1) that fails, and how.
    pub(crate) at: Option<(u64, Fault)>,
    /// Bytes that may still be written.
    pub(crate) room_bytes: Option<u64>,
    /// The chance of an operation that changes something to fail.
    pub(crate) failing: f64,
    /// The chance of a sync to fail.
    pub(crate) failing_syncs: f64,
    /// The chance of a read to fail.
    pub(crate) failing_reads: f64,
    /// Syncs do nothing, and say that they succeeded.
    pub(crate) lying: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// An error of the device.
    Device,
    /// No room.
    Full,
    /// The machine stops: this operation and all that follow fail.
    Off,
}

#[derive(Debug, Clone)]
pub(crate) struct SimulatedDisk {
    state: Arc<Mutex<State>>,
    /// Which life of the machine this belongs to.
    life: u64,
}

#[derive(Debug)]
struct State {
    random: StdRng,
    life: u64,
    off: bool,
    operations: u64,
    faults: Faults,
    inodes: Vec<Inode>,
    /// Names as they are, and as they are on the disk; the changes between the two.
    names: Names,
    durable_names: Names,
    pending_names: Vec<NameChange>,
}

type Names = BTreeMap<PathBuf, Node>;

#[derive(Debug, Clone, Copy)]
enum Node {
    Directory,
    File(usize),
}

#[derive(Debug, Clone)]
enum NameChange {
    Put(PathBuf, Node),
    Remove(PathBuf),
    Rename(PathBuf, PathBuf),
}

#[derive(Debug, Default)]
struct Inode {
    content: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<DataChange>,
}

#[derive(Debug)]
enum DataChange {
    Write(u64, Vec<u8>),
    SetSize(u64),
}

impl SimulatedDisk {
    /// An empty disk with the directory `root`.
    pub(crate) fn new(seed: u64, root: &Path) -> SimulatedDisk {
        let names = Names::from([(root.to_owned(), Node::Directory)]);
        let state = State {
            random: StdRng::seed_from_u64(seed),
            life: 0,
            off: false,
            operations: 0,
            faults: Faults::default(),
            inodes: Vec::new(),
            durable_names: names.clone(),
            names,
            pending_names: Vec::new(),
        };
        SimulatedDisk {
            state: Arc::new(Mutex::new(state)),
            life: 0,
        }
    }

    pub(crate) fn set_faults(&self, faults: Faults) {
        self.state.lock().faults = faults;
    }

    /// How many operations have changed something, or tried to.
    pub(crate) fn operations(&self) -> u64 {
        self.state.lock().operations
    }

    /// Stops the machine and starts it again: what was not synced is there in part. Nothing goes wrong from here on.
    pub(crate) fn crash(&self) -> SimulatedDisk {
        let mut state = self.state.lock();
        state.crash();
        self.next_life(&mut state)
    }

    /// Kills the process: the machine goes on, and what was written is there.
    pub(crate) fn kill(&self) -> SimulatedDisk {
        self.next_life(&mut self.state.lock())
    }

    fn next_life(&self, state: &mut State) -> SimulatedDisk {
        state.life += 1;
        state.off = false;
        state.faults = Faults::default();
        SimulatedDisk {
            state: Arc::clone(&self.state),
            life: state.life,
        }
    }

    fn state(&self) -> io::Result<parking_lot::MutexGuard<'_, State>> {
        let state = self.state.lock();
        if state.off || state.life != self.life {
            return Err(io::Error::other("the machine is off"));
        }
        Ok(state)
    }

    /// A change of names, which may fail: then it happened, or not.
    fn change(&self, changes: &[NameChange]) -> io::Result<()> {
        let mut state = self.state()?;
        let outcome = state.operate();
        if outcome.is_ok() || state.random.random() {
            for change in changes {
                state.change_name(change.clone());
            }
        }
        outcome
    }
}

fn not_found() -> io::Error {
    ErrorKind::NotFound.into()
}

impl State {
    /// Counts an operation; the error, if it shall fail.
    fn operate(&mut self) -> io::Result<()> {
        self.operations += 1;
        let fault = match self.faults.at {
            Some((at, fault)) if at == self.operations => Some(fault),
            _ if self.faults.failing > 0.0 && self.random.random_bool(self.faults.failing) => {
                Some(Fault::Device)
            }
            _ => None,
        };
        match fault {
            None => Ok(()),
            Some(Fault::Device) => Err(io::Error::other("the device failed")),
            Some(Fault::Full) => Err(ErrorKind::StorageFull.into()),
            Some(Fault::Off) => {
                self.off = true;
                Err(io::Error::other("the machine went off"))
            }
        }
    }

    fn change_name(&mut self, change: NameChange) {
        if let NameChange::Rename(from, to) = &change {
            // A directory keeps its content, and what is to be synced in it, under its new name.
            for pending in &mut self.pending_names {
                let (NameChange::Put(path, _) | NameChange::Remove(path) | NameChange::Rename(_, path)) =
                    pending;
                if let Ok(rest) = path.strip_prefix(from)
                    && rest != Path::new("")
                {
                    *path = to.join(rest);
                }
            }
        }
        apply(&mut self.names, &change);
        self.pending_names.push(change);
    }

    fn crash(&mut self) {
        let mut ended = BTreeSet::new();
        for change in std::mem::take(&mut self.pending_names) {
            let directory = change.directory();
            if !ended.contains(&directory) && self.random.random_bool(0.7) {
                apply(&mut self.durable_names, &change);
            } else {
                ended.insert(directory);
            }
        }
        let directories: BTreeSet<PathBuf> = self.durable_names.keys().cloned().collect();
        let root = directories.first().cloned().unwrap_or_default();
        self.durable_names.retain(|path, _| {
            *path == root
                || path
                    .ancestors()
                    .skip(1)
                    .take_while(|above| above.starts_with(&root))
                    .all(|above| directories.contains(above))
        });
        self.names = self.durable_names.clone();
        for inode in &mut self.inodes {
            // All, nothing, or some of it.
            let chance = [0.0, 0.5, 0.95, 1.0][self.random.random_range(0..4)];
            inode.persist(&mut self.random, chance);
            inode.content.clone_from(&inode.durable);
        }
    }
}

impl NameChange {
    fn directory(&self) -> PathBuf {
        let (NameChange::Put(path, _) | NameChange::Remove(path) | NameChange::Rename(_, path)) = self;
        path.parent().unwrap_or(Path::new("/")).to_owned()
    }
}

fn apply(names: &mut Names, change: &NameChange) {
    match change {
        NameChange::Put(path, node) => {
            names.insert(path.clone(), *node);
        }
        NameChange::Remove(path) => {
            names.remove(path);
        }
        NameChange::Rename(from, to) => {
            let moved: Vec<PathBuf> = names
                .keys()
                .filter(|path| path.starts_with(from))
                .cloned()
                .collect();
            for path in moved {
                let rest = path
                    .strip_prefix(from)
                    .expect("it was filtered by that")
                    .to_owned();
                let node = names.remove(&path).expect("it was listed above");
                let target = if rest == Path::new("") {
                    to.clone()
                } else {
                    to.join(rest)
                };
                names.insert(target, node);
            }
        }
    }
}

impl Inode {
    /// Each pending change, a write sector by sector, reaches the disk with this chance. Nothing is pending afterwards.
    fn persist(&mut self, random: &mut StdRng, chance: f64) {
        for change in std::mem::take(&mut self.pending) {
            match change {
                DataChange::SetSize(bytes) => {
                    if random.random_bool(chance) {
                        self.durable.resize(bytes as usize, 0);
                    }
                }
                DataChange::Write(position, bytes) => {
                    let mut start = 0;
                    while start < bytes.len() {
                        let at = position as usize + start;
                        let end = bytes.len().min(start + SECTOR_BYTES - at % SECTOR_BYTES);
                        if random.random_bool(chance) {
                            put(&mut self.durable, at, &bytes[start..end]);
                        }
                        start = end;
                    }
                }
            }
        }
    }
}

fn put(content: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    if content.len() < at + bytes.len() {
        content.resize(at + bytes.len(), 0);
    }
    content[at..at + bytes.len()].copy_from_slice(bytes);
}

impl Disk for SimulatedDisk {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let inode = {
            let mut state = self.state()?;
            let parent = path.parent().ok_or_else(not_found)?;
            if !matches!(state.names.get(parent), Some(Node::Directory)) {
                return Err(not_found());
            }
            match state.names.get(path) {
                Some(Node::File(inode)) => {
                    let inode = *inode;
                    state.operate()?;
                    state.inodes[inode].content.clear();
                    state.inodes[inode].pending.push(DataChange::SetSize(0));
                    return Ok(self.file(inode));
                }
                Some(Node::Directory) => return Err(ErrorKind::IsADirectory.into()),
                None => {}
            }
            state.inodes.push(Inode::default());
            state.inodes.len() - 1
        };
        self.change(&[NameChange::Put(path.to_owned(), Node::File(inode))])?;
        Ok(self.file(inode))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let state = self.state()?;
        match state.names.get(path) {
            Some(Node::File(inode)) => Ok(self.file(*inode)),
            Some(Node::Directory) => Err(ErrorKind::IsADirectory.into()),
            None => Err(not_found()),
        }
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<PathBuf>> {
        let state = self.state()?;
        if !matches!(state.names.get(directory), Some(Node::Directory)) {
            return Err(not_found());
        }
        let inside = |path: &&PathBuf| path.parent() == Some(directory);
        Ok(state.names.keys().filter(inside).cloned().collect())
    }

    fn exists(&self, path: &Path) -> bool {
        self.state().is_ok_and(|state| state.names.contains_key(path))
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        if self.exists(path) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        self.change(&[NameChange::Put(path.to_owned(), Node::Directory)])
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        if !self.exists(path) {
            return Err(not_found());
        }
        self.change(&[NameChange::Remove(path.to_owned())])
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        let below: Vec<PathBuf> = {
            let state = self.state()?;
            let below = state.names.keys().filter(|name| name.starts_with(path));
            below.cloned().collect()
        };
        if below.is_empty() {
            return Err(not_found());
        }
        // What is inside goes first.
        below
            .into_iter()
            .rev()
            .try_for_each(|path| self.change(&[NameChange::Remove(path)]))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        if !self.exists(from) {
            return Err(not_found());
        }
        self.change(&[NameChange::Rename(from.to_owned(), to.to_owned())])
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state()?;
        state.operate()?;
        if state.fail_sync() {
            return Err(io::Error::other("the device failed"));
        }
        if state.faults.lying {
            return Ok(());
        }
        let (synced, rest) = std::mem::take(&mut state.pending_names)
            .into_iter()
            .partition(|change| change.directory() == path);
        state.pending_names = rest;
        let synced: Vec<NameChange> = synced;
        for change in &synced {
            apply(&mut state.durable_names, change);
        }
        Ok(())
    }
}

impl State {
    fn fail_sync(&mut self) -> bool {
        let chance = self.faults.failing_syncs;
        chance > 0.0 && self.random.random_bool(chance)
    }
}

impl SimulatedDisk {
    fn file(&self, inode: usize) -> Arc<dyn DiskFile> {
        Arc::new(SimulatedFile {
            disk: self.clone(),
            inode,
        })
    }
}

#[derive(Debug)]
struct SimulatedFile {
    disk: SimulatedDisk,
    inode: usize,
}

impl DiskFile for SimulatedFile {
    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        let mut state = self.disk.state()?;
        let mut outcome = state.operate();
        let mut admitted = bytes.len();
        if outcome.is_err() {
            admitted = state.random.random_range(0..=bytes.len());
        }
        if let Some(room) = &mut state.faults.room_bytes {
            let fits = (*room).min(admitted as u64);
            *room -= fits;
            if (fits as usize) < admitted {
                admitted = fits as usize;
                outcome = outcome.and(Err(ErrorKind::StorageFull.into()));
            }
        }
        let inode = &mut state.inodes[self.inode];
        put(&mut inode.content, position as usize, &bytes[..admitted]);
        inode
            .pending
            .push(DataChange::Write(position, bytes[..admitted].to_vec()));
        outcome
    }

    fn read_exact_at(&self, bytes: &mut [u8], position: u64) -> io::Result<()> {
        let mut state = self.disk.state()?;
        let chance = state.faults.failing_reads;
        if chance > 0.0 && state.random.random_bool(chance) {
            let short = state.random.random();
            return Err(if short {
                ErrorKind::UnexpectedEof.into()
            } else {
                io::Error::other("the device failed")
            });
        }
        let content = &state.inodes[self.inode].content;
        let found = usize::try_from(position)
            .ok()
            .and_then(|start| content.get(start..start.checked_add(bytes.len())?));
        bytes.copy_from_slice(found.ok_or(ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.disk.state()?.inodes[self.inode].content.len() as u64)
    }

    fn set_size(&self, bytes: u64) -> io::Result<()> {
        let mut state = self.disk.state()?;
        let outcome = state.operate();
        if outcome.is_ok() || state.random.random() {
            let inode = &mut state.inodes[self.inode];
            inode.content.resize(bytes as usize, 0);
            inode.pending.push(DataChange::SetSize(bytes));
        }
        outcome
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.state()?;
        let outcome = state.operate();
        let state = &mut *state;
        if state.off || (outcome.is_ok() && !state.fail_sync()) {
            if outcome.is_ok() && !state.faults.lying {
                let inode = &mut state.inodes[self.inode];
                inode.persist(&mut state.random, 1.0);
            }
            return outcome;
        }
        let inode = &mut state.inodes[self.inode];
        inode.persist(&mut state.random, 0.5);
        if state.random.random_bool(0.3) {
            inode.content.clone_from(&inode.durable);
        }
        outcome.and(Err(io::Error::other("the device failed")))
    }
}
