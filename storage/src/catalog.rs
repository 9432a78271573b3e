//! The catalog: every object with the SQL that made it, and small facts. It fits in memory.
//!
//! A change is first a synced line of the journal, then one transaction of the index (sled), then visible.
//! The journal is the truth. At open, an index that is missing, damaged, or at another sequence number is
//! made again from it; a journal that was lost is made again from the index.

mod check;
mod index;
mod journal;
mod object;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

pub(crate) use self::check::check;
pub use self::object::{CatalogChange, CatalogObject, ObjectId, ObjectKind};

use self::index::Index;
use self::journal::{Journal, Line, State};
use crate::disk::{Disk, OsDisk};
use crate::{StorageError, disk};

pub(crate) const JOURNAL: &str = "catalog.journal";
pub(crate) const INDEX: &str = "catalog.sled";
/// Ids that are reserved at once, so that only one in so many costs a sync. A crash skips what was not used.
const RESERVED_IDS: u64 = 32;
/// The journal is compacted when it is larger than this, and much larger than what it holds.
const COMPACTION_BYTES_MIN: u64 = 1 << 20;
const COMPACTION_GROWTH: u64 = 4;

/// All objects and facts of a data directory. Safe to use from several threads; changes go one by one.
#[derive(Debug)]
pub struct Catalog {
    inner: Mutex<Inner>,
}

/// What the catalog held at some moment. The index is made again from it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct CatalogCopy(State);

impl CatalogCopy {
    /// Has another value for a fact.
    pub(crate) fn with_fact(mut self, fact: &str, value: &[u8]) -> CatalogCopy {
        self.0.facts.insert(fact.to_owned(), value.to_vec());
        self
    }

    /// What a fact is.
    #[cfg(test)]
    pub(crate) fn fact(&self, fact: &str) -> Option<Vec<u8>> {
        self.0.facts.get(fact).cloned()
    }

    /// Has no such fact.
    pub(crate) fn without_fact(mut self, fact: &str) -> CatalogCopy {
        self.0.facts.remove(fact);
        self
    }

    /// The number of the last step, and the lowest id that was never given out.
    pub(crate) fn place(&self) -> (u64, u64) {
        (self.0.sequence, self.0.next_id)
    }

    /// All that there is, as changes of nothing.
    pub(crate) fn changes(&self) -> Vec<CatalogChange> {
        self.0.to_base().changes
    }

    /// What makes this out of `before`.
    pub(crate) fn changes_since(&self, before: &CatalogCopy) -> Vec<CatalogChange> {
        let (old, new) = (&before.0, &self.0);
        let gone = old.objects.keys().filter(|id| !new.objects.contains_key(id));
        let gone = gone.map(|id| CatalogChange::Remove(*id));
        let put = new
            .objects
            .iter()
            .filter(|(id, object)| old.objects.get(id) != Some(object));
        let put = put.map(|(_, object)| CatalogChange::Put(object.clone()));
        let forgotten = old.facts.keys().filter(|key| !new.facts.contains_key(*key));
        let forgotten = forgotten.map(|key| CatalogChange::RemoveFact { key: key.clone() });
        let facts = new
            .facts
            .iter()
            .filter(|(key, value)| old.facts.get(*key) != Some(value));
        let facts = facts.map(|(key, value)| CatalogChange::PutFact {
            key: key.clone(),
            value: value.clone(),
        });
        gone.chain(put).chain(forgotten).chain(facts).collect()
    }

    /// Makes changes, behind which the catalog is at this [`place`](Self::place).
    pub(crate) fn apply(&mut self, (sequence, next_id): (u64, u64), changes: Vec<CatalogChange>) {
        self.0.apply(&Line {
            sequence,
            next_id,
            base: false,
            changes,
        });
    }

    /// Leaves out objects.
    pub(crate) fn leave_out(&mut self, objects: &BTreeSet<ObjectId>) {
        self.0.objects.retain(|id, _| !objects.contains(id));
    }

    /// Leaves out a property of all objects of a kind.
    pub(crate) fn leave_out_property(&mut self, kind: ObjectKind, property: &str) {
        let of_kind = (self.0.objects.values_mut()).filter(|object| object.kind == kind);
        of_kind.for_each(|object| drop(object.properties.remove(property)));
    }

    /// Writes it as the catalog of a data directory.
    pub(crate) fn write(&self, directory: &Path) -> Result<(), StorageError> {
        Journal::create(Arc::new(OsDisk), &directory.join(JOURNAL), &self.0).map(|_| ())
    }
}

