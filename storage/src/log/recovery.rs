//! Opening the logs: what a crash left half done is taken away.
//!
//! The blocks of segments that have an index ([`super::index`]) are believed: they were durable, and their writes complete. All
//! others, those of the last segment of each log among them, are read and checked.
//!
//! 1. A torn tail is cut: the last segment's bytes from the first invalid block on, if none of them was synced.
//!    Each block tells how much of its segment was synced before its group was written, so a later valid
//!    block tells damage from tearing: damage to what was durable is an error, never repaired by forgetting.
//! 2. A write of which blocks are missing never happened: each relation is cut at its first such block. What
//!    comes behind is cut too, which loses nothing acknowledged, since groups are synced in order; and the
//!    writes to which that belonged are then incomplete themselves, and so on until nothing changes.
//! 3. A log that ends before the place up to which it was durable ([`super::heads`]), or that is not there at all, is damaged.
//! 4. A log with damage to what was durable is not opened; all of its files are left as they are, and the others are opened. Parts
//!    of a write that they share with it are kept where the damaged log goes as far as that write: it was whole then.

mod directories;
mod short;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use arrow::datatypes::SchemaRef;
use parking_lot::{Mutex, RwLock};

use crate::disk::{Disk, DiskFile};
use crate::log::block::{self, ALIGNMENT, BlockHeader, HEADER_BYTES, Members};
use crate::log::blocks::{BlockEntry, Index};
use crate::log::file::ReadAhead;
use crate::log::first::First;
use crate::log::index::{self, SegmentIndex};
use crate::log::relation::{Beginning, RelationLog};
use crate::log::segment::{self, SegmentHeader};
use crate::log::tail::{Tail, Trust};
use crate::log::types::LogNote;
use crate::log::{heads, notes};
use crate::{StorageError, disk};

/// All logs of a directory.
#[derive(Debug)]
pub(super) struct Recovered {
    pub(super) relations: BTreeMap<u64, Arc<RelationLog>>,
    /// What was found in those that are damaged.
    pub(super) damaged: BTreeMap<u64, StorageError>,
    pub(super) next_write_id: u64,
    /// Of the writes that are kept, the oldest first.
    pub(super) notes: Vec<LogNote>,
    /// How far the logs were durably, as it was written down.
    pub(super) heads: heads::Heads,
}

/// One relation as its files show it.
struct Scanned {
    id: u64,
    directory: PathBuf,
    schema: SchemaRef,
    segments: Vec<ScannedSegment>,
    blocks: Vec<BlockEntry>,
    /// How many of the blocks are kept.
    kept: usize,
    /// The last notes, each with the position of its block in `blocks`.
    notes: VecDeque<(usize, LogNote)>,
    /// Where the log begins.
    first: First,
    /// Segments whose index was believed, and the last write that has a block in one of them.
    indexed: BTreeSet<u64>,
    indexed_write_id: u64,
}

struct ScannedSegment {
    first_offset: u64,
    path: PathBuf,
    file: Arc<dyn DiskFile>,
    header_bytes: u64,
    /// Where the valid blocks end.
    end: u64,
    /// About how many of them can be merged.
    small_blocks: usize,
}

/// A log that is not opened.
struct DamagedLog {
    error: StorageError,
    /// The last write that has a valid block in its last segment; none: nothing of it tells how far it went.
    last_write_id: Option<u64>,
}

/// A write of several blocks: how many each relation must have, and which of its blocks were found.
#[derive(Default)]
struct SplitWrite {
    members: Members,
    found: BTreeMap<u64, Vec<usize>>,
}

