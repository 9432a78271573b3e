//! The catalog in sled: an index of the journal, and the facts that need not last. The only file that
//! knows sled.
//!
//! Four faults of sled 0.34 are worked around here. Its `flush` does not reach the disk (it uses
//! `sync_file_range`), so the file is synced through a handle of our own. A kill while it writes its
//! snapshot leaves a `snap.*.generating` that it later takes for a snapshot, so those are removed first. And damaged files
//! make it panic: that is an error like others, after which the index is made again. When a database is dropped, its threads hold the
//! lock of its file for a moment, so that is waited for.

use std::fs::{self, File, TryLockError};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sled::transaction::{ConflictableTransactionError, TransactionError, Transactional};
use sled::{Db, Tree};

use super::journal::{Line, State};
use super::object::{CatalogChange, CatalogObject, ObjectId};
use crate::StorageError;
use crate::private;

const STATE_KEY: &[u8] = b"state";
/// How long, and how often, the lock is waited for.
const LOCK_WAIT: Duration = Duration::from_secs(5);
const LOCK_STEP: Duration = Duration::from_millis(2);

#[derive(Debug)]
pub(super) struct Index {
    path: PathBuf,
    db: Db,
    /// The file of `db`, to sync it.
    file: File,
    objects: Tree,
    facts: Tree,
    /// Facts that are written without being waited for, and are not in the journal.
    hints: Tree,
    /// The sequence and the next id.
    meta: Tree,
}

/// Does something with sled; a panic in it is an error. What it did may be half done: the index is not to be trusted then.
pub(super) fn guarded<T>(
    path: &Path,
    work: impl FnOnce() -> Result<T, StorageError>,
) -> Result<T, StorageError> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err(error("use", path, "sled panicked; the log has its message")))
}

/// Waits until nobody holds the file's lock, or for a while: then sled says what is wrong. Nobody else uses the directory, whose
/// own lock is held.
fn wait_for_lock(path: &Path) {
    let Ok(file) = File::open(path.join("db")) else {
        return;
    };
    let begin = Instant::now();
    // A file system without locks is sled's to complain of.
    while matches!(file.try_lock(), Err(TryLockError::WouldBlock)) && begin.elapsed() < LOCK_WAIT {
        #[expect(
            clippy::disallowed_methods,
            reason = "nothing tells when sled's threads are through; the database is being opened"
        )]
        std::thread::sleep(LOCK_STEP);
    }
}

impl Index {
    /// Opens the index at `path`, or makes an empty one.
    pub(super) fn open(path: &Path, cache_bytes: u64) -> Result<Index, StorageError> {
        remove_half_written_snapshots(path)?;
        let failed = |e: sled::Error| error("open", path, e);
        // No thread of sled's flushes now and then: whoever writes what must last flushes it.
        let config = sled::Config::new()
            .path(path)
            .cache_capacity(cache_bytes)
            .flush_every_ms(None);
        wait_for_lock(path);
        let db = config.open().map_err(failed)?;
        if let Err(error) = private::close(path) {
            tracing::warn!(path = %path.display(), %error, "the catalog's index could not be closed to others");
        }
        let file_path = path.join("db");
        let file = File::open(&file_path).map_err(|e| StorageError::io("open", &file_path, e))?;
        let [objects, facts, hints, meta] =
            ["objects", "facts", "hints", "meta"].map(|name| db.open_tree(name));
        Ok(Index {
            path: path.to_owned(),
            file,
            objects: objects.map_err(failed)?,
            facts: facts.map_err(failed)?,
            hints: hints.map_err(failed)?,
            meta: meta.map_err(failed)?,
            db,
        })
    }

    /// All that the index knows; an error if any of it cannot be read.
    pub(super) fn load(&self) -> Result<State, StorageError> {
        let failed = |e: sled::Error| error("read", &self.path, e);
        let damaged = |why: &str| error("read", &self.path, why);
        let mut state = State::default();
        if let Some(bytes) = self.meta.get(STATE_KEY).map_err(failed)? {
            let (sequence, next_id) = bytes
                .split_at_checked(8)
                .ok_or_else(|| damaged("the state has a wrong length"))?;
            state.sequence = number(sequence).ok_or_else(|| damaged("the sequence is not a number"))?;
            state.next_id = number(next_id).ok_or_else(|| damaged("the next id is not a number"))?;
        }
        for entry in self.objects.iter() {
            let (_, value) = entry.map_err(failed)?;
            let object: CatalogObject =
                serde_json::from_slice(&value).map_err(|e| damaged(&e.to_string()))?;
            state.objects.insert(object.id, object);
        }
        for entry in self.facts.iter() {
            let (key, value) = entry.map_err(failed)?;
            let key = std::str::from_utf8(&key).map_err(|e| damaged(&e.to_string()))?;
            state.facts.insert(key.to_owned(), value.to_vec());
        }
        Ok(state)
    }