#[derive(Debug)]
struct Inner {
    state: State,
    journal: Journal,
    index: Index,
    /// The next id to give out; `state.next_id` is reserved already.
    next_id: u64,
    /// The index has missed a step, and is left alone until it is made again at the next open.
    index_is_stale: bool,
    closed: bool,
    compaction_bytes_min: u64,
    /// Grows with every change of an object.
    definitions: u64,
}

impl Catalog {
    /// Opens the catalog of a data directory, whose lock must be held.
    pub(crate) fn open(directory: &Path, cache_bytes: u64) -> Result<Catalog, StorageError> {
        let path = directory.join(JOURNAL);
        let index_path = directory.join(INDEX);
        let opened = index::guarded(&index_path, || open_index(&index_path, cache_bytes));
        let (index, indexed) = match opened {
            Ok((index, state)) => (Some(index), Some(state)),
            Err(error) => {
                tracing::warn!(%error, "the catalog's index cannot be read and is rebuilt");
                (None, None)
            }
        };
        let (journal, state) = open_journal(Arc::new(OsDisk), &path, indexed.as_ref())?;
        let index = match index {
            Some(index) if indexed.as_ref() == Some(&state) => index,
            unusable => {
                drop(unusable);
                rebuild_index(&index_path, cache_bytes, &state)?
            }
        };
        let next_id = state.next_id;
        let inner = Inner {
            state,
            journal,
            index,
            next_id,
            index_is_stale: false,
            closed: false,
            compaction_bytes_min: COMPACTION_BYTES_MIN,
            definitions: 0,
        };
        Ok(Catalog {
            inner: Mutex::new(inner),
        })
    }

    /// All objects, sorted by id.
    pub fn objects(&self) -> Vec<CatalogObject> {
        self.inner.lock().state.objects.values().cloned().collect()
    }

    /// One object.
    pub fn get(&self, id: ObjectId) -> Option<CatalogObject> {
        self.inner.lock().state.objects.get(&id).cloned()
    }

    /// Makes all of the changes or none, in their order; durable on return.
    pub fn apply(&self, changes: Vec<CatalogChange>) -> Result<(), StorageError> {
        let mut inner = self.inner.lock();
        inner.check_open()?;
        if changes.is_empty() {
            return Ok(());
        }
        // An id that somebody else chose is never given out either.
        let chosen = changes.iter().filter_map(|change| match change {
            CatalogChange::Put(object) => Some(object.id.0 + 1),
            _ => None,
        });
        inner.next_id = chosen.fold(inner.next_id, u64::max);
        let next_id = inner.next_id.max(inner.state.next_id);
        inner.write(next_id, changes)?;
        inner.compact_if_large();
        Ok(())
    }

    /// An id that was never given out before, and never will be again.
    pub fn next_id(&self) -> Result<ObjectId, StorageError> {
        let mut inner = self.inner.lock();
        inner.check_open()?;
        if inner.next_id == inner.state.next_id {
            let reserved = inner.next_id + RESERVED_IDS;
            inner.write(reserved, Vec::new())?;
        }
        inner.next_id += 1;
        Ok(ObjectId(inner.next_id - 1))
    }

    /// A small fact, as it was last put by either way.
    pub fn fact(&self, key: &str) -> Result<Option<Vec<u8>>, StorageError> {
        let inner = self.inner.lock();
        // Hints need not last: without them the journal's fact is what there is.
        let hint = inner.index.hint(key).unwrap_or_else(|error| {
            tracing::warn!(key, %error, "the catalog's index cannot be read");
            None
        });
        Ok(hint.or_else(|| inner.state.facts.get(key).cloned()))
    }

    /// Sets a small fact, durable on return.
    pub fn put_fact(&self, key: &str, value: &[u8]) -> Result<(), StorageError> {
        self.apply(vec![CatalogChange::PutFact {
            key: key.to_owned(),
            value: value.to_vec(),
        }])
    }

    /// Sets a small fact without waiting for the disk. A crash may lose it, a clean stop does not.
    #[cfg(test)]
    pub fn put_fact_async(&self, key: &str, value: &[u8]) -> Result<(), StorageError> {
        let inner = self.inner.lock();
        inner.check_open()?;
        if let Err(error) = inner.index.put_hint(key, value) {
            tracing::warn!(key, %error, "the catalog's index cannot be written");
        }
        Ok(())
    }

    /// All of it as of now.
    pub(crate) fn copy(&self) -> Result<CatalogCopy, StorageError> {
        let inner = self.inner.lock();
        inner.check_open()?;
        Ok(CatalogCopy(inner.state.clone()))
    }

