//! Writes the files of a sink into a bucket.
//!
//! ```text
//!  step n, a file --> <path>/<name>-<n>.<format>, unless that is there already
//! ```
//! A file is made only where there is none, so that it never changes; with it stands the checksum of its content. One that is there with
//! another content was written by somebody else.

use async_trait::async_trait;
use futures::TryStreamExt as _;
use millrace_catalog::connector::files::FilesPlace;
use millrace_catalog::sink::BucketSink;
use object_store::path::Path;
use object_store::{Attribute, Attributes, Error, GetOptions, ObjectStoreExt as _, PutMode, PutOptions};

use super::store::Place;
use crate::source::ConnectorError;
use crate::target::{Message, Reached, Said, Writer};

/// What the checksum of a file's content is called beside it.
const SUM: &str = "millrace-sum";

/// See the module.
pub struct BucketWriter {
    place: Place,
    /// What stands before the name of the sink, with a slash at its end unless it is empty.
    prefix: String,
    name: String,
    /// What the names end with.
    end: String,
    reached: Option<Reached>,
}

impl BucketWriter {
    /// Finds out how far the bucket is.
    ///
    /// # Errors
    /// It cannot be reached, or refuses.
    pub async fn open(sink: &BucketSink) -> Result<BucketWriter, ConnectorError> {
        let mut writer = Self::connect(sink).await?;
        if let Some(last) = writer.last().await? {
            let sum = writer.sum(last).await?;
            writer.reached = sum.map(|sum| Reached { next: last + 1, sum });
        }
        Ok(writer)
    }

    /// Looks whether a new sink could write.
    ///
    /// # Errors
    /// It could not; there are files of a sink of this name.
    pub async fn check(sink: &BucketSink) -> Result<(), ConnectorError> {
        let writer = Self::connect(sink).await?;
        if let Some(last) = writer.last().await? {
            return Err(ConnectorError::lasting(
                format!("\"{}\" already exists", writer.place.shown(&writer.path(last))),
                "A sink of this name would write files with the same names. Move them elsewhere, or use another path or name.",
            ));
        }
        // A name that no reader takes for a file of rows.
        let probe = Path::from(format!("{}_{}.probe", writer.prefix, writer.name));
        let written = writer.place.store.put(&probe, Vec::new().into()).await;
        written.map_err(|error| writer.place.failed(&error))?;
        let removed = writer.place.store.delete(&probe).await;
        removed.map_err(|error| writer.place.failed(&error).into())
    }

    async fn connect(sink: &BucketSink) -> Result<BucketWriter, ConnectorError> {
        let bucket = sink
            .bucket()
            .map_err(|error| ConnectorError::lasting(error.message, "Create the sink again."))?;
        let prefix = match bucket.prefix.as_str() {
            "" => String::new(),
            prefix => format!("{prefix}/"),
        };
        Ok(BucketWriter {
            place: Place::open(&FilesPlace::Bucket(bucket)).await?,
            prefix,
            name: sink.name.clone(),
            end: format!(".{}", sink.format.name()),
            reached: None,
        })
    }

    fn path(&self, number: u64) -> Path {
        Path::from(format!("{}{}-{number:010}{}", self.prefix, self.name, self.end))
    }

    /// The highest number of a file that is there.
    async fn last(&self) -> Result<Option<u64>, ConnectorError> {
        let mut files = self.place.list();
        let mut last = None;
        while let Some(meta) = files
            .try_next()
            .await
            .map_err(|error| self.place.failed(&error))?
        {
            let name = meta.location.to_string();
            let number = name
                .strip_prefix(&format!("{}{}-", self.prefix, self.name))
                .and_then(|rest| rest.strip_suffix(&self.end));
            let number = number.and_then(|number| number.parse::<u64>().ok());
            // Of all numbers the highest; none is less than all.
            last = last.max(number);
        }
        Ok(last)
    }

    /// The checksum that stands with a file; none: the file is gone, or has none.
    async fn sum(&self, number: u64) -> Result<Option<u32>, ConnectorError> {
        let options = GetOptions {
            head: true,
            ..GetOptions::default()
        };
        match self.place.store.get_opts(&self.path(number), options).await {
            Ok(found) => {
                let sum = found.attributes.get(&Attribute::Metadata(SUM.into()));
                Ok(sum.and_then(|sum| sum.parse().ok()))
            }
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.place.failed(&error).into()),
        }
    }
}

#[async_trait]
impl Writer for BucketWriter {
    fn reached(&self) -> Said {
        Said::AtLeast(self.reached)
    }

    async fn write(&mut self, reached: Reached, messages: Vec<Message>) -> Result<(), ConnectorError> {
        let number = reached.next - 1;
        let content = messages
            .into_iter()
            .find_map(|message| message.value)
            .unwrap_or_default();
        let mut attributes = Attributes::new();
        attributes.insert(Attribute::Metadata(SUM.into()), reached.sum.to_string().into());
        let options = PutOptions {
            mode: PutMode::Create,
            attributes,
            ..PutOptions::default()
        };
        let path = self.path(number);
        match self.place.store.put_opts(&path, content.into(), options).await {
            Ok(_) => Ok(()),
            Err(Error::AlreadyExists { .. }) if self.sum(number).await? == Some(reached.sum) => Ok(()),
            Err(Error::AlreadyExists { .. }) => Err(ConnectorError::lasting(
                format!(
                    "\"{}\" already exists and was not written by this sink",
                    self.place.shown(&path)
                ),
                "Perhaps another server writes there that has a copy of the data directory. Drop the sink and create it again with another path.",
            )),
            Err(error) => Err(self.place.failed(&error).into()),
        }
    }

    async fn close(&self) {}
}
