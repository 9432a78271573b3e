//! A base: what the changes at the beginning of a table's log add up to, in one file that takes their place.
//!
//! A table that is changed for ever has a log that grows for ever, and nearly all of it says what is no more. A table has a checkpoint, from
//! which a start goes on; its log in front of that is read only where no checkpoint can be used, and copied by a backup. Both want
//! the rows, and do not ask how they came about.
//!
//! ```text
//!  before   FIRST f      | f ..............  | .............. | to ......... head      changes
//!  after    FIRST to - n              | to - n .. base ..     | to ......... head      n rows, then changes
//! ```
//!
//! There are never more rows than changes that made them, so the rows get the last offsets of what they stand for: no offset behind them
//! changes.
//!
//! 1. Only closed segments in front of all checkpoints, holds and readers are taken ([`LogOwner::settled`]), and none with a note
//!    that somebody may still ask for ([`LogOwner::needs_note`]). Who follows a table reads its rows, not its log.
//! 2. From the last change to the first, each deletion takes away the nearest insertion of its row in front of it. What was inserted and not
//!    taken away is left. Rows are known by 128 bits of hash; of deletions that wait for their insertion only so many are kept in
//!    memory: if there are more, it is done in several rounds, each for a part of the hashes.
//! 3. What is left is written to a file of its own, `.base`, and read back from there. All changes, added up by their hashes,
//!    and all rows of the file must give the same number. If not, or if a deletion has taken away nothing, everything stays as it is.
//! 4. `FIRST` says from now on that the log begins with the base, and where that ends: this is the one step that counts. Before it a
//!    crash leaves a file that the open removes; after it, segments that the open removes.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::{Int64Array, RecordBatch, UInt32Array};
use arrow::buffer::{Buffer, MutableBuffer};
use arrow::compute::take_record_batch;
use arrow::row::{RowConverter, SortField};
use twox_hash::XxHash3_64;

use crate::disk::{self, DiskFile};
use crate::log::block::{self, BlockHeader, MERGED_BYTES_MAX, MERGED_ROWS_MAX, Members, Place};
use crate::log::blocks::BlockEntry;
use crate::log::closed::Closed;
use crate::log::first::First;
use crate::log::merge::concat;
use crate::log::relation::RelationLog;
use crate::log::segment;
use crate::log::tail::{Tail, Trust, new_path};
use crate::log::types::{LogNote, LogOwner};
use crate::memory::rows_bytes;
use crate::{ChangeBatch, StorageError};

/// Deletions that wait for their insertion, in one round.
pub(super) const PENDING_MAX: usize = 1 << 20;
/// Rounds at most: a log that would need more is left as it is.
const ROUNDS_MAX: u128 = 64;
/// How many more bytes than twice those of its base a log may have, of changes that may go.
const SPARE_BYTES: u64 = 64 << 10;
/// The second half of a hash.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// Why a log keeps its changes for now.
enum Kept {
    /// The owner is about to stop.
    Stopped,
    /// That its changes do not add up to rows, or cannot be added up.
    Unverified(String),
}

type Outcome<T> = Result<Result<T, Kept>, StorageError>;

/// What is left of changes at consecutive offsets.
struct Left {
    first: u64,
    /// A bit for each change: it is not there any more.
    gone: Vec<u64>,
    /// Of those that are there, how often, if not once.
    copies: HashMap<u64, i64>,
    /// How many are there.
    rows: u64,
    /// All changes, added up by their hashes.
    sum: u128,
}

impl Left {
    fn of(first: u64, end: u64) -> Left {
        let words = (end - first).div_ceil(64) as usize;
        Left {
            first,
            gone: vec![0; words],
            copies: HashMap::new(),
            rows: 0,
            sum: 0,
        }
    }

    fn set(&mut self, offset: u64, count: i64) {
        match count {
            0 => {
                let place = offset - self.first;
                self.gone[(place / 64) as usize] |= 1 << (place % 64);
                return;
            }
            1 => {}
            _ => {
                self.copies.insert(offset, count);
            }
        }
        self.rows += 1;
    }

    fn count(&self, offset: u64) -> i64 {
        let place = offset - self.first;
        match self.gone[(place / 64) as usize] >> (place % 64) & 1 {
            1 => 0,
            _ => self.copies.get(&offset).copied().unwrap_or(1),
        }
    }

    fn add(&mut self, hash: u128, weight: i64) {
        self.sum = self.sum.wrapping_add(times(hash, weight));
    }
}

