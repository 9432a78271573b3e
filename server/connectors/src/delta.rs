//! Appends the steps of a sink to a table of Delta Lake.
//!
//! ```text
//!  step n, a Parquet file --> <table>/part-<sink>-<n>.parquet         nobody sees it yet
//!                         --> <table>/_delta_log/<version>.json       only where there is none: add, txn{sink: n}
//! ```
//! The version that names the file also says that the sink is at step `n`: so each step is there once, whoever is killed when. If another
//! writer has taken the version, the log is read on and the next one is tried. What others have done since is looked at again: a table with
//! what is not understood here is not written.
//!
//! Of the protocol this is the part that appends: no partitions, deletion vectors, column mapping or constraints.

mod checkpoint;
mod log;
mod table;

use async_trait::async_trait;
use bytes::Bytes;
use datafusion::parquet::file::metadata::ParquetMetaDataReader;
use millrace_catalog::sink::DeltaSink;
use object_store::path::Path;
use object_store::{Error, ObjectMeta, ObjectStoreExt as _, PutMode, PutOptions};
use serde_json::{Value, json};

use self::log::{Log, State};
use self::table::{creation, fits};
use crate::files::store::Place;
use crate::source::ConnectorError;
use crate::target::{Message, Reached, Said, Writer};

/// What to do when the table and the sink do not belong together.
const BEGIN_ANEW: &str = "Drop the sink and create it again; it then appends all rows, so use another table, or empty this one first.";
/// Commits between two checkpoints of the log, unless the table says otherwise.
const CHECKPOINT_INTERVAL: u64 = 100;

/// See the module.
pub struct DeltaWriter {
    place: Place,
    id: String,
    /// The schema of the rows, as Delta Lake writes one.
    schema: Value,
    state: State,
}

impl DeltaWriter {
    /// Finds out how far the table is.
    ///
    /// # Errors
    /// It cannot be reached or read, or is not one that can be written.
    pub async fn open(sink: &DeltaSink) -> Result<DeltaWriter, ConnectorError> {
        let mut writer = Self::connect(sink).await?;
        writer.state = writer.log().read(&writer.id).await?;
        writer.check_table()?;
        Ok(writer)
    }

    /// Looks whether a new sink could write.
    ///
    /// # Errors
    /// It could not.
    pub async fn check(sink: &DeltaSink) -> Result<(), ConnectorError> {
        let writer = Self::open(sink).await?;
        // A name that no reader takes for a part of the table.
        let probe = writer.place.at(&format!("_{}.probe", writer.id));
        let written = writer.place.store.put(&probe, Vec::new().into()).await;
        written.map_err(|error| writer.place.failed(&error))?;
        let removed = writer.place.store.delete(&probe).await;
        removed.map_err(|error| writer.place.failed(&error).into())
    }

    async fn connect(sink: &DeltaSink) -> Result<DeltaWriter, ConnectorError> {
        let again = |why: String| ConnectorError::lasting(why, "Create the sink again.");
        let place = sink.place().map_err(|error| again(error.message))?;
        Ok(DeltaWriter {
            place: Place::open(&place).await?,
            id: sink.id.clone(),
            schema: serde_json::from_str(&sink.schema).map_err(|error| again(error.to_string()))?,
            state: State::default(),
        })
    }

