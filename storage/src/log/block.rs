//! A block: some rows of one relation as an Arrow IPC record batch, behind a header of 64 bytes with a
//! checksum. `docs/formats/log.md` gives every byte.
//!
//! Many rows are written column by column (`by_column`), so that a query reads only the columns that it wants.
//!
//! The caller's thread encodes and checksums the payload; the writer's thread only fills in what it alone
//! knows (offset, write id) and extends the checksum over the header.

pub(super) mod by_column;

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, RecordBatchOptions};
use arrow::buffer::{Buffer, MutableBuffer};
use arrow::datatypes::{DataType, Field, Fields, Int64Type, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::reader::read_record_batch;
use arrow::ipc::writer::{
    DictionaryTracker, EncodedData, IpcDataGenerator, IpcWriteContext, IpcWriteOptions,
};
use arrow::ipc::{MetadataVersion, root_as_message};

use crate::memory::rows_bytes;
use crate::{ChangeBatch, StorageError};

pub(super) const HEADER_BYTES: usize = 64;
/// Every block takes a multiple of this, so that one read into aligned memory aligns all blocks in it.
pub(super) const ALIGNMENT: usize = 64;
pub(super) const MAGIC: [u8; 4] = *b"MLRB";
const VERSION: u16 = 1;
const KIND_ROWS: u8 = 1;
const KIND_COLUMNS: u8 = 2;
const FLAG_WEIGHTS: u8 = 1;
const FLAG_NOTE: u8 = 2;
/// Of the Arrow buffers inside a block: enough for 128-bit values, and little waste for a single row.
const BUFFER_ALIGNMENT: usize = 16;
/// A change batch is cut into blocks of about this size, so that a reader never needs much memory.
const BLOCK_BYTES_TARGET: usize = 8 << 20;
/// And of at most so many rows.
const BLOCK_ROWS_MAX: usize = 1 << 16;
/// Blocks of a quarter of these are small: they are merged into ones of at most so many rows and about so many bytes.
pub(super) const MERGED_ROWS_MAX: u32 = 1 << 16;
pub(super) const MERGED_BYTES_MAX: usize = 1 << 20;
const SMALL_ROWS_MAX: u32 = MERGED_ROWS_MAX / 4;
const SMALL_BYTES_MAX: u32 = (MERGED_BYTES_MAX / 4) as u32;
/// A payload's size is held in 32 bits, and Arrow's offsets in 31.
const PAYLOAD_BYTES_MAX: usize = 1 << 30;
const MEMBER_BYTES: usize = 16;
/// What a note is padded to.
const NOTE_ALIGNMENT: usize = 8;

/// How many blocks of one write each relation got: the list by which recovery knows that a write is whole.
pub(super) type Members = BTreeMap<u64, u32>;

/// An encoded block without its place.
#[derive(Debug)]
pub(super) struct Frame {
    /// Header and payload. The writer fills in the rest of the header.
    bytes: Vec<u8>,
    payload_crc: u32,
    pub(super) rows: u32,
}

/// What only the writer knows about a block.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) first_offset: u64,
    pub(super) write_id: u64,
    /// How much of this segment was synced before this block's group began.
    pub(super) durable_bytes: u64,
    /// When it was written, in milliseconds since 1970-01-01 UTC; 0 if the store did not know the time.
    pub(super) written_at_ms: i64,
}

/// The header of a block, parsed. Nothing in it may be believed before [`verify`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BlockHeader {
    pub(super) payload_bytes: u32,
    pub(super) rows: u32,
    pub(super) first_offset: u64,
    pub(super) write_id: u64,
    pub(super) part: u16,
    pub(super) parts: u16,
    pub(super) members: u16,
    /// Columns without the weights; 0: those of the segment's schema.
    pub(super) columns: u16,
    pub(super) weighted: bool,
    /// See [`by_column`].
    pub(super) by_column: bool,
    /// Of what the owner wrote down with the write; 0: nothing.
    pub(super) note_bytes: u32,
    pub(super) durable_bytes: u64,
    pub(super) written_at_ms: i64,
}

