//! The catalog's journal: the truth about objects and facts. Lines of JSON, each behind its CRC32C in
//! hexadecimal; a change is made when its line is synced. `docs/formats/catalog.md` describes it.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::object::{CatalogChange, CatalogObject, ObjectId};
use crate::disk::{Disk, DiskFile};
use crate::{StorageError, disk};

/// Ids start where PostgreSQL's do, so that one may serve as an oid, apart from those of built-in objects.
const FIRST_ID: u64 = 16_384;

/// All that the catalog knows.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct State {
    /// The number of the last line.
    pub(super) sequence: u64,
    /// Ids below this may have been given out.
    pub(super) next_id: u64,
    pub(super) objects: BTreeMap<ObjectId, CatalogObject>,
    pub(super) facts: BTreeMap<String, Vec<u8>>,
}

impl Default for State {
    fn default() -> Self {
        State {
            sequence: 0,
            next_id: FIRST_ID,
            objects: BTreeMap::new(),
            facts: BTreeMap::new(),
        }
    }
}

/// One line: a step, and the state behind it in short.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Line {
    pub(super) sequence: u64,
    pub(super) next_id: u64,
    /// Whether everything before is void: the first line after a compaction.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) base: bool,
    pub(super) changes: Vec<CatalogChange>,
}

impl State {
    /// Takes one step.
    pub(super) fn apply(&mut self, line: &Line) {
        if line.base {
            self.objects.clear();
            self.facts.clear();
        }
        self.sequence = line.sequence;
        self.next_id = line.next_id;
        for change in &line.changes {
            match change {
                CatalogChange::Put(object) => {
                    self.objects.insert(object.id, object.clone());
                }
                CatalogChange::Remove(id) => {
                    self.objects.remove(id);
                }
                CatalogChange::PutFact { key, value } => {
                    self.facts.insert(key.clone(), value.clone());
                }
                CatalogChange::RemoveFact { key } => {
                    self.facts.remove(key);
                }
            }
        }
    }

    /// The whole state as one line.
    pub(super) fn to_base(&self) -> Line {
        let objects = self.objects.values().cloned().map(CatalogChange::Put);
        let facts = self.facts.iter().map(|(key, value)| CatalogChange::PutFact {
            key: key.clone(),
            value: value.clone(),
        });
        let changes = objects.chain(facts).collect();
        Line {
            sequence: self.sequence,
            next_id: self.next_id,
            base: true,
            changes,
        }
    }
}

impl Line {
    fn encode(&self, path: &Path) -> Result<Vec<u8>, StorageError> {
        let json =
            serde_json::to_vec(self).map_err(|e| StorageError::io("write", path, io::Error::other(e)))?;
        let mut bytes = format!("{:08x} ", crc32c::crc32c(&json)).into_bytes();
        bytes.extend_from_slice(&json);
        bytes.push(b'\n');
        Ok(bytes)
    }

    /// Reads a line without its end.
    fn decode(bytes: &[u8]) -> Result<Line, String> {
        let (Some(crc), Some(b' '), Some(json)) = (bytes.get(..8), bytes.get(8), bytes.get(9..)) else {
            return Err("the line is too short for a checksum".to_owned());
        };
        let found = std::str::from_utf8(crc)
            .ok()
            .and_then(|text| u32::from_str_radix(text, 16).ok());
        let expected = crc32c::crc32c(json);
        if found != Some(expected) {
            return Err(format!("the line's checksum should be {expected:08x}"));
        }
        serde_json::from_slice(json).map_err(|e| e.to_string())
    }
}

/// What a journal says, and how it ended.
#[derive(Debug)]
pub(super) struct Replayed {
    pub(super) state: State,
    /// The invalid last line, if there is one: its number and what is wrong. It begins at `valid_bytes`.
    pub(super) torn: Option<(usize, String)>,
    pub(super) valid_bytes: u64,
}

/// Reads a journal. Damage in front of the last line is an error.
pub(super) fn replay(disk: &dyn Disk, path: &Path) -> Result<Replayed, StorageError> {
    replay_bytes(&disk::read(disk, path)?, path)
}

