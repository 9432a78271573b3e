//! `FIRST`: where a log begins, once what was in front of it has been removed, or has a base in its place. Replaced as a whole.

use std::path::{Path, PathBuf};

use crate::disk::Disk;
use crate::log::block::{u16_at, u32_at, u64_at};
use crate::{StorageError, disk};

const FILE: &str = "FIRST";
const MAGIC: [u8; 4] = *b"MLRF";
const VERSION: u16 = 1;
const BYTES: usize = 32;
/// With a base.
const BASE_VERSION: u16 = 2;
const BASE_BYTES: usize = 40;

/// Where a log begins. By default with its first row ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct First {
    /// The offset of the first row that is kept; a segment begins there.
    pub(super) offset: u64,
    /// The id of the last write of which something was removed. Writes up to it were acknowledged, and are whole
    /// whatever is missing of them here.
    pub(super) write_id: u64,
    /// Where the base ends that the log begins with; 0: it begins with a segment as all others are.
    pub(super) base_end: u64,
}

impl First {
    /// The offset of the base, if there is one.
    pub(super) fn base(&self) -> Option<u64> {
        (self.base_end > 0).then_some(self.offset)
    }

    pub(super) fn path(directory: &Path) -> PathBuf {
        directory.join(FILE)
    }

    /// What the file in a log's directory says.
    pub(super) fn read(disk: &dyn Disk, directory: &Path) -> Result<First, StorageError> {
        let path = First::path(directory);
        if !disk.exists(&path) {
            return Ok(First::default());
        }
        let bytes = disk::read(disk, &path)?;
        First::decode(&bytes).map_err(|why| StorageError::corrupt(&path, 0, why))
    }

    /// Replaces the file, durably.
    pub(super) fn write(&self, disk: &dyn Disk, directory: &Path) -> Result<(), StorageError> {
        disk::replace(disk, &First::path(directory), &self.encode()).map(|_| ())
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let (version, size) = match self.base() {
            None => (VERSION, BYTES),
            Some(_) => (BASE_VERSION, BASE_BYTES),
        };
        let mut bytes = vec![0; size];
        bytes[0..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&version.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.offset.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.write_id.to_le_bytes());
        if self.base().is_some() {
            bytes[24..32].copy_from_slice(&self.base_end.to_le_bytes());
        }
        let crc = crc32c::crc32c(&bytes[..size - 4]);
        bytes[size - 4..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<First, String> {
        let size = bytes.len();
        if !(size == BYTES || size == BASE_BYTES) || bytes[0..4] != MAGIC {
            return Err("it does not say where the log begins".to_owned());
        }
        let (found, crc) = (u32_at(bytes, size - 4), crc32c::crc32c(&bytes[..size - 4]));
        if found != crc {
            return Err(format!("the checksum is {found:08x}, the bytes give {crc:08x}"));
        }
        let first = First {
            offset: u64_at(bytes, 8),
            write_id: u64_at(bytes, 16),
            base_end: match size {
                BASE_BYTES => u64_at(bytes, 24),
                _ => 0,
            },
        };
        match u16_at(bytes, 4) {
            VERSION if size == BYTES => Ok(first),
            BASE_VERSION if size == BASE_BYTES && first.base_end > first.offset => Ok(first),
            version => Err(format!("size {size} does not match version {version}")),
        }
    }
}
