//! Files as an object store whose reads and writes are disk monotasks.

use std::fmt;
use std::fs::File;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use datafusion::object_store::local::LocalFileSystem;
use datafusion::object_store::path::Path;
use datafusion::object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};
use futures::executor::block_on;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};

use super::{DiskScheduler, Disks};
use crate::cpu::{Waits, used_disk, waits_for};
use crate::monotask::{Moved, Phase};

/// What is read at once of a file that is read from its beginning to its end.
const READ_BYTES: u64 = 1 << 20;

/// A local file system; each read and each write waits for its turn on the device.
///
/// The library's own calls are run inside the monotasks: on a thread of the scheduler, which is in no runtime, they do their
/// work there and then.
#[derive(Clone)]
pub struct DiskStore {
    files: Arc<LocalFileSystem>,
    disks: Arc<Disks>,
    /// Whether a write ends when the device has it, or when the system's cache does.
    flushes: Arc<AtomicBool>,
}

fn store_error(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::Generic {
        store: "disk",
        source: Box::new(error),
    }
}

impl DiskStore {
    /// Over some files. `flushes`: whether writes wait for the device.
    pub fn new(files: LocalFileSystem, disks: &Arc<Disks>, flushes: &Arc<AtomicBool>) -> Self {
        DiskStore {
            files: Arc::new(files),
            disks: Arc::clone(disks),
            flushes: Arc::clone(flushes),
        }
    }

    fn disk(&self, location: &Path) -> Result<Arc<DiskScheduler>> {
        Ok(self.disks.of(&self.files.path_to_filesystem(location)?))
    }

    /// One call of the library as one monotask, for whichever task runs on this thread.
    async fn serve<T: Send + 'static>(
        &self,
        location: &Path,
        phase: Phase,
        buffer_bytes: u64,
        work: impl FnOnce(&LocalFileSystem) -> (Result<T>, u64) + Send + 'static,
    ) -> Result<T> {
        let disk = self.disk(location)?;
        let files = Arc::clone(&self.files);
        let work = move || {
            let (done, bytes) = work(&files);
            (done, Moved { bytes, rows: 0 })
        };
        waits_for(Waits::Disk);
        let (done, used) = disk
            .serve(phase, buffer_bytes as usize, work)
            .await
            .map_err(store_error)?;
        used_disk(used);
        done
    }

    /// Some ranges of a file.
    async fn read(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let bytes = ranges
            .iter()
            .map(|range| range.end.saturating_sub(range.start))
            .sum();
        let (at, ranges) = (location.clone(), ranges.to_vec());
        self.serve(location, Phase::Read, bytes, move |files| {
            let read = block_on(files.get_ranges(&at, &ranges));
            let bytes = read.iter().flatten().map(|part| part.len() as u64).sum();
            (read, bytes)
        })
        .await
    }

    /// A write, and the wait for the device if that is wanted.
    async fn write(
        &self,
        location: &Path,
        bytes: u64,
        write: impl FnOnce(&LocalFileSystem) -> Result<PutResult> + Send + 'static,
    ) -> Result<PutResult> {
        let (at, flushes) = (location.clone(), Arc::clone(&self.flushes));
        self.serve(location, Phase::Write, 0, move |files| {
            let written = write(files).and_then(|written| {
                if flushes.load(Ordering::Relaxed) {
                    let path = files.path_to_filesystem(&at)?;
                    let flushed = File::open(path).and_then(|file| file.sync_all());
                    flushed.map_err(store_error)?;
                }
                Ok(written)
            });
            (written, bytes)
        })
        .await
    }
}

impl fmt::Debug for DiskStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DiskStore")
    }
}

impl fmt::Display for DiskStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DiskStore")
    }
}

#[async_trait]
impl ObjectStore for DiskStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let (at, bytes) = (location.clone(), payload.content_length() as u64);
        self.write(location, bytes, move |files| {
            block_on(files.put_opts(&at, payload, options))
        })
        .await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let at = location.clone();
        let upload = self.serve(location, Phase::Write, 0, move |files| {
            (block_on(files.put_multipart_opts(&at, options)), 0)
        });
        Ok(Box::new(Upload {
            upload: Some(upload.await?),
            store: self.clone(),
            location: location.clone(),
        }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        // Opens the file, and reads nothing of it.
        let at = location.clone();
        let found = self.serve(location, Phase::Read, 0, move |files| {
            (block_on(files.get_opts(&at, options)), 0)
        });
        let found = found.await?;
        let (store, location, range) = (self.clone(), location.clone(), found.range.clone());
        let pieces = (range.start..range.end).step_by(READ_BYTES as usize);
        let pieces: Vec<Range<u64>> = pieces
            .map(|start| start..(start + READ_BYTES).min(range.end))
            .collect();
        let rows = stream::iter(pieces).then(move |piece| {
            let (store, location) = (store.clone(), location.clone());
            async move {
                let mut read = store.read(&location, &[piece]).await?;
                Ok(read.pop().unwrap_or_default())
            }
        });
        Ok(GetResult {
            payload: GetResultPayload::Stream(rows.boxed()),
            ..found
        })
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.read(location, ranges).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.files.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (store, prefix) = (self.clone(), prefix.cloned());
        let listed = async move {
            let place = prefix.clone().unwrap_or_default();
            let listed = store.serve(&place, Phase::Read, 0, move |files| {
                let listed: Vec<_> = block_on(files.list(prefix.as_ref()).collect());
                (Ok(listed), 0)
            });
            listed.await.map(stream::iter)
        };
        listed.into_stream().try_flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let (place, prefix) = (prefix.cloned().unwrap_or_default(), prefix.cloned());
        self.serve(&place, Phase::Read, 0, move |files| {
            (block_on(files.list_with_delimiter(prefix.as_ref())), 0)
        })
        .await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let (from, at) = (from.clone(), to.clone());
        self.serve(to, Phase::Write, 0, move |files| {
            (block_on(files.copy_opts(&from, &at, options)), 0)
        })
        .await
    }
}

