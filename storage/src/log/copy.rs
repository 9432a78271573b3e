//! A copy of a log up to an offset, in segments of its own, made while the log goes on.

use std::path::Path;

use crate::disk::{Disk, OsDisk};
use crate::log::block::Frame;
use crate::log::blocks::BlockEntry;
use crate::log::first::First;
use crate::log::hold::LogHold;
use crate::log::relation::RelationLog;
use crate::log::segment;
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
}

impl LogCopy {
    /// All that the hold has and that is durable now.
    pub(super) fn new(hold: LogHold) -> LogCopy {
        let (index, first) = (hold.relation().index.read(), hold.relation().first.lock());
        let copy = (first.wanted, index.head);
        drop((index, first));
        LogCopy {
            hold,
            first: copy.0,
            end: copy.1,
        }
    }

    /// Writes it below `directory`, as the log of the same relation.
    pub(crate) fn write(mut self, directory: &Path) -> Result<(), StorageError> {
        let disk = &OsDisk;
        let directory = directory.join(self.hold.relation().id.to_string());
        disk.create_directory(&directory)
            .map_err(|e| StorageError::io("create", &directory, e))?;
        disk::sync_parent(disk, &directory)?;
        if self.first != First::default() {
            self.first.write(disk, &directory)?;
        }
        let mut offset = self.hold.offset();
        loop {
            let mut frames = self.hold.relation().frames(offset, self.end, SEGMENT_BYTES_MAX)?;
            let log = self.hold.relation();
            let (tail, _) = Tail::make(
                disk,
                &directory,
                log.id,
                offset,
                &log.schema,
                frames.iter_mut().collect(),
            )?;
            put_in_place(disk, &directory.join(segment::file_name(offset)))?;
            offset = tail.next_offset;
            if offset >= self.end {
                return Ok(());
            }
            self.hold.advance(offset);
        }
    }
}

impl RelationLog {
    /// Blocks from `offset` on that end before or at `end`: so many bytes, but at least one if there is any.
    fn frames(&self, offset: u64, end: u64, bytes_max: u64) -> Result<Vec<Frame>, StorageError> {
        loop {
            let (entries, moves) = {
                let index = self.index.read();
                let mut bytes = 0;
                let blocks = index.blocks[index.position_of(offset)..].iter();
                let entries: Vec<BlockEntry> = blocks
                    .take_while(|entry| {
                        bytes += u64::from(entry.bytes);
                        entry.end_offset() <= end && (bytes <= bytes_max || entry.first_offset == offset)
                    })
                    .copied()
                    .collect();
                (entries, index.moves)
            };
            let frames: Result<Vec<Frame>, StorageError> =
                entries.iter().map(|entry| self.read_block(entry)).collect();
            // They may have gone to other files meanwhile.
            if frames.is_ok() || self.index.read().moves == moves {
                return frames;
            }
        }
    }
}