fn times(hash: u128, weight: i64) -> u128 {
    hash.wrapping_mul(i128::from(weight) as u128)
}

/// Reads blocks one by one, in whichever order.
struct Blocks<'a> {
    log: &'a RelationLog,
    owner: &'a dyn LogOwner,
    open: Option<(u64, Arc<dyn DiskFile>)>,
    converter: Option<RowConverter>,
}

impl<'a> Blocks<'a> {
    fn new(log: &'a RelationLog, owner: &'a dyn LogOwner) -> Blocks<'a> {
        Blocks {
            log,
            owner,
            open: None,
            converter: None,
        }
    }

    /// Of blocks in a file that has another name than their segment will have.
    fn within(mut self, segment: u64, file: Arc<dyn DiskFile>) -> Blocks<'a> {
        self.open = Some((segment, file));
        self
    }

    fn read(&mut self, entry: &BlockEntry) -> Result<(BlockHeader, Buffer), StorageError> {
        let path = self.log.segment_path(entry.segment);
        let file = match &self.open {
            Some((segment, file)) if *segment == entry.segment => Arc::clone(file),
            _ => {
                let file = self.log.disk.open(&path);
                let file = file.map_err(|e| StorageError::io("open", &path, e))?;
                self.open = Some((entry.segment, Arc::clone(&file)));
                file
            }
        };
        let corrupt = |why: String| StorageError::corrupt(&path, entry.position, why);
        let mut bytes = MutableBuffer::from_len_zeroed(entry.bytes as usize);
        file.read_exact_at(bytes.as_slice_mut(), entry.position)
            .map_err(|e| StorageError::io("read", &path, e))?;
        let header = BlockHeader::parse(&bytes).map_err(corrupt)?;
        if !entry.is_of(&header) {
            return Err(corrupt(
                "the block is not the one that was written here".to_owned(),
            ));
        }
        block::verify(&bytes).map_err(corrupt)?;
        Ok((header, bytes.into()))
    }

    /// The changes of a block, with all columns that the relation has.
    fn changes(&mut self, entry: &BlockEntry) -> Result<(BlockHeader, ChangeBatch), StorageError> {
        let (header, bytes) = self.read(entry)?;
        let corrupt =
            |why: String| StorageError::corrupt(&self.log.segment_path(entry.segment), entry.position, why);
        let schema = self.log.schema_of(header.columns);
        let schema = schema.ok_or_else(|| corrupt("its columns are not known".to_owned()))?;
        let changes = block::decode(&bytes, &header, &schema, None).map_err(corrupt)?;
        Ok((header, self.owner.whole(self.log.id, changes)?))
    }

    /// The note of a block, if it has one.
    fn note(&mut self, entry: &BlockEntry) -> Result<Option<LogNote>, StorageError> {
        let (header, bytes) = self.read(entry)?;
        let path = self.log.segment_path(entry.segment);
        let note = block::note(&bytes, &header);
        let note = note.map_err(|why| StorageError::corrupt(&path, entry.position, why))?;
        Ok((header.note_bytes > 0).then(|| LogNote {
            written_at_ms: header.written_at_ms,
            write_id: header.write_id,
            note: note.to_vec(),
        }))
    }

    /// A hash of each row.
    fn hashes(&mut self, rows: &RecordBatch) -> Result<Vec<u128>, String> {
        let fields = rows.schema_ref().fields();
        if self.converter.is_none() {
            let fields = fields
                .iter()
                .map(|field| SortField::new(field.data_type().clone()));
            self.converter = Some(RowConverter::new(fields.collect()).map_err(|e| e.to_string())?);
        }
        let converter = self.converter.as_ref().ok_or("no rows can be compared")?;
        let converted = converter
            .convert_columns(rows.columns())
            .map_err(|e| e.to_string())?;
        let hash = |bytes: &[u8]| {
            let (high, low) = (
                XxHash3_64::oneshot(bytes),
                XxHash3_64::oneshot_with_seed(SEED, bytes),
            );
            u128::from(high) << 64 | u128::from(low)
        };
        Ok(converted.iter().map(|row| hash(row.as_ref())).collect())
    }
}

