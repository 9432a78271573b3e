//! Where the copy is: a directory or a bucket, and what is asked of it.

use std::fmt;
use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::TryStreamExt as _;
use object_store::aws::AmazonS3Builder;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    BackoffConfig, ClientOptions, Error, ObjectStore, ObjectStoreExt as _, PutMode, PutOptions, RetryConfig,
    WriteMultipart,
};
use parking_lot::Mutex;

use crate::StorageError;
use crate::private;

/// How long a request may take, of which each sends or gets some megabytes at most.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A request is tried again for so long; after that, it is the next step's turn.
const RETRY_TIMEOUT: Duration = Duration::from_secs(10);
const RETRIES_MAX: usize = 3;

/// A directory or a bucket.
#[derive(Clone)]
pub struct Place {
    store: Arc<dyn ObjectStore>,
    /// What all names begin with.
    prefix: Path,
    url: String,
    /// Of a directory, where it is.
    root: Option<PathBuf>,
    /// Of a directory that has been looked at, which one it is: another one is there when a disk goes away or comes.
    settled: Arc<Mutex<Option<(u64, u64)>>>,
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Place").field(&self.url).finish()
    }
}

/// What a URL says.
enum Named {
    Directory(PathBuf),
    Bucket { name: String, prefix: String },
}

fn parse(url: &str) -> Result<Named, String> {
    let wrong =
        "it is a URL of a bucket or of a directory, such as s3://bucket/prefix or file:///backups/millrace";
    if let Some(path) = url.strip_prefix("file://") {
        return match path.starts_with('/') && path.len() > 1 {
            true => Ok(Named::Directory(PathBuf::from(path))),
            false => Err(wrong.to_owned()),
        };
    }
    let (name, prefix) = match url.strip_prefix("s3://") {
        Some(rest) => rest.split_once('/').unwrap_or((rest, "")),
        None => return Err(wrong.to_owned()),
    };
    if name.contains('@') {
        return Err("a key does not belong into a URL: it is AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment".to_owned());
    }
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    if name.is_empty() || !name.chars().all(is_name) || prefix.contains(['?', '#']) {
        return Err(wrong.to_owned());
    }
    Ok(Named::Bucket {
        name: name.to_owned(),
        prefix: prefix.trim_matches('/').to_owned(),
    })
}

impl Place {
    /// Whether a text is the URL of a place.
    ///
    /// # Errors
    /// It is not, and what one looks like.
    pub fn check(url: &str) -> Result<(), String> {
        parse(url).map(|_| ())
    }

    /// The directory that a URL names; of a bucket none.
    pub fn directory_of(url: &str) -> Option<PathBuf> {
        match parse(url) {
            Ok(Named::Directory(path)) => Some(path),
            Ok(Named::Bucket { .. }) | Err(_) => None,
        }
    }

    /// The place of a URL. A directory is made; of a bucket nothing is asked yet. The key of a bucket, its region and endpoint are those of
    /// the environment (`AWS_ACCESS_KEY_ID` and so on).
    ///
    /// # Errors
    /// It is no such URL, the directory cannot be made, or the environment says something impossible.
    pub fn open(url: &str) -> Result<Place, StorageError> {
        if let Ok(Named::Directory(path)) = parse(url) {
            private::create_directory_all(&path).map_err(|e| StorageError::io("create", &path, e))?;
        }
        Place::find(url)
    }

    /// The same of a place that is there: no directory is made.
    ///
    /// # Errors
    /// As [`open`](Self::open); there is no such directory.
    pub fn find(url: &str) -> Result<Place, StorageError> {
        let failed = |why: String| StorageError::offsite(url, why);
        let (store, prefix, root): (Arc<dyn ObjectStore>, _, _) = match parse(url).map_err(failed)? {
            Named::Directory(path) => {
                if !path.is_dir() {
                    let url = url.to_owned();
                    return Err(StorageError::NothingOffsite { url });
                }
                let store =
                    LocalFileSystem::new_with_prefix(&path).map_err(|error| failed(bottom(&error)))?;
                (Arc::new(store), String::new(), Some(path))
            }
            Named::Bucket { name, prefix } => {
                let retry = RetryConfig {
                    backoff: BackoffConfig::default(),
                    max_retries: RETRIES_MAX,
                    retry_timeout: RETRY_TIMEOUT,
                };
                let is_http = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"]
                    .into_iter()
                    .any(|name| std::env::var(name).is_ok_and(|endpoint| endpoint.starts_with("http://")));
                let client = ClientOptions::new()
                    .with_timeout(REQUEST_TIMEOUT)
                    .with_connect_timeout(CONNECT_TIMEOUT)
                    .with_allow_http(is_http);
                let store = AmazonS3Builder::from_env()
                    .with_client_options(client)
                    .with_retry(retry)
                    .with_bucket_name(name)
                    .build()
                    .map_err(|error| failed(bottom(&error)))?;
                (Arc::new(store), prefix, None)
            }
        };
        Ok(Place {
            store,
            prefix: Path::from(prefix),
            url: url.trim_end_matches('/').to_owned(),
            root,
            settled: Arc::default(),
        })
    }

