//! The directories below that of all logs: which of them have the log of a relation, and which came to nothing or are over.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::StorageError;
use crate::disk::Disk;
use crate::log::heads;
use crate::log::relation::DROPPED_MARKER;

/// The directories of relations; removes those that were being made or dropped.
/// Those that are there, and those that were dropped.
pub(super) fn of_relations(
    disk: &dyn Disk,
    directory: &Path,
) -> Result<(BTreeMap<u64, PathBuf>, BTreeSet<u64>), StorageError> {
    let (mut found, mut dropped) = (BTreeMap::new(), BTreeSet::new());
    let listed = disk.list(directory);
    for path in listed.map_err(|e| StorageError::io("list", directory, e))? {
        let name = path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        if heads::is_file(&name) {
            continue;
        }
        let is_directory = |path: &Path| match disk.list(path) {
            Err(error) => error.kind() != std::io::ErrorKind::NotADirectory,
            Ok(_) => true,
        };
        if !is_directory(&path) {
            tracing::warn!(path = %path.display(), "a file among the logs of relations; ignored");
        } else if name.ends_with(".creating") || disk.exists(&path.join(DROPPED_MARKER)) {
            dropped.extend(name.parse::<u64>());
            disk.remove_directory(&path)
                .map_err(|e| StorageError::io("remove", &path, e))?;
        } else if let Ok(id) = name.parse() {
            found.insert(id, path);
        } else {
            tracing::warn!(path = %path.display(), "not the log of a relation; ignored");
        }
    }
    Ok((found, dropped))
}