/// Reads the content of a journal.
pub(super) fn replay_bytes(content: &[u8], path: &Path) -> Result<Replayed, StorageError> {
    let mut replayed = Replayed {
        state: State::default(),
        torn: None,
        valid_bytes: 0,
    };
    let mut rest = content;
    let mut number = 0;
    while !rest.is_empty() {
        number += 1;
        let end = rest.iter().position(|byte| *byte == b'\n');
        let line = &rest[..end.unwrap_or(rest.len())];
        let found = if end.is_some() {
            Line::decode(line)
        } else {
            Err("the line has no end".to_owned())
        };
        let found = found.and_then(|line| follows(&replayed.state, line));
        rest = end.map_or(&[][..], |end| &rest[end + 1..]);
        match found {
            Ok(line) => {
                replayed.state.apply(&line);
                replayed.valid_bytes = (content.len() - rest.len()) as u64;
            }
            // Of a torn write, the end may be missing or zero.
            Err(why) if rest.iter().all(|byte| *byte == 0) => {
                replayed.torn = Some((number, why));
                break;
            }
            Err(why) => {
                return Err(StorageError::CorruptJournal {
                    path: path.to_owned(),
                    line: number,
                    why,
                });
            }
        }
    }
    Ok(replayed)
}

fn follows(state: &State, line: Line) -> Result<Line, String> {
    let expected = state.sequence + 1;
    if line.sequence == expected || (line.base && state.sequence == 0) {
        Ok(line)
    } else {
        Err(format!(
            "expected line {} of the journal's sequence here, not {}",
            expected, line.sequence
        ))
    }
}

/// A journal open for writing.
#[derive(Debug)]
pub(super) struct Journal {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    file: Arc<dyn DiskFile>,
    pub(super) bytes: u64,
    /// The size right after the last compaction.
    pub(super) base_bytes: u64,
    /// Whether nobody knows what the disk holds behind the last good line: the next change replaces the file.
    suspect: bool,
}

impl Journal {
    /// Opens a journal behind its valid lines; what follows them is cut.
    pub(super) fn open(disk: Arc<dyn Disk>, path: &Path, valid_bytes: u64) -> Result<Journal, StorageError> {
        let file = disk.open(path).map_err(|e| StorageError::io("open", path, e))?;
        file.set_size(valid_bytes)
            .and_then(|()| file.sync())
            .map_err(|e| StorageError::io("truncate", path, e))?;
        Ok(Journal {
            disk,
            path: path.to_owned(),
            file,
            bytes: valid_bytes,
            base_bytes: valid_bytes,
            suspect: false,
        })
    }

    /// Makes a journal, or replaces it, with one line that holds the whole state.
    pub(super) fn create(disk: Arc<dyn Disk>, path: &Path, state: &State) -> Result<Journal, StorageError> {
        let bytes = state.to_base().encode(path)?;
        let file = disk::replace(&*disk, path, &bytes)?;
        Ok(Journal {
            disk,
            path: path.to_owned(),
            file,
            bytes: bytes.len() as u64,
            base_bytes: bytes.len() as u64,
            suspect: false,
        })
    }

    /// Replaces the journal by one line that holds the whole state. On failure nobody knows which of the two is in
    /// place, which says the same, and the next change tries again.
    pub(super) fn replace(&mut self, state: &State) -> Result<(), StorageError> {
        self.suspect = true;
        *self = Journal::create(Arc::clone(&self.disk), &self.path, state)?;
        Ok(())
    }

    /// Makes a step from `before`; it is durable on return. If it cannot be written, nothing of it stays, unless a sync
    /// failed and the journal cannot be replaced either: then it shows at the next start whether the step was made.
    pub(super) fn append(&mut self, before: &State, line: &Line) -> Result<(), StorageError> {
        if !self.suspect {
            match self.write(line) {
                Err(_) if self.suspect => {}
                outcome => return outcome,
            }
        }
        // After a failed sync a later success proves nothing, so that the step goes to a file of its own.
        let mut after = before.clone();
        after.apply(line);
        self.replace(&after)
    }

    fn write(&mut self, line: &Line) -> Result<(), StorageError> {
        let bytes = line.encode(&self.path)?;
        if let Err(error) = self.file.write_all_at(&bytes, self.bytes) {
            let error = StorageError::io("write", &self.path, error);
            let undone = self.file.set_size(self.bytes).and_then(|()| self.file.sync());
            self.suspect = undone.is_err() || matches!(error, StorageError::Io { .. });
            return Err(error);
        }
        if let Err(error) = self.file.sync() {
            tracing::error!(path = %self.path.display(), %error, "a sync failed");
            self.suspect = true;
            return Err(StorageError::io("sync", &self.path, error));
        }
        self.bytes += bytes.len() as u64;
        Ok(())
    }
}

/// Adds bytes to the end, as a torn write would leave them.
#[cfg(test)]
pub(super) fn append_raw(path: &Path, bytes: &[u8]) {
    io::Write::write_all(
        &mut std::fs::OpenOptions::new().append(true).open(path).unwrap(),
        bytes,
    )
    .unwrap();
}