    /// The same over another store, for tests.
    #[cfg(test)]
    pub(super) fn over(store: Arc<dyn ObjectStore>) -> Place {
        Place {
            store,
            prefix: Path::default(),
            url: "memory://x".to_owned(),
            root: None,
            settled: Arc::default(),
        }
    }

    /// As it was given.
    pub fn url(&self) -> &str {
        &self.url
    }

    fn at(&self, name: &str) -> Path {
        let name = Path::from(name);
        self.prefix.parts().chain(name.parts()).collect()
    }

    fn failed(&self, name: &str, error: &Error) -> StorageError {
        let why = match error {
            Error::NotFound { .. } => "it is missing".to_owned(),
            error => bottom(error),
        };
        StorageError::offsite(&format!("{}/{name}", self.url), why)
    }

    /// Damage of an object.
    pub(super) fn damaged(&self, name: &str, why: impl fmt::Display) -> StorageError {
        StorageError::OffsiteDamaged {
            object: format!("{}/{name}", self.url),
            why: why.to_string(),
        }
    }

    /// From now on it is written to this directory alone, and not to another one under its name.
    pub(super) async fn settle(&self) -> Result<(), StorageError> {
        let found = self.directory().await?;
        *self.settled.lock() = found;
        Ok(())
    }

    /// Which directory it is; a bucket is none.
    async fn directory(&self) -> Result<Option<(u64, u64)>, StorageError> {
        let Some(root) = self.root.clone() else {
            return Ok(None);
        };
        let of = root.clone();
        let found = tokio::task::spawn_blocking(move || std::fs::metadata(root)).await;
        let found = found.map_err(std::io::Error::other).and_then(|found| found);
        let found = found.map_err(|e| StorageError::io("look at", &of, e))?;
        Ok(Some((found.dev(), found.ino())))
    }

    /// Refuses to write to a directory that has taken the place of the one that was looked at.
    async fn check_settled(&self) -> Result<(), StorageError> {
        let settled = *self.settled.lock();
        match settled.is_none() || self.directory().await? == settled {
            true => Ok(()),
            false => Err(StorageError::offsite(
                &self.url,
                "there is another directory than before: a disk was mounted or went away",
            )),
        }
    }

    /// Makes an object that is not there; false: it is.
    pub(super) async fn create(&self, name: &str, content: Bytes) -> Result<bool, StorageError> {
        self.check_settled().await?;
        let options = PutOptions::from(PutMode::Create);
        match self.store.put_opts(&self.at(name), content.into(), options).await {
            Ok(_) => self.persist(name).await.map(|()| true),
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => Ok(false),
            Err(error) => Err(self.failed(name, &error)),
        }
    }

    /// Writes an object that nobody else writes.
    pub(super) async fn put(&self, name: &str, content: Bytes) -> Result<(), StorageError> {
        self.check_settled().await?;
        let put = self.store.put(&self.at(name), content.into()).await;
        put.map_err(|error| self.failed(name, &error))?;
        self.persist(name).await
    }

    /// Begins to write an object in parts.
    pub(super) async fn begin(&self, name: &str) -> Result<WriteMultipart, StorageError> {
        self.check_settled().await?;
        let upload = self.store.put_multipart(&self.at(name)).await;
        let upload = upload.map_err(|error| self.failed(name, &error))?;
        Ok(WriteMultipart::new(upload))
    }

    /// Ends what was begun.
    pub(super) async fn finish(&self, name: &str, upload: WriteMultipart) -> Result<(), StorageError> {
        let finished = upload.finish().await;
        finished.map_err(|error| self.failed(name, &error))?;
        self.persist(name).await
    }

    /// An error of an upload.
    pub(super) fn broken_off(&self, name: &str, error: &Error) -> StorageError {
        self.failed(name, error)
    }

    /// An object; `None`: there is none.
    pub(super) async fn get(&self, name: &str) -> Result<Option<Bytes>, StorageError> {
        let got = match self.store.get(&self.at(name)).await {
            Ok(got) => got.bytes().await,
            Err(error) => Err(error),
        };
        match got {
            Ok(bytes) => Ok(Some(bytes)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.failed(name, &error)),
        }
    }

