//! Sinks as they are declared: what CREATE SINK says, read and kept. Who writes them is a layer above (`millrace-database`, `sinks` and
//! `sink_files`).

pub mod avro;
mod options;
mod subscription;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use millrace_postgres::error::{SqlError, SqlResult};
use millrace_storage::ObjectId;
use serde::{Deserialize, Serialize};

use self::avro::AvroSchemas;
pub use self::options::SinkOptions;
pub use self::subscription::{LOG_COLUMNS, SubscriptionSink};
use crate::connector::delta;
use crate::connector::files::{BucketPlace, FilesPlace};
use crate::connector::kafka::KafkaTarget;
use crate::connector::options::Given;
use crate::connector::postgres::PostgresTarget;
use crate::connector::webhook::WebhookTarget;
use crate::secret::Secrets;

/// The column of a changelog that says what happened to the row.
pub(crate) const OP: &str = "op";

/// What files hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileFormat {
    /// An object a line, named and written as HTTP does.
    Json,
    /// A line with names, then rows as COPY writes them.
    Csv,
    Parquet,
    /// What happened, the key and the row, both as JSON objects: what waits for another system.
    Records,
}

/// Which changes are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SinkType {
    /// Rows that come. The relation loses none.
    AppendOnly,
    /// Rows that come, of a relation that may lose some.
    ForcedAppendOnly,
    /// Rows that come and go, with a first column that says which: `insert` or `delete`.
    Changelog,
    /// The newest row of each key, and keys that have none any more.
    Upsert,
    /// Of each key the row before and after.
    Debezium,
}

/// How often the target has a step, over crashes of either side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    ExactlyOnce,
    /// Perhaps again, as the same and with the same number.
    AtLeastOnce,
}

impl Delivery {
    /// Its name, as option `delivery` has it.
    pub fn name(self) -> &'static str {
        match self {
            Delivery::ExactlyOnce => "exactly_once",
            Delivery::AtLeastOnce => "at_least_once",
        }
    }
}

/// A sink: the lasting form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkDef {
    /// What it reads.
    pub relation: ObjectId,
    /// The view that was made for it, if it was given a query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub view: Option<ObjectId>,
    /// What the columns are called: those that the relation had first.
    pub columns: Vec<String>,
    #[serde(rename = "type")]
    pub sink_type: SinkType,
    pub rollover_ms: u64,
    #[serde(flatten)]
    pub target: Target,
}

/// Where rows go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Target {
    Files(FileTarget),
    Kafka(KafkaSink),
    Postgres(PostgresSink),
    Bucket(BucketSink),
    Webhook(WebhookSink),
    Delta(DeltaSink),
    Subscription(SubscriptionSink),
}

/// Files of the server's machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileTarget {
    pub path: PathBuf,
    /// What the files' names begin with.
    pub prefix: String,
    pub format: FileFormat,
    pub rows_max: u64,
    pub bytes_max: u64,
}

/// Files of a bucket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketSink {
    /// The options as they were given.
    pub s3: BTreeMap<String, String>,
    #[serde(skip)]
    pub secrets: Secrets,
    /// What the files' names begin with, behind that of the place.
    pub name: String,
    pub format: FileFormat,
    pub rows_max: u64,
    pub bytes_max: u64,
}

impl BucketSink {
    /// Where they go.
    ///
    /// # Errors
    /// The options are of another version.
    pub fn bucket(&self) -> SqlResult<BucketPlace> {
        BucketPlace::new(&mut Given::new("s3", &self.s3).with_secrets(&self.secrets))
    }
}

/// A table of Delta Lake.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeltaSink {
    /// The options, with the bucket of the path as one of its own.
    pub delta: BTreeMap<String, String>,
    #[serde(skip)]
    pub secrets: Secrets,
    /// What no other sink anywhere is called: under that the table has its steps.
    pub id: String,
    /// The schema of the rows, as Delta Lake writes one.
    pub schema: String,
    pub rows_max: u64,
    pub bytes_max: u64,
}

