//! Writing at the end of a log: rolling to new segments, writing, syncing, and what is done when any of that fails.
//!
//! A tail is **whole**, or **suspect**: behind `durable_offset` nobody knows what the disk holds. A failed sync makes it
//! so, since the kernel may have thrown away what it could not write and tells of it only once; so does a change of the
//! directory that failed. Nothing is ever written behind a suspect place. Instead a new segment is begun at
//! `durable_offset` (`renew_tail`), with a copy of what was to follow there, synced as a whole before its name
//! is put in place. The first offset of a segment ends the one before it, so that recovery passes over whatever the
//! old file may have behind it. Until a new segment can be made the log takes no writes, and every write tries again.
//!
//! What was acknowledged is behind `durable_offset` only with [`Durability::Off`](crate::Durability::Off). It is read
//! back then; if the file does not have it any more the log is **lost** to writing until the store is opened again.

use std::io;
use std::sync::atomic::Ordering;

use crate::StorageError;
use crate::log::block::{self, BlockHeader, Frame, Place};
use crate::log::blocks::BlockEntry;
use crate::log::relation::RelationLog;
use crate::log::segment;
use crate::log::tail::{Tail, Trust, put_in_place};

/// A segment with so many small blocks is closed, so that they can be merged.
const SMALL_BLOCKS_MAX: usize = 8192;

impl RelationLog {
    /// Makes the tail fit for `bytes` more: a suspect one is replaced, and one that would become too large, or has many small
    /// blocks, is closed and followed by a new segment. It is synced first, so that only the last segment of a log can have a torn tail.
    pub(super) fn prepare(&self, bytes: u64, segment_bytes_max: u64) -> Result<(), StorageError> {
        if self.dropped.load(Ordering::Acquire) {
            return Err(StorageError::UnknownRelation { relation: self.id });
        }
        let mut tail = self.tail.lock();
        if !matches!(tail.trust, Trust::Whole) {
            self.renew_tail(&mut tail, Vec::new())?;
        }
        let has_blocks = tail.written_bytes > tail.header_bytes;
        let is_full = tail.written_bytes + bytes > segment_bytes_max || tail.small_blocks >= SMALL_BLOCKS_MAX;
        if !has_blocks || !is_full {
            return Ok(());
        }
        self.sync_tail(&mut tail)?;
        self.start_segment(&mut tail, Vec::new()).map(|_| ())
    }

    /// Writes a block behind the last. On failure the file may hold a part of it: roll back.
    pub(super) fn write(
        &self,
        frame: &mut Frame,
        write_id: u64,
        written_at_ms: i64,
    ) -> Result<BlockEntry, StorageError> {
        let mut tail = self.tail.lock();
        let place = Place {
            first_offset: tail.next_offset,
            write_id,
            durable_bytes: tail.durable_bytes,
            written_at_ms,
        };
        tail.write(frame, place)
            .map_err(|e| StorageError::io("write", &self.segment_path(tail.segment), e))
    }

