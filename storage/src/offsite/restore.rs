//! A data directory out of the last moment of a copy.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use futures::{StreamExt as _, TryStreamExt as _};

use super::checkpoints::blocking;
use super::identity::Identity;
use super::moment::{self, Stored, StoredFile, StoredLog};
use super::pieces::Piece;
use super::place::Place;
use crate::directory::{self, FORMAT_FILE, is_bystander};
use crate::disk::{OsDisk, sync_parent};
use crate::log::segment_name;
use crate::{StorageError, private};

/// In a directory that is being filled; the next attempt begins anew.
const RESTORING: &str = "RESTORING";
/// Objects that are read at a time.
const READ_AT_ONCE: usize = 8;
/// Pieces become segments of about this size.
const SEGMENT_BYTES: u64 = 64 << 20;
/// Bytes of a file of checkpoints that are read at once.
const PART_BYTES: u64 = 16 << 20;
/// The place in a segment's header where its size is.
const HEADER_SIZE_AT: usize = 8;

/// What was restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// The moment, and when it was, in milliseconds since 1970-01-01 UTC.
    pub moment: u64,
    pub at_ms: i64,
    /// Whether the server stopped after it: nothing was written since.
    pub is_last: bool,
    /// Streams, tables and subscriptions, their rows (changes, of a table), and whether there are checkpoints.
    pub logs: usize,
    pub rows: u64,
    pub has_checkpoints: bool,
    /// Bytes that were read.
    pub bytes: u64,
}

/// Makes a data directory; `data` must be empty, not be there, or have what an interrupted restore has left, which is removed.
///
/// # Errors
/// There is no copy; an object is missing or damaged, which is named; `data` has something else in it, or cannot be written.
pub async fn restore(place: &Place, data: &Path) -> Result<Restored, StorageError> {
    let stored = moment::load(place).await?;
    let stored = stored.ok_or_else(|| StorageError::NothingOffsite {
        url: place.url().to_owned(),
    })?;
    let directory = data.to_owned();
    blocking(move || begin(&directory)).await?;
    let mut bytes = 0;
    for (relation, log) in &stored.logs {
        bytes += restore_log(place, &data.join("log").join(relation.to_string()), log).await?;
    }
    for file in &stored.checkpoints {
        // Names come from the store, and are files of this one folder.
        if Path::new(&file.name).file_name() != Some(OsStr::new(&file.name)) {
            let name = moment::moment_name(stored.number);
            return Err(place.damaged(&name, format!("\"{}\" is no name of a file", file.name)));
        }
        bytes += restore_file(place, data.join("checkpoints").join(&file.name), file).await?;
    }
    let restored = Restored {
        moment: stored.number,
        at_ms: stored.at_ms,
        is_last: stored.is_last,
        logs: stored.logs.len(),
        rows: stored
            .logs
            .values()
            .map(|log| log.span.end - log.span.first)
            .sum(),
        has_checkpoints: !stored.checkpoints.is_empty(),
        bytes,
    };
    let (directory, url) = (data.to_owned(), place.url().to_owned());
    blocking(move || finish(&directory, url, &stored)).await?;
    Ok(restored)
}

fn io_at(action: &'static str, path: &Path) -> impl Fn(io::Error) -> StorageError {
    let path = path.to_owned();
    move |error| StorageError::io(action, &path, error)
}

/// Makes the directory, or empties it of what an interrupted restore has left.
fn begin(data: &Path) -> Result<(), StorageError> {
    private::create_directory_all(data).map_err(io_at("create", data))?;
    let marker = data.join(RESTORING);
    let is_unfinished = marker.exists() && !data.join(FORMAT_FILE).exists();
    for entry in fs::read_dir(data).map_err(io_at("list", data))? {
        let path = entry.map_err(io_at("list", data))?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if is_bystander(&name) || path == marker {
            continue;
        }
        if !is_unfinished {
            return Err(StorageError::NotEmpty {
                directory: data.to_owned(),
                found: name,
            });
        }
        let removed = match path.is_dir() {
            true => fs::remove_dir_all(&path),
            false => fs::remove_file(&path),
        };
        removed.map_err(io_at("remove", &path))?;
    }
    private::create(&marker)
        .and_then(|file| file.sync_all())
        .map_err(io_at("create", &marker))?;
    for name in ["log", "checkpoints"] {
        let path = data.join(name);
        private::create_directory(&path).map_err(io_at("create", &path))?;
    }
    sync_parent(&OsDisk, &marker)
}