/// Reads the logs below `directory` and repairs them.
pub(super) fn recover(directory: &Path, disk: &Arc<dyn Disk>) -> Result<Recovered, StorageError> {
    let (directories, dropped) = directories::of_relations(&**disk, directory)?;
    let (mut scan, mut relations) = Scan::all(disk, &directories, true)?;
    if let Some((id, head)) = scan.missing(&relations) {
        tracing::warn!(
            relation = id,
            head,
            "a log ends before the position up to which it was durable; all segments are read"
        );
        (scan, relations) = Scan::all(disk, &directories, false)?;
    }
    let mut durable = match heads::read(&**disk, directory) {
        Err(error @ StorageError::Corrupt { .. }) => {
            tracing::warn!(%error, "how far the logs were durable is not known");
            heads::Heads::new()
        }
        read => read?,
    };
    durable.retain(|id, _| !dropped.contains(id));
    short::leave_out(&mut scan, &mut relations, directory, &durable, Scanned::head)?;
    drop_incomplete_writes(&mut relations, &scan);
    short::leave_out(&mut scan, &mut relations, directory, &durable, Scanned::kept_head)?;
    let damaged = scan.damaged.into_iter();
    let mut recovered = Recovered {
        relations: BTreeMap::new(),
        damaged: damaged.map(|(id, log)| (id, log.error)).collect(),
        next_write_id: scan.last_write_id + 1,
        notes: Vec::new(),
        heads: durable,
    };
    let mut found = vec![];
    for (id, mut scanned) in relations {
        let (kept, notes) = (scanned.kept, std::mem::take(&mut scanned.notes));
        let notes = notes.into_iter().filter(|(block, _)| *block < kept);
        found.push(notes.map(|(_, note)| note).collect());
        recovered.relations.insert(id, Arc::new(scanned.finish(disk)?));
    }
    recovered.notes = notes::newest(found);
    Ok(recovered)
}

struct Scan {
    disk: Arc<dyn Disk>,
    /// Whether indexes are believed.
    believes: bool,
    /// How far the logs must go by the indexes that were believed.
    heads: BTreeMap<u64, u64>,
    split_writes: BTreeMap<u64, SplitWrite>,
    last_write_id: u64,
    damaged: BTreeMap<u64, DamagedLog>,
}

impl Scan {
    /// Looks at all relations.
    fn all(
        disk: &Arc<dyn Disk>,
        directories: &BTreeMap<u64, PathBuf>,
        believes: bool,
    ) -> Result<(Scan, BTreeMap<u64, Scanned>), StorageError> {
        let mut scan = Scan {
            disk: disk.clone(),
            believes,
            heads: BTreeMap::new(),
            split_writes: BTreeMap::new(),
            last_write_id: 0,
            damaged: BTreeMap::new(),
        };
        let mut relations = BTreeMap::new();
        for (id, path) in directories {
            match scan.relation(*id, path.clone()) {
                Ok(scanned) => {
                    relations.insert(*id, scanned);
                }
                Err(error @ StorageError::Corrupt { .. }) => scan.leave_out(*id, path, error)?,
                Err(error) => return Err(error),
            }
        }
        Ok((scan, relations))
    }

    /// Notes a damaged log, and how far it went.
    fn leave_out(&mut self, id: u64, directory: &Path, error: StorageError) -> Result<(), StorageError> {
        tracing::error!(relation = id, %error, "a log is damaged and not opened");
        let listed = segment::list(&*self.disk, directory);
        let listed = listed.map_err(|e| StorageError::io("list", directory, e))?;
        let mut last_write_id = None;
        if let Some((_, path)) = listed.last() {
            let file = self
                .disk
                .open(path)
                .map_err(|e| StorageError::io("open", path, e))?;
            let size = file.size().map_err(|e| StorageError::io("read", path, e))?;
            let mut read_ahead = ReadAhead::new(file);
            let mut position = 0;
            while position < size {
                position += match read_block(&mut read_ahead, path, position, size)? {
                    Ok((header, ..)) => {
                        last_write_id = last_write_id.max(Some(header.write_id));
                        header.block_bytes()
                    }
                    Err(_) => ALIGNMENT as u64,
                };
            }
        }
        self.last_write_id = self.last_write_id.max(last_write_id.unwrap_or(0));
        let log = DamagedLog { error, last_write_id };
        self.damaged.insert(id, log);
        Ok(())
    }

    /// Whether a damaged log, or one that was dropped, had its part of a write.
    fn had(&self, relation: u64, write_id: u64) -> bool {
        // A relation without a log was dropped: its blocks went with it.
        let log = self.damaged.get(&relation);
        log.and_then(|log| log.last_write_id)
            .is_none_or(|last| write_id <= last)
    }

