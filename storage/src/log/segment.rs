//! The head of a segment file: whose it is, at which offset it starts, and the schema of its blocks.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::ipc::convert::try_schema_from_flatbuffer_bytes;
use arrow::ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteOptions};

use crate::disk::{Disk, DiskFile};
use crate::log::block::{self, ALIGNMENT, arrow_decoding, u16_at, u32_at, u64_at};
use crate::log::first::First;
use crate::{StorageError, disk};

/// The extension of a segment that is being made.
pub(super) const NEW: &str = "new";
/// The extension of a base.
const BASE: &str = "base";
const MAGIC: [u8; 4] = *b"MLRS";
const VERSION: u16 = 1;
const FIXED_BYTES: usize = 64;
/// A schema larger than this is taken for damage.
const HEADER_BYTES_MAX: u64 = 64 << 20;

/// What the head of a segment says.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SegmentHeader {
    pub(super) relation: u64,
    pub(super) first_offset: u64,
    pub(super) schema: SchemaRef,
}

/// The name of the segment that starts at `first_offset`; names sort as offsets do.
pub(super) fn file_name(first_offset: u64) -> String {
    format!("{first_offset:020}.seg")
}

/// The base of a log, which stands in the place of its first segments, and begins at this offset.
pub(super) fn base_path(directory: &Path, first_offset: u64) -> PathBuf {
    directory.join(file_name(first_offset)).with_extension(BASE)
}

/// The bases in a directory by first offset: the one that the log begins with, and those that came to nothing or are over.
pub(super) fn bases(disk: &dyn Disk, directory: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    named(disk, directory, BASE)
}

/// The segments in a directory by first offset.
pub(super) fn list(disk: &dyn Disk, directory: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    named(disk, directory, "seg")
}

/// The files of a log that begins so, by first offset, the base among them. What was being made when a crash came is removed, and what
/// the log does not begin with any more.
pub(super) fn settle(
    disk: &dyn Disk,
    directory: &Path,
    first: &First,
) -> Result<Vec<(u64, PathBuf)>, StorageError> {
    let io = |e| StorageError::io("list", directory, e);
    let remove = |path: &Path| disk.remove(path).map_err(|e| StorageError::io("remove", path, e));
    for path in disk.list(directory).map_err(io)? {
        // There may have been no space for it.
        if path.extension().is_some_and(|extension| extension == NEW) {
            remove(&path)?;
        }
    }
    let mut listed = list(disk, directory).map_err(io)?;
    let is_over = |listed: &[(u64, PathBuf)]| match first.base() {
        None => listed.get(1).is_some_and(|(next, _)| *next <= first.offset),
        Some(_) => listed.first().is_some_and(|(own, _)| *own < first.base_end),
    };
    while is_over(&listed) {
        // The rows were removed, or have a base in their place.
        let (_, path) = listed.remove(0);
        remove(&path)?;
    }
    for (offset, path) in bases(disk, directory).map_err(io)? {
        match first.base() == Some(offset) {
            true => listed.insert(0, (offset, path)),
            false => remove(&path)?,
        }
    }
    Ok(listed)
}

fn named(disk: &dyn Disk, directory: &Path, extension: &str) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut segments = Vec::new();
    for path in disk.list(directory)? {
        let offset = path
            .file_name()
            .and_then(|name| name.to_str()?.strip_suffix(extension)?.strip_suffix('.'))
            .and_then(|digits| digits.parse::<u64>().ok());
        if let Some(offset) = offset {
            segments.push((offset, path));
        }
    }
    segments.sort();
    Ok(segments)
}

