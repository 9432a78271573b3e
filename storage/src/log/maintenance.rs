//! What is done to logs now and then: segments are closed when they are old, removed when nobody may read them any
//! more, and put together when they are many and small.
//!
//! * **Rolling by time.** Retention removes whole segments, so that those of a log with retention by time are closed
//!   after an eighth of that time, or an hour.
//! * **Retention.** A segment goes when its newest row is older than the time, or while the log takes more bytes than
//!   it may: never the one that is written to, never one with rows that are held or needed. First `FIRST` says where
//!   the log begins from now on, then the files go.
//! * **Indexes.** A closed segment gets an index ([`super::index`]), so that opening does not read it.
//! * **Merging** of small blocks: [`super::merge`]. A segment that has many is closed for that.
//! * **Compaction.** At least four neighbours that are small together become one file, which replaces the first of
//!   them; then the others go. A segment ends where the next begins, so that nothing is there twice if a crash comes in
//!   between.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::StorageError;
use crate::log::block::{self, BlockHeader, Frame};
use crate::log::blocks::BlockEntry;
use crate::log::closed::{self, Closed, ClosedState};
use crate::log::first::First;
use crate::log::index::{self, SegmentIndex};
use crate::log::relation::RelationLog;
use crate::log::segment;
use crate::log::tail::{Tail, Trust, put_in_place};
use crate::log::types::LogOwner;

/// The longest time between two segments of a log with retention by time.
const SEGMENT_MS_MAX: i64 = 3_600_000;
/// Parts of the retention's time that a segment spans at most.
const RETENTION_PARTS: i64 = 8;
/// Neighbours that are put together are so many bytes in all at most.
const COMPACTION_BYTES_MAX: u64 = 16 << 20;

/// A segment with so many small blocks is closed when nobody is writing, so that they can be merged.
const SMALL_BLOCKS_MIN: usize = 1024;

/// Segments that are smaller than this part of what they may be get no index: they are put together, or quickly read.
const INDEXED_PART: u64 = 64;

impl RelationLog {
    /// Does what is due at `now_ms`; for merging, so many bytes may be read.
    pub(super) fn maintain(
        &self,
        now_ms: i64,
        owner: &dyn LogOwner,
        segment_bytes_max: u64,
        merge_bytes_left: &mut u64,
    ) -> Result<(), StorageError> {
        if self.dropped.load(Ordering::Acquire) {
            return Ok(());
        }
        let options = *self.options.read();
        let span_max = options
            .retention_ms
            .map(|retention| (retention / RETENTION_PARTS).clamp(1, SEGMENT_MS_MAX));
        self.roll(span_max.map(|span| now_ms - span))?;
        let has_retention = options.retention_ms.is_some() || options.retention_bytes.is_some();
        if has_retention && self.may_forget_writes() {
            self.forget(owner.retention_time(now_ms), owner)?;
        }
        self.remove_forgotten()?;
        let span_max = span_max.unwrap_or(i64::MAX);
        self.compact(span_max, segment_bytes_max.min(COMPACTION_BYTES_MAX))?;
        self.merge_small_blocks((now_ms, span_max), owner, merge_bytes_left)
    }

    /// Closes the segment that is written to if its first row was written before `before_ms`, or if it has many small blocks.
    fn roll(&self, before_ms: Option<i64>) -> Result<(), StorageError> {
        let mut tail = self.tail.lock();
        let is_old = before_ms.is_some_and(|before_ms| {
            let index = self.index.read();
            let own = index.blocks[index.position_of(tail.segment)..].first();
            own.is_some_and(|first| first.written_at_ms < before_ms)
        });
        let is_due = is_old || tail.small_blocks >= SMALL_BLOCKS_MIN;
        // A group that is under way is not disturbed; there will be another time.
        if is_due && tail.next_offset == self.index.read().head && matches!(tail.trust, Trust::Whole) {
            self.sync_tail(&mut tail)?;
            self.start_segment(&mut tail, Vec::new())?;
        }
        Ok(())
    }

