//! What storage needs of a file system, behind two traits: so that tests can run it on a disk that tears, reorders,
//! forgets, fails and fills up.
//!
//! [`OsDisk`] is the operating system's; it passes each call on and nothing else. The simulated one is in
//! `disk/simulated.rs` and only in tests. The data directory's lock, its `FORMAT` and sled are not behind these
//! traits.

#[cfg(test)]
pub(crate) mod simulated;

use std::fmt::Debug;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{StorageError, private};

/// An open file: read and written at positions, so that readers and the writer share no cursor.
pub(crate) trait DiskFile: Debug + Send + Sync {
    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()>;
    fn read_exact_at(&self, bytes: &mut [u8], position: u64) -> io::Result<()>;
    fn size(&self) -> io::Result<u64>;
    fn set_size(&self, bytes: u64) -> io::Result<()>;
    /// Returns when content and size are on the disk. After an error nobody knows which of the bytes that were written
    /// since the last success are there, and a later success says nothing about them.
    fn sync(&self) -> io::Result<()>;
}

/// Names of files. A change of a directory lasts when the directory was synced.
pub(crate) trait Disk: Debug + Send + Sync {
    /// An empty file, to read and write; one of that name is emptied.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;
    /// An existing file, to read and write.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;
    /// What is in a directory, in no order.
    fn list(&self, directory: &Path) -> io::Result<Vec<PathBuf>>;
    fn exists(&self, path: &Path) -> bool;
    fn create_directory(&self, path: &Path) -> io::Result<()>;
    fn remove(&self, path: &Path) -> io::Result<()>;
    fn remove_directory(&self, path: &Path) -> io::Result<()>;
    /// In one step; a file of the new name is replaced.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn sync_directory(&self, path: &Path) -> io::Result<()>;
}

/// Files of the operating system.
#[derive(Debug)]
pub(crate) struct OsDisk;

impl Disk for OsDisk {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(private::create(path)?))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(OpenOptions::new().read(true).write(true).open(path)?))
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<PathBuf>> {
        fs::read_dir(directory)?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect()
    }

    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        private::create_directory(path)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir_all(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }
}

impl DiskFile for File {
    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        FileExt::write_all_at(self, bytes, position)
    }

    fn read_exact_at(&self, bytes: &mut [u8], position: u64) -> io::Result<()> {
        FileExt::read_exact_at(self, bytes, position)
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn set_size(&self, bytes: u64) -> io::Result<()> {
        self.set_len(bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}

/// The whole content of a file.
pub(crate) fn read(disk: &dyn Disk, path: &Path) -> Result<Vec<u8>, StorageError> {
    let read = || {
        let file = disk.open(path)?;
        let mut bytes = vec![0; usize::try_from(file.size()?).map_err(io::Error::other)?];
        file.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    };
    read().map_err(|e| StorageError::io("read", path, e))
}

/// Replaces a file so that after a crash either the old or the new content is there, whole. Returns the new file.
pub(crate) fn replace(
    disk: &dyn Disk,
    path: &Path,
    content: &[u8],
) -> Result<Arc<dyn DiskFile>, StorageError> {
    let new = path.with_extension("new");
    let made = disk.create(&new).and_then(|file| {
        file.write_all_at(content, 0)?;
        file.sync()?;
        Ok(file)
    });
    let file = match made {
        Ok(file) => file,
        Err(error) => {
            // The room that it takes may be what is missing.
            let _ = disk.remove(&new);
            return Err(StorageError::io("write", &new, error));
        }
    };
    disk.rename(&new, path)
        .map_err(|e| StorageError::io("rename", &new, e))?;
    sync_parent(disk, path)?;
    Ok(file)
}

/// Makes the entry of a file or directory in its parent last.
pub(crate) fn sync_parent(disk: &dyn Disk, path: &Path) -> Result<(), StorageError> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    disk.sync_directory(parent)
        .map_err(|e| StorageError::io("sync", parent, e))
}