    fn log(&self) -> Log<'_> {
        Log::new(&self.place)
    }

    /// The table, as one sees it.
    fn shown(&self) -> String {
        self.place.shown(&self.place.at(""))
    }

    /// Whether the table is one that can be written, if there is one.
    fn check_table(&self) -> Result<(), ConnectorError> {
        if self.state.version.is_none() {
            return Ok(());
        }
        fits(&self.state.protocol, &self.state.metadata, &self.schema).map_err(|why| {
            ConnectorError::lasting(
                format!("the table at {} cannot be written: {why}", self.shown()),
                "Use another path, or change the columns in a query: CREATE SINK .. AS SELECT ..",
            )
        })
    }

    /// Writes a step's file. It has no other's name; one that is there already is from an attempt before.
    async fn put_file(&self, path: &Path, content: &Bytes) -> Result<ObjectMeta, ConnectorError> {
        let failed = |error: Error| ConnectorError::from(self.place.failed(&error));
        let create = PutOptions::from(PutMode::Create);
        match self
            .place
            .store
            .put_opts(path, content.clone().into(), create)
            .await
        {
            Ok(_) => {}
            Err(Error::AlreadyExists { .. }) => {
                let there = self.place.store.get(path).await.map_err(failed)?;
                if there.bytes().await.map_err(failed)? != *content {
                    return Err(self.foreign(&format!(
                        "\"{}\" already exists with different content",
                        self.place.shown(path)
                    )));
                }
            }
            Err(error) => return Err(failed(error)),
        }
        self.place.persist(path).await?;
        self.place.store.head(path).await.map_err(failed)
    }

    fn foreign(&self, what: &str) -> ConnectorError {
        let why = "another server writes there that has a copy of the data directory";
        ConnectorError::lasting(format!("{what}: {why}"), BEGIN_ANEW)
    }

    /// Whether the table has the step, as this server has made it.
    fn has(&self, step: u64, sum: u32) -> Result<bool, ConnectorError> {
        match self.state.step {
            Some(last) if last > step || last == step && self.state.sum != Some(sum) => {
                Err(self.foreign(&format!("step {step} of the sink is in the table already")))
            }
            last => Ok(last == Some(step)),
        }
    }

    /// The lines of the version that has the step.
    fn commit(&self, path: &Path, meta: &ObjectMeta, rows: i64, reached: Reached) -> String {
        let now = meta.last_modified.timestamp_millis();
        let step = reached.next - 1;
        let mut actions = vec![json!({"commitInfo": {
            "timestamp": now,
            "operation": "WRITE",
            "operationParameters": {"mode": "Append"},
            "isBlindAppend": true,
            "engineInfo": concat!("millrace/", env!("CARGO_PKG_VERSION")),
        }})];
        if self.state.version.is_none() {
            actions.extend(creation(&self.id, &self.schema, now));
        }
        actions.push(json!({"txn": {"appId": self.id, "version": step, "lastUpdated": now}}));
        actions.push(
            json!({"txn": {"appId": log::sum_of(&self.id), "version": reached.sum, "lastUpdated": now}}),
        );
        actions.push(json!({"add": {
            "path": self.place.within(path),
            "partitionValues": {},
            "size": meta.size,
            "modificationTime": now,
            "dataChange": true,
            "stats": json!({"numRecords": rows}).to_string(),
        }}));
        actions.iter().map(|action| format!("{action}\n")).collect()
    }

    /// Writes a checkpoint of the log if it is time for one. Without it the table is what it is, and takes longer to open.
    async fn checkpoint(&self, version: u64, now_ms: i64) {
        let configured = self.state.metadata["configuration"]["delta.checkpointInterval"]
            .as_str()
            .and_then(|text| text.parse().ok());
        let interval = configured.unwrap_or(CHECKPOINT_INTERVAL).max(1);
        if version == 0 || !version.is_multiple_of(interval) {
            return;
        }
        if let Err(error) = self.log().write_checkpoint(version, now_ms).await {
            let (table, error) = (self.shown(), error.message);
            tracing::warn!(table, version, error, "a table has no new checkpoint of its log");
        }
    }
}

#[async_trait]
impl Writer for DeltaWriter {
    fn reached(&self) -> Said {
        let reached = self.state.step.map(|step| Reached {
            next: step + 1,
            sum: self.state.sum.unwrap_or_default(),
        });
        reached.into()
    }

    async fn write(&mut self, reached: Reached, messages: Vec<Message>) -> Result<(), ConnectorError> {
        let step = reached.next - 1;
        if self.has(step, reached.sum)? {
            return Ok(());
        }
        let content = messages
            .into_iter()
            .find_map(|message| message.value)
            .unwrap_or_default();
        let rows = ParquetMetaDataReader::new()
            .parse_and_finish(&content)
            .map_err(|error| ConnectorError::passing(error.to_string()))?
            .file_metadata()
            .num_rows();
        let path = self
            .place
            .at(&format!("part-{}-{step:010}.zstd.parquet", self.id));
        let meta = self.put_file(&path, &content).await?;
        let version = loop {
            let version = self.state.version.map_or(0, |version| version + 1);
            let commit = self.commit(&path, &meta, rows, reached);
            if self.log().write(version, commit.clone()).await? {
                self.state
                    .apply(version, commit.as_bytes(), &self.id)
                    .map_err(ConnectorError::passing)?;
                break version;
            }
            // Somebody else was there before: perhaps we ourselves, and the answer was lost.
            Log::new(&self.place).read_on(&mut self.state, &self.id).await?;
            self.check_table()?;
            if self.has(step, reached.sum)? {
                return Ok(());
            }
        };
        self.checkpoint(version, meta.last_modified.timestamp_millis())
            .await;
        Ok(())
    }

    async fn close(&self) {}
}
