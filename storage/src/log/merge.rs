//! Small blocks of closed segments are merged: a write of one row is a block of its own, and whoever reads a million of
//! them spends all of its time on their headers.
//!
//! A segment is written again with fewer and larger blocks, with the same rows at the same offsets, and takes the place of the old
//! one in one step; a crash leaves the one or the other. A merged block has the id of the last of its writes, so that ids still grow
//! along the log, and the time of the newest, so that retention removes nothing too early. The format knows no
//! merged blocks: it is as if all of it had been written at once.
//!
//! That is also what is lost: which row came with which write. So not everything is merged:
//!
//! * **Nothing that may be fed again.** What is behind a checkpoint is fed again at a start: the writes of several logs in the order of
//!   their ids, in epochs that end where they ended before. Such an end may lie inside of a merged block, and a write of another
//!   log may belong in its middle. To cut blocks at the ends of epochs would keep the epochs, but not the order of writes among logs
//!   behind the last of them. So only segments are merged that end before all that checkpoints need
//!   ([`LogOwner::settled`](super::LogOwner::settled)). Who reads those reads them as rows, not as writes.
//! * **No blocks of writes that have several**, of one relation or more: the open finds out by them whether a write is whole.
//! * **No blocks with a note that somebody may ask for** ([`LogOwner::needs_note`]): it is found with its write and its time. Of the
//!   others the last of a merged block stays: it tells what came about by all of its writes. A segment that has some that are needed is
//!   looked at again later.
//! * **No blocks with weights**: the changes of one block are made at once, so that two changes of one row must stay in two blocks.
//! * **Only blocks with as many columns.**
//! * **Not across segments**: a crash may leave some of the files that were there before, and a segment ends where the next begins,
//!   which must be where a block begins. Segments are put together first, and the blocks of what comes out are merged later.

use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::{ArrayRef, AsArray, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Schema};

use crate::disk::{self, DiskFile};
use crate::log::block::{
    self, BlockHeader, Frame, HEADER_BYTES, MERGED_BYTES_MAX, MERGED_ROWS_MAX, Members, Place,
};
use crate::log::blocks::BlockEntry;
use crate::log::closed::Closed;
use crate::log::file::ReadAhead;
use crate::log::relation::RelationLog;
use crate::log::segment;
use crate::log::tail::{Tail, new_path};
use crate::log::types::{LogNote, LogOwner};
use crate::memory::rows_bytes;
use crate::{ChangeBatch, StorageError};

/// Bytes of segments of all logs that are read for this in one round of maintenance; the last one may go beyond.
pub(super) const ROUND_BYTES_MAX: u64 = 32 << 20;
/// A segment is written again if so many blocks go, and at least half of what it has.
const GONE_MIN: usize = 3;
/// After so long a segment with notes that were needed is looked at again.
const AGAIN_MS: i64 = 3_600_000;
/// Decoded blocks that are kept, with the memory that they were read into, before they become one piece.
const PIECES_MAX: usize = 256;

/// Blocks that become one, as far as they are known.
#[derive(Debug, Clone, Copy)]
pub(super) struct Group {
    columns: u16,
    rows: u32,
    /// Which piece of time they were written in.
    piece: i64,
}

impl Group {
    /// A group that begins with this block.
    pub(super) fn new(header: &BlockHeader, span_max: i64) -> Group {
        Group {
            columns: header.columns,
            rows: header.rows,
            piece: header.written_at_ms.div_euclid(span_max.max(1)),
        }
    }

    /// Takes the next block into the group, if it belongs there. What becomes one was written in one piece of time, which are
    /// `span_max` milliseconds: a merged block does not tell its oldest time, and if it were merged again and again with what
    /// was written within so much of its newest, retention would come ever later.
    pub(super) fn take(&mut self, header: &BlockHeader, span_max: i64) -> bool {
        let other = Group::new(header, span_max);
        let rows = self.rows.saturating_add(other.rows);
        let is_fit = other.columns == self.columns && other.piece == self.piece && rows <= MERGED_ROWS_MAX;
        if is_fit {
            self.rows = rows;
        }
        is_fit
    }
}

/// A block of a segment that may be written again.
struct Found {
    header: BlockHeader,
    /// It can be merged with its neighbours.
    is_fit: bool,
    /// If it cannot because of its note.
    is_needed: bool,
}