    /// The number of the last step, and one that grows with every change of an object.
    pub(crate) fn versions(&self) -> (u64, u64) {
        let inner = self.inner.lock();
        (inner.state.sequence, inner.definitions)
    }

    /// Gives back the ids that were reserved and not used, and makes everything last.
    pub(crate) fn close(&self) -> Result<(), StorageError> {
        let mut inner = self.inner.lock();
        if inner.closed {
            return Ok(());
        }
        let returned = if inner.next_id < inner.state.next_id {
            let next_id = inner.next_id;
            inner.write(next_id, Vec::new())
        } else {
            Ok(())
        };
        inner.closed = true;
        if let Err(error) = inner.index.flush() {
            tracing::error!(%error, "the catalog's index cannot be written; the next start rebuilds it");
        }
        returned
    }
}

impl Inner {
    fn check_open(&self) -> Result<(), StorageError> {
        if self.closed {
            Err(StorageError::Closed)
        } else {
            Ok(())
        }
    }

    fn write(&mut self, next_id: u64, changes: Vec<CatalogChange>) -> Result<(), StorageError> {
        let line = Line {
            sequence: self.state.sequence + 1,
            next_id,
            base: false,
            changes,
        };
        self.journal.append(&self.state, &line)?;
        let is_definition =
            |change: &CatalogChange| matches!(change, CatalogChange::Put(_) | CatalogChange::Remove(_));
        self.definitions += u64::from(line.changes.iter().any(is_definition));
        // The change is made. The index only follows.
        self.state.apply(&line);
        if !self.index_is_stale
            && let Err(error) = self.index.apply(&line)
        {
            tracing::error!(%error, "the catalog's index fell behind; the next start rebuilds it");
            self.index_is_stale = true;
        }
        Ok(())
    }

    fn compact_if_large(&mut self) {
        let limit = self
            .compaction_bytes_min
            .max(self.journal.base_bytes * COMPACTION_GROWTH);
        if self.journal.bytes <= limit {
            return;
        }
        if let Err(error) = self.journal.replace(&self.state) {
            tracing::error!(%error, "the catalog's journal cannot be compacted");
        }
    }
}

fn open_index(path: &Path, cache_bytes: u64) -> Result<(Index, State), StorageError> {
    let index = Index::open(path, cache_bytes)?;
    let state = index.load()?;
    Ok((index, state))
}

/// Whether bytes are a journal; for fuzzing.
#[cfg(any(test, feature = "decoders"))]
pub(crate) fn decode_journal(bytes: &[u8]) -> Result<(), String> {
    match journal::replay_bytes(bytes, Path::new("catalog.journal")) {
        Ok(journal::Replayed { torn: None, .. }) => Ok(()),
        Ok(journal::Replayed {
            torn: Some((line, why)),
            ..
        }) => Err(format!("line {line} is torn: {why}")),
        Err(error) => Err(error.to_string()),
    }
}

/// Reads the journal, or makes it from the index if it is gone.
fn open_journal(
    disk: Arc<dyn Disk>,
    path: &Path,
    indexed: Option<&State>,
) -> Result<(Journal, State), StorageError> {
    if !disk.exists(path) {
        let state = indexed.cloned().unwrap_or_default();
        if state.sequence > 0 {
            tracing::warn!(path = %path.display(), "the catalog's journal was lost and is rebuilt");
        }
        return Ok((Journal::create(disk, path, &state)?, state));
    }
    let replayed = journal::replay(&*disk, path)?;
    if let Some((line, why)) = replayed.torn {
        // The index follows the journal's syncs: what it knows was durable there.
        if indexed.is_some_and(|indexed| indexed.sequence > replayed.state.sequence) {
            return Err(StorageError::CorruptJournal {
                path: path.to_owned(),
                line,
                why,
            });
        }
        tracing::warn!(path = %path.display(), line, %why, "a torn last line is cut off");
    }
    Ok((Journal::open(disk, path, replayed.valid_bytes)?, replayed.state))
}

/// Replaces the index by one made from the journal.
fn rebuild_index(path: &Path, cache_bytes: u64, state: &State) -> Result<Index, StorageError> {
    let removed = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
    };
    removed.map_err(|e| StorageError::io("remove", path, e))?;
    let index = index::guarded(path, || Index::open(path, cache_bytes))?;
    index.apply(&state.to_base())?;
    disk::sync_parent(&OsDisk, path)?;
    Ok(index)
}
