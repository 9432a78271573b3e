//! Reading a log: block by block from the files, at any time, up to what was durable.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use crate::log::block::{self, BlockHeader, by_column};
use crate::log::blocks::BlockEntry;
use crate::log::file::ReadAhead;
use crate::log::hold::LogHold;
use crate::log::relation::RelationLog;
use crate::memory::rows_bytes;
use crate::{ChangeBatch, StorageError};

/// Smaller blocks are read whole, with what follows them.
const APART_BYTES_MIN: u32 = 256 << 10;
/// Has the directory of a block without a long note.
const HEAD_BYTES: usize = 4 << 10;

/// Changes at consecutive offsets, in the blocks in which they were written, or in larger ones where those were merged.
#[derive(Debug, Clone)]
pub struct LogBlock {
    /// The offset of the first row.
    pub first_offset: u64,
    /// The write that they are part of: all of its blocks, of whichever relations, have its number, and later writes have
    /// higher ones. If the block was merged from those of several writes, the last of them.
    pub write_id: u64,
    /// What the owner wrote down with the write, if this is its first block; else empty.
    pub note: Vec<u8>,
    /// The rows; the arrays share the memory that the file was read into.
    pub changes: ChangeBatch,
}

/// Iterates over the blocks of one relation. It goes on working when the relation is dropped.
///
/// After an error it goes on with the next block, if asked; callers normally stop.
#[derive(Debug)]
pub struct LogReader {
    relation: Arc<RelationLog>,
    /// The offset behind what was read.
    next_offset: u64,
    from: u64,
    to: u64,
    open: Option<OpenSegment>,
    /// So that retention does not remove what is still to be read.
    hold: LogHold,
    /// Read, and not yet handed out.
    pending: Option<Result<LogBlock, StorageError>>,
    /// The columns that are wanted, in order; none: all.
    wanted: Option<Vec<usize>>,
    bytes_read: u64,
}

/// The segment that is being read.
#[derive(Debug)]
struct OpenSegment {
    segment: u64,
    /// The index's `moves` when it was opened: its file may have been replaced since.
    moves: u64,
    read_ahead: ReadAhead,
}

impl LogReader {
    /// Rows `from..to`, cut at the head, and at the front to what is kept.
    pub(super) fn new(relation: Arc<RelationLog>, from: u64, to: u64) -> Self {
        let hold = LogHold::new(Arc::clone(&relation), from);
        let to = to.min(relation.index.read().head);
        let from = hold.offset();
        LogReader {
            relation,
            next_offset: from,
            from,
            to,
            open: None,
            hold,
            pending: None,
            wanted: None,
            bytes_read: 0,
        }
    }

    /// How many bytes of blocks were read so far: of large ones the wanted columns, of others all.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    /// Gives only these columns of the relation, in this order. Blocks that were written before some of them were added have the rest.
    #[must_use]
    pub fn with_columns(self, wanted: Vec<usize>) -> Self {
        LogReader {
            wanted: Some(wanted),
            ..self
        }
    }

    /// The block that has the next row to read, how far its segment may be read ahead, and the index's `moves`.
    fn next_entry(&self) -> Option<(BlockEntry, u64, u64)> {
        if self.next_offset >= self.to {
            return None;
        }
        let index = self.relation.index.read();
        let rest = &index.blocks[index.position_of(self.next_offset)..];
        let entry = *rest.first().filter(|entry| entry.first_offset < self.to)?;
        let in_segment = rest.partition_point(|other| other.segment == entry.segment);
        let last = &rest[in_segment - 1];
        Some((entry, last.position + u64::from(last.bytes), index.moves))
    }

