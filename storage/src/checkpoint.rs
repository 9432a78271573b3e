//! Checkpoints: the state of views, and the rows of tables, as of an epoch, in files beside the log.
//!
//! ```text
//! <data>/checkpoints/7.blocks      what checkpoint 7 had to write: Arrow data, marks of rows that went
//! <data>/checkpoints/7.manifest    what it consists of: blocks of its own file, and of earlier ones
//! <data>/checkpoints/3.epochs      the epochs that were committed since (see [`EpochLog`])
//! fact "checkpoints"               the manifests that count: a line of the catalog's journal, the commit point
//! ```
//!
//! A checkpoint is written as a [`Draft`] through an object store, synced, and made real by one change of the catalog. Until
//! then it does not exist: what a crash leaves of it is removed at the next open. A file stays as long as a manifest that
//! counts refers to it. What is read is checked against a checksum that the reference holds, so that damage is an error and
//! never data; whoever restores has another way to the same rows, the log. `docs/formats/checkpoints.md` gives every byte.

mod block;
mod check;
mod copy;
mod draft;
mod epochs;
mod manifest;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use object_store::local::LocalFileSystem;
use object_store::{ObjectStore, ObjectStoreExt};
use parking_lot::{Mutex, RwLock};
use serde::{Deserialize, Serialize};

use crate::disk::{OsDisk, sync_parent};
use crate::private;
use crate::{Catalog, StorageError};
pub use block::{decode_rows, encode_rows, pack_marks, unpack_marks};
pub(crate) use check::check;
pub(crate) use copy::CheckpointCopy;
pub use draft::{Draft, Written};
pub use epochs::{EpochLog, EpochRecord};
pub use manifest::{
    BlockRef, Manifest, Slice, StoredChunk, StoredImage, StoredPart, StoredSet, StoredSource, StoredTable,
    StoredView,
};

/// The fact that names the manifests that count.
pub(crate) const FACT: &str = "checkpoints";
const BLOCKS: &str = "blocks";
const MANIFEST: &str = "manifest";
pub(crate) const EPOCHS: &str = "epochs";

/// The checkpoints of a data directory.
#[derive(Debug)]
pub struct Checkpoints {
    directory: PathBuf,
    objects: RwLock<Arc<dyn ObjectStore>>,
    catalog: Arc<Catalog>,
    state: Mutex<State>,
    epochs: EpochLog,
}

#[derive(Debug, Default)]
struct State {
    /// The number of the next checkpoint.
    next: u64,
    live: BTreeMap<u64, Live>,
    /// Files of blocks that a manifest refers to: how large they are, and how much of them is referred to.
    files: HashMap<u64, FileUse>,
    damaged: Vec<(u64, String)>,
    /// Copies that are being made: no file is removed meanwhile.
    holds: usize,
}

#[derive(Debug, Clone)]
struct Live {
    entry: Entry,
    manifest: Arc<Manifest>,
}

/// How much of a file is of use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FileUse {
    pub bytes: u64,
    pub used_bytes: u64,
}

/// The fact's value.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Root {
    next: u64,
    manifests: Vec<Entry>,
}

/// A manifest that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    number: u64,
    bytes: u64,
    crc: u32,
}

impl Checkpoints {
    /// Opens the checkpoints of a data directory, whose lock must be held, and removes what does not count. A manifest that
    /// cannot be read is left out and told of by [`Checkpoints::damaged`].
    pub(crate) fn open(data: &Path, catalog: Arc<Catalog>) -> Result<Checkpoints, StorageError> {
        let directory = data.join("checkpoints");
        if !directory.exists() {
            private::create_directory(&directory).map_err(|e| StorageError::io("create", &directory, e))?;
            sync_parent(&OsDisk, &directory)?;
        }
        let mut state = State::default();
        let root = match catalog.fact(FACT)? {
            Some(value) => serde_json::from_slice(&value).unwrap_or_else(|error| {
                state
                    .damaged
                    .push((0, format!("the list of checkpoints: {error}")));
                Root::default()
            }),
            None => Root::default(),
        };
        state.next = root.next.max(1);
        for entry in root.manifests {
            state.next = state.next.max(entry.number + 1);
            match read_manifest(&directory, entry) {
                Ok(manifest) => {
                    let manifest = Arc::new(manifest);
                    state.live.insert(entry.number, Live { entry, manifest });
                }
                Err(why) => state.damaged.push((entry.number, why)),
            }
        }
        state.count_files(&directory);
        let epochs_from = state.epochs_from();
        let epochs = EpochLog::open(&directory, epochs_from)?;
        let objects = files(&directory)?;
        let checkpoints = Checkpoints {
            directory,
            objects: RwLock::new(Arc::new(objects)),
            catalog,
            state: Mutex::new(state),
            epochs,
        };
        checkpoints.remove_unused(false)?;
        Ok(checkpoints)
    }