    /// The segments that are not written to any more. They are looked for when there may be others than the last time: a log
    /// of many small writes has many blocks.
    pub(super) fn closed_segments(&self) -> Arc<[Closed]> {
        let open = self.tail.lock().segment;
        let index = self.index.read();
        let state = ClosedState {
            open,
            moves: index.moves,
            first: index.first,
        };
        let mut known = self.closed.lock();
        if let Some((of, segments)) = &*known
            && *of == state
        {
            return Arc::clone(segments);
        }
        let segments: Arc<[Closed]> = closed::among(&index.blocks, open).into();
        // One of which there is more to come is looked at again.
        let is_lasting = segments.last().is_none_or(|last| last.is_whole);
        *known = is_lasting.then(|| (state, Arc::clone(&segments)));
        segments
    }

    /// Takes what is too old or too much out of the index.
    fn forget(&self, now_ms: i64, owner: &dyn LogOwner) -> Result<(), StorageError> {
        let options = *self.options.read();
        let closed = self.closed_segments();
        let mut bytes = self.tail.lock().written_bytes;
        bytes += closed.iter().map(|segment| segment.bytes).sum::<u64>();
        let needed = owner.needed(self.id);
        let mut end = None;
        for segment in closed.iter() {
            let is_old = options
                .retention_ms
                .is_some_and(|retention| segment.newest_ms.saturating_add(retention) <= now_ms);
            let is_too_much = options.retention_bytes.is_some_and(|max| bytes > max);
            if !(is_old || is_too_much)
                || !segment.is_whole
                || segment.end_offset > needed.min(self.index.read().lowest_hold())
            {
                break;
            }
            bytes -= segment.bytes;
            end = Some(segment.end_offset);
        }
        let Some(end) = end else {
            return Ok(());
        };
        let last = {
            let index = self.index.read();
            index.blocks[index.position_of(end) - 1]
        };
        let write_id = self.read_block(&last)?.place().write_id;
        owner.forgetting(self.id)?;
        let mut index = self.index.write();
        // Somebody may have begun to read since.
        if index.lowest_hold() < end {
            return Ok(());
        }
        let kept = index.position_of(end);
        index.blocks.drain(..kept);
        index.first = end;
        self.first.lock().wanted = First {
            offset: end,
            write_id,
            base_end: 0,
        };
        Ok(())
    }

    /// Makes the new beginning of the log last, and removes the files in front of it.
    pub(super) fn remove_forgotten(&self) -> Result<(), StorageError> {
        let mut first = self.first.lock();
        if first.wanted == first.durable {
            return Ok(());
        }
        first.wanted.write(&*self.disk, &self.directory)?;
        // A base stands for all in front of its end.
        let offset = first.wanted.offset.max(first.wanted.base_end);
        let io = |e| StorageError::io("remove segments of", &self.directory, e);
        for (segment, path) in segment::list(&*self.disk, &self.directory).map_err(io)? {
            if segment < offset {
                self.remove_index(segment).map_err(io)?;
                self.disk.remove(&path).map_err(io)?;
            }
        }
        for (base, path) in segment::bases(&*self.disk, &self.directory).map_err(io)? {
            if first.wanted.base() != Some(base) {
                self.remove_index(base).map_err(io)?;
                self.disk.remove(&path).map_err(io)?;
            }
        }
        first.durable = first.wanted;
        Ok(())
    }

    /// Puts the first small neighbours together, if there are such.
    fn compact(&self, span_max: i64, bytes_max: u64) -> Result<(), StorageError> {
        let closed = self.closed_segments();
        let base = self.base.load(Ordering::Acquire);
        let whole: Vec<Closed> = closed
            .iter()
            .copied()
            // A base is as it is to be.
            .filter(|segment| segment.is_whole && segment.first_offset != base)
            .collect();
        match closed::small_neighbours(&whole, span_max, bytes_max) {
            Some((from, to)) => self.put_together(from, to),
            None => Ok(()),
        }
    }

