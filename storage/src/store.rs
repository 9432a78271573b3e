//! Opening and closing a data directory: one owner, one version, one catalog, one log.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::backup::Backup;
use crate::catalog::CatalogCopy;
use crate::checkpoint::CheckpointCopy;
use crate::directory::DirectoryLock;
use crate::disk::{Disk, OsDisk};
use crate::durability::Durability;
use crate::log::{LogCopy, LogOptions};
use crate::{Catalog, Checkpoints, LogHold, LogStore, StorageError, checkpoint, directory, sums};

/// What is written now and then to see whether anything can be written.
const PROBE_FILE: &str = "PROBE";

/// How a store behaves. The defaults suit one machine with one disk.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// What an acknowledged write survives.
    pub durability: Durability,
    /// A log segment is closed when the next block would make it larger than this.
    pub segment_bytes_max: u64,
    /// How long a group of writes may wait for company under [`Durability::Group`]. 0: what arrives during
    /// one sync shares the next, and nothing ever waits longer.
    pub group_commit_delay_ms_max: u64,
    /// Encoded writes that may wait for the writer; `submit` blocks while there are more.
    pub queue_bytes_max: usize,
    /// Memory that sled may use for its pages.
    pub catalog_cache_bytes: u64,
}

impl Default for StoreOptions {
    fn default() -> Self {
        StoreOptions {
            durability: Durability::default(),
            segment_bytes_max: 64 << 20,
            group_commit_delay_ms_max: 5,
            queue_bytes_max: 256 << 20,
            catalog_cache_bytes: 32 << 20,
        }
    }
}

/// An open data directory. Nobody else can open it until this is dropped.
#[derive(Debug)]
pub struct Store {
    directory: PathBuf,
    // The order matters: fields are dropped in it, and the lock goes last.
    logs: Arc<LogStore>,
    catalog: Arc<Catalog>,
    checkpoints: Arc<Checkpoints>,
    closed: AtomicBool,
    _lock: DirectoryLock,
}

impl Store {
    /// Opens a data directory, or makes it, and recovers whatever a crash left half done.
    pub fn open(directory: &Path, options: StoreOptions) -> Result<Store, StorageError> {
        let lock = DirectoryLock::acquire(directory)?;
        directory::check_format(directory)?;
        sums::forget(directory)?;
        let catalog = Arc::new(Catalog::open(directory, options.catalog_cache_bytes)?);
        let checkpoints = Arc::new(Checkpoints::open(directory, Arc::clone(&catalog))?);
        let log_options = LogOptions {
            durability: options.durability,
            segment_bytes_max: options.segment_bytes_max,
            group_commit_delay_ms_max: options.group_commit_delay_ms_max,
            queue_bytes_max: options.queue_bytes_max,
        };
        let logs = Arc::new(LogStore::open(&directory.join("log"), log_options)?);
        checkpoints.void_beyond(|relation| logs.contains(relation).then(|| logs.head(relation)))?;
        Ok(Store {
            directory: directory.to_owned(),
            logs,
            catalog,
            checkpoints,
            closed: AtomicBool::new(false),
            _lock: lock,
        })
    }

    /// Where this store lives.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The objects and small facts.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// State of views and rows of tables, from which a start need not read the whole log.
    pub fn checkpoints(&self) -> &Arc<Checkpoints> {
        &self.checkpoints
    }

    /// The logs of streams and tables.
    pub fn logs(&self) -> &Arc<LogStore> {
        &self.logs
    }

    /// Something that returns when as much as a write to a log and to a file beside it has become durable. It blocks.
    pub fn probe(&self) -> impl FnOnce() -> Result<(), StorageError> + Send + use<> {
        let (logs, path) = (Arc::clone(&self.logs), self.directory.join(PROBE_FILE));
        move || {
            logs.append(vec![]).wait()?;
            let written = OsDisk.create(&path).and_then(|file| {
                file.write_all_at(b"probe\n", 0)?;
                file.sync()
            });
            written.map_err(|e| StorageError::io("write", &path, e))
        }
    }