impl SegmentHeader {
    /// The bytes of the head, a multiple of 64.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut tracker = DictionaryTracker::new(true);
        let schema = IpcDataGenerator {}
            .schema_to_bytes_with_dictionary_tracker(&self.schema, &mut tracker, &IpcWriteOptions::default())
            .ipc_message;
        let total = (FIXED_BYTES + schema.len()).next_multiple_of(ALIGNMENT);
        let mut bytes = Vec::with_capacity(total);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0; 2]);
        bytes.extend_from_slice(&(total as u32).to_le_bytes());
        bytes.extend_from_slice(&(schema.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&self.relation.to_le_bytes());
        bytes.extend_from_slice(&self.first_offset.to_le_bytes());
        bytes.resize(FIXED_BYTES, 0);
        bytes.extend_from_slice(&schema);
        bytes.resize(total, 0);
        let crc = checksum(&bytes);
        bytes[60..64].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The schema of a head, and the bytes behind it; checksums are not looked at.
    #[cfg(any(test, feature = "decoders"))]
    pub(super) fn decode_unchecked(bytes: &[u8]) -> Result<(SchemaRef, &[u8]), String> {
        if bytes.len() < FIXED_BYTES || bytes[0..4] != MAGIC {
            return Err("this is not a log segment".to_owned());
        }
        let total = u32_at(bytes, 8) as usize;
        let header = bytes.get(..total).filter(|header| header.len() >= FIXED_BYTES);
        let header = header.ok_or("the segment header has an impossible size")?;
        Ok((schema_of(header)?, &bytes[total..]))
    }

    /// Reads the head, and tells its length.
    pub(super) fn read(file: &dyn DiskFile, path: &Path) -> Result<(SegmentHeader, u64), StorageError> {
        let size = file.size().map_err(|e| StorageError::io("read", path, e))?;
        let corrupt = |why: String| StorageError::corrupt(path, 0, why);
        if size < FIXED_BYTES as u64 {
            return Err(corrupt(format!(
                "a segment header takes {FIXED_BYTES} bytes, the file has {size}"
            )));
        }
        let mut fixed = [0; FIXED_BYTES];
        file.read_exact_at(&mut fixed, 0)
            .map_err(|e| StorageError::io("read", path, e))?;
        if fixed[0..4] != MAGIC {
            return Err(corrupt("this is not a log segment".to_owned()));
        }
        let version = u16_at(&fixed, 4);
        if version != VERSION {
            return Err(corrupt(format!(
                "the segment has version {version}, only {VERSION} is known"
            )));
        }
        let total = u64::from(u32_at(&fixed, 8));
        if total > size.min(HEADER_BYTES_MAX) || total < FIXED_BYTES as u64 {
            return Err(corrupt(format!(
                "the segment header has an impossible size of {total} bytes"
            )));
        }
        let mut bytes = vec![0; total as usize];
        file.read_exact_at(&mut bytes, 0)
            .map_err(|e| StorageError::io("read", path, e))?;
        let (found, crc) = (u32_at(&bytes, 60), checksum(&bytes));
        if found != crc {
            let why = format!("the segment header's checksum is {found:08x}, its bytes give {crc:08x}");
            return Err(corrupt(why));
        }
        let schema = schema_of(&bytes).map_err(corrupt)?;
        let header = SegmentHeader {
            relation: u64_at(&bytes, 16),
            first_offset: u64_at(&bytes, 24),
            schema,
        };
        Ok((header, total))
    }
}

fn schema_of(header: &[u8]) -> Result<SchemaRef, String> {
    let schema = header
        .get(FIXED_BYTES..FIXED_BYTES.saturating_add(u32_at(header, 12) as usize))
        .ok_or("the schema is longer than the segment header")?;
    let schema = arrow_decoding(|| try_schema_from_flatbuffer_bytes(schema))?;
    check_schema(&schema).map_err(|e| e.to_string())?;
    Ok(Arc::new(schema))
}

fn checksum(header: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&header[FIXED_BYTES..]), &header[..60])
}

/// Refuses columns that a block cannot hold by itself: a dictionary lives outside of the record batch.
pub(super) fn check_schema(schema: &Schema) -> Result<(), StorageError> {
    for field in schema.flattened_fields() {
        if matches!(field.data_type(), DataType::Dictionary(..)) {
            return Err(unsupported(field));
        }
    }
    Ok(())
}

/// Removes a last segment whose header was never finished: the crash came while it was being made. If it has
/// blocks, the header was finished once, and is damaged now.
pub(super) fn remove_unborn(
    disk: &dyn Disk,
    file: &dyn DiskFile,
    path: &Path,
    error: StorageError,
) -> Result<(), StorageError> {
    let size = file.size().map_err(|e| StorageError::io("read", path, e))?;
    let mut head = vec![0; ALIGNMENT];
    for position in (0..size.saturating_sub(ALIGNMENT as u64)).step_by(ALIGNMENT) {
        file.read_exact_at(&mut head, position)
            .map_err(|e| StorageError::io("read", path, e))?;
        if head.starts_with(&block::MAGIC) {
            return Err(error);
        }
    }
    tracing::warn!(path = %path.display(), "a segment that was never finished is removed");
    disk.remove(path)
        .map_err(|e| StorageError::io("remove", path, e))?;
    disk::sync_parent(disk, path)
}

fn unsupported(field: &Field) -> StorageError {
    StorageError::UnsupportedType {
        column: field.name().clone(),
        data_type: field.data_type().to_string(),
    }
}
