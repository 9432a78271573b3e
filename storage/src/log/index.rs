//! What a closed segment consists of, in a small file beside it: so that opening does not read the segment.
//!
//! It is made by reading the whole segment once, when all of it, and of every write that has a part in it, is durable. From
//! then on an open believes it: its blocks are there, and its writes are complete. It says how far the logs were that have parts
//! of its writes: if one of them does not go so far any more, because a disk has lied about a sync, no index is believed. Whether a block's bytes are still
//! those that were written is checked whenever it is read. It is not the only copy of anything: one that is missing, damaged, or
//! does not fit the segments is passed over, and the segment is read.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::{Disk, DiskFile};
use crate::log::block::{self, BlockHeader, u16_at, u32_at, u64_at};
use crate::log::blocks::BlockEntry;
use crate::log::file::ReadAhead;
use crate::log::types::LogNote;
use crate::{StorageError, disk};

const EXTENSION: &str = "idx";
const MAGIC: [u8; 4] = *b"MLRI";
const VERSION: u16 = 1;
const HEADER_BYTES: usize = 64;
/// Of a block, without its note.
const ENTRY_BYTES: usize = 20;
/// Of the head of a log.
const HEAD_BYTES: usize = 16;
/// Of a note, without its text.
const NOTE_BYTES: usize = 16;

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SegmentIndex {
    pub(super) relation: u64,
    pub(super) first_offset: u64,
    /// The offset behind its last row: where the next segment begins.
    pub(super) end_offset: u64,
    /// Where its first block begins, and where its last one ends.
    pub(super) header_bytes: u64,
    pub(super) end: u64,
    /// The id of the last write that has a block in it.
    pub(super) last_write_id: u64,
    /// How far the logs were, all of it durable, when this was made: this one, and those that have parts of its writes.
    pub(super) heads: BTreeMap<u64, u64>,
    pub(super) blocks: Vec<BlockEntry>,
    /// Notes of writes, each with the position of its block in `blocks`.
    pub(super) notes: Vec<(usize, LogNote)>,
}

/// The name of the index of the segment that starts at `first_offset`.
pub(super) fn path(directory: &Path, first_offset: u64) -> PathBuf {
    directory.join(format!("{first_offset:020}.{EXTENSION}"))
}

/// The indexes in a directory, by the first offset of their segments.
pub(super) fn list(disk: &dyn Disk, directory: &Path) -> std::io::Result<Vec<(u64, PathBuf)>> {
    let listed = disk.list(directory)?.into_iter().filter_map(|path| {
        let digits = path.file_name()?.to_str()?.strip_suffix(".idx")?;
        Some((digits.parse().ok()?, path))
    });
    Ok(listed.collect())
}

/// Removes the indexes in a directory, but not those of these segments.
pub(super) fn remove_others(
    disk: &dyn Disk,
    directory: &Path,
    segments: &BTreeSet<u64>,
) -> Result<(), StorageError> {
    let listed = list(disk, directory).map_err(|e| StorageError::io("list", directory, e))?;
    for (_, path) in listed.iter().filter(|(of, _)| !segments.contains(of)) {
        disk.remove(path)
            .map_err(|e| StorageError::io("remove", path, e))?;
    }
    Ok(())
}