    /// Takes one step in one transaction, durable on return.
    pub(super) fn apply(&self, line: &Line) -> Result<(), StorageError> {
        guarded(&self.path, || self.apply_line(line))
    }

    fn apply_line(&self, line: &Line) -> Result<(), StorageError> {
        let mut objects = Vec::new();
        for change in &line.changes {
            if let CatalogChange::Put(object) = change {
                let value = serde_json::to_vec(object).map_err(|e| error("write", &self.path, e))?;
                objects.push((object.id, value));
            }
        }
        let step = |objects_tree: &sled::transaction::TransactionalTree,
                    facts: &sled::transaction::TransactionalTree,
                    hints: &sled::transaction::TransactionalTree,
                    meta: &sled::transaction::TransactionalTree| {
            let mut puts = objects.iter();
            for change in &line.changes {
                match change {
                    CatalogChange::Put(_) => {
                        let (id, value) = puts.next().expect("each put was encoded above");
                        objects_tree.insert(&object_key(*id), value.as_slice())?;
                    }
                    CatalogChange::Remove(id) => {
                        objects_tree.remove(&object_key(*id))?;
                    }
                    CatalogChange::PutFact { key, value } => {
                        facts.insert(key.as_bytes(), value.as_slice())?;
                        hints.remove(key.as_bytes())?;
                    }
                    CatalogChange::RemoveFact { key } => {
                        facts.remove(key.as_bytes())?;
                        hints.remove(key.as_bytes())?;
                    }
                }
            }
            meta.insert(STATE_KEY, state_value(line.sequence, line.next_id))?;
            Ok::<(), ConflictableTransactionError<()>>(())
        };
        (&self.objects, &self.facts, &self.hints, &self.meta)
            .transaction(|(objects, facts, hints, meta)| step(objects, facts, hints, meta))
            .map_err(|e| match e {
                TransactionError::Storage(e) => error("write", &self.path, e),
                TransactionError::Abort(()) => error("write", &self.path, "the transaction was aborted"),
            })?;
        self.flush_all()
    }

    /// A fact that was not waited for.
    pub(super) fn hint(&self, key: &str) -> Result<Option<Vec<u8>>, StorageError> {
        guarded(&self.path, || {
            let value = self.hints.get(key).map_err(|e| error("read", &self.path, e))?;
            Ok(value.map(|value| value.to_vec()))
        })
    }

    /// Writes a fact to memory; it reaches the disk with the next flush.
    #[cfg(test)]
    pub(super) fn put_hint(&self, key: &str, value: &[u8]) -> Result<(), StorageError> {
        guarded(&self.path, || {
            self.hints
                .insert(key, value)
                .map_err(|e| error("write", &self.path, e))?;
            Ok(())
        })
    }

    /// Makes all that was written last.
    pub(super) fn flush(&self) -> Result<(), StorageError> {
        guarded(&self.path, || self.flush_all())
    }

    fn flush_all(&self) -> Result<(), StorageError> {
        self.db.flush().map_err(|e| error("flush", &self.path, e))?;
        self.file
            .sync_all()
            .map_err(|e| StorageError::io("sync", &self.path.join("db"), e))
    }
}

fn remove_half_written_snapshots(path: &Path) -> Result<(), StorageError> {
    if !path.exists() {
        return Ok(());
    }
    for entry in fs::read_dir(path).map_err(|e| StorageError::io("list", path, e))? {
        let file = entry.map_err(|e| StorageError::io("list", path, e))?.path();
        let name = file
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        if name.starts_with("snap.") && name.ends_with(".generating") {
            fs::remove_file(&file).map_err(|e| StorageError::io("remove", &file, e))?;
        }
    }
    Ok(())
}

fn error(action: &'static str, path: &Path, why: impl ToString) -> StorageError {
    StorageError::Index {
        action,
        path: path.to_owned(),
        why: why.to_string(),
    }
}

fn object_key(id: ObjectId) -> [u8; 8] {
    id.0.to_be_bytes()
}

fn state_value(sequence: u64, next_id: u64) -> Vec<u8> {
    [sequence.to_be_bytes(), next_id.to_be_bytes()].concat()
}

fn number(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(bytes.try_into().ok()?))
}