impl RelationLog {
    /// Gives the log a base, if it is one of a table and has many more changes than rows, or takes far more bytes than its base.
    /// Of deletions, so many are kept in memory.
    pub(super) fn shrink(&self, owner: &dyn LogOwner, pending_max: usize) -> Result<(), StorageError> {
        let Some(rows) = owner.rows(self.id) else {
            return Ok(());
        };
        let spare = owner.spare_rows();
        let (first, head) = {
            let index = self.index.read();
            (index.first, index.head)
        };
        // So many more changes are worth to be looked at.
        let more = (rows / 8).max(spare / 2);
        let has_surplus = |to: u64| to - first > rows.saturating_add(more);
        if !has_surplus(head) || self.dropped.load(Ordering::Acquire) || !self.may_forget_writes() {
            return Ok(());
        }
        self.close_segment_of(more)?;
        let until = owner.settled(self.id).min(self.index.read().lowest_hold());
        let closed = self.closed_up_to(until);
        let known = self.shrunk_to.load(Ordering::Acquire).max(first);
        let is_worth = |closed: &[Closed]| {
            let Some(last) = closed.last() else { return false };
            let changes = last.end_offset - first;
            let bytes: u64 = closed.iter().map(|segment| segment.bytes).sum();
            let base = self.base.load(Ordering::Acquire);
            let base = closed.iter().find(|segment| segment.first_offset == base);
            let is_long = changes > rows.saturating_mul(2).saturating_add(spare);
            let is_large = base.is_some_and(|base| bytes > base.bytes * 2 + SPARE_BYTES);
            // What was looked at in vain is looked at again when there is much more.
            has_surplus(last.end_offset) && (is_long || is_large) && last.end_offset - known >= more
        };
        if !is_worth(&closed) {
            return Ok(());
        }
        let closed = self.without_needed_notes(closed, owner)?;
        if !is_worth(&closed) {
            return Ok(());
        }
        let to = closed.last().map_or(first, |last| last.end_offset);
        self.shrunk_to.store(to, Ordering::Release);
        match self.put_base(to, owner, pending_max)? {
            Ok(()) | Err(Kept::Stopped) => {}
            Err(Kept::Unverified(why)) => {
                tracing::warn!(
                    relation = self.id,
                    why,
                    "the log of a table cannot be made smaller"
                );
            }
        }
        Ok(())
    }

    /// Closes the segment that is written to if it has so many changes.
    fn close_segment_of(&self, changes: u64) -> Result<(), StorageError> {
        let mut tail = self.tail.lock();
        let is_idle = tail.next_offset == self.index.read().head && matches!(tail.trust, Trust::Whole);
        if !is_idle || tail.next_offset - tail.segment < changes.max(1) {
            return Ok(());
        }
        self.sync_tail(&mut tail)?;
        self.start_segment(&mut tail, Vec::new()).map(|_| ())
    }

    /// The closed segments that end in front of an offset.
    fn closed_up_to(&self, until: u64) -> Vec<Closed> {
        let closed = self.closed_segments();
        let may_go = |segment: &&Closed| segment.is_whole && segment.end_offset <= until;
        closed.iter().take_while(may_go).copied().collect()
    }

    /// Those in front of the first one with a note that somebody may ask for.
    fn without_needed_notes(
        &self,
        mut segments: Vec<Closed>,
        owner: &dyn LogOwner,
    ) -> Result<Vec<Closed>, StorageError> {
        // Time to write down what only notes tell.
        owner.forgetting(self.id)?;
        let mut blocks = Blocks::new(self, owner);
        for (place, segment) in segments.iter().enumerate() {
            let entries: Vec<BlockEntry> = {
                let index = self.index.read();
                let own = index.position_of(segment.first_offset)..index.position_of(segment.end_offset);
                index.blocks[own].to_vec()
            };
            let mut is_needed = false;
            for entry in &entries {
                if let Some(note) = blocks.note(entry)?
                    && owner.needs_note(&note)
                {
                    is_needed = true;
                    break;
                }
            }
            if is_needed || owner.is_stopping() {
                segments.truncate(place);
                break;
            }
        }
        Ok(segments)
    }

