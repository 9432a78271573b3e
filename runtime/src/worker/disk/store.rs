//! Files as an object store whose reads are disk monotasks.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use datafusion::object_store::local::LocalFileSystem;
use datafusion::object_store::path::Path;
use datafusion::object_store::{
    CopyOptions, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use futures::StreamExt;
use futures::stream::BoxStream;

use super::{DiskScheduler, Phase};
use crate::worker::cpu::{Waits, used_disk, waits_for};

/// What is read at once of a file that is read from its beginning to its end.
const READ_BYTES: u64 = 1 << 20;

/// The local file system; each read waits for its turn on the disk.
pub struct DiskStore {
    files: Arc<LocalFileSystem>,
    disk: Arc<DiskScheduler>,
}

impl DiskStore {
    pub fn new(disk: &Arc<DiskScheduler>) -> Self {
        DiskStore {
            files: Arc::new(LocalFileSystem::new()),
            disk: Arc::clone(disk),
        }
    }
}

/// Some ranges of a file, as one disk monotask.
async fn read(
    files: &LocalFileSystem,
    disk: &Arc<DiskScheduler>,
    location: &Path,
    ranges: &[Range<u64>],
) -> Result<Vec<Bytes>> {
    waits_for(Waits::Disk);
    let request = async {
        let read = files.get_ranges(location, ranges).await;
        let bytes = read.iter().flatten().map(|part| part.len() as u64).sum();
        (read, bytes, 0)
    };
    let (read, used) = disk.serve(Phase::Read, request).await;
    used_disk(used);
    read
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
        self.files.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.files.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        // Opens the file, and reads nothing of it.
        let found = self.files.get_opts(location, options).await?;
        let (files, disk) = (Arc::clone(&self.files), Arc::clone(&self.disk));
        let (location, range) = (location.clone(), found.range.clone());
        let pieces = (range.start..range.end).step_by(READ_BYTES as usize);
        let pieces: Vec<Range<u64>> = pieces
            .map(|start| start..(start + READ_BYTES).min(range.end))
            .collect();
        let rows = futures::stream::iter(pieces).then(move |piece| {
            let (files, disk, location) = (Arc::clone(&files), Arc::clone(&disk), location.clone());
            async move {
                let mut read = read(&files, &disk, &location, &[piece]).await?;
                Ok(read.pop().unwrap_or_default())
            }
        });
        Ok(GetResult {
            payload: GetResultPayload::Stream(rows.boxed()),
            ..found
        })
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        read(&self.files, &self.disk, location, ranges).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.files.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.files.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.files.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.files.copy_opts(from, to, options).await
    }
}

#[cfg(test)]
mod tests {
    use futures::TryStreamExt;

    use super::*;

    #[tokio::test]
    async fn what_is_read_is_what_is_there() {
        let directory = tempfile::tempdir().unwrap();
        let content: Vec<u8> = (0..READ_BYTES * 2 + 77).map(|byte| byte as u8).collect();
        let file = directory.path().join("file");
        std::fs::write(&file, &content).unwrap();
        let store = DiskStore::new(&DiskScheduler::new(1));
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
    }
}