impl SegmentIndex {
    /// Reads a closed segment of a relation, all of whose blocks are these. `heads`: how far all logs are.
    ///
    /// # Errors
    /// A block is damaged.
    pub(super) fn make(
        file: Arc<dyn DiskFile>,
        segment: &Path,
        relation: u64,
        blocks: Vec<BlockEntry>,
        mut heads: BTreeMap<u64, u64>,
    ) -> Result<SegmentIndex, StorageError> {
        let (Some(first), Some(last)) = (blocks.first().copied(), blocks.last().copied()) else {
            return Err(StorageError::corrupt(segment, 0, "the segment has no blocks"));
        };
        let end = last.position + u64::from(last.bytes);
        let mut read_ahead = ReadAhead::new(file);
        let (mut notes, mut last_write_id) = (vec![], 0);
        let mut concerned = BTreeSet::from([relation]);
        for (place, entry) in blocks.iter().enumerate() {
            let corrupt = |why: String| StorageError::corrupt(segment, entry.position, why);
            let bytes = read_ahead
                .get(entry.position, u64::from(entry.bytes), end)
                .map_err(|e| StorageError::io("read", segment, e))?;
            let header = BlockHeader::parse(&bytes).map_err(corrupt)?;
            if !entry.is_of(&header) {
                let why = "the block is not the one that was written here";
                return Err(corrupt(why.to_owned()));
            }
            block::verify(&bytes).map_err(corrupt)?;
            last_write_id = header.write_id.max(last_write_id);
            concerned.extend(block::members(&bytes, &header).map_err(corrupt)?.into_keys());
            let note = block::note(&bytes, &header).map_err(corrupt)?;
            if !note.is_empty() {
                let note = LogNote {
                    written_at_ms: header.written_at_ms,
                    write_id: header.write_id,
                    note: note.to_vec(),
                };
                notes.push((place, note));
            }
        }
        heads.retain(|of, _| concerned.contains(of));
        Ok(SegmentIndex {
            relation,
            heads,
            first_offset: first.segment,
            end_offset: last.end_offset(),
            header_bytes: first.position,
            end,
            last_write_id,
            blocks,
            notes,
        })
    }

    /// Writes it beside its segment, durably.
    pub(super) fn write(&self, disk: &dyn Disk, directory: &Path) -> Result<(), StorageError> {
        disk::replace(disk, &path(directory, self.first_offset), &self.encode()).map(|_| ())
    }

