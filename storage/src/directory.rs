//! The data directory itself: who owns it (`LOCK`), which version wrote it (`FORMAT`).

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::disk::OsDisk;
use crate::{StorageError, disk};

/// The version of the data directory that this code writes, and the newest that it reads.
pub(crate) const FORMAT_VERSION: u32 = 1;

const FORMAT_PREFIX: &str = "millrace data directory, format ";
pub(crate) const LOCK_FILE: &str = "LOCK";
pub(crate) const FORMAT_FILE: &str = "FORMAT";
/// What a first start may have left behind before `FORMAT` was in place.
const UNFINISHED: [&str; 2] = [LOCK_FILE, "FORMAT.new"];

/// Whether an entry of a directory is nobody's data: what file systems and mounted volumes have at their top (`lost+found`,
/// `.snapshot`, `.nfs...`), and a log that somebody writes there. None of our own files is called so, so nothing is mixed up.
pub(crate) fn is_bystander(name: &str) -> bool {
    name.starts_with('.')
        || name.ends_with(".log")
        || matches!(name, "lost+found" | "System Volume Information")
}

/// The exclusive right to a data directory, given back when dropped, or by the kernel when the process ends.
#[derive(Debug)]
pub(crate) struct DirectoryLock {
    _file: File,
}

impl DirectoryLock {
    /// Locks a directory that there is, and changes nothing in it. One that never was locked stays so.
    pub(crate) fn acquire_existing(directory: &Path) -> Result<Option<Self>, StorageError> {
        fs::metadata(directory).map_err(|e| StorageError::io("read", directory, e))?;
        if !directory.join(FORMAT_FILE).exists() {
            refuse_foreign(directory)?;
            return Err(StorageError::NoData {
                directory: directory.to_owned(),
            });
        }
        let path = directory.join(LOCK_FILE);
        match File::open(&path) {
            Ok(mut file) => {
                lock(&mut file, directory, &path)?;
                Ok(Some(DirectoryLock { _file: file }))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(StorageError::io("open", &path, error)),
        }
    }

    /// Makes the directory if there is none, and locks it. A directory of somebody else is not touched.
    pub(crate) fn acquire(directory: &Path) -> Result<Self, StorageError> {
        fs::create_dir_all(directory).map_err(|e| StorageError::io("create directory", directory, e))?;
        refuse_foreign(directory)?;
        // Passwords' verifiers and everybody's rows are in it.
        if let Err(error) = fs::set_permissions(directory, fs::Permissions::from_mode(0o700)) {
            tracing::warn!(directory = %directory.display(), %error, "the data directory could not be closed to others");
        }
        let path = directory.join(LOCK_FILE);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(|e| StorageError::io("open", &path, e))?;
        lock(&mut file, directory, &path)?;
        file.set_len(0)
            .and_then(|()| writeln!(file, "{}", std::process::id()))
            .map_err(|e| StorageError::io("write", &path, e))?;
        Ok(DirectoryLock { _file: file })
    }
}

/// Locks the file; an error that says who has locked it otherwise.
fn lock(file: &mut File, directory: &Path, path: &Path) -> Result<(), StorageError> {
    match flock(&*file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => {
            let mut pid = String::new();
            // The owner's pid only makes the message better.
            let read = file.read_to_string(&mut pid);
            Err(StorageError::InUse {
                directory: directory.to_owned(),
                pid: read.ok().and_then(|_| pid.trim().parse().ok()),
            })
        }
        Err(errno) => Err(StorageError::io("lock", path, errno.into())),
    }
}

/// Refuses a directory that has files but no `FORMAT`.
fn refuse_foreign(directory: &Path) -> Result<(), StorageError> {
    if directory.join(FORMAT_FILE).exists() {
        return Ok(());
    }
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).map_err(|e| StorageError::io("list", directory, e))? {
        let entry = entry.map_err(|e| StorageError::io("list", directory, e))?;
        names.push(entry.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    let is_ours = |name: &str| UNFINISHED.contains(&name);
    match names
        .into_iter()
        .find(|name| !is_ours(name) && !is_bystander(name))
    {
        Some(found) => Err(StorageError::NotADataDirectory {
            directory: directory.to_owned(),
            found,
        }),
        None => Ok(()),
    }
}

/// Looks at a directory without changing it: whether it has data of a version that this one reads, and nobody uses it.
///
/// # Errors
/// It has none, of a newer version, or is in use; or it cannot be read.
pub fn look(directory: &Path) -> Result<(), StorageError> {
    let _lock = DirectoryLock::acquire_existing(directory)?;
    check_existing_format(directory)
}

/// Checks the version of a directory that has one.
pub(crate) fn check_existing_format(directory: &Path) -> Result<(), StorageError> {
    let path = directory.join(FORMAT_FILE);
    let text = fs::read_to_string(&path).map_err(|e| StorageError::io("read", &path, e))?;
    read_format(&text, directory)
}

/// Checks the version of the directory, or writes ours into a new one. The lock must be held.
pub(crate) fn check_format(directory: &Path) -> Result<(), StorageError> {
    let path = directory.join(FORMAT_FILE);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return write_format(directory);
        }
        Err(error) => return Err(StorageError::io("read", &path, error)),
    };
    read_format(&text, directory)
}

