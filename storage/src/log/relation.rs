//! The log of one relation: the index of its durable blocks, which readers use, and its tail, which only the
//! writer's thread moves.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::datatypes::{Schema, SchemaRef};
use parking_lot::{Mutex, RwLock};

use crate::log::block::{Frame, Place};
use crate::log::file::{SegmentFile, SegmentFiles};
use crate::log::segment::{self, SegmentHeader};
use crate::{StorageError, directory};

/// In the directory of a relation that was dropped while somebody was reading it.
pub(super) const DROPPED_MARKER: &str = "DROPPED";

/// Where a block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BlockEntry {
    pub(super) first_offset: u64,
    pub(super) rows: u32,
    /// Header and payload.
    pub(super) bytes: u32,
    pub(super) position: u64,
    /// The first offset of the segment, which names its file.
    pub(super) segment: u64,
}

impl BlockEntry {
    /// The offset behind its last row.
    pub(super) fn end_offset(&self) -> u64 {
        self.first_offset + u64::from(self.rows)
    }
}

/// What is durable, for readers. It only grows.
#[derive(Debug, Default)]
pub(super) struct Index {
    pub(super) blocks: Vec<BlockEntry>,
    /// The offset of the next row.
    pub(super) head: u64,
}

/// The end of the log, with what is written but not yet synced.
#[derive(Debug, Clone)]
pub(super) struct Tail {
    pub(super) file: Arc<dyn SegmentFile>,
    /// The first offset of the segment that is written to.
    pub(super) segment: u64,
    pub(super) header_bytes: u64,
    pub(super) written_bytes: u64,
    pub(super) durable_bytes: u64,
    pub(super) next_offset: u64,
    /// Why nothing may be written any more.
    pub(super) poisoned: Option<String>,
}

#[derive(Debug)]
pub(super) struct RelationLog {
    pub(super) id: u64,
    pub(super) directory: PathBuf,
    /// The schema that the log was made with: that of the segments' headers.
    pub(super) schema: SchemaRef,
    /// The same with the columns that were added since. Which of them a block has is in the block's header.
    pub(super) widest: RwLock<SchemaRef>,
    pub(super) files: Arc<dyn SegmentFiles>,
    pub(super) index: RwLock<Index>,
    pub(super) tail: Mutex<Tail>,
    pub(super) dropped: AtomicBool,
}