    /// Puts a base in the place of all changes in front of `to`.
    fn put_base(&self, to: u64, owner: &dyn LogOwner, pending_max: usize) -> Outcome<()> {
        let old: Vec<BlockEntry> = {
            let index = self.index.read();
            index.blocks[..index.position_of(to)].to_vec()
        };
        let Some(last) = old.last() else {
            return Ok(Ok(()));
        };
        let (header, _) = Blocks::new(self, owner).read(last)?;
        let left = match self.left_of(&old, owner, pending_max)? {
            Ok(left) => left,
            Err(kept) => return Ok(Err(kept)),
        };
        let offset = to - left.rows;
        if offset <= old[0].first_offset {
            return Ok(Ok(()));
        }
        let made = match left.rows {
            0 => Ok(Ok(vec![])),
            _ => self.write_base(&old, &left, offset, owner),
        };
        let entries = match made {
            Ok(Ok(entries)) => entries,
            other => {
                // It takes room.
                let _ = self.disk.remove(&new_path(&self.directory, offset));
                return other.map(|made| made.map(|_| ()));
            }
        };
        if left.rows > 0 {
            let (new, base) = (
                new_path(&self.directory, offset),
                segment::base_path(&self.directory, offset),
            );
            let io = |e| StorageError::io("rename", &new, e);
            self.disk.rename(&new, &base).map_err(io)?;
            disk::sync_parent(&*self.disk, &base)?;
        }
        // An index of what was in the file of this offset must not be found beside the base.
        let io = |e| StorageError::io("clear", &self.directory, e);
        self.remove_index(offset).map_err(io)?;
        self.disk.sync_directory(&self.directory).map_err(io)?;
        let mut index = self.index.write();
        // Somebody may have begun to read since.
        if index.lowest_hold() < to {
            drop(index);
            let path = segment::base_path(&self.directory, offset);
            return match left.rows {
                0 => Ok(Ok(())),
                _ => self.disk.remove(&path).map_err(io).map(Ok),
            };
        }
        let changes = index.position_of(to);
        index.blocks.splice(..changes, entries);
        index.blocks.shrink_to_fit();
        index.first = offset;
        index.moves += 1;
        let wanted = First {
            offset,
            write_id: header.write_id,
            base_end: if left.rows > 0 { to } else { 0 },
        };
        self.first.lock().wanted = wanted;
        self.base
            .store(wanted.base().unwrap_or(u64::MAX), Ordering::Release);
        drop(index);
        self.merged.lock().retain(|segment, _| *segment >= to);
        self.remove_forgotten().map(Ok)
    }

    /// What these changes add up to.
    fn left_of(&self, old: &[BlockEntry], owner: &dyn LogOwner, pending_max: usize) -> Outcome<Left> {
        let (Some(first), Some(last)) = (old.first(), old.last()) else {
            return Ok(Ok(Left::of(0, 0)));
        };
        let mut next_rounds = 1;
        'rounds: loop {
            let rounds = next_rounds;
            let mut left = Left::of(first.first_offset, last.end_offset());
            for round in 0..rounds {
                let mut pending: HashMap<u128, i64> = HashMap::new();
                let mut blocks = Blocks::new(self, owner);
                for entry in old.iter().rev() {
                    if owner.is_stopping() {
                        return Ok(Err(Kept::Stopped));
                    }
                    let (_, changes) = blocks.changes(entry)?;
                    let hashes = match blocks.hashes(&changes.rows) {
                        Ok(hashes) => hashes,
                        Err(why) => return Ok(Err(Kept::Unverified(why))),
                    };
                    for (row, hash) in hashes.into_iter().enumerate().rev() {
                        if rounds > 1 && hash % rounds != round {
                            continue;
                        }
                        let weight = changes.weight(row);
                        left.add(hash, weight);
                        let count = match pending.get_mut(&hash) {
                            Some(waiting) if weight > 0 => {
                                let taken = weight.min(*waiting);
                                *waiting -= taken;
                                if *waiting == 0 {
                                    pending.remove(&hash);
                                }
                                weight - taken
                            }
                            _ if weight < 0 => {
                                *pending.entry(hash).or_default() -= weight;
                                0
                            }
                            _ => weight,
                        };
                        left.set(entry.first_offset + row as u64, count);
                    }
                    if pending.len() > pending_max {
                        next_rounds = rounds * 4;
                        if next_rounds > ROUNDS_MAX {
                            let why = "it has too many deletions at once".to_owned();
                            return Ok(Err(Kept::Unverified(why)));
                        }
                        continue 'rounds;
                    }
                }
                if !pending.is_empty() {
                    let why = "a row was deleted that was not there".to_owned();
                    return Ok(Err(Kept::Unverified(why)));
                }
            }
            return Ok(Ok(left));
        }
    }

    /// Writes what is left, under a name for the meantime, and reads it back; returns its blocks.
    fn write_base(
        &self,
        old: &[BlockEntry],
        left: &Left,
        offset: u64,
        owner: &dyn LogOwner,
    ) -> Outcome<Vec<BlockEntry>> {
        let path = new_path(&self.directory, offset);
        let io = |e| StorageError::io("write", &path, e);
        let tail = Tail::begin(&*self.disk, &self.directory, self.id, offset, &self.schema);
        let mut writing = Writing {
            tail: tail.map_err(io)?,
            entries: vec![],
            pieces: vec![],
            rows: 0,
            bytes: 0,
            place: None,
        };
        let mut blocks = Blocks::new(self, owner);
        for entry in old {
            if owner.is_stopping() {
                return Ok(Err(Kept::Stopped));
            }
            let kept: Vec<(u32, i64)> = (0..entry.rows)
                .map(|row| (row, left.count(entry.first_offset + u64::from(row))))
                .filter(|(_, count)| *count > 0)
                .collect();
            if kept.is_empty() {
                continue;
            }
            let (header, changes) = blocks.changes(entry)?;
            writing.add(self, &header, &changes, &kept)?;
        }
        writing.close(self)?;
        writing.tail.finish().map_err(io)?;
        let (entries, file) = (writing.entries, writing.tail.file);
        let mut blocks = Blocks::new(self, owner).within(offset, file);
        let mut found = Left::of(offset, offset);
        for entry in &entries {
            let (_, changes) = blocks.changes(entry)?;
            let hashes = match blocks.hashes(&changes.rows) {
                Ok(hashes) => hashes,
                Err(why) => return Ok(Err(Kept::Unverified(why))),
            };
            for (row, hash) in hashes.into_iter().enumerate() {
                found.add(hash, changes.weight(row));
                found.rows += 1;
            }
        }
        if (found.rows, found.sum) != (left.rows, left.sum) {
            let why = "its rows do not match its changes".to_owned();
            return Ok(Err(Kept::Unverified(why)));
        }
        Ok(Ok(entries))
    }
}