    fn read(&mut self, entry: BlockEntry, end: u64, moves: u64) -> Result<LogBlock, StorageError> {
        let path = self.relation.segment_path(entry.segment);
        let is_open = |open: &&mut OpenSegment| open.segment == entry.segment && open.moves == moves;
        if self.open.as_mut().filter(is_open).is_none() {
            let file = self.relation.disk.open(&path);
            let file = file.map_err(|e| StorageError::io("open", &path, e))?;
            self.hold.advance(entry.segment.max(self.from));
            self.open = Some(OpenSegment {
                segment: entry.segment,
                moves,
                read_ahead: ReadAhead::new(file),
            });
        }
        if let Some(block) = self.read_wanted(entry, &path)? {
            return Ok(self.clip(entry, block));
        }
        let open = self.open.as_mut().expect("it was opened above");
        let corrupt = |why: String| StorageError::corrupt(&path, entry.position, why);
        let bytes = match open.read_ahead.get(entry.position, u64::from(entry.bytes), end) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                return Err(corrupt("the file ends inside of the block".to_owned()));
            }
            Err(error) => return Err(StorageError::io("read", &path, error)),
        };
        self.bytes_read += u64::from(entry.bytes);
        let header = BlockHeader::parse(&bytes).map_err(corrupt)?;
        if !entry.is_of(&header) {
            return Err(corrupt(
                "the block is not the one that was written here".to_owned(),
            ));
        }
        block::verify(&bytes).map_err(corrupt)?;
        let schema = self.relation.schema_of(header.columns).ok_or_else(|| {
            corrupt(format!(
                "the block has {} columns, a number that the relation never had",
                header.columns
            ))
        })?;
        let changes = block::decode(&bytes, &header, &schema, self.wanted.as_deref()).map_err(corrupt)?;
        let note = block::note(&bytes, &header).map_err(corrupt)?.to_vec();
        Ok(self.clip(
            entry,
            LogBlock {
                first_offset: entry.first_offset,
                write_id: header.write_id,
                note,
                changes,
            },
        ))
    }

    /// The wanted columns of a block that has them apart, which alone are read; `None`: the block is to be read whole.
    fn read_wanted(&mut self, entry: BlockEntry, path: &Path) -> Result<Option<LogBlock>, StorageError> {
        let (Some(wanted), Some(open)) = (&self.wanted, &self.open) else {
            return Ok(None);
        };
        if entry.bytes < APART_BYTES_MIN {
            return Ok(None);
        }
        let corrupt = |why: String| StorageError::corrupt(path, entry.position, why);
        let read = |at: u32, bytes: usize| {
            let read = open.read_ahead.exactly(entry.position + u64::from(at), bytes);
            read.map_err(|error| match error.kind() {
                ErrorKind::UnexpectedEof => corrupt("the file ends inside of the block".to_owned()),
                _ => StorageError::io("read", path, error),
            })
        };
        let mut head = read(0, HEAD_BYTES)?;
        let header = BlockHeader::parse(&head).map_err(corrupt)?;
        if !header.by_column || !entry.is_of(&header) {
            return Ok(None);
        }
        let Some(schema) = self.relation.schema_of(header.columns) else {
            return Ok(None);
        };
        let all = block::all_columns(&schema, &header);
        if wanted.len() >= schema.fields().len() {
            return Ok(None);
        }
        let head_bytes = by_column::head_bytes(&header, all.len());
        if head_bytes > entry.bytes as usize {
            return Err(corrupt("the block is shorter than its directory".to_owned()));
        }
        if head_bytes > head.len() {
            head = read(0, head_bytes)?;
        }
        let places = by_column::places(&head, &header, all.len()).map_err(corrupt)?;
        let mut failed = None;
        let mut bytes_read = head.len() as u64;
        let changes = block::assemble(&header, &schema, Some(wanted), |column| {
            let place = &places[column];
            bytes_read += u64::from(place.bytes);
            let bytes = read(place.start, place.bytes as usize).map_err(|error| {
                let text = error.to_string();
                failed = Some(error);
                text
            })?;
            by_column::decode(&bytes, place, &all[column], header.rows, false)
        });
        let changes = changes.map_err(|why| failed.unwrap_or_else(|| corrupt(why)))?;
        let note = block::note(&head, &header).map_err(corrupt)?.to_vec();
        self.bytes_read += bytes_read;
        Ok(Some(LogBlock {
            first_offset: entry.first_offset,
            write_id: header.write_id,
            note,
            changes,
        }))
    }

    /// Cuts off what is outside of the range, and what was read already: the block may have been merged since from some that
    /// were read and some that were not.
    fn clip(&self, entry: BlockEntry, block: LogBlock) -> LogBlock {
        let first_offset = self.next_offset.max(entry.first_offset);
        let end = self.to.min(entry.end_offset());
        if first_offset == entry.first_offset && end == entry.end_offset() {
            return block;
        }
        let start = (first_offset - entry.first_offset) as usize;
        LogBlock {
            first_offset,
            changes: block.changes.slice(start, (end - first_offset) as usize),
            ..block
        }
    }
}

impl LogReader {
    /// The next rows in one piece: as many blocks as have, together, so many rows or so many bytes in memory. Small writes
    /// are many blocks, and each piece costs whoever reads it.
    pub fn next_rows(
        &mut self,
        rows_max: usize,
        bytes_max: usize,
    ) -> Option<Result<ChangeBatch, StorageError>> {
        let first = match self.next()? {
            Ok(block) => block.changes,
            Err(error) => return Some(Err(error)),
        };
        let (mut rows, mut bytes) = (first.num_rows(), rows_bytes(&first.rows));
        let mut pieces = vec![first];
        while rows < rows_max && bytes < bytes_max {
            match self.next() {
                // Blocks that were written before a column was added are a piece of their own.
                Some(Ok(block)) if block.changes.rows.num_columns() == pieces[0].rows.num_columns() => {
                    rows += block.changes.num_rows();
                    bytes += rows_bytes(&block.changes.rows);
                    pieces.push(block.changes);
                }
                Some(other) => {
                    self.pending = Some(other);
                    break;
                }
                None => break,
            }
        }
        match pieces.len() {
            1 => pieces.pop().map(Ok),
            _ => Some(ChangeBatch::concat(&pieces)),
        }
    }
}

impl Iterator for LogReader {
    type Item = Result<LogBlock, StorageError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(pending) = self.pending.take() {
            return Some(pending);
        }
        loop {
            let (entry, end, moves) = self.next_entry()?;
            let block = self.read(entry, end, moves);
            // It may have gone to another file before this one was opened.
            if block.is_ok() || self.relation.index.read().moves == moves {
                self.next_offset = entry.end_offset();
                return Some(block);
            }
        }
    }
}