/// Makes a directory one of ours.
pub(crate) fn write_format(directory: &Path) -> Result<(), StorageError> {
    let text = format!("{FORMAT_PREFIX}{FORMAT_VERSION}\n");
    replace_file(&directory.join(FORMAT_FILE), text.as_bytes())
}

/// Checks what `FORMAT` says.
pub(crate) fn read_format(text: &str, directory: &Path) -> Result<(), StorageError> {
    let version = text
        .strip_prefix(FORMAT_PREFIX)
        .and_then(|rest| rest.trim_end().parse::<u32>().ok());
    match version {
        Some(found) if found > FORMAT_VERSION => Err(StorageError::NewerFormat {
            directory: directory.to_owned(),
            found,
            supported: FORMAT_VERSION,
        }),
        Some(1..) => Ok(()),
        _ => Err(StorageError::NotADataDirectory {
            directory: directory.to_owned(),
            found: FORMAT_FILE.to_owned(),
        }),
    }
}

/// [`disk::replace`] on the operating system's disk.
pub(crate) fn replace_file(path: &Path, content: &[u8]) -> Result<(), StorageError> {
    disk::replace(&OsDisk, path, content).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_that_died_before_writing_the_format_is_no_stranger() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("FORMAT.new"), "mill").unwrap();
        fs::write(dir.path().join("LOCK"), "1\n").unwrap();
        let _lock = DirectoryLock::acquire(dir.path()).unwrap();
        check_format(dir.path()).unwrap();
        check_format(dir.path()).unwrap();
    }

    #[test]
    fn what_volumes_have_at_their_top_is_no_stranger() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["lost+found", ".snapshot", ".Trash-1000"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        fs::write(dir.path().join("millrace.log"), "started\n").unwrap();
        let _lock = DirectoryLock::acquire(dir.path()).unwrap();
        check_format(dir.path()).unwrap();
        let other = tempfile::tempdir().unwrap();
        fs::write(other.path().join(".hidden"), "").unwrap();
        fs::create_dir(other.path().join("log")).unwrap();
        let error = DirectoryLock::acquire(other.path()).unwrap_err();
        assert!(
            matches!(&error, StorageError::NotADataDirectory { found, .. } if found == "log"),
            "{error}"
        );
    }

    #[test]
    fn a_format_file_of_somebody_else_is_refused() {
        for text in [
            "",
            "format 1",
            "millrace data directory, format x",
            "millrace data directory, format 0",
        ] {
            let dir = tempfile::tempdir().unwrap();
            fs::write(dir.path().join("FORMAT"), text).unwrap();
            let error = check_format(dir.path()).unwrap_err();
            assert!(
                matches!(error, StorageError::NotADataDirectory { .. }),
                "{text:?}: {error}"
            );
        }
    }
}
