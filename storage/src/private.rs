//! Files and directories of a data directory, which nobody but their owner may open.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

const FILE: u32 = 0o600;
const DIRECTORY: u32 = 0o700;

/// A new file, to be written.
///
/// # Errors
/// There is one of that name, or the file system refuses.
pub fn create_new(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(FILE)
        .open(path)
}

/// An empty file, to be written; one of that name is emptied.
///
/// # Errors
/// The file system refuses.
pub fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .mode(FILE)
        .open(path)
}

/// A directory.
///
/// # Errors
/// There is one of that name, or the file system refuses.
pub fn create_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(DIRECTORY).create(path)
}

/// A directory and those above it, unless they are there.
///
/// # Errors
/// The file system refuses.
pub fn create_directory_all(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(DIRECTORY).recursive(true).create(path)
}

/// Closes to others the files of a directory that somebody else has made, whose names begin so.
pub(crate) fn close_files(directory: &Path, beginning: &str) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(beginning) {
            fs::set_permissions(entry.path(), fs::Permissions::from_mode(FILE))?;
        }
    }
    Ok(())
}

/// Closes to others what somebody else has made: a directory and the files in it.
pub(crate) fn close(directory: &Path) -> io::Result<()> {
    fs::set_permissions(directory, fs::Permissions::from_mode(DIRECTORY))?;
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        match path.is_dir() {
            true => close(&path)?,
            false => fs::set_permissions(&path, fs::Permissions::from_mode(FILE))?,
        }
    }
    Ok(())
}