/// Makes what is there a data directory.
fn finish(data: &Path, url: String, stored: &Stored) -> Result<(), StorageError> {
    stored.catalog.write(data)?;
    let identity = Identity {
        url,
        restored: Some((stored.number, stored.writer.clone())),
        ..Identity::default()
    };
    identity.write(data)?;
    for name in ["log", "checkpoints"] {
        let path = data.join(name);
        File::open(&path)
            .and_then(|folder| folder.sync_all())
            .map_err(io_at("sync", &path))?;
    }
    directory::write_format(data)?;
    let marker = data.join(RESTORING);
    fs::remove_file(&marker).map_err(io_at("remove", &marker))?;
    sync_parent(&OsDisk, &marker)
}

/// Writes the segments of a log; how many bytes were read.
async fn restore_log(place: &Place, directory: &Path, log: &StoredLog) -> Result<u64, StorageError> {
    let (path, span) = (directory.to_owned(), log.span);
    blocking(move || {
        private::create_directory(&path).map_err(io_at("create", &path))?;
        span.write_beginning(&path)
    })
    .await?;
    let read = |piece: &Piece| {
        let piece = piece.clone();
        async move {
            let name = moment::object_name(&piece.object);
            let bytes = place.read(&name, piece.at, piece.bytes, piece.crc).await?;
            Ok::<_, StorageError>((piece, name, bytes))
        }
    };
    let mut pieces = futures::stream::iter(&log.pieces)
        .map(read)
        .buffered(READ_AT_ONCE);
    // The segment that is being written: its file, and its bytes.
    let mut open: Option<(File, PathBuf, u64)> = None;
    let mut read_bytes = 0;
    while let Some((piece, name, bytes)) = pieces.try_next().await? {
        read_bytes += bytes.len() as u64;
        let before = match open.take() {
            Some((file, path, size)) if size + piece.bytes > SEGMENT_BYTES => {
                close(file, path).await?;
                None
            }
            before => before,
        };
        // What follows in the same segment goes without its header.
        let (mut file, path, size, rows_at) = match before {
            Some((file, path, size)) => {
                let header = header_bytes(&bytes);
                let rows_at = header.ok_or_else(|| place.damaged(&name, "it is no segment"))?;
                (file, path, size, rows_at)
            }
            None => {
                let path = directory.join(segment_name(piece.from));
                let file = private::create_new(&path).map_err(io_at("create", &path))?;
                (file, path, 0, 0)
            }
        };
        let written = blocking(move || {
            let rows = &bytes[rows_at..];
            file.write_all(rows).map_err(io_at("write", &path))?;
            Ok((file, path, size + rows.len() as u64))
        });
        open = Some(written.await?);
    }
    if let Some((file, path, _)) = open {
        close(file, path).await?;
    }
    let path = directory.to_owned();
    blocking(move || {
        File::open(&path)
            .and_then(|folder| folder.sync_all())
            .map_err(io_at("sync", &path))
    })
    .await?;
    Ok(read_bytes)
}

/// The size of the header of a segment.
fn header_bytes(segment: &[u8]) -> Option<usize> {
    let size = segment.get(HEADER_SIZE_AT..HEADER_SIZE_AT + 4)?;
    let size = u32::from_le_bytes([size[0], size[1], size[2], size[3]]) as usize;
    (size <= segment.len()).then_some(size)
}

async fn close(file: File, path: PathBuf) -> Result<(), StorageError> {
    blocking(move || file.sync_all().map_err(io_at("sync", &path))).await
}

/// Writes a file of checkpoints; how many bytes were read.
async fn restore_file(place: &Place, path: PathBuf, stored: &StoredFile) -> Result<u64, StorageError> {
    let mut file = private::create_new(&path).map_err(io_at("create", &path))?;
    let (mut crc, mut at) = (0, 0);
    while at < stored.bytes {
        let length = PART_BYTES.min(stored.bytes - at);
        let bytes = place.read_unchecked(&stored.object, at, length).await?;
        crc = crc32c::crc32c_append(crc, &bytes);
        at += length;
        let of = path.clone();
        file = blocking(move || file.write_all(&bytes).map(|()| file).map_err(io_at("write", &of))).await?;
    }
    if crc != stored.crc {
        let why = format!("its checksum is {crc:08x} instead of {:08x}", stored.crc);
        return Err(place.damaged(&stored.object, why));
    }
    close(file, path).await?;
    Ok(stored.bytes)
}