/// A file that is written in parts.
#[derive(Debug)]
struct Upload {
    /// Not there while a monotask has it.
    upload: Option<Box<dyn MultipartUpload>>,
    store: DiskStore,
    location: Path,
}

impl Upload {
    fn take(&mut self) -> Result<Box<dyn MultipartUpload>> {
        let gone = || store_error(std::io::Error::other("the file is complete, or was abandoned"));
        self.upload.take().ok_or_else(gone)
    }
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let Some(upload) = &mut self.upload else {
            return futures::future::ready(self.take().map(|_| ())).boxed();
        };
        let bytes = data.content_length() as u64;
        let part = upload.put_part(data);
        let (store, location) = (self.store.clone(), self.location.clone());
        async move {
            let write = store.serve(&location, Phase::Write, 0, move |_| (block_on(part), bytes));
            write.await
        }
        .boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let mut upload = self.take()?;
        let complete = move |_: &LocalFileSystem| block_on(upload.complete());
        self.store.write(&self.location, 0, complete).await
    }

    async fn abort(&mut self) -> Result<()> {
        // Of what could not be completed nothing is left to be abandoned, and why it could not is what counts.
        let Some(mut upload) = self.upload.take() else {
            return Ok(());
        };
        let abort = move |_: &LocalFileSystem| (block_on(upload.abort()), 0);
        self.store.serve(&self.location, Phase::Write, 0, abort).await
    }
}

#[cfg(test)]
mod tests {
    use datafusion::object_store::{ObjectStoreExt, WriteMultipart};

    use super::*;
    use crate::memory::{Memory, Resident};

    fn store(directory: &tempfile::TempDir) -> DiskStore {
        let memory = Memory::new(None, Resident::Unknown);
        let disks = Arc::new(Disks::new(directory.path(), &memory));
        DiskStore::new(LocalFileSystem::new(), &disks, &Arc::new(AtomicBool::new(true)))
    }

    #[tokio::test]
    async fn what_is_read_is_what_is_there() {
        let directory = tempfile::tempdir().unwrap();
        let content: Vec<u8> = (0..READ_BYTES * 2 + 77).map(|byte| byte as u8).collect();
        let file = directory.path().join("file");
        std::fs::write(&file, &content).unwrap();
        let store = store(&directory);
        let path = Path::from_absolute_path(&file).unwrap();
        let all = store.get_opts(&path, GetOptions::default()).await.unwrap();
        let GetResultPayload::Stream(pieces) = all.payload else {
            panic!("a file is handed out past the scheduler");
        };
        let pieces: Vec<Bytes> = pieces.try_collect().await.unwrap();
        assert_eq!(pieces.len(), 3);
        assert_eq!(pieces.concat(), content);
        let parts = store
            .get_ranges(&path, &[0..10, 1_000_000..1_000_007])
            .await
            .unwrap();
        assert_eq!(parts[1], content[1_000_000..1_000_007]);
        let place = Path::from_absolute_path(directory.path()).unwrap();
        let listed: Vec<ObjectMeta> = store.list(Some(&place)).try_collect().await.unwrap();
        assert_eq!(listed.len(), 1);
        assert_eq!(listed[0].size, content.len() as u64);
    }

    #[tokio::test]
    async fn what_is_written_is_there() {
        let directory = tempfile::tempdir().unwrap();
        let store = store(&directory);
        let path = |name: &str| Path::from_absolute_path(directory.path().join(name)).unwrap();
        store.put(&path("one"), "in one".into()).await.unwrap();
        let upload = store.put_multipart(&path("parts")).await.unwrap();
        let mut upload = WriteMultipart::new_with_chunk_size(upload, 5);
        upload.write(b"written in parts");
        upload.finish().await.unwrap();
        let mut given_up = store.put_multipart(&path("nothing")).await.unwrap();
        given_up.put_part("never seen".into()).await.unwrap();
        given_up.abort().await.unwrap();
        assert!(given_up.complete().await.is_err());
        given_up.abort().await.unwrap();
        let read = |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap();
        assert_eq!(
            (read("one").as_str(), read("parts").as_str()),
            ("in one", "written in parts")
        );
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2);
    }
}
