//! A copy of the checkpoints that count at a moment, made while others are written: so that views come back with a backup also where the
//! streams have forgotten the rows that they were made of.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{BLOCKS, Checkpoints, EPOCHS, MANIFEST, Root, epochs, file_name};
use crate::StorageError;
use crate::disk::{OsDisk, sync_parent};
use crate::private;

/// What is to be copied. Until it was, no file of it is removed.
#[derive(Debug)]
pub(crate) struct CheckpointCopy {
    held: Held,
    /// The fact that names the manifests.
    root: Vec<u8>,
    files: Vec<String>,
    /// Up to where they have the log of each source, at the least.
    ends: BTreeMap<u64, u64>,
    /// The epochs that were committed behind the oldest of them: the name of their file, and its content.
    epochs: Option<(String, Vec<u8>)>,
}

/// Keeps files that are of no use any more.
#[derive(Debug)]
struct Held(Arc<Checkpoints>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.state.lock().holds -= 1;
        if let Err(error) = self.0.remove_unused(true) {
            tracing::warn!(%error, "files of checkpoints could not be removed; the next start removes them");
        }
    }
}

impl Checkpoints {
    /// All that count now.
    pub(crate) fn copy(self: &Arc<Self>) -> Result<CheckpointCopy, StorageError> {
        let mut state = self.state.lock();
        state.holds += 1;
        let root = Root {
            next: state.next,
            manifests: state.live.values().map(|live| live.entry).collect(),
        };
        let manifests = state.live.keys().map(|number| file_name(*number, MANIFEST));
        let blocks = state.files.keys().map(|number| file_name(*number, BLOCKS));
        let mut files: Vec<String> = manifests.chain(blocks).collect();
        files.sort_unstable();
        let epochs_from = state.epochs_from();
        let mut ends = BTreeMap::new();
        for source in state.live.values().flat_map(|live| &live.manifest.sources) {
            let end: &mut u64 = ends.entry(source.relation).or_insert(source.end);
            *end = source.end.min(*end);
        }
        drop(state);
        let held = Held(Arc::clone(self));
        let epochs = match root.manifests.is_empty() {
            true => None,
            false => {
                let mut bytes = epochs::header().to_vec();
                for record in self.epochs.read(epochs_from)? {
                    bytes.extend(record.encode());
                }
                Some((file_name(epochs_from, EPOCHS), bytes))
            }
        };
        let root = serde_json::to_vec(&root);
        Ok(CheckpointCopy {
            root: root.map_err(|e| StorageError::io("write", &self.directory, io::Error::other(e)))?,
            held,
            files,
            ends,
            epochs,
        })
    }
}

impl CheckpointCopy {
    /// The fact that names the manifests of the copy.
    pub(crate) fn root(&self) -> &[u8] {
        &self.root
    }

    /// Up to where the checkpoints have the log of each source, at the least: what is behind that is read when they are used.
    pub(crate) fn ends(&self) -> &BTreeMap<u64, u64> {
        &self.ends
    }

    /// The files that it consists of, by their names; they stay until this is dropped.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&str, PathBuf)> {
        let directory = &self.held.0.directory;
        // Without epochs there is nothing.
        let files = self.files.iter().filter(|_| self.epochs.is_some());
        files.map(|name| (name.as_str(), directory.join(name)))
    }

    /// The file of epochs: its name, and its content.
    pub(crate) fn epochs(&self) -> Option<&(String, Vec<u8>)> {
        self.epochs.as_ref()
    }

    /// Writes it below a data directory.
    pub(crate) fn write(self, data: &Path) -> Result<(), StorageError> {
        let Some((epochs_name, epochs)) = &self.epochs else {
            return Ok(());
        };
        let (from, to) = (&self.held.0.directory, data.join("checkpoints"));
        private::create_directory(&to).map_err(|e| StorageError::io("create", &to, e))?;
        sync_parent(&OsDisk, &to)?;
        for name in &self.files {
            let path = to.join(name);
            let copied = File::open(from.join(name)).and_then(|mut source| {
                let mut copy = private::create_new(&path)?;
                io::copy(&mut source, &mut copy)?;
                copy.sync_all()
            });
            copied.map_err(|e| StorageError::io("copy", &path, e))?;
        }
        let path = to.join(epochs_name);
        let written = private::create_new(&path).and_then(|mut file| {
            file.write_all(epochs)?;
            file.sync_all()
        });
        written.map_err(|e| StorageError::io("write", &path, e))?;
        sync_parent(&OsDisk, &path)
    }
}