    /// Fixes a moment between two writes, to be copied. The catalog must not change during the call. What the copy needs is
    /// held until it was made.
    ///
    /// # Errors
    /// The store is closed.
    pub fn begin_backup(&self) -> Result<Backup, StorageError> {
        // No log may begin behind what the checkpoints of the copy have, nor they have more than the logs.
        let holds = self.logs.hold_all();
        let checkpoints = self.checkpoints.copy()?;
        let (catalog, logs) = self.logs.copies(|| self.catalog.copy())?;
        drop(holds);
        Ok(Backup {
            catalog: catalog.with_fact(checkpoint::FACT, checkpoints.root()),
            checkpoints,
            logs,
        })
    }

    /// What it consists of, for whoever copies it while it is open.
    pub(crate) fn parts(&self) -> StoreParts {
        StoreParts {
            catalog: Arc::clone(&self.catalog),
            checkpoints: Arc::clone(&self.checkpoints),
            logs: Arc::clone(&self.logs),
        }
    }

    /// Writes what still waits, syncs everything, and stops the writer. Later writes are refused with
    /// [`StorageError::Closed`]. Calling it twice is harmless. The directory stays locked until the store
    /// is dropped.
    pub fn close(&self) -> Result<(), StorageError> {
        let logs = self.logs.close();
        let catalog = self.catalog.close();
        logs.and(catalog)?;
        if !self.closed.swap(true, Ordering::AcqRel)
            && let Err(error) = sums::write(&self.directory)
        {
            tracing::warn!(%error, "checksums of files were not saved; `millrace check` will skip them");
        }
        Ok(())
    }
}

/// The parts of an open store. What is asked of them when it was closed is an error.
#[derive(Debug, Clone)]
pub(crate) struct StoreParts {
    catalog: Arc<Catalog>,
    checkpoints: Arc<Checkpoints>,
    logs: Arc<LogStore>,
}

/// What differs when anything was written since.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Progress {
    /// The step of the catalog.
    sequence: u64,
    /// The checkpoints that count.
    pub(crate) checkpoints: Vec<u64>,
    /// Where each log ends.
    pub(crate) heads: BTreeMap<u64, u64>,
}

impl StoreParts {
    /// Fixes a moment between two writes, without the checkpoints: nobody need be kept from changing the catalog.
    ///
    /// # Errors
    /// The store is closed, or a log is damaged.
    pub(crate) fn moment(&self) -> Result<(CatalogCopy, Vec<LogCopy>), StorageError> {
        loop {
            let (_, definitions) = self.catalog.versions();
            let (catalog, logs) = self.logs.copies(|| self.catalog.copy())?;
            if self.catalog.versions().1 == definitions {
                return Ok((catalog, logs));
            }
        }
    }

    /// What differs when anything was written since: the step of the catalog, the checkpoints that count, the ends of the logs.
    pub(crate) fn progress(&self) -> Progress {
        Progress {
            sequence: self.catalog.versions().0,
            checkpoints: self.checkpoints.version(),
            heads: self.logs.heads(),
        }
    }

