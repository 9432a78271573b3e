//! Sends the files of the checkpoints that count, each once, beside everything else.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;

use super::moment::{CHECKPOINTS, StoredFile};
use super::place::Place;
use crate::log::LogHold;
use crate::store::StoreParts;
use crate::{StorageError, checkpoint::CheckpointCopy};

/// Bytes that are read and sent at once.
const PART_BYTES: usize = 8 << 20;
/// Parts that are under way at a time.
const PARTS_AT_ONCE: usize = 2;
/// After each part it rests as long as that took, but no longer than this.
const REST_MAX: Duration = Duration::from_secs(1);

/// Checkpoints whose files are all there.
#[derive(Debug)]
pub(super) struct Sent {
    /// The fact that names them.
    pub root: Vec<u8>,
    pub files: Vec<StoredFile>,
    /// The numbers of those that count.
    pub version: Vec<u64>,
    /// Keeps the logs from beginning behind what they have.
    pub holds: Vec<LogHold>,
}

/// Files that are there, by what they are called in a data directory. Their content never changes.
pub(super) type Known = Arc<Mutex<BTreeMap<String, StoredFile>>>;

/// Sends what is missing of the checkpoints that count now.
pub(super) async fn send(
    parts: StoreParts,
    place: Place,
    writer: String,
    known: Known,
) -> Result<Sent, StorageError> {
    let (copy, version, holds) = blocking(move || {
        let version = parts.progress().checkpoints;
        let (copy, holds) = parts.checkpoints_of_moment()?;
        Ok((copy, version, holds))
    })
    .await?;
    let mut files = vec![];
    let listed: Vec<(String, PathBuf)> = copy.files().map(|(name, path)| (name.to_owned(), path)).collect();
    for (name, path) in listed {
        let found = known.lock().get(&name).cloned();
        let file = match found {
            Some(file) => file,
            None => {
                let file = send_file(&place, &writer, &name, path).await?;
                known.lock().insert(name, file.clone());
                file
            }
        };
        files.push(file);
    }
    files.extend(send_epochs(&place, &writer, &copy).await?);
    Ok(Sent {
        root: copy.root().to_vec(),
        files,
        version,
        holds,
    })
}

/// The epochs are others each time, and so are an object of their own.
async fn send_epochs(
    place: &Place,
    writer: &str,
    copy: &CheckpointCopy,
) -> Result<Option<StoredFile>, StorageError> {
    let Some((name, content)) = copy.epochs() else {
        return Ok(None);
    };
    let crc = crc32c::crc32c(content);
    let file = StoredFile {
        name: name.clone(),
        object: format!(
            "{CHECKPOINTS}/{writer}-{name}-{:08x}-{crc:08x}",
            crc32c::crc32c(copy.root())
        ),
        bytes: content.len() as u64,
        crc,
    };
    place.put(&file.object, Bytes::from(content.clone())).await?;
    Ok(Some(file))
}

async fn send_file(
    place: &Place,
    writer: &str,
    name: &str,
    path: PathBuf,
) -> Result<StoredFile, StorageError> {
    let object = format!("{CHECKPOINTS}/{writer}-{name}");
    let mut file = {
        let path = path.clone();
        blocking(move || File::open(&path).map_err(|e| StorageError::io("open", &path, e))).await?
    };
    let mut upload = None;
    let (mut crc, mut bytes) = (0, 0);
    loop {
        let (read, part, part_crc) = {
            let path = path.clone();
            blocking(move || {
                let mut part = Vec::with_capacity(PART_BYTES);
                let read = (&mut file).take(PART_BYTES as u64).read_to_end(&mut part);
                read.map_err(|e| StorageError::io("read", &path, e))?;
                let crc = crc32c::crc32c_append(crc, &part);
                Ok((file, part, crc))
            })
            .await?
        };
        (file, crc) = (read, part_crc);
        bytes += part.len() as u64;
        let is_end = part.len() < PART_BYTES;
        let began = Instant::now();
        match &mut upload {
            None if is_end => {
                place.put(&object, part.into()).await?;
                break;
            }
            None => {
                let mut begun = place.begin(&object).await?;
                begun.put(part.into());
                upload = Some(begun);
            }
            Some(upload) => {
                let waited = upload.wait_for_capacity(PARTS_AT_ONCE).await;
                waited.map_err(|error| place.broken_off(&object, &error))?;
                upload.put(part.into());
            }
        }
        if is_end {
            break;
        }
        tokio::time::sleep(began.elapsed().min(REST_MAX)).await;
    }
    if let Some(upload) = upload {
        place.finish(&object, upload).await?;
    }
    Ok(StoredFile {
        name: name.to_owned(),
        object,
        bytes,
        crc,
    })
}

/// Runs what blocks on a thread for that.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StorageError> + Send + 'static,
) -> Result<T, StorageError> {
    let ended = tokio::task::spawn_blocking(work).await;
    ended.unwrap_or_else(|error| Err(StorageError::offsite("the copy", error.to_string())))
}
