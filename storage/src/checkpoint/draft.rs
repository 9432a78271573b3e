//! A checkpoint that is being written: blocks go to its file, and it counts when it is committed.

use std::collections::BTreeSet;
use std::fs::File;
use std::sync::Arc;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{ObjectStoreExt, WriteMultipart};

use super::{BLOCKS, BlockRef, Checkpoints, Entry, MANIFEST, Manifest, file_name};
use crate::StorageError;
use crate::disk::{OsDisk, sync_parent};
use crate::private;

/// What the file begins with: a name, a version, and the checkpoint's number.
const MAGIC: [u8; 4] = *b"MLRC";
const VERSION: u32 = 1;
/// Blocks begin at multiples of this.
const ALIGNMENT: u64 = 64;
/// What an upload sends at once, and how many of those are under way.
const UPLOAD_BYTES: usize = 8 << 20;
const UPLOADS_MAX: usize = 2;

/// See the module. One that is dropped leaves nothing that counts.
#[derive(Debug)]
pub struct Draft {
    checkpoints: Arc<Checkpoints>,
    number: u64,
    /// None before the first block.
    upload: Option<WriteMultipart>,
    at: u64,
}

/// What a checkpoint came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// Bytes that it had to write, manifest included, and bytes of all that it refers to.
    pub bytes_written: u64,
    pub bytes_total: u64,
    /// Files of blocks that count now.
    pub files: usize,
}

/// What a file of blocks begins with.
pub(super) fn header(number: u64) -> [u8; ALIGNMENT as usize] {
    let mut header = [0; ALIGNMENT as usize];
    header[..4].copy_from_slice(&MAGIC);
    header[4..8].copy_from_slice(&VERSION.to_le_bytes());
    header[8..16].copy_from_slice(&number.to_le_bytes());
    header
}

impl Draft {
    pub(super) fn new(checkpoints: Arc<Checkpoints>, number: u64) -> Draft {
        Draft {
            checkpoints,
            number,
            upload: None,
            at: 0,
        }
    }

    /// The checkpoint's number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Adds a block to the file.
    ///
    /// # Errors
    /// It cannot be written.
    pub async fn put(&mut self, bytes: Vec<u8>) -> Result<BlockRef, StorageError> {
        let name = file_name(self.number, BLOCKS);
        let path = self.checkpoints.directory.join(&name);
        let failed = |error: object_store::Error| write_error(&path, error);
        if self.upload.is_none() {
            let mut upload = upload_as(&self.checkpoints, &name).await?;
            upload.write(&header(self.number));
            self.at = ALIGNMENT;
            self.upload = Some(upload);
        }
        let Some(upload) = &mut self.upload else {
            return Err(StorageError::Closed);
        };
        let block = BlockRef {
            file: self.number,
            at: self.at,
            bytes: bytes.len() as u64,
            crc: crc32c::crc32c(&bytes),
        };
        let padding = (block.bytes.next_multiple_of(ALIGNMENT) - block.bytes) as usize;
        upload.wait_for_capacity(UPLOADS_MAX).await.map_err(failed)?;
        upload.put(Bytes::from(bytes));
        upload.write(&[0; ALIGNMENT as usize][..padding]);
        self.at += block.bytes + padding as u64;
        Ok(block)
    }

    /// Makes the checkpoint count, durably, in place of older ones as far as it has what they have. `exists`: relations that
    /// there are; of others nothing is kept.
    ///
    /// # Errors
    /// It cannot be written; the older ones count on.
    pub async fn commit(
        mut self,
        manifest: Manifest,
        exists: BTreeSet<u64>,
    ) -> Result<Written, StorageError> {
        let checkpoints = Arc::clone(&self.checkpoints);
        let blocks = file_name(self.number, BLOCKS);
        let blocks_path = checkpoints.directory.join(&blocks);
        let has_blocks = self.upload.is_some();
        if let Some(upload) = self.upload.take() {
            upload
                .finish()
                .await
                .map_err(|error| write_error(&blocks_path, error))?;
        }
        let name = file_name(self.number, MANIFEST);
        let path = checkpoints.directory.join(&name);
        let bytes = manifest
            .encode()
            .map_err(|e| StorageError::io("write", &path, std::io::Error::other(e)))?;
        let entry = Entry {
            number: self.number,
            bytes: bytes.len() as u64,
            crc: crc32c::crc32c(&bytes),
        };
        let total = manifest.bytes();
        let mut upload = upload_as(&checkpoints, &name).await?;
        upload.put(bytes.into());
        let put = upload.finish();
        put.await.map_err(|error| write_error(&path, error))?;
        let commit = move || {
            // What the object store renamed into place lasts only now.
            for path in has_blocks.then_some(&blocks_path).into_iter().chain([&path]) {
                let synced = File::open(path).and_then(|file| file.sync_all());
                synced.map_err(|e| StorageError::io("sync", path, e))?;
            }
            sync_parent(&OsDisk, &path)?;
            checkpoints.adopt(entry, manifest, &exists)?;
            Ok(Written {
                bytes_written: self.at + entry.bytes,
                bytes_total: total,
                files: checkpoints.state.lock().files.len(),
            })
        };
        let committed = tokio::task::spawn_blocking(commit).await;
        committed.map_err(|_| StorageError::Closed)?
    }
}

/// Begins a file of the checkpoints, which nobody but its owner may open.
async fn upload_as(checkpoints: &Checkpoints, name: &str) -> Result<WriteMultipart, StorageError> {
    let directory = checkpoints.directory.clone();
    let path = directory.join(name);
    let upload = checkpoints.objects().put_multipart(&Path::from(name)).await;
    let upload = upload.map_err(|error| write_error(&path, error))?;
    // Until it is complete it has a name with a number behind this.
    let staged = format!("{name}#");
    let close = move || private::close_files(&directory, &staged);
    let closed = tokio::task::spawn_blocking(close).await;
    let closed = closed.map_err(|_| StorageError::Closed)?;
    closed.map_err(|e| StorageError::io("write", &path, e))?;
    Ok(WriteMultipart::new_with_chunk_size(upload, UPLOAD_BYTES))
}

fn write_error(path: &std::path::Path, error: object_store::Error) -> StorageError {
    // The kind is in the cause of the cause: a full disk is told apart by it.
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    while let Some(error) = cause {
        if let Some(io) = error.downcast_ref::<std::io::Error>() {
            return StorageError::io("write", path, std::io::Error::new(io.kind(), io.to_string()));
        }
        cause = error.source();
    }
    StorageError::io("write", path, std::io::Error::other(error.to_string()))
}
