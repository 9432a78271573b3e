//! Reads every byte of a data directory that nobody uses, and says what is wrong with it. Nothing is changed: what a start would
//! cut or make again stays as it is.
//!
//! ```text
//!   FORMAT, LOCK ── directory      catalog.journal, catalog.sled ── catalog::check
//!   log/ ── log::check             checkpoints/ ── checkpoint::check
//!   all other files ── sums: they are as the last orderly stop has left them; after a crash they are read, as far as they can be
//! ```

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use crate::directory::{self, DirectoryLock, LOCK_FILE};
use crate::findings::list;
pub use crate::findings::{Checked, Finding, Severity};
use crate::{StorageError, catalog, checkpoint, log, sums};

/// Reads a data directory whole. It stays locked meanwhile.
///
/// # Errors
/// It is none, of a newer version, or in use; or it cannot be listed.
pub fn check(directory: &Path) -> Result<Checked, StorageError> {
    let _lock = DirectoryLock::acquire_existing(directory)?;
    let mut checked = Checked::default();
    directory::check_existing_format(directory)?;
    let facts = catalog::check(directory, &mut checked)?;
    let heads = log::check(&directory.join("log"), &mut checked)?;
    checkpoint::check(directory, &facts, &heads, &mut checked)?;
    let read = sums::compare(directory, catalog::INDEX, &mut checked)?;
    for entry in list(directory)? {
        let name = entry.file_name().unwrap_or_default().to_string_lossy();
        if !sums::is_apart(&name) && name != catalog::INDEX {
            read_all(&entry, &read, &mut checked)?;
        }
    }
    let lock = directory.join(LOCK_FILE);
    if lock.exists() {
        read_all(&lock, &read, &mut checked)?;
    }
    Ok(checked)
}

/// Reads files that have no checksum, but for those that were read: what the device cannot give back is found.
fn read_all(path: &Path, read: &BTreeSet<PathBuf>, checked: &mut Checked) -> Result<(), StorageError> {
    if path.is_dir() {
        for entry in list(path)? {
            read_all(&entry, read, checked)?;
        }
    } else if path.is_file() && !read.contains(path) {
        match File::open(path).and_then(|mut file| io::copy(&mut file, &mut io::sink())) {
            Ok(bytes) => checked.count(bytes),
            Err(error) => {
                let why = format!("it cannot be read: {error}");
                checked.findings.push(Finding::new(path, 0, Severity::Lost, why));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