    fn put_together(&self, from: u64, to: u64) -> Result<(), StorageError> {
        let old: Vec<BlockEntry> = {
            let index = self.index.read();
            index.blocks[index.position_of(from)..index.position_of(to)].to_vec()
        };
        let mut frames = old
            .iter()
            .map(|entry| self.read_block(entry))
            .collect::<Result<Vec<_>, _>>()?;
        let (_, new) = Tail::make(
            &*self.disk,
            &self.directory,
            self.id,
            from,
            &self.schema,
            frames.iter_mut().collect(),
        )?;
        self.remove_index(from)
            .map_err(|e| StorageError::io("remove indexes of", &self.directory, e))?;
        put_in_place(&*self.disk, &self.directory, from)?;
        let mut index = self.index.write();
        let start = index.position_of(from);
        index.blocks[start..start + new.len()].copy_from_slice(&new);
        index.moves += 1;
        drop(index);
        self.merged
            .lock()
            .retain(|first, _| *first < from || *first >= to);
        let remove = || -> io::Result<()> {
            for (first, path) in segment::list(&*self.disk, &self.directory)? {
                if first > from && first < to {
                    self.remove_index(first)?;
                    self.disk.remove(&path)?;
                }
            }
            Ok(())
        };
        remove().map_err(|e| StorageError::io("remove segments of", &self.directory, e))
    }

    /// The first closed segment that ought to have an index, and may get one, and has none: its blocks.
    pub(super) fn without_index(&self, segment_bytes_max: u64) -> Option<Vec<BlockEntry>> {
        if !self.may_forget_writes() {
            return None;
        }
        let closed = self.closed_segments();
        let indexed = self.indexed.lock();
        let segment = closed.iter().find(|segment| {
            segment.is_whole
                && segment.bytes >= segment_bytes_max / INDEXED_PART
                && !indexed.contains(&segment.first_offset)
        })?;
        let index = self.index.read();
        let blocks = index.position_of(segment.first_offset)..index.position_of(segment.end_offset);
        Some(index.blocks[blocks].to_vec())
    }

    /// Writes the index of a closed segment with these blocks, all of whose writes are durable; `heads`: how far all logs are.
    pub(super) fn write_index(
        &self,
        blocks: Vec<BlockEntry>,
        heads: BTreeMap<u64, u64>,
    ) -> Result<(), StorageError> {
        let Some(first) = blocks.first().map(|entry| entry.segment) else {
            return Ok(());
        };
        let path = self.segment_path(first);
        let file = self.disk.open(&path);
        let file = file.map_err(|e| StorageError::io("open", &path, e))?;
        let index = SegmentIndex::make(file, &path, self.id, blocks, heads)?;
        index.write(&*self.disk, &self.directory)?;
        self.indexed.lock().insert(first);
        Ok(())
    }

    /// Has the next open read all segments; false: it would in any case.
    pub(super) fn remove_indexes(&self) -> Result<bool, StorageError> {
        let segments: Vec<u64> = self.indexed.lock().iter().copied().collect();
        for segment in &segments {
            self.remove_index(*segment)
                .map_err(|e| StorageError::io("remove", &index::path(&self.directory, *segment), e))?;
        }
        Ok(!segments.is_empty())
    }

    pub(super) fn remove_index(&self, segment: u64) -> io::Result<()> {
        match self.indexed.lock().remove(&segment) {
            true => self.disk.remove(&index::path(&self.directory, segment)),
            false => Ok(()),
        }
    }

    /// A durable block as it is in its file.
    pub(super) fn read_block(&self, entry: &BlockEntry) -> Result<Frame, StorageError> {
        let path = self.segment_path(entry.segment);
        let mut bytes = vec![0; entry.bytes as usize];
        let read = self
            .disk
            .open(&path)
            .and_then(|file| file.read_exact_at(&mut bytes, entry.position));
        read.map_err(|e| StorageError::io("read", &path, e))?;
        let corrupt = |why| StorageError::corrupt(&path, entry.position, why);
        let header = BlockHeader::parse(&bytes).map_err(corrupt)?;
        if !entry.is_of(&header) {
            return Err(corrupt(
                "the block is not the one that was written here".to_owned(),
            ));
        }
        block::verify(&bytes).map_err(corrupt)?;
        Ok(Frame::of_block(&header, bytes))
    }
}
