//! A copy of a log up to an offset, in segments of its own, made while the log goes on.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::{Disk, OsDisk};
use crate::log::block::{Frame, Place};
use crate::log::blocks::BlockEntry;
use crate::log::first::First;
use crate::log::hold::LogHold;
use crate::log::relation::RelationLog;
use crate::log::segment::{self, SegmentHeader};
use crate::log::tail::{Tail, put_in_place};
use crate::{StorageError, disk};

/// Bytes of a segment of the copy, which are in memory at a time.
const SEGMENT_BYTES_MAX: u64 = 16 << 20;

/// What is to be copied of a log. What has to be kept for it is held.
#[derive(Debug)]
pub(crate) struct LogCopy {
    hold: LogHold,
    first: First,
    end: u64,
    base_end: u64,
}

/// Where a log begins and ends at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogSpan {
    /// The offset of its first row, and the id of the last write in front of it.
    pub(crate) first: u64,
    pub(crate) write_id: u64,
    /// Rows in front of this are what other rows added up to; 0: there are none.
    pub(crate) base_end: u64,
    pub(crate) end: u64,
}

impl LogSpan {
    /// Writes down in a log's directory where it begins, as one without a base.
    pub(crate) fn write_beginning(&self, directory: &Path) -> Result<(), StorageError> {
        let first = First {
            offset: self.first,
            write_id: self.write_id,
            base_end: 0,
        };
        match first == First::default() {
            true => Ok(()),
            false => first.write(&OsDisk, directory),
        }
    }
}

/// The name of the file of a segment that begins at an offset.
pub(crate) fn segment_name(first_offset: u64) -> String {
    segment::file_name(first_offset)
}

impl LogCopy {
    /// The relation whose log it is.
    pub(crate) fn relation(&self) -> u64 {
        self.hold.relation().id
    }

    /// All that the hold has and that is durable now.
    pub(super) fn new(hold: LogHold) -> LogCopy {
        let (index, first) = (hold.relation().index.read(), hold.relation().first.lock());
        let copy = (first.wanted, index.head);
        drop((index, first));
        let base_end = copy.0.base_end;
        LogCopy {
            hold,
            // What is copied of a base is a segment as all others are.
            first: First {
                base_end: 0,
                ..copy.0
            },
            end: copy.1,
            base_end,
        }
    }

    /// Where it begins and ends.
    pub(crate) fn span(&self) -> LogSpan {
        LogSpan {
            first: self.first.offset,
            write_id: self.first.write_id,
            base_end: self.base_end,
            end: self.end,
        }
    }

    /// The bytes that the rows `from..to` take, about.
    pub(crate) fn bytes(&self, from: u64, to: u64) -> u64 {
        let index = self.hold.relation().index.read();
        let blocks = index.blocks[index.position_of(from)..].iter();
        let blocks = blocks.take_while(|entry| entry.first_offset < to);
        blocks.map(|entry| u64::from(entry.bytes)).sum()
    }

    /// The rows from `from` on and in front of `to`, so many bytes of them but at least a block if there is any, as the content of a
    /// segment; and the offset behind them.
    pub(crate) fn segment(&self, from: u64, to: u64, bytes_max: u64) -> Result<(Vec<u8>, u64), StorageError> {
        let log = self.hold.relation();
        let mut bytes = SegmentHeader {
            relation: log.id,
            first_offset: from,
            schema: Arc::clone(&log.schema),
        }
        .encode();
        let header_bytes = bytes.len() as u64;
        let mut end = from;
        let frames = if from < to {
            log.frames(from, to, bytes_max)?
        } else {
            vec![]
        };
        for mut frame in frames {
            let place = frame.place();
            end = place.first_offset + u64::from(frame.rows);
            // As of a segment that is being made: nothing of it lasts before all does.
            let place = Place {
                durable_bytes: header_bytes,
                ..place
            };
            bytes.extend_from_slice(frame.seal(place));
        }
        Ok((bytes, end))
    }

    /// Writes it below `directory`, as the log of the same relation.
    pub(crate) fn write(mut self, directory: &Path) -> Result<(), StorageError> {
        let directory = self.begin(directory)?;
        while self.write_segment(&directory, SEGMENT_BYTES_MAX)? {}
        Ok(())
    }

    /// Makes the directory of the relation, and returns it.
    pub(super) fn begin(&self, directory: &Path) -> Result<PathBuf, StorageError> {
        let disk = &OsDisk;
        let directory = directory.join(self.hold.relation().id.to_string());
        disk.create_directory(&directory)
            .map_err(|e| StorageError::io("create", &directory, e))?;
        disk::sync_parent(disk, &directory)?;
        if self.first != First::default() {
            self.first.write(disk, &directory)?;
        }
        Ok(directory)
    }

    /// Writes the next segment, and lets go of what is in it; false: it was the last.
    pub(super) fn write_segment(&mut self, directory: &Path, bytes_max: u64) -> Result<bool, StorageError> {
        let (disk, log, offset) = (&OsDisk, self.hold.relation(), self.hold.offset());
        let mut frames = log.frames(offset, self.end, bytes_max)?;
        let frames = frames.iter_mut().collect();
        let (tail, _) = Tail::make(disk, directory, log.id, offset, &log.schema, frames)?;
        put_in_place(disk, directory, offset)?;
        self.hold.advance(tail.next_offset);
        Ok(tail.next_offset < self.end)
    }
}

impl RelationLog {
    /// The rows `offset..end` in blocks: so many bytes, but at least one block if there is any.
    fn frames(&self, offset: u64, end: u64, bytes_max: u64) -> Result<Vec<Frame>, StorageError> {
        loop {
            let (entries, moves) = {
                let index = self.index.read();
                let mut bytes = 0;
                let blocks = index.blocks[index.position_of(offset)..].iter();
                let entries: Vec<BlockEntry> = blocks
                    .take_while(|entry| {
                        bytes += u64::from(entry.bytes);
                        entry.first_offset < end && (bytes <= bytes_max || entry.first_offset <= offset)
                    })
                    .copied()
                    .collect();
                (entries, index.moves)
            };
            let frames: Result<Vec<Frame>, StorageError> = entries
                .iter()
                .map(|entry| self.block_within(entry, offset, end))
                .collect();
            // They may have gone to other files meanwhile.
            if frames.is_ok() || self.index.read().moves == moves {
                return frames;
            }
        }
    }

    /// A block, or what it has of the rows `offset..end`: blocks that were merged since the copy was begun may have more.
    fn block_within(&self, entry: &BlockEntry, offset: u64, end: u64) -> Result<Frame, StorageError> {
        let frame = self.read_block(entry)?;
        if offset <= entry.first_offset && entry.end_offset() <= end {
            return Ok(frame);
        }
        let (from, to) = (offset.max(entry.first_offset), end.min(entry.end_offset()));
        let start = (from - entry.first_offset) as usize;
        let part = frame.part(
            |columns| self.schema_of(columns),
            from,
            start,
            (to - from) as usize,
        );
        part.map_err(|why| StorageError::corrupt(&self.segment_path(entry.segment), entry.position, why))
    }
}