    /// Has blocks and manifests go through a store over the directory's files, such as one that says when.
    ///
    /// # Errors
    /// The directory is gone.
    pub fn set_files<S: ObjectStore>(
        &self,
        over: impl FnOnce(LocalFileSystem) -> Arc<S>,
    ) -> Result<(), StorageError> {
        let store = over(files(&self.directory)?);
        *self.objects.write() = store;
        Ok(())
    }

    /// Voids, for good, the manifests that have more of a log than there is, because what was not synced went with the power: what
    /// comes into the log from now on is not what they have at these offsets. Older manifests of the same relations go with
    /// them. `head` is where the log of a relation ends, if it is known.
    ///
    /// # Errors
    /// The catalog cannot be written.
    pub(crate) fn void_beyond(&self, head: impl Fn(u64) -> Option<u64>) -> Result<(), StorageError> {
        let mut state = self.state.lock();
        let mut live = state.live.clone();
        let mut void = vec![];
        let mut lost = BTreeSet::new();
        for (number, found) in state.live.iter().rev() {
            let ahead = found.manifest.sources.iter().find_map(|source| {
                let head = head(source.relation).filter(|head| *head < source.end)?;
                Some((source.relation, source.end, head))
            });
            let why = match ahead {
                Some((relation, end, head)) => {
                    format!("it covers {end} rows of log {relation}, which has only {head}")
                }
                None if found
                    .manifest
                    .relations()
                    .any(|relation| lost.contains(&relation)) =>
                {
                    "a newer checkpoint covers more rows of a log than it has".to_owned()
                }
                None => continue,
            };
            lost.extend(found.manifest.relations());
            live.remove(number);
            void.push((*number, why));
        }
        if void.is_empty() {
            return Ok(());
        }
        self.put_root(state.next, &live)?;
        state.live = live;
        state.damaged.extend(void);
        state.count_files(&self.directory);
        let epochs_from = state.epochs_from();
        drop(state);
        self.epochs.remove_before(epochs_from)?;
        self.remove_unused(false)
    }

    /// Writes down which manifests count.
    fn put_root(&self, next: u64, live: &BTreeMap<u64, Live>) -> Result<(), StorageError> {
        let root = Root {
            next,
            manifests: live.values().map(|live| live.entry).collect(),
        };
        let value = serde_json::to_vec(&root)
            .map_err(|e| StorageError::io("write", &self.directory, std::io::Error::other(e)))?;
        self.catalog.put_fact(FACT, &value)
    }

    fn objects(&self) -> Arc<dyn ObjectStore> {
        Arc::clone(&self.objects.read())
    }

    /// The manifests that count, the oldest first.
    pub fn manifests(&self) -> Vec<Arc<Manifest>> {
        let state = self.state.lock();
        state
            .live
            .values()
            .map(|live| Arc::clone(&live.manifest))
            .collect()
    }

    /// Manifests that cannot be used, by number, and why.
    pub fn damaged(&self) -> Vec<(u64, String)> {
        self.state.lock().damaged.clone()
    }

    /// Which manifests count, in a text that is another one when others do.
    pub(crate) fn version(&self) -> Vec<u64> {
        self.state.lock().live.keys().copied().collect()
    }

    /// The log of committed epochs.
    pub fn epochs(&self) -> &EpochLog {
        &self.epochs
    }

    /// Files of blocks that count, with how much of each is of use.
    pub fn files(&self) -> HashMap<u64, FileUse> {
        self.state.lock().files.clone()
    }

    /// Begins a checkpoint.
    pub fn begin(self: &Arc<Self>) -> Draft {
        let number = {
            let mut state = self.state.lock();
            state.next += 1;
            state.next - 1
        };
        Draft::new(Arc::clone(self), number)
    }

    /// The bytes of a block, checked.
    ///
    /// # Errors
    /// They cannot be read, or are not what was written.
    pub async fn read(&self, block: BlockRef) -> Result<Bytes, StorageError> {
        let name = file_name(block.file, BLOCKS);
        let path = self.directory.join(&name);
        let end = block.at.checked_add(block.bytes);
        let end = end.ok_or_else(|| StorageError::damaged(&path, block.at, "no file is so long"))?;
        let location = object_store::path::Path::from(name);
        let bytes = match self.objects().get_range(&location, block.at..end).await {
            Ok(bytes) => bytes,
            Err(error) => return Err(StorageError::damaged(&path, block.at, error.to_string())),
        };
        let crc = crc32c::crc32c(&bytes);
        if bytes.len() as u64 != block.bytes || crc != block.crc {
            let why = format!(
                "{} bytes with checksum {crc:08x} are there instead of {} with {:08x}",
                bytes.len(),
                block.bytes,
                block.crc
            );
            return Err(StorageError::damaged(&path, block.at, why));
        }
        Ok(bytes)
    }

