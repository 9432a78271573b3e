//! A directory or a bucket, by the library that speaks to both.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use millrace_catalog::connector::files::{BucketPlace, FilesPlace};
use object_store::aws::AmazonS3Builder;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{Error, ObjectMeta, ObjectStore};

use crate::source::ConnectorError;

/// Why a file is not read.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It is gone, or not the one that was listed any more; what the store says.
    Changed(String),
    /// It is not what its format says, and why.
    Broken(String),
    /// The store does not answer, or refuses.
    Store(ConnectorError),
}

impl From<Failure> for ConnectorError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Changed(why) | Failure::Broken(why) => ConnectorError::passing(why),
            Failure::Store(error) => error,
        }
    }
}

/// Where files are.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub store: Arc<dyn ObjectStore>,
    /// What all names begin with.
    prefix: Option<Path>,
    /// What stands before a name when it is shown.
    shown: String,
    what: String,
    /// Of a directory, where it is.
    root: Option<PathBuf>,
}

impl Place {
    /// Opens it. Of a bucket nothing is asked yet.
    ///
    /// # Errors
    /// The directory is not there; the secret cannot be read.
    pub async fn open(place: &FilesPlace) -> Result<Place, ConnectorError> {
        match place {
            FilesPlace::Directory(path) => {
                let what = format!("directory \"{}\"", path.display());
                let failed = |why: &str| ConnectorError::passing(format!("{what}: {why}"));
                check_directory(path).await.map_err(|why| failed(&why))?;
                let root = path.clone();
                // It follows links, whatever is behind them.
                let opened =
                    tokio::task::spawn_blocking(move || LocalFileSystem::new_with_prefix(root)).await;
                let store = opened
                    .map_err(|error| failed(&error.to_string()))?
                    .map_err(|error| failed(&error.to_string()))?;
                Ok(Place {
                    store: Arc::new(store),
                    prefix: None,
                    shown: format!("{}/", path.display().to_string().trim_end_matches('/')),
                    what,
                    root: Some(path.clone()),
                })
            }
            FilesPlace::Bucket(bucket) => Place::of_bucket(bucket).await,
        }
    }

    async fn of_bucket(place: &BucketPlace) -> Result<Place, ConnectorError> {
        let what = format!("bucket \"{}\"", place.bucket);
        let failed = |why: String| ConnectorError::passing(format!("{what}: {why}"));
        let mut builder = match &place.key {
            None => AmazonS3Builder::from_env(),
            Some((id, secret)) => {
                let secret = secret.clone();
                let read = tokio::task::spawn_blocking(move || secret.read()).await;
                let secret = read
                    .map_err(|error| failed(error.to_string()))?
                    .map_err(|error| failed(error.message))?;
                let secret =
                    String::from_utf8(secret).map_err(|_| failed("the secret is not UTF-8".to_owned()))?;
                AmazonS3Builder::new()
                    .with_access_key_id(id)
                    .with_secret_access_key(secret)
            }
        };
        builder = builder.with_bucket_name(&place.bucket);
        if let Some(region) = &place.region {
            builder = builder.with_region(region);
        }
        if let Some(endpoint) = &place.endpoint {
            builder = builder
                .with_endpoint(endpoint)
                .with_allow_http(endpoint.starts_with("http://"));
        }
        let store = builder.build().map_err(|error| failed(error.to_string()))?;
        Ok(Place {
            store: Arc::new(store),
            prefix: (!place.prefix.is_empty()).then(|| Path::from(place.prefix.as_str())),
            shown: format!("s3://{}/", place.bucket),
            what,
            root: None,
        })
    }

    /// Looks whether a directory is there: one that is not would have no files, and nobody would hear of it.
    ///
    /// # Errors
    /// It is not, or is no directory.
    pub async fn check(&self) -> Result<(), ConnectorError> {
        let Some(root) = &self.root else { return Ok(()) };
        let checked = check_directory(root).await;
        checked.map_err(|why| ConnectorError::passing(format!("{}: {why}", self.what)))
    }

    /// All files.
    pub fn list(&self) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        self.store.list(self.prefix.as_ref()).boxed()
    }

    /// The path of a name below the prefix; of none, the prefix itself.
    pub fn at(&self, name: &str) -> Path {
        let name = Path::from(name);
        let prefix = self.prefix.iter().flat_map(Path::parts);
        prefix.chain(name.parts()).collect()
    }

    /// Makes sure that what was written is on the device: a bucket has done so.
    ///
    /// # Errors
    /// The file system refuses.
    pub async fn persist(&self, location: &Path) -> Result<(), ConnectorError> {
        let Some(path) = self.root.as_ref().map(|root| root.join(location.as_ref())) else {
            return Ok(());
        };
        let failed =
            |error: &dyn std::fmt::Display| ConnectorError::passing(format!("{}: {error}", self.what));
        let sync = move || {
            File::open(&path)?.sync_all()?;
            path.parent()
                .map_or(Ok(()), |folder| File::open(folder)?.sync_all())
        };
        let synced = tokio::task::spawn_blocking(sync).await;
        let synced: std::io::Result<()> = synced.map_err(|error| failed(&error))?;
        synced.map_err(|error| failed(&error))
    }

    /// A path as one sees it.
    pub fn shown(&self, location: &Path) -> String {
        format!("{}{location}", self.shown)
    }

    /// A path below the prefix.
    pub fn within(&self, location: &Path) -> String {
        let whole = location.to_string();
        match &self.prefix {
            Some(prefix) => {
                let rest = whole.strip_prefix(prefix.as_ref()).unwrap_or(&whole);
                rest.trim_start_matches('/').to_owned()
            }
            None => whole,
        }
    }

    /// What it means when something fails.
    pub fn failed(&self, error: &Error) -> Failure {
        let mut bottom: &dyn std::error::Error = error;
        while let Some(deeper) = bottom.source() {
            bottom = deeper;
        }
        let said = format!("{}: {bottom}", self.what);
        match error {
            Error::Precondition { .. } | Error::NotFound { .. } => Failure::Changed(said),
            Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
                let mut refused = ConnectorError::passing(said);
                refused.hint =
                    Some("See s3.credentials.access and its secret, and the rights of the key.".to_owned());
                Failure::Store(refused)
            }
            _ => Failure::Store(ConnectorError::passing(said)),
        }
    }
}

async fn check_directory(path: &std::path::Path) -> Result<(), String> {
    let metadata = tokio::fs::metadata(path)
        .await
        .map_err(|error| error.to_string())?;
    match metadata.is_dir() {
        true => Ok(()),
        false => Err("it is not a directory".to_owned()),
    }
}

/// What is said of the content of a file.
pub(super) fn broken(path: &str, why: &str) -> Failure {
    Failure::Broken(format!("file \"{path}\" cannot be read: {why}"))
}
