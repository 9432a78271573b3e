//! `OFFSITE` in a data directory: which copy is its own.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::{StorageError, directory};

const FILE: &str = "OFFSITE";

/// What a data directory knows of its copy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Identity {
    /// Where the copy is.
    pub url: String,
    /// As whom this directory has the right to write there; none: it has not written yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Who of this directory's processes wrote the last moment, and who was to write the next: a copy with a moment of anybody else's was
    /// written by another directory, be it a copy of this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub writers: Vec<String>,
    /// Whether there is a moment of this directory's.
    #[serde(default)]
    pub has_moment: bool,
    /// The moment that it was restored from: its number, and who wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored: Option<(u64, String)>,
}

impl Identity {
    /// What the directory says; one that says nothing has no copy.
    pub(super) fn read(data: &Path) -> Result<Identity, StorageError> {
        let path = data.join(FILE);
        match fs::read(&path) {
            Ok(bytes) => {
                serde_json::from_slice(&bytes).map_err(|why| StorageError::damaged(&path, 0, why.to_string()))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Identity::default()),
            Err(error) => Err(StorageError::io("read", &path, error)),
        }
    }

    /// Replaces it, durably.
    pub(super) fn write(&self, data: &Path) -> Result<(), StorageError> {
        let path = data.join(FILE);
        let json =
            serde_json::to_vec(self).map_err(|e| StorageError::io("write", &path, io::Error::other(e)))?;
        directory::replace_file(&path, &json)
    }
}