impl DeltaSink {
    /// Where it is.
    ///
    /// # Errors
    /// The options are of another version.
    pub fn place(&self) -> SqlResult<FilesPlace> {
        delta::place(&mut Given::new("delta", &self.delta).with_secrets(&self.secrets))
    }
}

/// A service that takes rows over HTTP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookSink {
    /// The options as they were given.
    pub webhook: BTreeMap<String, String>,
    #[serde(skip)]
    pub secrets: Secrets,
    /// What no other sink anywhere is called: by that, and the number of a step, a request is told from others.
    pub id: String,
}

impl WebhookSink {
    /// What the options say.
    ///
    /// # Errors
    /// They are of another version.
    pub fn target(&self) -> SqlResult<WebhookTarget> {
        WebhookTarget::new(&mut Given::new("webhook", &self.webhook).with_secrets(&self.secrets))
    }
}

/// A topic of Kafka.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KafkaSink {
    /// The options as they were given.
    pub kafka: BTreeMap<String, String>,
    #[serde(skip)]
    pub secrets: Secrets,
    /// What no other sink anywhere is called: its transactional id.
    pub id: String,
    /// The columns that are the key, by position.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Vec<usize>>,
    /// The schemas of the records, if they are Avro.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub avro: Option<AvroSchemas>,
}

/// A table of PostgreSQL.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PostgresSink {
    /// The options as they were given.
    pub postgres: BTreeMap<String, String>,
    #[serde(skip)]
    pub secrets: Secrets,
    /// What no other sink anywhere is called: the name of its row in the table of the progress.
    pub id: String,
    /// The columns that are the key, by position.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Vec<usize>>,
}

impl PostgresSink {
    /// What the options say.
    ///
    /// # Errors
    /// They are of another version.
    pub fn target(&self) -> SqlResult<PostgresTarget> {
        PostgresTarget::new(&mut Given::new("postgres", &self.postgres).with_secrets(&self.secrets))
    }
}

impl KafkaSink {
    /// What the options say.
    ///
    /// # Errors
    /// They are of another version.
    pub fn target(&self) -> SqlResult<KafkaTarget> {
        KafkaTarget::new(
            &mut Given::new("kafka", &self.kafka).with_secrets(&self.secrets),
            self.avro.is_some(),
        )
    }
}

impl Target {
    /// The name of its connector.
    pub fn connector(&self) -> &'static str {
        match self {
            Target::Files(_) => "file",
            Target::Kafka(_) => "kafka",
            Target::Postgres(_) => "postgres",
            Target::Bucket(_) => "s3",
            Target::Webhook(_) => "webhook",
            Target::Delta(_) => "delta",
            Target::Subscription(_) => "subscription",
        }
    }

    /// The columns of the key of what goes to another system, by position.
    pub fn key(&self) -> Option<&[usize]> {
        match self {
            Target::Files(_)
            | Target::Bucket(_)
            | Target::Webhook(_)
            | Target::Delta(_)
            | Target::Subscription(_) => None,
            Target::Kafka(kafka) => kafka.key.as_deref(),
            Target::Postgres(postgres) => postgres.key.as_deref(),
        }
    }

    /// How often a row is there that came once.
    pub fn delivery(&self) -> Delivery {
        match self {
            Target::Files(_)
            | Target::Kafka(_)
            | Target::Postgres(_)
            | Target::Bucket(_)
            | Target::Delta(_)
            | Target::Subscription(_) => Delivery::ExactlyOnce,
            Target::Webhook(_) => Delivery::AtLeastOnce,
        }
    }

    /// The files that have its rows, if those are what goes there.
    pub fn file_format(&self) -> Option<FileFormat> {
        match self {
            Target::Files(files) => Some(files.format),
            Target::Bucket(bucket) => Some(bucket.format),
            Target::Webhook(_) => Some(FileFormat::Json),
            Target::Delta(_) | Target::Subscription(_) => Some(FileFormat::Parquet),
            Target::Kafka(_) | Target::Postgres(_) => None,
        }
    }

    /// Where it is, in a word: a directory, a topic, a table.
    pub fn place(&self) -> String {
        match self {
            Target::Files(files) => files.path.display().to_string(),
            Target::Kafka(kafka) => kafka
                .target()
                .map(|target| target.place.topic)
                .unwrap_or_default(),
            Target::Postgres(postgres) => postgres
                .target()
                .map(|target| format!("{}.{}", target.schema, target.table))
                .unwrap_or_default(),
            Target::Bucket(bucket) => bucket
                .bucket()
                .map(|place| FilesPlace::Bucket(place).shown())
                .unwrap_or_default(),
            Target::Delta(delta) => delta.place().map(|place| place.shown()).unwrap_or_default(),
            Target::Webhook(webhook) => webhook.target().map(|target| target.shown()).unwrap_or_default(),
            Target::Subscription(_) => String::new(),
        }
    }

    /// The form of its rows.
    pub fn format(&self) -> &'static str {
        match self {
            Target::Files(files) => files.format.name(),
            Target::Bucket(bucket) => bucket.format.name(),
            Target::Delta(_) => FileFormat::Parquet.name(),
            Target::Kafka(KafkaSink { avro: Some(_), .. }) => "avro",
            Target::Kafka(_) | Target::Webhook(_) => FileFormat::Json.name(),
            Target::Postgres(_) | Target::Subscription(_) => "rows",
        }
    }
}