impl RelationLog {
    /// Makes the directory and its first segment, so that after a crash both are there, or neither.
    pub(super) fn create(
        log_directory: &Path,
        id: u64,
        schema: SchemaRef,
        files: Arc<dyn SegmentFiles>,
    ) -> Result<RelationLog, StorageError> {
        let directory = log_directory.join(id.to_string());
        let making = log_directory.join(format!("{id}.creating"));
        let made = (|| {
            fs::create_dir(&making).map_err(|e| StorageError::io("create", &making, e))?;
            let tail = Tail::start_segment(&*files, &making, id, 0, &schema)?;
            fs::rename(&making, &directory).map_err(|e| StorageError::io("rename", &making, e))?;
            directory::sync_directory(log_directory)?;
            Ok(tail)
        })();
        if made.is_err() {
            // Whatever is left is removed at the next start.
            let _ = fs::remove_dir_all(&making);
        }
        Ok(RelationLog {
            id,
            directory,
            widest: RwLock::new(Arc::clone(&schema)),
            schema,
            files,
            index: RwLock::default(),
            tail: Mutex::new(made?),
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
        self.directory.join(segment::file_name(segment))
    }

    /// Marks the log as dropped, for ever. The files go when the last reader does.
    pub(super) fn mark_dropped(&self) -> Result<(), StorageError> {
        let marker = self.directory.join(DROPPED_MARKER);
        fs::write(&marker, b"").map_err(|e| StorageError::io("create", &marker, e))?;
        directory::sync_directory(&self.directory)?;
        self.dropped.store(true, Ordering::Release);
        Ok(())
    }

    /// Whether a write may be tried.
    pub(super) fn check_writable(&self) -> Result<(), StorageError> {
        if self.dropped.load(Ordering::Acquire) {
            return Err(StorageError::UnknownRelation { relation: self.id });
        }
        match &self.tail.lock().poisoned {
            Some(why) => Err(StorageError::Poisoned {
                path: self.directory.clone(),
                why: why.clone(),
            }),
            None => Ok(()),
        }
    }

    /// Starts a new segment if `bytes` more would make this one too large. The old one is synced first, so
    /// that only the last segment of a log can have a torn tail.
    pub(super) fn roll(&self, bytes: u64, segment_bytes_max: u64) -> Result<(), StorageError> {
        let mut tail = self.tail.lock();
        let has_blocks = tail.written_bytes > tail.header_bytes;
        if !has_blocks || tail.written_bytes + bytes <= segment_bytes_max {
            return Ok(());
        }
        self.sync_tail(&mut tail)?;
        *tail = Tail::start_segment(
            &*self.files,
            &self.directory,
            self.id,
            tail.next_offset,
            &self.schema,
        )?;
        Ok(())
    }

    /// Writes a block behind the last. On failure the file may hold a part of it: roll back.
    pub(super) fn write(&self, frame: &mut Frame, write_id: u64) -> Result<BlockEntry, StorageError> {
        let mut tail = self.tail.lock();
        let place = Place {
            first_offset: tail.next_offset,
            write_id,
            durable_bytes: tail.durable_bytes,
        };
        let entry = BlockEntry {
            first_offset: tail.next_offset,
            rows: frame.rows,
            bytes: frame.bytes() as u32,
            position: tail.written_bytes,
            segment: tail.segment,
        };
        tail.file
            .write_all_at(frame.seal(place), entry.position)
            .map_err(|e| StorageError::io("write", &self.segment_path(tail.segment), e))?;
        tail.written_bytes += u64::from(entry.bytes);
        tail.next_offset += u64::from(entry.rows);
        Ok(entry)
    }

    /// Makes what was written last. On failure the log is poisoned.
    pub(super) fn sync(&self) -> Result<(), StorageError> {
        self.sync_tail(&mut self.tail.lock())
    }

    fn sync_tail(&self, tail: &mut Tail) -> Result<(), StorageError> {
        if let Some(why) = &tail.poisoned {
            // Trying again proves nothing: the kernel reports a failure once and then forgets it.
            return Err(StorageError::Poisoned {
                path: self.directory.clone(),
                why: why.clone(),
            });
        }
        if tail.durable_bytes == tail.written_bytes {
            return Ok(());
        }
        match tail.file.sync() {
            Ok(()) => {
                tail.durable_bytes = tail.written_bytes;
                Ok(())
            }
            Err(error) => {
                tail.poisoned = Some(error.to_string());
                // A failed sync says nothing about room that a user could make.
                let path = self.segment_path(tail.segment);
                Err(StorageError::Io {
                    action: "sync",
                    path,
                    source: Arc::new(error),
                })
            }
        }
    }

    /// Refuses writes from now on.
    pub(super) fn poison(&self, why: &str) {
        self.tail.lock().poisoned.get_or_insert_with(|| why.to_owned());
    }

    /// Takes back everything behind `mark`, durably: else a part of a failed write could come back after a
    /// crash, when later writes have been acknowledged.
    pub(super) fn roll_back(&self, mark: Tail) {
        let mut tail = self.tail.lock();
        if let Some(why) = &tail.poisoned {
            tracing::error!(relation = self.id, %why, "the log cannot be rolled back after a failed sync");
            return;
        }
        let undo = || {
            if tail.segment != mark.segment {
                fs::remove_file(self.segment_path(tail.segment))?;
                fs::File::open(&self.directory)?.sync_all()?;
            }
            mark.file.set_size(mark.written_bytes)?;
            mark.file.sync()
        };
        match undo() {
            Ok(()) => {
                *tail = mark;
                tail.durable_bytes = tail.written_bytes;
            }
            Err(error) => {
                tracing::error!(relation = self.id, %error, "the log cannot be rolled back; it is closed for writing");
                tail.poisoned = Some(format!("after a failed write, {error}"));
            }
        }
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

impl Drop for RelationLog {
    fn drop(&mut self) {
        if self.dropped.load(Ordering::Acquire)
            && let Err(error) = fs::remove_dir_all(&self.directory)
        {
            let path = self.directory.display();
            tracing::warn!(%path, %error, "cannot remove a dropped log; the next start tries again");
        }
    }
}

impl Tail {
    /// Makes a segment without blocks, durable with its entry in the directory.
    fn start_segment(
        files: &dyn SegmentFiles,
        directory: &Path,
        relation: u64,
        first_offset: u64,
        schema: &SchemaRef,
    ) -> Result<Tail, StorageError> {
        let path = directory.join(segment::file_name(first_offset));
        let header = SegmentHeader {
            relation,
            first_offset,
            schema: schema.clone(),
        }
        .encode();
        let made = files.create(&path).and_then(|file| {
            file.write_all_at(&header, 0)?;
            file.sync()?;
            fs::File::open(directory)?.sync_all()?;
            Ok(file)
        });
        let file = match made {
            Ok(file) => file,
            Err(error) => {
                // It has no blocks, so that the old segment simply stays the last.
                let _ = fs::remove_file(&path);
                return Err(StorageError::io("create", &path, error));
            }
        };
        let bytes = header.len() as u64;
        Ok(Tail {
            file,
            segment: first_offset,
            header_bytes: bytes,
            written_bytes: bytes,
            durable_bytes: bytes,
            next_offset: first_offset,
            poisoned: None,
        })
    }
}