impl BlockHeader {
    /// Of header and payload.
    pub(super) fn block_bytes(&self) -> u64 {
        HEADER_BYTES as u64 + u64::from(self.payload_bytes)
    }

    /// Whether it can be merged with its neighbours, if nobody asks for its note; [`super::merge`] says why not all small blocks can.
    pub(super) fn is_small(&self) -> bool {
        let is_alone = self.members == 0 && self.parts == 1;
        is_alone && !self.weighted && self.rows <= SMALL_ROWS_MAX && self.payload_bytes <= SMALL_BYTES_MAX
    }

    /// Reads the header at the start of `bytes`; the error says what is impossible about it.
    pub(super) fn parse(bytes: &[u8]) -> Result<BlockHeader, String> {
        if bytes.len() < HEADER_BYTES {
            return Err(format!(
                "a block header takes {HEADER_BYTES} bytes, only {} are left",
                bytes.len()
            ));
        }
        if bytes[0..4] != MAGIC {
            return Err("no block starts here".to_owned());
        }
        let version = u16_at(bytes, 4);
        if version != VERSION {
            return Err(format!(
                "the block has version {version}, only {VERSION} is known"
            ));
        }
        let (kind, flags) = (bytes[6], bytes[7]);
        if !matches!(kind, KIND_ROWS | KIND_COLUMNS) || flags & !(FLAG_WEIGHTS | FLAG_NOTE) != 0 {
            return Err(format!("the block has unknown kind {kind} or flags {flags:#x}"));
        }
        let header = BlockHeader {
            payload_bytes: u32_at(bytes, 8),
            rows: u32_at(bytes, 12),
            first_offset: u64_at(bytes, 16),
            write_id: u64_at(bytes, 24),
            part: u16_at(bytes, 32),
            parts: u16_at(bytes, 34),
            members: u16_at(bytes, 36),
            columns: u16_at(bytes, 38),
            weighted: flags & FLAG_WEIGHTS != 0,
            by_column: kind == KIND_COLUMNS,
            note_bytes: if flags & FLAG_NOTE != 0 {
                u32_at(bytes, 56)
            } else {
                0
            },
            durable_bytes: u64_at(bytes, 40),
            written_at_ms: u64_at(bytes, 48) as i64,
        };
        let payload_bytes = header.payload_bytes as usize;
        if payload_bytes > PAYLOAD_BYTES_MAX || !payload_bytes.is_multiple_of(ALIGNMENT) {
            return Err(format!(
                "the block has an impossible size of {payload_bytes} bytes"
            ));
        }
        Ok(header)
    }
}

/// Checks a whole block against its checksum.
pub(super) fn verify(block: &[u8]) -> Result<(), String> {
    let payload_crc = crc32c::crc32c(&block[HEADER_BYTES..]);
    let crc = crc32c::crc32c_append(payload_crc, &block[..60]);
    let found = u32_at(block, 60);
    if crc == found {
        Ok(())
    } else {
        Err(format!(
            "the block's checksum is {found:08x}, its bytes give {crc:08x}"
        ))
    }
}

/// The write's list of relations; empty for a write of one block. The block must be verified.
pub(super) fn members(block: &[u8], header: &BlockHeader) -> Result<Members, String> {
    let bytes = usize::from(header.members) * MEMBER_BYTES;
    let list = block
        .get(HEADER_BYTES..HEADER_BYTES + bytes)
        .ok_or("the block is shorter than its lists")?;
    Ok(list
        .chunks_exact(MEMBER_BYTES)
        .map(|member| (u64_at(member, 0), u32_at(member, 8)))
        .collect())
}

/// What the owner wrote down with the write. The block must be verified.
pub(super) fn note<'b>(block: &'b [u8], header: &BlockHeader) -> Result<&'b [u8], String> {
    let start = HEADER_BYTES + usize::from(header.members) * MEMBER_BYTES;
    block
        .get(start..start + header.note_bytes as usize)
        .ok_or_else(|| "the block is shorter than its note".to_owned())
}