    /// The index of a segment, if there is one that fits: the next segment begins at `next_offset`, the file is so long.
    pub(super) fn read(
        disk: &dyn Disk,
        directory: &Path,
        relation: u64,
        (first_offset, next_offset): (u64, u64),
        file_bytes: u64,
    ) -> Option<SegmentIndex> {
        let path = path(directory, first_offset);
        if !disk.exists(&path) {
            return None;
        }
        let read = disk::read(disk, &path).map_err(|error| error.to_string());
        match read.and_then(|bytes| SegmentIndex::decode(&bytes)) {
            Ok(index) => {
                let is_fit = index.relation == relation
                    && index.first_offset == first_offset
                    && index.end_offset == next_offset
                    && index.end <= file_bytes;
                is_fit.then_some(index)
            }
            Err(why) => {
                tracing::warn!(path = %path.display(), why, "the index of a segment cannot be used: the segment is read");
                None
            }
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let heads = HEAD_BYTES * self.heads.len();
        let notes: usize = (self.notes.iter())
            .map(|(_, note)| NOTE_BYTES + note.note.len())
            .sum();
        let mut bytes = Vec::with_capacity(HEADER_BYTES + heads + ENTRY_BYTES * self.blocks.len() + notes);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0; 2]);
        for number in [
            self.relation,
            self.first_offset,
            self.header_bytes,
            self.last_write_id,
        ] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&(self.blocks.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&(self.notes.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&(self.heads.len() as u32).to_le_bytes());
        bytes.resize(HEADER_BYTES, 0);
        for (relation, head) in &self.heads {
            bytes.extend_from_slice(&relation.to_le_bytes());
            bytes.extend_from_slice(&head.to_le_bytes());
        }
        for entry in &self.blocks {
            bytes.extend_from_slice(&entry.rows.to_le_bytes());
            bytes.extend_from_slice(&u64::from(entry.bytes).to_le_bytes());
            bytes.extend_from_slice(&entry.written_at_ms.to_le_bytes());
        }
        for (block, note) in &self.notes {
            bytes.extend_from_slice(&(*block as u32).to_le_bytes());
            bytes.extend_from_slice(&(note.note.len() as u32).to_le_bytes());
            bytes.extend_from_slice(&note.write_id.to_le_bytes());
            bytes.extend_from_slice(&note.note);
        }
        let crc = crc32c::crc32c(&bytes);
        bytes[60..64].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads what [`encode`](Self::encode) wrote; the error says what is wrong with it.
    pub(super) fn decode(bytes: &[u8]) -> Result<SegmentIndex, String> {
        if bytes.len() < HEADER_BYTES || bytes[0..4] != MAGIC {
            return Err("this is not an index of a segment".to_owned());
        }
        let crc = crc32c::crc32c(&bytes[..60]);
        let crc = crc32c::crc32c_append(crc32c::crc32c_append(crc, &[0; 4]), &bytes[64..]);
        let found = u32_at(bytes, 60);
        if found != crc {
            return Err(format!("the checksum is {found:08x}, the bytes give {crc:08x}"));
        }
        let version = u16_at(bytes, 4);
        if version != VERSION {
            return Err(format!("it has version {version}, only {VERSION} is known"));
        }
        let short = || "it is shorter than it says".to_owned();
        let count = |at: usize| usize::try_from(u64_at(bytes, at)).map_err(|_| short());
        let (block_count, note_count) = (count(40)?, count(48)?);
        let heads_end = (u32_at(bytes, 56) as usize)
            .checked_mul(HEAD_BYTES)
            .and_then(|length| length.checked_add(HEADER_BYTES))
            .ok_or_else(short)?;
        let heads = bytes.get(HEADER_BYTES..heads_end).ok_or_else(short)?;
        let heads = heads.chunks_exact(HEAD_BYTES);
        let heads = heads.map(|head| (u64_at(head, 0), u64_at(head, 8))).collect();
        let entries_end = block_count
            .checked_mul(ENTRY_BYTES)
            .and_then(|length| length.checked_add(heads_end))
            .ok_or_else(short)?;
        let entries = bytes.get(heads_end..entries_end).ok_or_else(short)?;
        let (first_offset, header_bytes) = (u64_at(bytes, 16), u64_at(bytes, 24));
        let (mut offset, mut position) = (first_offset, header_bytes);
        let mut blocks = Vec::with_capacity(block_count);
        for entry in entries.chunks_exact(ENTRY_BYTES) {
            let (rows, block_bytes) = (u32_at(entry, 0), u64_at(entry, 4));
            blocks.push(BlockEntry {
                first_offset: offset,
                rows,
                bytes: u32::try_from(block_bytes).map_err(|_| "a block has an impossible size")?,
                position,
                segment: first_offset,
                written_at_ms: u64_at(entry, 12) as i64,
            });
            let overflow = "its offsets are impossible";
            offset = offset.checked_add(u64::from(rows)).ok_or(overflow)?;
            position = position.checked_add(block_bytes).ok_or(overflow)?;
        }
        let mut rest = &bytes[entries_end..];
        let mut notes = vec![];
        for _ in 0..note_count {
            let head = rest.get(..NOTE_BYTES).ok_or_else(short)?;
            let (block, length) = (u32_at(head, 0) as usize, u32_at(head, 4) as usize);
            let note = rest
                .get(NOTE_BYTES..NOTE_BYTES + length)
                .ok_or_else(short)?
                .to_vec();
            rest = &rest[NOTE_BYTES + length..];
            let entry = blocks.get(block).ok_or("a note is of no block")?;
            let note = LogNote {
                written_at_ms: entry.written_at_ms,
                write_id: u64_at(head, 8),
                note,
            };
            notes.push((block, note));
        }
        if !rest.is_empty() {
            return Err("something follows it".to_owned());
        }
        Ok(SegmentIndex {
            relation: u64_at(bytes, 8),
            first_offset,
            end_offset: offset,
            header_bytes,
            end: position,
            last_write_id: u64_at(bytes, 32),
            heads,
            blocks,
            notes,
        })
    }
}
