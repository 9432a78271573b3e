//! The log of one relation: its durable blocks, which readers use, and its tail, which only the writer's thread moves.
//!
//! What is done to it has files of its own: [`super::writing`] at its end, [`super::maintenance`] at its beginning,
//! [`super::reader`] in between.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use arrow::datatypes::{Schema, SchemaRef};
use parking_lot::{Mutex, RwLock};

use crate::disk::Disk;
use crate::log::blocks::{BlockEntry, Index};
use crate::log::closed::{Closed, ClosedState};
use crate::log::first::First;
use crate::log::segment;
use crate::log::tail::{Tail, Trust};
use crate::log::types::RelationOptions;
use crate::{StorageError, disk};

/// In the directory of a relation that was dropped while somebody was reading it.
pub(super) const DROPPED_MARKER: &str = "DROPPED";

#[derive(Debug)]
pub(super) struct RelationLog {
    pub(super) id: u64,
    pub(super) directory: PathBuf,
    /// The schema that the log was made with: that of the segments' headers.
    pub(super) schema: SchemaRef,
    /// The same with the columns that were added since. Which of them a block has is in the block's header.
    pub(super) widest: RwLock<SchemaRef>,
    pub(super) disk: Arc<dyn Disk>,
    pub(super) index: RwLock<Index>,
    pub(super) tail: Mutex<Tail>,
    pub(super) options: RwLock<RelationOptions>,
    pub(super) first: Mutex<Beginning>,
    /// The first offset of the base that the log begins with; `u64::MAX`: there is none.
    pub(super) base: AtomicU64,
    /// Up to where its changes were added up, or were looked at for that.
    pub(super) shrunk_to: AtomicU64,
    /// Closed segments that have an index, by their first offsets.
    pub(super) indexed: Mutex<BTreeSet<u64>>,
    /// Closed segments whose small blocks were merged, as far as they can be, by their first offsets, each with the time from which
    /// it is looked at again.
    pub(super) merged: Mutex<BTreeMap<u64, i64>>,
    /// The closed segments, as they were found last.
    pub(super) closed: Mutex<Option<(ClosedState, Arc<[Closed]>)>>,
    /// Logs whose files may have blocks of writes that failed, in them and in this one. See
    /// [`may_forget_writes`](Self::may_forget_writes).
    pub(super) failed_with: Mutex<Vec<Weak<RelationLog>>>,
    pub(super) dropped: AtomicBool,
}

/// Where the log begins: as it shall be, and as the disk has it.
#[derive(Debug, Default)]
pub(super) struct Beginning {
    pub(super) wanted: First,
    pub(super) durable: First,
}

impl RelationLog {
    /// Makes the directory and its first segment, so that after a crash both are there, or neither.
    pub(super) fn create(
        log_directory: &Path,
        id: u64,
        schema: SchemaRef,
        disk: Arc<dyn Disk>,
    ) -> Result<RelationLog, StorageError> {
        let directory = log_directory.join(id.to_string());
        let making = log_directory.join(format!("{id}.creating"));
        let made = (|| {
            if disk.exists(&making) {
                // An earlier attempt failed, and could not be cleaned up after.
                disk.remove_directory(&making)
                    .map_err(|e| StorageError::io("remove", &making, e))?;
            }
            disk.create_directory(&making)
                .map_err(|e| StorageError::io("create", &making, e))?;
            let tail = Tail::first(&*disk, &making, id, &schema)?;
            disk.rename(&making, &directory)
                .map_err(|e| StorageError::io("rename", &making, e))?;
            disk.sync_directory(log_directory)
                .map_err(|e| StorageError::io("sync", log_directory, e))?;
            Ok(tail)
        })();
        if made.is_err() {
            // Whatever is left of it nobody names, and is removed at the next attempt or the next start.
            let _ = disk.remove_directory(&making);
            let _ = disk.remove_directory(&directory);
        }
        Ok(RelationLog {
            id,
            directory,
            widest: RwLock::new(Arc::clone(&schema)),
            schema,
            disk,
            index: RwLock::default(),
            tail: Mutex::new(made?),
            options: RwLock::default(),
            first: Mutex::default(),
            base: AtomicU64::new(u64::MAX),
            shrunk_to: AtomicU64::default(),
            indexed: Mutex::default(),
            merged: Mutex::default(),
            closed: Mutex::default(),
            failed_with: Mutex::default(),
            dropped: AtomicBool::new(false),
        })
    }

    /// The schema of blocks with so many columns; 0: those of the segments' headers. `None`: there are none such.
    pub(super) fn schema_of(&self, columns: u16) -> Option<SchemaRef> {
        let first = self.schema.fields().len();
        let widest = self.widest.read();
        match usize::from(columns) {
            0 => Some(Arc::clone(&self.schema)),
            columns if columns == widest.fields().len() => Some(Arc::clone(&widest)),
            columns if columns > first && columns < widest.fields().len() => {
                Some(Arc::new(Schema::new(widest.fields()[..columns].to_vec())))
            }
            _ => None,
        }
    }

    pub(super) fn segment_path(&self, segment: u64) -> PathBuf {
        match self.base.load(Ordering::Acquire) == segment {
            true => segment::base_path(&self.directory, segment),
            false => self.directory.join(segment::file_name(segment)),
        }
    }

    /// Marks the log as dropped, forever. The files go when the last reader does.
    pub(super) fn mark_dropped(&self) -> Result<(), StorageError> {
        mark_dropped(&*self.disk, &self.directory)?;
        self.dropped.store(true, Ordering::Release);
        Ok(())
    }

    /// Notes that a write failed in all of these logs, one of which this is, and that its blocks may be in their files.
    pub(super) fn failed_with(&self, logs: &[Arc<RelationLog>]) {
        let others = logs.iter().filter(|log| log.id != self.id);
        self.failed_with.lock().extend(others.map(Arc::downgrade));
    }

    /// Whether it may become unknown which writes this log had, by an index or by retention. Recovery then takes all of its
    /// older writes for whole; so not while there may be blocks of a failed one in another log. They are out of the way once
    /// that log has begun a new segment.
    pub(super) fn may_forget_writes(&self) -> bool {
        let mut failed_with = self.failed_with.lock();
        failed_with.retain(|log| {
            log.upgrade().is_some_and(|log| {
                let is_dropped = log.dropped.load(Ordering::Acquire);
                !is_dropped && !matches!(log.tail.lock().trust, Trust::Whole)
            })
        });
        failed_with.is_empty()
    }

    /// Shows durable blocks to readers.
    pub(super) fn publish(&self, entries: &[BlockEntry]) {
        let mut index = self.index.write();
        for entry in entries {
            debug_assert_eq!(entry.first_offset, index.head, "offsets have no gaps");
            index.blocks.push(*entry);
            index.head = entry.end_offset();
        }
    }
}

/// Marks the log in a directory as dropped, forever.
pub(super) fn mark_dropped(disk: &dyn Disk, directory: &Path) -> Result<(), StorageError> {
    let marker = directory.join(DROPPED_MARKER);
    disk.create(&marker)
        .map_err(|e| StorageError::io("create", &marker, e))?;
    disk::sync_parent(disk, &marker)
}

impl Drop for RelationLog {
    fn drop(&mut self) {
        if self.dropped.load(Ordering::Acquire)
            && let Err(error) = self.disk.remove_directory(&self.directory)
        {
            let path = self.directory.display();
            tracing::warn!(%path, %error, "cannot remove a dropped log; the next start tries again");
        }
    }
}