impl Frame {
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// A block that was read back, to be written elsewhere. It must be verified.
    pub(super) fn of_block(header: &BlockHeader, bytes: Vec<u8>) -> Frame {
        Frame {
            payload_crc: crc32c::crc32c(&bytes[HEADER_BYTES..]),
            rows: header.rows,
            bytes,
        }
    }

    /// Whether it can be merged with its neighbours, if nobody asks for its note.
    pub(super) fn is_small(&self) -> bool {
        BlockHeader::parse(&self.bytes).is_ok_and(|header| header.is_small())
    }

    /// Some rows of a block that was read back and belongs to no other blocks, from the row `start` on, which has this offset.
    pub(super) fn part(
        &self,
        schema_of: impl FnOnce(u16) -> Option<SchemaRef>,
        first_offset: u64,
        start: usize,
        rows: usize,
    ) -> Result<Frame, String> {
        let header = BlockHeader::parse(&self.bytes)?;
        let schema = schema_of(header.columns)
            .ok_or("the block has a number of columns that the relation never had")?;
        // Its memory is aligned as what is read is.
        let mut bytes = MutableBuffer::with_capacity(self.bytes.len());
        bytes.extend_from_slice(&self.bytes);
        let changes = decode(&bytes.into(), &header, &schema, None)?.slice(start, rows);
        let (columns, members) = (header.columns, Members::new());
        let frame = encode(
            &changes.rows,
            changes.weights.as_ref(),
            (0, 1),
            columns,
            &members,
            &[],
        );
        let mut frame = frame.map_err(|e| e.to_string())?;
        frame.seal(Place {
            first_offset,
            ..self.place()
        });
        Ok(frame)
    }

    /// The place that it was sealed with last.
    pub(super) fn place(&self) -> Place {
        Place {
            first_offset: u64_at(&self.bytes, 16),
            write_id: u64_at(&self.bytes, 24),
            durable_bytes: u64_at(&self.bytes, 40),
            written_at_ms: u64_at(&self.bytes, 48) as i64,
        }
    }

    /// Completes the header, and returns the block's bytes.
    pub(super) fn seal(&mut self, place: Place) -> &[u8] {
        self.bytes[16..24].copy_from_slice(&place.first_offset.to_le_bytes());
        self.bytes[24..32].copy_from_slice(&place.write_id.to_le_bytes());
        self.bytes[40..48].copy_from_slice(&place.durable_bytes.to_le_bytes());
        self.bytes[48..56].copy_from_slice(&place.written_at_ms.to_le_bytes());
        let crc = crc32c::crc32c_append(self.payload_crc, &self.bytes[..60]);
        self.bytes[60..64].copy_from_slice(&crc.to_le_bytes());
        &self.bytes
    }
}

/// Where to cut a change batch into blocks: row ranges `(start, length)`.
pub(super) fn block_ranges(changes: &ChangeBatch) -> Result<Vec<(usize, usize)>, StorageError> {
    let rows = changes.num_rows();
    if rows == 0 {
        return Ok(Vec::new());
    }
    let row_bytes = (rows_bytes(&changes.rows) / rows).max(1);
    let step = (BLOCK_BYTES_TARGET / row_bytes).clamp(1, BLOCK_ROWS_MAX);
    Ok((0..rows)
        .step_by(step)
        .map(|start| (start, step.min(rows - start)))
        .collect())
}

