//! The epoch log: the cut and the time of every epoch, written before readers see it.
//!
//! ```text
//!  <n>.epochs:  header | record | record | ..      those from before the oldest checkpoint that counts are removed
//! ```
//!
//! What an epoch contains follows from the log of its sources and this: replaying what came after a checkpoint takes the same
//! cuts at the same times, so that what depends on them (a lookup join, EMIT EVERY) comes out as readers saw it. A record is
//! written but not synced: it outlives the process, and not always the machine. Where records are missing the log is cut
//! again, which views that are functions of their inputs do not notice.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use super::EPOCHS;
use crate::StorageError;

const MAGIC: [u8; 4] = *b"MLRE";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 8;
/// Length and checksum.
const FRAME_BYTES: usize = 8;
/// A file that is larger is followed by another.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// The same where a checkpoint is taken, which lets the files before it go.
const MARKED_BYTES_MAX: u64 = 64 << 10;
/// No record is longer: a pipeline does not have so many sources.
const RECORD_BYTES_MAX: usize = 1 << 24;

/// An epoch that was committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EpochRecord {
    /// Its time, in microseconds since 1970-01-01 00:00 UTC.
    pub now: i64,
    /// The offsets of logs that it reached, by relation; of an epoch without input, those of its pipeline as they were.
    pub ends: Vec<(u64, u64)>,
}

impl EpochRecord {
    /// The record's bytes, framed.
    pub fn encode(&self) -> Vec<u8> {
        let length = 8 + 16 * self.ends.len();
        let mut bytes = Vec::with_capacity(FRAME_BYTES + length);
        bytes.extend_from_slice(&(length as u32).to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&self.now.to_le_bytes());
        for (relation, end) in &self.ends {
            bytes.extend_from_slice(&relation.to_le_bytes());
            bytes.extend_from_slice(&end.to_le_bytes());
        }
        let crc = crc32c::crc32c(&bytes[FRAME_BYTES..]);
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The record at the beginning, and how many bytes it takes; none if there is no valid one.
    pub fn decode(bytes: &[u8]) -> Option<(EpochRecord, usize)> {
        let length = u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?) as usize;
        let crc = u32::from_le_bytes(bytes.get(4..8)?.try_into().ok()?);
        if !(8..=RECORD_BYTES_MAX).contains(&length) || !(length - 8).is_multiple_of(16) {
            return None;
        }
        let payload = bytes.get(FRAME_BYTES..FRAME_BYTES + length)?;
        if crc32c::crc32c(payload) != crc {
            return None;
        }
        let number = |at: usize| -> Option<[u8; 8]> { payload.get(at..at + 8)?.try_into().ok() };
        let now = i64::from_le_bytes(number(0)?);
        let ends = (8..length).step_by(16).map(|at| {
            Some((
                u64::from_le_bytes(number(at)?),
                u64::from_le_bytes(number(at + 8)?),
            ))
        });
        let ends = ends.collect::<Option<Vec<_>>>()?;
        Some((EpochRecord { now, ends }, FRAME_BYTES + length))
    }
}

/// See the module.
#[derive(Debug)]
pub struct EpochLog {
    directory: PathBuf,
    open: Mutex<Open>,
}

#[derive(Debug)]
struct Open {
    number: u64,
    file: File,
    bytes: u64,
}

impl EpochLog {
    /// Removes files before the first that counts, and begins a new one behind those that there are.
    pub(super) fn open(directory: &Path, from: u64) -> Result<EpochLog, StorageError> {
        let last = list(directory)?.last().copied().unwrap_or(0);
        let log = EpochLog {
            directory: directory.to_owned(),
            open: Mutex::new(create(directory, last + 1)?),
        };
        log.remove_before(from)?;
        Ok(log)
    }

    /// Writes an epoch down. It is not synced.
    ///
    /// # Errors
    /// The operating system refuses.
    pub fn append(&self, record: &EpochRecord) -> Result<(), StorageError> {
        let mut open = self.open.lock();
        if open.bytes > FILE_BYTES_MAX {
            *open = create(&self.directory, open.number + 1)?;
        }
        let bytes = record.encode();
        if let Err(error) = open.file.write_all(&bytes) {
            // What is behind a torn record would not be read.
            *open = create(&self.directory, open.number + 1)?;
            return Err(StorageError::io("write", &self.path(open.number), error));
        }
        open.bytes += bytes.len() as u64;
        Ok(())
    }

    /// The file in which the last epochs are.
    pub fn current(&self) -> u64 {
        self.open.lock().number
    }

    /// The file from which on the epochs are that are appended from now on.
    ///
    /// # Errors
    /// The operating system refuses another file.
    pub fn mark(&self) -> Result<u64, StorageError> {
        let mut open = self.open.lock();
        if open.bytes > MARKED_BYTES_MAX {
            *open = create(&self.directory, open.number + 1)?;
        }
        Ok(open.number)
    }

    /// The epochs of the files from this one on, in order. In each file what follows a torn record is left out.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn read(&self, from: u64) -> Result<Vec<EpochRecord>, StorageError> {
        let mut records = vec![];
        for number in list(&self.directory)?
            .into_iter()
            .filter(|number| *number >= from)
        {
            let path = self.path(number);
            let bytes = fs::read(&path).map_err(|e| StorageError::io("read", &path, e))?;
            if bytes.get(..HEADER_BYTES) != Some(header().as_slice()) {
                continue;
            }
            let mut rest = &bytes[HEADER_BYTES..];
            while let Some((record, length)) = EpochRecord::decode(rest) {
                records.push(record);
                rest = &rest[length..];
            }
        }
        Ok(records)
    }

    /// Removes the files before this one.
    pub(super) fn remove_before(&self, from: u64) -> Result<(), StorageError> {
        let current = self.open.lock().number;
        for number in list(&self.directory)? {
            if number < from.min(current) {
                let path = self.path(number);
                fs::remove_file(&path).map_err(|e| StorageError::io("remove", &path, e))?;
            }
        }
        Ok(())
    }

    fn path(&self, number: u64) -> PathBuf {
        self.directory.join(super::file_name(number, EPOCHS))
    }
}

pub(super) fn header() -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..4].copy_from_slice(&MAGIC);
    header[4..].copy_from_slice(&VERSION.to_le_bytes());
    header
}

fn create(directory: &Path, number: u64) -> Result<Open, StorageError> {
    let path = directory.join(super::file_name(number, EPOCHS));
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(&path)
        .map_err(|e| StorageError::io("create", &path, e))?;
    file.write_all(&header())
        .map_err(|e| StorageError::io("write", &path, e))?;
    let bytes = HEADER_BYTES as u64;
    Ok(Open { number, file, bytes })
}

/// The numbers of the files that there are, in order.
fn list(directory: &Path) -> Result<Vec<u64>, StorageError> {
    let failed = |e| StorageError::io("list", directory, e);
    let mut numbers = vec![];
    for entry in fs::read_dir(directory).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let number = name.to_str().and_then(|name| name.strip_suffix(".epochs"));
        numbers.extend(number.and_then(|number| number.parse::<u64>().ok()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}