/// How many blocks fewer there would be, at most, if these were merged.
fn gone(found: &[Found], span_max: i64) -> usize {
    let mut open: Option<Group> = None;
    let mut gone = 0;
    for Found { header, is_fit, .. } in found {
        let is_taken = *is_fit && open.as_mut().is_some_and(|group| group.take(header, span_max));
        match is_taken {
            true => gone += 1,
            false => open = is_fit.then(|| Group::new(header, span_max)),
        }
    }
    gone
}

/// A segment that is being written again.
struct Merging<'a> {
    log: &'a RelationLog,
    new: Tail,
    entries: Vec<BlockEntry>,
    group: Option<Open>,
}

/// A group that is not complete.
struct Open {
    group: Group,
    first: Frame,
    place: Place,
    /// The last that there was.
    note: Vec<u8>,
    /// How many blocks it has, and their rows.
    blocks: usize,
    bytes: usize,
    whole: Vec<ChangeBatch>,
    pieces: Vec<ChangeBatch>,
}

impl RelationLog {
    /// Merges small blocks of closed segments that are settled, while this round has bytes left.
    pub(super) fn merge_small_blocks(
        &self,
        (now_ms, span_max): (i64, i64),
        owner: &dyn LogOwner,
        bytes_left: &mut u64,
    ) -> Result<(), StorageError> {
        let settled = owner.settled(self.id);
        let closed = self.closed_segments();
        let base = self.base.load(Ordering::Acquire);
        let is_own = |segment: &&Closed| segment.is_whole && segment.first_offset != base;
        for segment in closed.iter().filter(is_own) {
            if segment.end_offset > settled || *bytes_left == 0 {
                break;
            }
            // Once is enough, also of one that is damaged: whoever reads it says so.
            let first = segment.first_offset;
            match self.merged.lock().entry(first) {
                Entry::Occupied(again_ms) if *again_ms.get() > now_ms => continue,
                entry => entry.insert_entry(i64::MAX),
            };
            *bytes_left = bytes_left.saturating_sub(segment.bytes);
            match self.merge_segment((first, segment.end_offset), span_max, owner) {
                Ok(true) => {}
                Ok(false) => {
                    self.merged.lock().insert(first, now_ms.saturating_add(AGAIN_MS));
                }
                Err(error) => {
                    if matches!(error, StorageError::Io { .. }) {
                        self.merged.lock().remove(&first);
                    }
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// False: there would be more to do if notes were not needed.
    fn merge_segment(
        &self,
        (from, to): (u64, u64),
        span_max: i64,
        owner: &dyn LogOwner,
    ) -> Result<bool, StorageError> {
        let old: Vec<BlockEntry> = {
            let index = self.index.read();
            index.blocks[index.position_of(from)..index.position_of(to)].to_vec()
        };
        let rows: u64 = old.iter().map(|entry| u64::from(entry.rows)).sum();
        let may_be_less = old.len() > GONE_MIN && rows / (old.len() as u64) <= u64::from(MERGED_ROWS_MAX);
        if !may_be_less || !is_own(&self.schema) {
            return Ok(true);
        }
        let path = self.segment_path(from);
        let io = |e| StorageError::io("read", &path, e);
        let file = self.disk.open(&path).map_err(io)?;
        let found = self.found(&file, &old, owner)?;
        let is_all = !found.iter().any(|block| block.is_needed);
        let gone = gone(&found, span_max);
        if gone < GONE_MIN || gone * 2 < old.len() {
            return Ok(is_all);
        }
        let new_path = new_path(&self.directory, from);
        let written = self.write_merged(file, (&old, &found), span_max);
        let replaced = written.and_then(|new| self.replace_segment((from, to), old.len(), new));
        if replaced.is_err() {
            // It takes room, of which there may be too little.
            let _ = self.disk.remove(&new_path);
        }
        replaced.map(|()| is_all)
    }

    /// What a segment's blocks are, which are yet to be verified.
    fn found(
        &self,
        file: &Arc<dyn DiskFile>,
        entries: &[BlockEntry],
        owner: &dyn LogOwner,
    ) -> Result<Vec<Found>, StorageError> {
        let mut read_ahead = ReadAhead::new(Arc::clone(file));
        let end = entries
            .last()
            .map_or(0, |last| last.position + u64::from(last.bytes));
        let found = entries.iter().map(|entry| {
            let path = self.segment_path(entry.segment);
            let io = |e| StorageError::io("read", &path, e);
            let corrupt = |why| StorageError::corrupt(&path, entry.position, why);
            let bytes = read_ahead.get(entry.position, HEADER_BYTES as u64, end);
            let header = BlockHeader::parse(&bytes.map_err(io)?).map_err(corrupt)?;
            let is_needed = header.is_small() && header.note_bytes > 0 && {
                let bytes = HEADER_BYTES as u64 + u64::from(header.note_bytes);
                let bytes = read_ahead.get(entry.position, bytes, end).map_err(io)?;
                owner.needs_note(&LogNote {
                    written_at_ms: header.written_at_ms,
                    write_id: header.write_id,
                    note: block::note(&bytes, &header).map_err(corrupt)?.to_vec(),
                })
            };
            Ok(Found {
                header,
                is_fit: header.is_small() && !is_needed,
                is_needed,
            })
        });
        found.collect()
    }

    /// Writes a segment again, under a name for the meantime; returns its blocks.
    fn write_merged(
        &self,
        file: Arc<dyn DiskFile>,
        (old, found): (&[BlockEntry], &[Found]),
        span_max: i64,
    ) -> Result<Vec<BlockEntry>, StorageError> {
        let (Some(first), Some(last)) = (old.first(), old.last()) else {
            return Ok(vec![]);
        };
        let path = self.segment_path(first.segment);
        let create = |e| StorageError::io("create", &new_path(&self.directory, first.segment), e);
        let new = Tail::begin(&*self.disk, &self.directory, self.id, first.segment, &self.schema);
        let mut merging = Merging {
            log: self,
            new: new.map_err(create)?,
            entries: vec![],
            group: None,
        };
        let mut read_ahead = ReadAhead::new(file);
        let end = last.position + u64::from(last.bytes);
        for (entry, found) in old.iter().zip(found) {
            let corrupt = |why: String| StorageError::corrupt(&path, entry.position, why);
            let bytes = read_ahead
                .get(entry.position, u64::from(entry.bytes), end)
                .map_err(|e| StorageError::io("read", &path, e))?;
            let header = BlockHeader::parse(&bytes).map_err(corrupt)?;
            if !entry.is_of(&header) {
                return Err(corrupt(
                    "the block is not the one that was written here".to_owned(),
                ));
            }
            block::verify(&bytes).map_err(corrupt)?;
            let frame = Frame::of_block(&header, bytes.to_vec());
            // Without its schema, which nobody has said yet, it stays as it is.
            let schema = self.schema_of(header.columns).filter(|_| found.is_fit);
            let Some(schema) = schema else {
                merging.close()?;
                merging.write(frame)?;
                continue;
            };
            let changes = block::decode(&bytes, &header, &schema, None).map_err(corrupt)?;
            let note = block::note(&bytes, &header).map_err(corrupt)?.to_vec();
            merging.add(&header, frame, (changes, note), span_max)?;
        }
        merging.close()?;
        merging.new.finish().map_err(create)?;
        Ok(merging.entries)
    }

    /// Puts a segment that was written again in the place of the old one, which had so many blocks.
    fn replace_segment(
        &self,
        (from, to): (u64, u64),
        blocks: usize,
        new: Vec<BlockEntry>,
    ) -> Result<(), StorageError> {
        let io = |e| StorageError::io("replace a segment of", &self.directory, e);
        // What was put together may have left files, if only after a crash. Where they begin no block would begin any more.
        for (first, path) in segment::list(&*self.disk, &self.directory).map_err(io)? {
            if first > from && first < to {
                self.remove_index(first).map_err(io)?;
                self.disk.remove(&path).map_err(io)?;
            }
        }
        // Nor must the index of the old segment be found beside the new one.
        self.remove_index(from).map_err(io)?;
        self.disk.sync_directory(&self.directory).map_err(io)?;
        let path = self.segment_path(from);
        // Whoever finds other blocks in the file than the index has asks the index again, and waits here.
        let mut index = self.index.write();
        let new_path = new_path(&self.directory, from);
        if let Err(error) = self.disk.rename(&new_path, &path)
            && self.disk.exists(&new_path)
        {
            return Err(io(error));
        }
        let start = index.position_of(from);
        index.blocks.splice(start..start + blocks, new);
        if index.blocks.capacity() / 2 > index.blocks.len() {
            index.blocks.shrink_to_fit();
        }
        index.moves += 1;
        drop(index);
        disk::sync_parent(&*self.disk, &path)
    }
}

impl Merging<'_> {
    /// Takes a block that can be merged.
    fn add(
        &mut self,
        header: &BlockHeader,
        frame: Frame,
        (changes, note): (ChangeBatch, Vec<u8>),
        span_max: i64,
    ) -> Result<(), StorageError> {
        let bytes = rows_bytes(&changes.rows);
        if let Some(open) = &mut self.group
            && open.bytes + bytes <= MERGED_BYTES_MAX
            && open.group.take(header, span_max)
        {
            open.blocks += 1;
            open.bytes += bytes;
            open.place.write_id = header.write_id;
            open.place.written_at_ms = open.place.written_at_ms.max(header.written_at_ms);
            if !note.is_empty() {
                open.note = note;
            }
            open.pieces.push(changes);
            if open.pieces.len() >= PIECES_MAX {
                open.whole.push(concat(&open.pieces)?);
                open.pieces.clear();
            }
            return Ok(());
        }
        self.close()?;
        self.group = Some(Open {
            group: Group::new(header, span_max),
            place: frame.place(),
            note,
            first: frame,
            blocks: 1,
            bytes,
            whole: vec![],
            pieces: vec![changes],
        });
        Ok(())
    }

    /// Writes the group that is not complete, if there is one.
    fn close(&mut self) -> Result<(), StorageError> {
        let Some(mut open) = self.group.take() else {
            return Ok(());
        };
        if open.blocks == 1 {
            return self.write(open.first);
        }
        if !open.pieces.is_empty() {
            open.whole.push(concat(&open.pieces)?);
        }
        let changes = concat(&open.whole)?;
        let (place, columns) = (open.place, open.group.columns);
        let mut frame = block::encode(&changes.rows, None, (0, 1), columns, &Members::new(), &open.note)?;
        self.place(&mut frame, place)
    }

    /// Writes a block as it is.
    fn write(&mut self, mut frame: Frame) -> Result<(), StorageError> {
        let place = frame.place();
        self.place(&mut frame, place)
    }

    fn place(&mut self, frame: &mut Frame, place: Place) -> Result<(), StorageError> {
        let written = self.new.copy(frame, place);
        let path = self.log.directory.join(segment::file_name(self.new.segment));
        self.entries
            .push(written.map_err(|e| StorageError::io("write", &path, e))?);
        Ok(())
    }
}

/// One piece with memory of its own: views would go on pointing into what was read.
pub(super) fn concat(pieces: &[ChangeBatch]) -> Result<ChangeBatch, StorageError> {
    let mut changes = ChangeBatch::concat(pieces)?;
    let rows = &changes.rows;
    let columns = rows.columns().iter().map(|column| -> ArrayRef {
        match column.data_type() {
            DataType::Utf8View => Arc::new(column.as_string_view().gc()),
            DataType::BinaryView => Arc::new(column.as_binary_view().gc()),
            _ => Arc::clone(column),
        }
    });
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    let rows = RecordBatch::try_new_with_options(rows.schema(), columns.collect(), &options);
    changes.rows = rows.map_err(|e| StorageError::InvalidChange { why: e.to_string() })?;
    Ok(changes)
}

/// Whether [`concat`] finds all views of these columns: none is inside of a list or a structure.
fn is_own(schema: &Schema) -> bool {
    let is_view = |data_type: &DataType| {
        matches!(
            data_type,
            DataType::Utf8View | DataType::BinaryView | DataType::ListView(_) | DataType::LargeListView(_)
        )
    };
    let top = schema.fields().iter().filter(|field| is_view(field.data_type()));
    let all = schema.flattened_fields().into_iter();
    all.filter(|field| is_view(field.data_type())).count() == top.count()
}