/// A base that is being written.
struct Writing {
    tail: Tail,
    entries: Vec<BlockEntry>,
    /// What the next block consists of.
    pieces: Vec<ChangeBatch>,
    rows: usize,
    bytes: usize,
    place: Option<Place>,
}

impl Writing {
    /// Takes rows of a block, each so often.
    fn add(
        &mut self,
        log: &RelationLog,
        header: &BlockHeader,
        changes: &ChangeBatch,
        kept: &[(u32, i64)],
    ) -> Result<(), StorageError> {
        let positions: UInt32Array = kept.iter().map(|(row, _)| Some(*row)).collect();
        let taken = take_record_batch(&changes.rows, &positions);
        let rows = taken.map_err(|e| StorageError::InvalidChange { why: e.to_string() })?;
        let weights = kept.iter().any(|(_, count)| *count != 1);
        let weights = weights.then(|| Int64Array::from_iter_values(kept.iter().map(|(_, count)| *count)));
        let bytes = rows_bytes(&rows);
        let is_full = self.rows + rows.num_rows() > MERGED_ROWS_MAX as usize
            || self.bytes.saturating_add(bytes) > MERGED_BYTES_MAX;
        if is_full {
            self.close(log)?;
        }
        self.rows += rows.num_rows();
        self.bytes += bytes;
        let place = self.place.get_or_insert(Place {
            first_offset: 0,
            write_id: header.write_id,
            durable_bytes: 0,
            written_at_ms: header.written_at_ms,
        });
        place.write_id = header.write_id;
        place.written_at_ms = place.written_at_ms.max(header.written_at_ms);
        self.pieces.push(ChangeBatch::new(rows, weights)?);
        Ok(())
    }

    /// Writes the block that is not complete, if there is one.
    fn close(&mut self, log: &RelationLog) -> Result<(), StorageError> {
        let Some(place) = self.place.take() else {
            return Ok(());
        };
        let changes = concat(&std::mem::take(&mut self.pieces))?;
        (self.rows, self.bytes) = (0, 0);
        let columns = match changes.rows.num_columns() {
            first if first == log.schema.fields().len() => 0,
            // The log was told of no more of them than there is room for in a header.
            more => more as u16,
        };
        let (rows, weights) = (&changes.rows, changes.weights.as_ref());
        let mut frame = block::encode(rows, weights, (0, 1), columns, &Members::new(), &[])?;
        let place = Place {
            first_offset: self.tail.next_offset,
            ..place
        };
        let written = self.tail.copy(&mut frame, place);
        let path = new_path(&log.directory, self.tail.segment);
        self.entries
            .push(written.map_err(|e| StorageError::io("write", &path, e))?);
        Ok(())
    }
}
