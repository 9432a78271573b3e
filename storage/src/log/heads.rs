//! `HEADS`: how far the logs were durably, so that a start tells damage from a write that was torn.
//!
//! The last block of a log may be torn by a crash, and is cut off then: nobody was told that it is durable. A damaged one looks the
//! same, and so does a log whose files are gone. What the file says was durable once: a log that does not go so far now is damaged.
//!
//! It is written at an orderly stop, and from time to time before, and replaced as a whole. A text, for the eyes of whoever looks for
//! what is lost: a first line, a line with its number and its end for each log, and a line with the checksum of those before.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use crate::disk::Disk;
use crate::{StorageError, disk};

/// The file, beside the directories of logs.
pub(crate) const FILE: &str = "HEADS";
const FIRST_LINE: &str = "millrace heads, format 1";
const SUM: &str = "crc32c ";

/// The offset behind the last row of each log.
pub(super) type Heads = BTreeMap<u64, u64>;

/// Whether a name is that of the file, or of one that was to replace it.
pub(super) fn is_file(name: &str) -> bool {
    name.strip_prefix(FILE)
        .is_some_and(|rest| rest.is_empty() || rest == ".new")
}

pub(super) fn path(directory: &Path) -> PathBuf {
    directory.join(FILE)
}

/// What the file in the directory of all logs says; empty: there is none.
///
/// # Errors
/// It cannot be read, or is damaged.
pub(super) fn read(disk: &dyn Disk, directory: &Path) -> Result<Heads, StorageError> {
    let path = path(directory);
    if !disk.exists(&path) {
        return Ok(Heads::new());
    }
    let bytes = disk::read(disk, &path)?;
    decode(&bytes).map_err(|why| StorageError::corrupt(&path, 0, why))
}

/// Replaces the file, durably.
pub(super) fn write(disk: &dyn Disk, directory: &Path, heads: &Heads) -> Result<(), StorageError> {
    disk::replace(disk, &path(directory), encode(heads).as_bytes()).map(|_| ())
}

/// What is wrong with a log that ends at `found`, none if it is not there, and was durable up to `durable`; `None`: nothing.
pub(super) fn missing(found: Option<u64>, durable: u64) -> Option<String> {
    match found {
        Some(head) if head >= durable => None,
        Some(head) => Some(format!(
            "it ends at offset {head}, and was durable up to offset {durable}"
        )),
        None => Some(format!("it is not there, and had rows up to offset {durable}")),
    }
}

fn encode(heads: &Heads) -> String {
    let mut text = format!("{FIRST_LINE}\n");
    for (relation, head) in heads {
        // A String takes all that is written to it.
        let _ = writeln!(text, "{relation} {head}");
    }
    let crc = crc32c::crc32c(text.as_bytes());
    let _ = writeln!(text, "{SUM}{crc:08x}");
    text
}

fn decode(bytes: &[u8]) -> Result<Heads, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is no text".to_owned())?;
    let (lines, sum) = text
        .trim_end_matches('\n')
        .rsplit_once('\n')
        .ok_or("it is too short")?;
    let found = sum
        .strip_prefix(SUM)
        .and_then(|sum| u32::from_str_radix(sum, 16).ok())
        .ok_or("it has no checksum")?;
    let crc = crc32c::crc32c(&bytes[..lines.len() + 1]);
    if found != crc {
        return Err(format!("the checksum is {found:08x}, the bytes give {crc:08x}"));
    }
    let mut lines = lines.lines();
    if lines.next() != Some(FIRST_LINE) {
        return Err("it does not say how far the logs go".to_owned());
    }
    let head = |line: &str| {
        let (relation, head) = line.split_once(' ')?;
        Some((relation.parse().ok()?, head.parse().ok()?))
    };
    lines
        .map(|line| head(line).ok_or_else(|| format!("\"{line}\" is not the end of a log")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{Heads, decode, encode};

    #[test]
    fn what_is_written_is_read() {
        for heads in [Heads::new(), Heads::from([(1, 0), (16_384, 200_000)])] {
            assert_eq!(decode(encode(&heads).as_bytes()), Ok(heads));
        }
    }

    #[test]
    fn every_byte_that_is_another_is_found() {
        let text = encode(&Heads::from([(16_384, 200_000)])).into_bytes();
        for at in 0..text.len() - 1 {
            for bit in 0..8 {
                let mut damaged = text.clone();
                damaged[at] ^= 1 << bit;
                let found = decode(&damaged);
                assert!(
                    found.is_err() || found == Ok(Heads::from([(16_384, 200_000)])),
                    "byte {at}, bit {bit}"
                );
            }
        }
    }
}
