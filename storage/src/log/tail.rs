//! The segment at the end of a log: making it, and writing blocks behind each other.
//!
//! When a new one is begun, and what is done when the disk fails, is [`super::writing`].

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::datatypes::SchemaRef;

use crate::disk::{Disk, DiskFile};
use crate::log::block::{Frame, Place};
use crate::log::blocks::BlockEntry;
use crate::log::segment::{self, SegmentHeader};
use crate::{StorageError, disk};

/// The end of the log, with what is written but not yet synced.
#[derive(Debug, Clone)]
pub(super) struct Tail {
    pub(super) file: Arc<dyn DiskFile>,
    /// The first offset of the segment that is written to.
    pub(super) segment: u64,
    pub(super) header_bytes: u64,
    pub(super) written_bytes: u64,
    pub(super) next_offset: u64,
    /// What of this segment is known to be on the disk.
    pub(super) durable_bytes: u64,
    /// The offset behind that.
    pub(super) durable_offset: u64,
    /// Blocks of this segment that can be merged when it is closed.
    pub(super) small_blocks: usize,
    pub(super) trust: Trust,
}

/// Whether what is written is known to be on the disk once it was synced; see [`super::writing`].
#[derive(Debug, Clone)]
pub(super) enum Trust {
    Whole,
    Suspect,
    Lost(String),
}

impl Tail {
    /// The tail of a new log: its first segment, durable with its name in `directory`.
    pub(super) fn first(
        disk: &dyn Disk,
        directory: &Path,
        relation: u64,
        schema: &SchemaRef,
    ) -> Result<Tail, StorageError> {
        let (tail, _) = Tail::make(disk, directory, relation, 0, schema, Vec::new())?;
        put_in_place(disk, directory, 0)?;
        Ok(tail)
    }

    /// Makes a segment under a name for the meantime, durable with these blocks.
    pub(super) fn make(
        disk: &dyn Disk,
        directory: &Path,
        relation: u64,
        first_offset: u64,
        schema: &SchemaRef,
        frames: Vec<&mut Frame>,
    ) -> Result<(Tail, Vec<BlockEntry>), StorageError> {
        let path = new_path(directory, first_offset);
        let made = Tail::begin(disk, directory, relation, first_offset, schema).and_then(|mut tail| {
            let mut entries = Vec::with_capacity(frames.len());
            for frame in frames {
                let place = frame.place();
                entries.push(tail.copy(frame, place)?);
            }
            tail.finish()?;
            Ok((tail, entries))
        });
        made.map_err(|error| {
            // It takes room, of which there may be too little.
            let _ = disk.remove(&path);
            StorageError::io("create", &path, error)
        })
    }

    /// Begins to make a segment under a name for the meantime; see [`finish`](Self::finish).
    pub(super) fn begin(
        disk: &dyn Disk,
        directory: &Path,
        relation: u64,
        first_offset: u64,
        schema: &SchemaRef,
    ) -> io::Result<Tail> {
        let header = SegmentHeader {
            relation,
            first_offset,
            schema: schema.clone(),
        }
        .encode();
        let bytes = header.len() as u64;
        let file = disk.create(&new_path(directory, first_offset))?;
        file.write_all_at(&header, 0)?;
        Ok(Tail {
            file,
            segment: first_offset,
            header_bytes: bytes,
            written_bytes: bytes,
            next_offset: first_offset,
            durable_bytes: bytes,
            durable_offset: first_offset,
            small_blocks: 0,
            trust: Trust::Whole,
        })
    }

    /// Writes a block of a segment that is being made.
    pub(super) fn copy(&mut self, frame: &mut Frame, place: Place) -> io::Result<BlockEntry> {
        let place = Place {
            // No block of it is durable before all are.
            durable_bytes: self.header_bytes,
            ..place
        };
        self.write(frame, place)
    }

    /// Makes a segment durable, which is then to be put in place.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        self.file.sync()?;
        self.durable_bytes = self.written_bytes;
        self.durable_offset = self.next_offset;
        Ok(())
    }

    pub(super) fn write(&mut self, frame: &mut Frame, place: Place) -> io::Result<BlockEntry> {
        let entry = BlockEntry {
            first_offset: place.first_offset,
            rows: frame.rows,
            bytes: frame.bytes() as u32,
            position: self.written_bytes,
            segment: self.segment,
            written_at_ms: place.written_at_ms,
        };
        self.file.write_all_at(frame.seal(place), entry.position)?;
        self.written_bytes += u64::from(entry.bytes);
        self.small_blocks += usize::from(frame.is_small());
        self.next_offset = entry.end_offset();
        Ok(entry)
    }
}

/// Where a segment is made before it gets its name.
pub(super) fn new_path(directory: &Path, first_offset: u64) -> PathBuf {
    directory
        .join(segment::file_name(first_offset))
        .with_extension(segment::NEW)
}

/// Gives a segment that was made its name, durably.
pub(super) fn put_in_place(disk: &dyn Disk, directory: &Path, first_offset: u64) -> Result<(), StorageError> {
    let new = new_path(directory, first_offset);
    let path = directory.join(segment::file_name(first_offset));
    disk.rename(&new, &path)
        .map_err(|e| StorageError::io("rename", &new, e))?;
    disk::sync_parent(disk, &path)
}