    /// Makes what was written last. If that fails, all that was not synced, of which `frames` are what no reader knows
    /// yet, goes to a new segment ([`renew`](Self::renew_tail)), and the places of `frames` there are returned. After an
    /// error the tail is suspect.
    pub(super) fn sync<'f>(
        &self,
        frames: impl FnOnce() -> Vec<&'f mut Frame>,
    ) -> Result<Option<Vec<BlockEntry>>, StorageError> {
        let mut tail = self.tail.lock();
        if matches!(tail.trust, Trust::Whole) {
            match self.sync_tail(&mut tail) {
                Ok(()) => return Ok(None),
                Err(error) => tracing::error!(relation = self.id, %error, "a sync failed"),
            }
        }
        self.renew_tail(&mut tail, frames()).map(Some)
    }

    pub(super) fn sync_tail(&self, tail: &mut Tail) -> Result<(), StorageError> {
        if tail.durable_bytes == tail.written_bytes {
            return Ok(());
        }
        match tail.file.sync() {
            Ok(()) => {
                tail.durable_bytes = tail.written_bytes;
                tail.durable_offset = tail.next_offset;
                Ok(())
            }
            Err(error) => {
                tail.trust = Trust::Suspect;
                Err(StorageError::io("sync", &self.segment_path(tail.segment), error))
            }
        }
    }

    /// Replaces a suspect tail by a new segment with the same content: what readers know, then `frames`, which are
    /// those that were written behind it. All of it is durable on return, in the blocks that are returned for `frames`.
    /// On failure the tail stays suspect.
    fn renew_tail(
        &self,
        tail: &mut Tail,
        mut frames: Vec<&mut Frame>,
    ) -> Result<Vec<BlockEntry>, StorageError> {
        if let Trust::Lost(why) = &tail.trust {
            return Err(self.poisoned(why));
        }
        let known: Vec<BlockEntry> = {
            let index = self.index.read();
            index.blocks[index.position_of(tail.durable_offset)..].to_vec()
        };
        let mut copies = Vec::with_capacity(known.len());
        for entry in &known {
            match self.read_back(tail, entry) {
                Ok(frame) => copies.push(frame),
                Err(why) => {
                    let error = self.poisoned(&why);
                    tail.trust = Trust::Lost(why);
                    return Err(error);
                }
            }
        }
        frames.retain(|frame| frame.place().first_offset >= tail.durable_offset);
        let all = copies.iter_mut().chain(frames).collect();
        let mut entries = self.start_segment(tail, all)?;
        let own = entries.split_off(known.len());
        if !known.is_empty() {
            let mut index = self.index.write();
            let from = index.position_of(known[0].first_offset);
            index.blocks[from..].copy_from_slice(&entries);
            index.moves += 1;
        }
        tracing::warn!(
            relation = self.id,
            segment = tail.segment,
            "a new segment was started after one with a failed write"
        );
        Ok(own)
    }

    /// A block that readers know, from the segment that is written to.
    fn read_back(&self, tail: &Tail, entry: &BlockEntry) -> Result<Frame, String> {
        let mut bytes = vec![0; entry.bytes as usize];
        tail.file
            .read_exact_at(&mut bytes, entry.position)
            .map_err(|e| e.to_string())?;
        let header = BlockHeader::parse(&bytes)?;
        if !entry.is_of(&header) {
            return Err("the block is not the one that was written here".to_owned());
        }
        block::verify(&bytes)?;
        Ok(Frame::of_block(&header, bytes))
    }

    fn poisoned(&self, why: &str) -> StorageError {
        StorageError::Poisoned {
            path: self.directory.clone(),
            why: why.to_owned(),
        }
    }

    /// Follows the tail by a new segment at its durable end, with these blocks; one of the same offset is replaced.
    /// If that fails before the new name is in place the tail is as it was, else it is suspect.
    pub(super) fn start_segment(
        &self,
        tail: &mut Tail,
        frames: Vec<&mut Frame>,
    ) -> Result<Vec<BlockEntry>, StorageError> {
        let (fresh, entries) = Tail::make(
            &*self.disk,
            &self.directory,
            self.id,
            tail.durable_offset,
            &self.schema,
            frames,
        )?;
        // The old segment must not be written behind the new one's offset any more.
        tail.trust = Trust::Suspect;
        self.remove_segments_behind(tail.durable_offset)
            .map_err(|e| StorageError::io("clear", &self.directory, e))?;
        put_in_place(&*self.disk, &self.directory, tail.durable_offset)?;
        *tail = fresh;
        Ok(entries)
    }

    /// Takes back what a write has left behind `mark`, which was taken before it: else a part of it could come back
    /// after a crash, when later writes have been acknowledged. If that fails the tail is suspect, and the answer false.
    pub(super) fn roll_back(&self, mark: Tail) -> bool {
        let mut tail = self.tail.lock();
        if matches!(tail.trust, Trust::Whole) {
            let undo = || {
                if tail.segment != mark.segment {
                    self.remove_segments_behind(mark.segment)?;
                }
                mark.file.set_size(mark.written_bytes)?;
                mark.file.sync()
            };
            match undo() {
                Ok(()) => {
                    *tail = mark;
                    tail.durable_bytes = tail.written_bytes;
                    tail.durable_offset = tail.next_offset;
                    return true;
                }
                Err(error) => {
                    tracing::error!(relation = self.id, %error, "the log cannot be rolled back");
                }
            }
        }
        self.give_up_behind(&mut tail, mark);
        false
    }

    /// Removes the segments that begin behind `offset`, of which nothing was acknowledged, the last first: so that a
    /// crash in between leaves no gap.
    fn remove_segments_behind(&self, offset: u64) -> io::Result<()> {
        let mut removed = false;
        for (first, path) in segment::list(&*self.disk, &self.directory)?.into_iter().rev() {
            if first <= offset {
                break;
            }
            self.disk.remove(&path)?;
            removed = true;
        }
        if removed {
            self.disk.sync_directory(&self.directory)?;
        }
        Ok(())
    }

    /// Forgets what is behind the place of `mark`: the next write begins a new segment there.
    pub(super) fn cut(&self, mark: Tail) {
        self.give_up_behind(&mut self.tail.lock(), mark);
    }

    fn give_up_behind(&self, tail: &mut Tail, mark: Tail) {
        if matches!(tail.trust, Trust::Lost(_)) {
            return;
        }
        // What was durable in front of the mark stays so.
        let offset = tail.durable_offset.min(mark.next_offset);
        if tail.segment != mark.segment {
            *tail = mark;
        }
        tail.durable_offset = offset;
        tail.trust = Trust::Suspect;
    }

    /// Begins a new segment with the next write: the file has shown a bad spot.
    pub(super) fn leave_segment(&self) {
        let mut tail = self.tail.lock();
        if matches!(tail.trust, Trust::Whole) {
            tail.trust = Trust::Suspect;
        }
    }
}