    /// Fixes which checkpoints count. No log may begin behind what they have as long as they are of use: the holds are for that.
    ///
    /// # Errors
    /// They cannot be read.
    pub(crate) fn checkpoints_of_moment(&self) -> Result<(CheckpointCopy, Vec<LogHold>), StorageError> {
        let holds = self.logs.hold_all();
        let copy = self.checkpoints.copy()?;
        let ends = copy.ends();
        let needed = holds.into_iter().filter_map(|mut hold| {
            let end = ends.get(&hold.relation_id())?;
            hold.advance(*end);
            Some(hold)
        });
        let needed = needed.collect();
        Ok((copy, needed))
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // Whoever still holds the log can read it, but no longer write: the lock is about to go.
        if let Err(error) = self.close() {
            tracing::error!(%error, "the store did not close cleanly; the next start recovers it");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_second_owner_is_refused_and_told_who_the_first_is() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("a/b");
        let store = Store::open(&data, StoreOptions::default()).unwrap();
        match Store::open(&data, StoreOptions::default()) {
            Err(StorageError::InUse { directory, pid }) => {
                assert_eq!((directory, pid), (data.clone(), Some(std::process::id())));
            }
            other => panic!("{other:?}"),
        }
        drop(store);
        Store::open(&data, StoreOptions::default()).unwrap();
    }

    #[test]
    fn a_directory_of_something_else_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("thesis.tex"), "x").unwrap();
        let error = Store::open(dir.path(), StoreOptions::default()).unwrap_err();
        assert!(
            matches!(&error, StorageError::NotADataDirectory { found, .. } if found == "thesis.tex"),
            "{error}"
        );
        assert!(!dir.path().join("FORMAT").exists());
        assert!(!dir.path().join("LOCK").exists());
    }

    #[test]
    fn a_newer_format_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        drop(Store::open(dir.path(), StoreOptions::default()).unwrap());
        fs::write(dir.path().join("FORMAT"), "millrace data directory, format 99\n").unwrap();
        let error = Store::open(dir.path(), StoreOptions::default()).unwrap_err();
        assert!(
            matches!(error, StorageError::NewerFormat { found: 99, .. }),
            "{error}"
        );
    }

    #[test]
    fn a_half_written_sled_snapshot_does_not_lock_us_out() {
        let dir = tempfile::tempdir().unwrap();
        let object = crate::catalog::tests::object(7, "t");
        {
            let store = Store::open(dir.path(), StoreOptions::default()).unwrap();
            store
                .catalog()
                .apply(vec![crate::CatalogChange::Put(object.clone())])
                .unwrap();
        }
        fs::write(
            dir.path().join("catalog.sled/snap.00000000000FFFFF.generating"),
            "torn",
        )
        .unwrap();
        let store = Store::open(dir.path(), StoreOptions::default()).unwrap();
        assert_eq!(store.catalog().objects(), vec![object]);
    }

    #[tokio::test]
    async fn a_checkpoint_of_rows_that_are_gone_is_void_for_good() {
        use arrow::array::{ArrayRef, Int64Array, RecordBatch};
        use arrow::datatypes::{DataType, Field, Schema};

        use crate::checkpoint::{Manifest, StoredSource};
        use crate::{ChangeBatch, LogWrite};

        let dir = tempfile::tempdir().unwrap();
        let schema = Arc::new(Schema::new(vec![Field::new("v", DataType::Int64, true)]));
        let append = async |store: &Store, rows: i64| {
            let values: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows));
            let rows = RecordBatch::try_new(Arc::clone(&schema), vec![values]).unwrap();
            let changes = ChangeBatch::insertions(rows);
            store
                .logs()
                .append(vec![LogWrite { relation: 1, changes }])
                .await
                .unwrap();
        };
        let commit = async |store: &Store, relations: &[(u64, u64)]| {
            let draft = store.checkpoints().begin();
            let mut manifest = Manifest::new(draft.number(), 5, 6, 1);
            manifest.sources = (relations.iter())
                .map(|(relation, end)| StoredSource {
                    relation: *relation,
                    end: *end,
                    watermark: None,
                    rows: None,
                })
                .collect();
            draft.commit(manifest, [1, 2, 3].into()).await.unwrap();
        };
        {
            let store = Store::open(dir.path(), StoreOptions::default()).unwrap();
            for relation in 1..=3 {
                store.logs().create(relation, Arc::clone(&schema)).unwrap();
            }
            append(&store, 10).await;
            commit(&store, &[(1, 4), (2, 0)]).await;
            commit(&store, &[(3, 0)]).await;
            // The last five of these rows did not outlive the loss of power.
            commit(&store, &[(1, 15)]).await;
        }
        let store = Store::open(dir.path(), StoreOptions::default()).unwrap();
        let numbers = |store: &Store| -> Vec<u64> {
            store
                .checkpoints()
                .manifests()
                .iter()
                .map(|manifest| manifest.number)
                .collect()
        };
        assert_eq!(numbers(&store), [2]);
        assert_eq!(store.checkpoints().damaged().len(), 2);
        // The log grows beyond that offset, with other rows: what was void stays so.
        append(&store, 10).await;
        drop(store);
        let store = Store::open(dir.path(), StoreOptions::default()).unwrap();
        assert_eq!(store.logs().head(1), 20);
        assert_eq!(numbers(&store), [2]);
    }

    #[test]
    fn after_close_nothing_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), StoreOptions::default()).unwrap();
        store.close().unwrap();
        store.close().unwrap();
        let refused = store.catalog().apply(vec![]);
        assert!(matches!(refused, Err(StorageError::Closed)), "{refused:?}");
        assert!(matches!(
            store.logs().append(vec![]).wait(),
            Err(StorageError::Closed)
        ));
    }
}