    /// Makes a manifest that lasts already count, and those of which it has all that still exists count no more.
    fn adopt(&self, entry: Entry, manifest: Manifest, exists: &BTreeSet<u64>) -> Result<(), StorageError> {
        let manifest = Arc::new(manifest);
        let mut state = self.state.lock();
        let mut live = state.live.clone();
        live.insert(entry.number, Live { entry, manifest });
        drop_covered(&mut live, exists);
        self.put_root(state.next, &live)?;
        state.live = live;
        state.damaged.clear();
        state.count_files(&self.directory);
        let epochs_from = state.epochs_from();
        let is_held = state.holds > 0;
        drop(state);
        if is_held {
            return Ok(());
        }
        self.epochs.remove_before(epochs_from)?;
        self.remove_unused(true)
    }

    /// Removes files that no manifest refers to; those of a draft stay if there may be one.
    fn remove_unused(&self, may_draft: bool) -> Result<(), StorageError> {
        let state = self.state.lock();
        if state.holds > 0 {
            return Ok(());
        }
        // A draft that is being written has a number above all that count.
        let is_draft = |number: u64| may_draft && state.is_after_all(number);
        let failed = |e| StorageError::io("list", &self.directory, e);
        for entry in fs::read_dir(&self.directory).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let is_used = match name.split_once('.') {
                Some((number, kind)) => match (number.parse::<u64>(), kind) {
                    (Ok(number), BLOCKS) => state.files.contains_key(&number) || is_draft(number),
                    (Ok(number), MANIFEST) => state.live.contains_key(&number) || is_draft(number),
                    (_, EPOCHS) => true,
                    // What an upload that was broken off leaves is called `7.blocks#1`.
                    (Ok(number), kind) if kind.contains('#') => is_draft(number),
                    _ => true,
                },
                None => true,
            };
            if !is_used {
                fs::remove_file(&path).map_err(|e| StorageError::io("remove", &path, e))?;
            }
        }
        Ok(())
    }
}

impl State {
    fn is_after_all(&self, number: u64) -> bool {
        number < self.next && self.live.keys().next_back().is_some_and(|last| number > *last)
    }

    fn epochs_from(&self) -> u64 {
        let from = self.live.values().map(|live| live.manifest.epochs_from);
        from.min().unwrap_or(u64::MAX)
    }

    fn count_files(&mut self, directory: &Path) {
        let mut files: HashMap<u64, FileUse> = HashMap::new();
        let mut seen = BTreeSet::new();
        for live in self.live.values() {
            live.manifest.visit(&mut |block| {
                if seen.insert((block.file, block.at)) {
                    files.entry(block.file).or_default().used_bytes += block.bytes;
                }
            });
        }
        for (number, used) in &mut files {
            let known = self.files.get(number).map(|used| used.bytes);
            used.bytes = known.unwrap_or_else(|| {
                let path = directory.join(file_name(*number, BLOCKS));
                fs::metadata(path).map_or(0, |metadata| metadata.len())
            });
        }
        self.files = files;
    }
}

/// Of a relation the newest manifest counts; one that is the newest for nothing that exists does not.
fn drop_covered(live: &mut BTreeMap<u64, Live>, exists: &BTreeSet<u64>) {
    let mut covered = BTreeSet::new();
    let mut wanted = BTreeSet::new();
    for (number, live) in live.iter().rev() {
        for relation in live.manifest.relations() {
            if covered.insert(relation) && exists.contains(&relation) {
                wanted.insert(*number);
            }
        }
    }
    live.retain(|number, _| wanted.contains(number));
}

/// The files of a directory, as objects.
fn files(directory: &Path) -> Result<LocalFileSystem, StorageError> {
    LocalFileSystem::new_with_prefix(directory)
        .map_err(|e| StorageError::io("open", directory, std::io::Error::other(e)))
}

fn read_manifest(directory: &Path, entry: Entry) -> Result<Manifest, String> {
    let path = directory.join(file_name(entry.number, MANIFEST));
    let bytes = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let crc = crc32c::crc32c(&bytes);
    if bytes.len() as u64 != entry.bytes || crc != entry.crc {
        return Err(format!(
            "{} has {} bytes with checksum {crc:08x} instead of {} with {:08x}",
            path.display(),
            bytes.len(),
            entry.bytes,
            entry.crc
        ));
    }
    Manifest::decode(&bytes).map_err(|why| format!("{}: {why}", path.display()))
}

/// Whether a file of this name has epochs: it grows, and is not the same each time.
pub(crate) fn is_epochs(name: &str) -> bool {
    name.rsplit('.').next() == Some(EPOCHS)
}

fn file_name(number: u64, kind: &str) -> String {
    format!("{number}.{kind}")
}