    /// A log that does not go as far as an index says, and how far that is.
    fn missing(&self, relations: &BTreeMap<u64, Scanned>) -> Option<(u64, u64)> {
        let mut heads = self.heads.iter().map(|(id, head)| (*id, *head));
        heads.find(|(id, head)| relations.get(id).is_some_and(|scanned| scanned.head() < *head))
    }

    fn relation(&mut self, id: u64, directory: PathBuf) -> Result<Scanned, StorageError> {
        let first = First::read(&*self.disk, &directory)?;
        self.last_write_id = self.last_write_id.max(first.write_id);
        let listed = segment::settle(&*self.disk, &directory, &first)?;
        // Each segment ends where the next begins.
        let ends: Vec<u64> = listed
            .iter()
            .map(|(first_offset, _)| *first_offset)
            .skip(1)
            .collect();
        let mut scanned: Option<Scanned> = None;
        let last = listed.len().saturating_sub(1);
        for (i, (first_offset, path)) in listed.into_iter().enumerate() {
            let file = self
                .disk
                .open(&path)
                .map_err(|e| StorageError::io("open", &path, e))?;
            let (header, header_bytes) = match SegmentHeader::read(&*file, &path) {
                Ok(header) => header,
                Err(error @ StorageError::Corrupt { .. }) if i > 0 && i == last => {
                    segment::remove_unborn(&*self.disk, &*file, &path, error)?;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let expected_offset = scanned.as_ref().map_or(first.offset, Scanned::head);
            if header.relation != id || header.first_offset != first_offset || first_offset != expected_offset
            {
                let why = format!(
                    "the segment says relation {} from offset {}; relation {id} from {expected_offset} belongs here",
                    header.relation, header.first_offset
                );
                return Err(StorageError::corrupt(&path, 0, why));
            }
            let scanned = scanned.get_or_insert_with(|| Scanned {
                id,
                directory: directory.clone(),
                schema: header.schema.clone(),
                segments: Vec::new(),
                blocks: Vec::new(),
                kept: 0,
                notes: VecDeque::new(),
                first,
                indexed: BTreeSet::new(),
                indexed_write_id: 0,
            });
            if header.schema != scanned.schema {
                return Err(StorageError::corrupt(
                    &path,
                    0,
                    "its schema is not that of the first segment",
                ));
            }
            let segment = ScannedSegment {
                first_offset,
                path,
                file,
                header_bytes,
                end: header_bytes,
                small_blocks: 0,
            };
            let base_end = first
                .base()
                .filter(|base| *base == first_offset)
                .map(|_| first.base_end);
            let next_offset = base_end.or(ends.get(i).copied());
            let size = segment
                .file
                .size()
                .map_err(|e| StorageError::io("read", &segment.path, e))?;
            let index = next_offset.filter(|_| self.believes).and_then(|next_offset| {
                let between = (first_offset, next_offset);
                SegmentIndex::read(&*self.disk, &directory, id, between, size)
            });
            match index {
                Some(index) => self.believe(scanned, segment, index),
                None => self.segment(scanned, segment, size, next_offset)?,
            }
        }
        let mut scanned = scanned.ok_or_else(|| {
            StorageError::corrupt(
                &directory.join(segment::file_name(first.offset)),
                0,
                "the first segment is missing",
            )
        })?;
        if scanned.head() < first.base_end {
            let why = format!(
                "the base ends at offset {}, not {}",
                scanned.head(),
                first.base_end
            );
            return Err(StorageError::corrupt(
                &segment::base_path(&directory, first.offset),
                0,
                why,
            ));
        }
        scanned.kept = scanned.blocks.len();
        Ok(scanned)
    }

    /// Takes the blocks of a closed segment from its index.
    fn believe(&mut self, scanned: &mut Scanned, mut segment: ScannedSegment, index: SegmentIndex) {
        self.last_write_id = self.last_write_id.max(index.last_write_id);
        for (relation, head) in index.heads {
            let known = self.heads.entry(relation).or_default();
            *known = head.max(*known);
        }
        let before = scanned.blocks.len();
        for (block, note) in index.notes {
            scanned.note(before + block, note);
        }
        scanned.blocks.extend(index.blocks);
        scanned.indexed.insert(segment.first_offset);
        scanned.indexed_write_id = index.last_write_id;
        segment.end = index.end;
        scanned.segments.push(segment);
    }

    /// Reads the blocks of one segment, up to the offset where the next segment begins. What is behind that was given
    /// up when it could not be synced.
    fn segment(
        &mut self,
        scanned: &mut Scanned,
        mut segment: ScannedSegment,
        size: u64,
        end: Option<u64>,
    ) -> Result<(), StorageError> {
        let path = segment.path.clone();
        let mut read_ahead = ReadAhead::new(segment.file.clone());
        while segment.end < size && end.is_none_or(|end| scanned.head() < end) {
            let position = segment.end;
            let (header, members, note) = match read_block(&mut read_ahead, &path, position, size)? {
                Ok(found) => found,
                Err(why) if end.is_none() => {
                    refuse_durable_damage(&mut read_ahead, &path, position, size, &why)?;
                    tracing::warn!(path = %path.display(), position, bytes = size - position, %why, "a torn \
                     tail is cut off");
                    break;
                }
                Err(why) => return Err(StorageError::corrupt(&path, position, why)),
            };
            if header.first_offset != scanned.head() {
                let why = format!(
                    "the block starts at offset {}, not {}",
                    header.first_offset,
                    scanned.head()
                );
                return Err(StorageError::corrupt(&path, position, why));
            }
            if !members.is_empty() {
                let write = self.split_writes.entry(header.write_id).or_default();
                write.members = members;
                write
                    .found
                    .entry(scanned.id)
                    .or_default()
                    .push(scanned.blocks.len());
            }
            self.last_write_id = self.last_write_id.max(header.write_id);
            if !note.is_empty() {
                let note = LogNote {
                    written_at_ms: header.written_at_ms,
                    write_id: header.write_id,
                    note,
                };
                scanned.note(scanned.blocks.len(), note);
            }
            scanned.blocks.push(BlockEntry {
                first_offset: header.first_offset,
                rows: header.rows,
                bytes: header.block_bytes() as u32,
                position,
                segment: segment.first_offset,
                written_at_ms: header.written_at_ms,
            });
            segment.end += header.block_bytes();
            segment.small_blocks += usize::from(header.is_small());
        }
        scanned.segments.push(segment);
        Ok(())
    }
}

/// A valid block, or what is wrong with it.
pub(super) type BlockFinding = Result<(BlockHeader, Members, Vec<u8>), String>;

/// Reads the block at a place of a file of that size.
pub(super) fn read_block(
    read_ahead: &mut ReadAhead,
    path: &Path,
    position: u64,
    size: u64,
) -> Result<BlockFinding, StorageError> {
    let io = |e| StorageError::io("read", path, e);
    let left = size - position;
    if left < HEADER_BYTES as u64 {
        return Ok(Err(format!(
            "a block header takes {HEADER_BYTES} bytes, only {left} are left"
        )));
    }
    let header = read_ahead.get(position, HEADER_BYTES as u64, size).map_err(io)?;
    let header = match BlockHeader::parse(&header) {
        Ok(header) => header,
        Err(why) => return Ok(Err(why)),
    };
    if header.block_bytes() > left {
        return Ok(Err(format!(
            "the block takes {} bytes, only {left} are left",
            header.block_bytes()
        )));
    }
    let block = read_ahead.get(position, header.block_bytes(), size).map_err(io)?;
    Ok(block::verify(&block).and_then(|()| {
        let members = block::members(&block, &header)?;
        Ok((header, members, block::note(&block, &header)?.to_vec()))
    }))
}

/// Looks for a valid block behind the invalid one at `position` that was written when that was durable.
pub(super) fn refuse_durable_damage(
    read_ahead: &mut ReadAhead,
    path: &Path,
    position: u64,
    size: u64,
    why: &str,
) -> Result<(), StorageError> {
    for later in ((position + ALIGNMENT as u64)..size).step_by(ALIGNMENT) {
        if let Ok((header, ..)) = read_block(read_ahead, path, later, size)?
            && header.durable_bytes > position
        {
            return Err(StorageError::corrupt(path, position, why));
        }
    }
    Ok(())
}

/// Lowers `kept` of each relation until only whole writes remain.
fn drop_incomplete_writes(relations: &mut BTreeMap<u64, Scanned>, scan: &Scan) {
    loop {
        let mut changed = false;
        for (write_id, write) in &scan.split_writes {
            let complete = write.members.iter().all(|(relation, blocks)| {
                let Some(scanned) = relations.get(relation) else {
                    return scan.had(*relation, *write_id);
                };
                // What retention has removed was acknowledged, and what has an index is complete.
                if *write_id <= scanned.first.write_id.max(scanned.indexed_write_id) {
                    return true;
                }
                let found = write.found.get(relation).map_or(&[][..], Vec::as_slice);
                found.iter().filter(|block| **block < scanned.kept).count() == *blocks as usize
            });
            if complete {
                continue;
            }
            for (relation, blocks) in &write.found {
                let (Some(scanned), Some(first)) = (relations.get_mut(relation), blocks.first()) else {
                    continue;
                };
                if *first < scanned.kept {
                    tracing::warn!(relation, write_id, "a write that was not finished is dropped");
                    scanned.kept = *first;
                    changed = true;
                }
            }
        }
        if !changed {
            return;
        }
    }
}

impl Scanned {
    fn note(&mut self, block: usize, note: LogNote) {
        self.notes.push_back((block, note));
        if self.notes.len() > notes::NOTES_MAX {
            self.notes.pop_front();
        }
    }

    /// The offset behind the blocks found so far.
    fn head(&self) -> u64 {
        self.blocks
            .last()
            .map_or(self.first.offset, BlockEntry::end_offset)
    }

    /// The offset behind the blocks that are kept.
    fn kept_head(&self) -> u64 {
        match self.kept.checked_sub(1).and_then(|last| self.blocks.get(last)) {
            Some(block) => block.end_offset(),
            None => self.first.offset,
        }
    }

    /// Makes the files end where the kept blocks do, durably, and the log ready for use.
    fn finish(mut self, disk: &Arc<dyn Disk>) -> Result<RelationLog, StorageError> {
        if let Some(cut) = self.blocks.get(self.kept).copied() {
            // Later segments go first, so that a crash in between leaves a log that is cut the same way.
            while let Some(segment) = self.segments.pop_if(|segment| segment.first_offset > cut.segment) {
                disk.remove(&segment.path)
                    .map_err(|e| StorageError::io("remove", &segment.path, e))?;
                disk::sync_parent(&**disk, &segment.path)?;
            }
            let segment = self
                .segments
                .last_mut()
                .expect("a block was found in one of the segments");
            segment.end = cut.position;
            self.blocks.truncate(self.kept);
        }
        let segment = self.segments.pop().expect("a relation has at least one segment");
        // The last segment is written to again: what is known of it will not be so for long.
        self.indexed.remove(&segment.first_offset);
        index::remove_others(&**disk, &self.directory, &self.indexed)?;
        let path = &segment.path;
        let size = segment
            .file
            .size()
            .map_err(|e| StorageError::io("read", path, e))?;
        if size != segment.end {
            segment
                .file
                .set_size(segment.end)
                .map_err(|e| StorageError::io("truncate", path, e))?;
        }
        // What was read may never have been synced, and from here on it counts as durable.
        segment
            .file
            .sync()
            .map_err(|e| StorageError::io("sync", path, e))?;
        let head = self.head();
        Ok(RelationLog {
            id: self.id,
            directory: self.directory,
            widest: RwLock::new(self.schema.clone()),
            schema: self.schema,
            disk: disk.clone(),
            index: RwLock::new(Index {
                blocks: self.blocks,
                head,
                first: self.first.offset,
                ..Index::default()
            }),
            options: RwLock::default(),
            first: Mutex::new(Beginning {
                wanted: self.first,
                durable: self.first,
            }),
            base: AtomicU64::new(self.first.base().unwrap_or(u64::MAX)),
            shrunk_to: AtomicU64::default(),
            tail: Mutex::new(Tail {
                file: segment.file,
                segment: segment.first_offset,
                header_bytes: segment.header_bytes,
                written_bytes: segment.end,
                durable_bytes: segment.end,
                next_offset: head,
                durable_offset: head,
                small_blocks: segment.small_blocks,
                trust: Trust::Whole,
            }),
            indexed: Mutex::new(self.indexed),
            merged: Mutex::default(),
            closed: Mutex::default(),
            failed_with: Mutex::default(),
            dropped: AtomicBool::new(false),
        })
    }
}
