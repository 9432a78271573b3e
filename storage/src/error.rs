//! What can go wrong in storage, each with what was wrong, where, and what to do.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An error of the storage crate. Cloneable, because one failure of a file may answer many writers.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StorageError {
    /// Another process (or another `Store` of this one) holds the directory.
    #[error(
        "data directory {} is in use by {}; stop it, or choose another directory",
        directory.display(),
        pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
    )]
    InUse { directory: PathBuf, pid: Option<u32> },

    /// The directory was written by a later version.
    #[error(
        "data directory {} has format {found}, and this version reads formats up to {supported}; \
         use a newer millrace",
        directory.display()
    )]
    NewerFormat {
        directory: PathBuf,
        found: u32,
        supported: u32,
    },

    /// The directory holds something that millrace did not put there.
    #[error(
        "{} is not a millrace data directory: it has no valid FORMAT file but contains {found:?}; \
         choose an empty or a new directory, or move that away",
        directory.display()
    )]
    NotADataDirectory { directory: PathBuf, found: String },

    /// The directory has no data of millrace.
    #[error("{} is empty: it is not a data directory yet; `millrace serve --data` makes one", directory.display())]
    NoData { directory: PathBuf },

    /// A directory that is to be filled has something in it.
    #[error("{} is not empty: it contains {found:?}; choose an empty or a new directory", directory.display())]
    NotEmpty { directory: PathBuf, found: String },

    /// A directory could not be filled; it is as it was before.
    #[error("{error} ({} is unchanged)", directory.display())]
    NotFilled {
        directory: PathBuf,
        error: Box<StorageError>,
    },

    /// The same, and what was written cannot be taken back.
    #[error("{error}; the files written to {} cannot be removed ({left}): remove them", directory.display())]
    LeftBehind {
        directory: PathBuf,
        error: Box<StorageError>,
        left: Box<StorageError>,
    },

    /// There is no backup, or one that was not finished.
    #[error(
        "{} is not a complete backup: it has no file BACKUP, which is written last; give the directory of a \
         BACKUP TO that finished",
        directory.display()
    )]
    NoBackup { directory: PathBuf },

    /// An object store does not do what it is asked for.
    #[error("{object}: {why}")]
    Offsite { object: String, why: String },

    /// An object of the copy in an object store is missing, or does not say what was written.
    #[error("{object} is damaged: {why}")]
    OffsiteDamaged { object: String, why: String },

    /// There is no copy where one is to be restored from.
    #[error("no copy to restore found at {url}; use the URL that log_url had")]
    NothingOffsite { url: String },

    /// The copy in an object store is that of another data directory.
    #[error(
        "the copy at {url} is not that of this data directory: another one has written moment {number}; \
         if a server was restored from it, this one must not go on, and its data directory is of no use any more; \
         if this is the one that is to count, start it with --take-over"
    )]
    NotOurs { url: String, number: u64 },

    /// Where this directory's copy was, there is none.
    #[error(
        "the copy at {url} is gone: a disk may not be mounted; if it was removed on purpose, --take-over makes a new one"
    )]
    CopyGone { url: String },

    /// Another server writes to the copy now.
    #[error(
        "another server has taken over the copy at {url} with moment {number}: nothing that is written here is \
         protected any more; stop one of the two servers"
    )]
    Fenced { url: String, number: u64 },

    /// Bytes that were durable do not say what was written.
    #[error("{} is damaged at byte {offset}: {why}; restore the file from a backup", path.display())]
    Corrupt { path: PathBuf, offset: u64, why: String },

    /// Bytes of which there is another copy, or that can be made again, do not say what was written.
    #[error("{} is damaged at byte {offset}: {why}", path.display())]
    Damaged { path: PathBuf, offset: u64, why: String },

    /// A line of the catalog's journal that was durable does not say what was written.
    #[error("{} is damaged at line {line}: {why}; restore the file from a backup", path.display())]
    CorruptJournal { path: PathBuf, line: usize, why: String },

    /// No room on the device, or the quota is used up. Nothing of the write was kept.
    #[error("no space left to write {}; free some space and try again (nothing of this write was stored)", path.display())]
    Full { path: PathBuf },

    /// The operating system refused.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        source: Arc<io::Error>,
    },

    /// A sync failed, and what was acknowledged without being synced cannot be read back.
    #[error(
        "{} does not accept writes any more, because a sync failed and rows that were not synced are lost \
         ({why}); check the disk, then restart (what was synced is safe, and can still be read)",
        path.display()
    )]
    Poisoned { path: PathBuf, why: String },

    /// There is no log for this relation: never created, or dropped.
    #[error("relation {relation} has no log: it was never created, or it was dropped")]
    UnknownRelation { relation: u64 },

    /// There is a log for this relation already.
    #[error("relation {relation} already has a log")]
    RelationExists { relation: u64 },

    /// Rows that do not fit the schema of the relation's log.
    #[error("rows do not fit the log of relation {relation}: {why}")]
    SchemaMismatch { relation: u64, why: String },

    /// A column type that the log does not store.
    #[error(
        "column {column:?} has type {data_type}, which the log does not store; cast it to its plain type"
    )]
    UnsupportedType { column: String, data_type: String },

    /// A row, or a write, that does not fit one block, or one write.
    #[error("{what} exceeds the limit of the log: {found}, at most {limit}; write less at once")]
    TooLarge {
        what: &'static str,
        found: u64,
        limit: u64,
    },

    /// A change batch that is no Z-set.
    #[error("invalid change batch: {why}")]
    InvalidChange { why: String },

    /// The catalog's index failed. The journal still holds the truth.
    #[error("cannot {action} the catalog's index {}: {why}", path.display())]
    Index {
        action: &'static str,
        path: PathBuf,
        why: String,
    },

    /// The store was closed before this call.
    #[error("the store is closed")]
    Closed,
}

impl StorageError {
    /// Sorts an error of the operating system into "no room", which a user can mend, and the rest.
    pub(crate) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                StorageError::Full {
                    path: path.to_owned(),
                }
            }
            _ => StorageError::Io {
                action,
                path: path.to_owned(),
                source: Arc::new(source),
            },
        }
    }

    pub(crate) fn offsite(object: &str, why: impl Into<String>) -> Self {
        StorageError::Offsite {
            object: object.to_owned(),
            why: why.into(),
        }
    }

    pub(crate) fn damaged(path: &Path, offset: u64, why: impl Into<String>) -> Self {
        StorageError::Damaged {
            path: path.to_owned(),
            offset,
            why: why.into(),
        }
    }

    pub(crate) fn corrupt(path: &Path, offset: u64, why: impl Into<String>) -> Self {
        StorageError::Corrupt {
            path: path.to_owned(),
            offset,
            why: why.into(),
        }
    }
}