    /// Whether there is an object.
    pub(super) async fn has(&self, name: &str) -> Result<bool, StorageError> {
        match self.store.head(&self.at(name)).await {
            Ok(_) => Ok(true),
            Err(Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(self.failed(name, &error)),
        }
    }

    /// Some bytes of an object, which must be those of this checksum.
    pub(super) async fn read(
        &self,
        name: &str,
        at: u64,
        bytes: u64,
        crc: u32,
    ) -> Result<Bytes, StorageError> {
        let got = self.read_unchecked(name, at, bytes).await?;
        let found = crc32c::crc32c(&got);
        match found == crc {
            true => Ok(got),
            false => Err(self.damaged(
                name,
                format!("the {bytes} bytes at byte {at} have checksum {found:08x} instead of {crc:08x}"),
            )),
        }
    }

    /// So many bytes of an object. One that is missing or too short is damaged.
    pub(super) async fn read_unchecked(
        &self,
        name: &str,
        at: u64,
        bytes: u64,
    ) -> Result<Bytes, StorageError> {
        let end = at.checked_add(bytes);
        let end = end.ok_or_else(|| self.damaged(name, "no object is so long"))?;
        if bytes == 0 {
            return Ok(Bytes::new());
        }
        let location = self.at(name);
        let error = match self.store.get_range(&location, at..end).await {
            Ok(got) if got.len() as u64 == bytes => return Ok(got),
            Ok(got) => {
                return Err(self.damaged(name, format!("it has only {} bytes at byte {at}", got.len())));
            }
            Err(error) => error,
        };
        // Stores say in words of their own that an object is too short.
        match self.store.head(&location).await {
            Ok(meta) if meta.size < end => {
                Err(self.damaged(name, format!("it has {} bytes, and not {end}", meta.size)))
            }
            Err(Error::NotFound { .. }) => Err(self.damaged(name, "it is missing")),
            _ => Err(self.failed(name, &error)),
        }
    }

    /// The names of all objects in a folder, with the folder, and their bytes.
    pub(super) async fn list(&self, folder: &str) -> Result<Vec<(String, u64)>, StorageError> {
        let at = self.at(folder);
        let listed = self.store.list(Some(&at)).try_collect::<Vec<_>>().await;
        let listed = match listed {
            Ok(listed) => listed,
            Err(Error::NotFound { .. }) => vec![],
            Err(error) => return Err(self.failed(folder, &error)),
        };
        let named = listed.into_iter().filter_map(|meta| {
            let name = meta.location.filename()?;
            Some((format!("{folder}/{name}"), meta.size))
        });
        Ok(named.collect())
    }

    /// Removes an object.
    pub(super) async fn remove(&self, name: &str) -> Result<(), StorageError> {
        match self.store.delete(&self.at(name)).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.failed(name, &error)),
        }
    }

    /// Makes sure that what was written is on the device: a bucket has done so.
    async fn persist(&self, name: &str) -> Result<(), StorageError> {
        let Some(path) = self.root.as_ref().map(|root| root.join(self.at(name).as_ref())) else {
            return Ok(());
        };
        let of = path.clone();
        let sync = move || {
            File::open(&path)?.sync_all()?;
            path.parent()
                .map_or(Ok(()), |folder| File::open(folder)?.sync_all())
        };
        let synced = tokio::task::spawn_blocking(sync).await;
        let synced = synced.map_err(std::io::Error::other).and_then(|synced| synced);
        synced.map_err(|e| StorageError::io("sync", &of, e))
    }
}

/// What an error says at its bottom. Requests with their signatures are above it.
fn bottom(error: &Error) -> String {
    let mut bottom: &dyn std::error::Error = error;
    while let Some(deeper) = bottom.source() {
        bottom = deeper;
    }
    bottom.to_string()
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn to_look_for_a_directory_does_not_make_it() {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("file://{}", directory.path().join("a/b").display());
        let error = Place::find(&url).unwrap_err();
        assert!(matches!(error, StorageError::NothingOffsite { .. }), "{error}");
        assert!(!directory.path().join("a").exists());
        Place::open(&url).unwrap();
        Place::find(&url).unwrap();
    }

    #[test]
    fn a_url_is_one_of_a_bucket_or_a_directory() {
        for url in [
            "file:///a/b",
            "s3://bucket",
            "s3://bucket/",
            "s3://bucket/a/b",
            "s3://a.b-c/x/",
        ] {
            assert_eq!(Place::check(url), Ok(()), "{url}");
        }
        for url in [
            "",
            "/a",
            "file://a",
            "file:///",
            "s3://",
            "s3:///a",
            "http://a/b",
            "s3://b/a?x=1",
            "s3://a b/c",
        ] {
            assert!(
                Place::check(url).unwrap_err().contains("s3://bucket/prefix"),
                "{url}"
            );
        }
        let error = Place::check("s3://key:secret@bucket/a").unwrap_err();
        assert!(
            error.contains("AWS_ACCESS_KEY_ID") && !error.contains("secret@"),
            "{error}"
        );
    }
}