/// Encodes one block. `part` counts the blocks of the whole write, of which there are `parts`; `columns` is 0 unless there
/// are more than the segment's schema has; `note` is for the owner.
pub(super) fn encode(
    rows: &RecordBatch,
    weights: Option<&Int64Array>,
    (part, parts): (u16, u16),
    columns: u16,
    members: &Members,
    note: &[u8],
) -> Result<Frame, StorageError> {
    let is_by_column = by_column::is_worth_it(rows);
    let row_count = rows.num_rows() as u32;
    let mut bytes = Vec::with_capacity(HEADER_BYTES + rows_bytes(rows) + rows_bytes(rows) / 8);
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.push(if is_by_column { KIND_COLUMNS } else { KIND_ROWS });
    let weighted = if weights.is_some() { FLAG_WEIGHTS } else { 0 };
    let noted = if note.is_empty() { 0 } else { FLAG_NOTE };
    bytes.push(weighted | noted);
    // The payload's size.
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&row_count.to_le_bytes());
    bytes.resize(32, 0);
    bytes.extend_from_slice(&part.to_le_bytes());
    bytes.extend_from_slice(&parts.to_le_bytes());
    bytes.extend_from_slice(&(members.len() as u16).to_le_bytes());
    bytes.extend_from_slice(&columns.to_le_bytes());
    bytes.resize(56, 0);
    bytes.extend_from_slice(&(note.len() as u32).to_le_bytes());
    bytes.resize(HEADER_BYTES, 0);
    for (relation, blocks) in members {
        bytes.extend_from_slice(&relation.to_le_bytes());
        bytes.extend_from_slice(&blocks.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
    }
    bytes.extend_from_slice(note);
    bytes.resize(bytes.len().next_multiple_of(NOTE_ALIGNMENT), 0);
    if is_by_column {
        by_column::encode(&mut bytes, rows, weights)?;
    } else {
        let message = encode_arrow(rows, weights)?;
        bytes.extend_from_slice(&(message.ipc_message.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&message.ipc_message);
        bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
        bytes.extend_from_slice(&message.arrow_data);
    }
    bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
    let payload_bytes = bytes.len() - HEADER_BYTES;
    if payload_bytes > PAYLOAD_BYTES_MAX {
        return Err(StorageError::TooLarge {
            what: "a row",
            found: payload_bytes as u64,
            limit: PAYLOAD_BYTES_MAX as u64,
        });
    }
    bytes[8..12].copy_from_slice(&(payload_bytes as u32).to_le_bytes());
    let payload_crc = crc32c::crc32c(&bytes[HEADER_BYTES..]);
    Ok(Frame {
        bytes,
        payload_crc,
        rows: row_count,
    })
}

fn encode_arrow(rows: &RecordBatch, weights: Option<&Int64Array>) -> Result<EncodedData, StorageError> {
    let invalid = |e: ArrowError| StorageError::InvalidChange { why: e.to_string() };
    let batch = match weights {
        None => rows.clone(),
        Some(weights) => {
            let mut columns: Vec<ArrayRef> = rows.columns().to_vec();
            columns.push(Arc::new(weights.clone()));
            let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
            let schema = with_weights(&rows.schema());
            RecordBatch::try_new_with_options(schema, columns, &options).map_err(invalid)?
        }
    };
    let options = IpcWriteOptions::try_new(BUFFER_ALIGNMENT, false, MetadataVersion::V5).map_err(invalid)?;
    let mut context = IpcWriteContext::default();
    let mut tracker = DictionaryTracker::new(true);
    let (_, message) = IpcDataGenerator {}
        .encode(&batch, &mut tracker, &options, &mut context)
        .map_err(invalid)?;
    Ok(message)
}

/// The schema of a block with weights: they are its last column.
pub(super) fn with_weights(schema: &Schema) -> SchemaRef {
    let mut fields: Vec<_> = schema.fields().iter().cloned().collect();
    fields.push(Arc::new(Field::new("$weight", DataType::Int64, false)));
    Arc::new(Schema::new(fields))
}

/// Decodes a verified block of this schema, which must have the columns that the header tells of; the arrays share its
/// memory. `wanted`: only these columns, in this order, as far as the block has them.
pub(super) fn decode(
    block: &Buffer,
    header: &BlockHeader,
    schema: &SchemaRef,
    wanted: Option<&[usize]>,
) -> Result<ChangeBatch, String> {
    if header.by_column {
        let all = all_columns(schema, header);
        let places = by_column::places(block, header, all.len())?;
        return assemble(header, schema, wanted, |column| {
            let place = &places[column];
            let bytes = block.slice_with_length(place.start as usize, place.bytes as usize);
            by_column::decode(&bytes, place, &all[column], header.rows, true)
        });
    }
    let note_bytes = (header.note_bytes as usize).next_multiple_of(NOTE_ALIGNMENT);
    let start = HEADER_BYTES + usize::from(header.members) * MEMBER_BYTES + note_bytes + 8;
    if block.len() < start {
        return Err(SHORT.to_owned());
    }
    let metadata = start..start + u32_at(block, start - 8) as usize;
    let mut decoded = columns_of(schema, wanted);
    // The weights stand behind all of them.
    decoded.extend(header.weighted.then_some(schema.fields().len()));
    let rows = record_batch(
        block,
        metadata,
        all_columns(schema, header),
        &decoded,
        header.rows,
    )?;
    let mut columns = rows.columns().iter();
    assemble(header, schema, wanted, |_| {
        columns.next().cloned().ok_or_else(|| SHORT.to_owned())
    })
}

const SHORT: &str = "the block is shorter than its content";

/// Columns of an Arrow message that stands there in these bytes, its body behind it at the next multiple of [`ALIGNMENT`].
fn record_batch(
    bytes: &Buffer,
    metadata: Range<usize>,
    fields: Fields,
    wanted: &[usize],
    rows: u32,
) -> Result<RecordBatch, String> {
    let body = metadata.end.next_multiple_of(ALIGNMENT);
    let metadata = bytes.get(metadata).ok_or(SHORT)?;
    if body > bytes.len() {
        return Err(SHORT.to_owned());
    }
    let message = root_as_message(metadata).map_err(|e| e.to_string())?;
    let batch = message
        .header_as_record_batch()
        .ok_or("the block holds no record batch")?;
    let (body, schema) = (bytes.slice(body), Arc::new(Schema::new(fields)));
    let found = arrow_decoding(|| {
        read_record_batch(
            &body,
            batch,
            schema,
            &HashMap::new(),
            Some(wanted),
            &message.version(),
        )
    })?;
    match found.num_rows() == rows as usize {
        true => Ok(found),
        false => Err(format!(
            "the header tells of {rows} rows, the batch has {}",
            found.num_rows()
        )),
    }
}

/// The columns that a block has by its header, the weights included.
pub(super) fn all_columns(schema: &SchemaRef, header: &BlockHeader) -> Fields {
    match header.weighted {
        true => with_weights(schema).fields().clone(),
        false => schema.fields().clone(),
    }
}

/// The wanted columns that a block of this schema has; without a wish all.
fn columns_of(schema: &SchemaRef, wanted: Option<&[usize]>) -> Vec<usize> {
    let has = schema.fields().len();
    match wanted {
        Some(wanted) => wanted.iter().copied().filter(|column| *column < has).collect(),
        None => (0..has).collect(),
    }
}

/// The rows of a block whose columns are had one by one: the wanted ones in order, and the weights, by their places among [`all_columns`].
pub(super) fn assemble(
    header: &BlockHeader,
    schema: &SchemaRef,
    wanted: Option<&[usize]>,
    mut column: impl FnMut(usize) -> Result<ArrayRef, String>,
) -> Result<ChangeBatch, String> {
    let wanted = columns_of(schema, wanted);
    let columns = wanted
        .iter()
        .map(|at| column(*at))
        .collect::<Result<Vec<_>, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(header.rows as usize));
    let wanted = Arc::new(schema.project(&wanted).map_err(|e| e.to_string())?);
    let rows = RecordBatch::try_new_with_options(wanted, columns, &options).map_err(|e| e.to_string())?;
    if !header.weighted {
        return Ok(ChangeBatch::insertions(rows));
    }
    let weights = column(schema.fields().len())?;
    let weights = weights
        .as_primitive_opt::<Int64Type>()
        .ok_or("the weights are no numbers")?;
    ChangeBatch::new(rows, Some(weights.clone())).map_err(|e| e.to_string())
}

/// Arrow's decoders believe what is inside of a message, and may panic where it is wrong. Bytes with the right checksum
/// and the wrong content are damage like any other, and must not take the reader's thread along.
pub(super) fn arrow_decoding<T>(decode: impl FnOnce() -> Result<T, ArrowError>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(decode)) {
        Ok(decoded) => decoded.map_err(|e| e.to_string()),
        Err(_) => Err("the Arrow message is inconsistent".to_owned()),
    }
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes were sliced"))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes were sliced"))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes were sliced"))
}