impl FileFormat {
    /// Its name, which is also what the files' names end with.
    pub fn name(self) -> &'static str {
        match self {
            FileFormat::Json => "json",
            FileFormat::Csv => "csv",
            FileFormat::Parquet => "parquet",
            FileFormat::Records => "records",
        }
    }

    fn parse(text: &str) -> SqlResult<FileFormat> {
        let all = [FileFormat::Json, FileFormat::Csv, FileFormat::Parquet];
        let found = all.into_iter().find(|format| format.name() == text);
        found.ok_or_else(|| {
            SqlError::unsupported(format!(
                "format {} is not supported for a sink",
                text.to_uppercase()
            ))
            .with_hint("The formats are JSON, CSV and PARQUET.")
        })
    }
}

impl SinkType {
    pub fn name(self) -> &'static str {
        match self {
            SinkType::AppendOnly | SinkType::ForcedAppendOnly => "append-only",
            SinkType::Changelog => "changelog",
            SinkType::Upsert => "upsert",
            SinkType::Debezium => "debezium",
        }
    }

    /// Whether rows that go are written too.
    pub fn has_deletions(self) -> bool {
        match self {
            SinkType::AppendOnly | SinkType::ForcedAppendOnly => false,
            SinkType::Changelog | SinkType::Upsert | SinkType::Debezium => true,
        }
    }
}

impl SinkDef {
    /// The same, whose secrets are opened so.
    #[must_use]
    pub fn with_secrets(mut self, secrets: Secrets) -> SinkDef {
        match &mut self.target {
            Target::Files(_) | Target::Subscription(_) => {}
            Target::Kafka(kafka) => kafka.secrets = secrets,
            Target::Postgres(postgres) => postgres.secrets = secrets,
            Target::Bucket(bucket) => bucket.secrets = secrets,
            Target::Webhook(webhook) => webhook.secrets = secrets,
            Target::Delta(delta) => delta.secrets = secrets,
        }
        self
    }

    /// The columns, given those of the relation: of a changelog `op` is the first.
    pub fn schema(&self, relation: &Schema) -> SchemaRef {
        let op =
            (self.sink_type == SinkType::Changelog).then(|| Arc::new(Field::new(OP, DataType::Utf8, false)));
        let columns = self.columns.iter().zip(relation.fields());
        let columns = columns.map(|(name, field)| Arc::new(field.as_ref().clone().with_name(name)));
        Arc::new(Schema::new(op.into_iter().chain(columns).collect::<Vec<_>>()))
    }
}
