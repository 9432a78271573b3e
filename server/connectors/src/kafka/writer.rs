//! A topic that a sink writes: the records of a step and how far the sink is, in one transaction.
//!
//! ```text
//!   topic:            rows of step 7 | rows of step 8 | ..          one transaction a step,
//!   progress topic:   <sink>: next 8 | <sink>: next 9 | ..          one record in each
//! ```
//! 1. `open` takes the sink's transactional id: whoever had it before can commit nothing from then on, and what it left open is aborted.
//! 2. It writes who it is to the progress topic, and reads that up to this record. All that was committed before stands there then: also
//!    where another sink's open transaction keeps readers from the end of the topic for a while.
//! 3. Whoever is refused reads who has the id. If it is another, it ends. It may be itself, when the broker gave up a transaction that took too long.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use krafka::admin::NewTopic;
use krafka::consumer::{AutoOffsetReset, IsolationLevel};
use krafka::error::ErrorCode;
use krafka::producer::TransactionalProducer;
use krafka::{CloseOptions, Compression, Kafka, KrafkaError, Record};
use millrace_catalog::connector::kafka::{Codec, KafkaTarget};
use millrace_catalog::connector::registry::RegistryPlace;
use millrace_catalog::sink::KafkaSink;
use millrace_catalog::sink::avro::AvroSchemas;
use millrace_postgres::error::SqlResult;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::connect::{REQUEST_TIMEOUT, connect, explain, failed, no_topic};
use crate::schema::Records;
use crate::source::ConnectorError;
use crate::target::{Message, Reached, Said, Writer};

/// How long records may be on their way: longer than one request.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(11);
/// How long the broker leaves a transaction open.
const TRANSACTION_TIMEOUT: Duration = Duration::from_secs(30);
/// How long an open transaction of another sink may keep us from reading the progress.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(45);
/// How long is asked which topic it is.
const TOPIC_TIMEOUT: Duration = Duration::from_secs(5);
/// How long is asked who has the transactional id.
const HOLDER_TIMEOUT: Duration = Duration::from_secs(3);
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(200);
const BATCH_BYTES: usize = 256 << 10;

/// The value of a sink's progress record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Progress {
    /// The first step that is not there.
    next: u64,
    /// The checksum of the one before.
    sum: u32,
    /// The id of the topic that has the steps.
    topic: String,
}

/// What the progress topic says of a sink.
#[derive(Debug, Default)]
struct Found {
    progress: Option<Progress>,
    holder: Option<String>,
}

/// See the module.
pub struct KafkaWriter {
    def: KafkaTarget,
    /// The transactional id, and the key of the progress record.
    id: String,
    holder: String,
    kafka: Kafka,
    producer: TransactionalProducer,
    /// The id of the topic, which another of the same name does not have.
    topic: String,
    reached: Option<Reached>,
    /// Makes the records, if they are Avro; else they are what they were.
    records: Option<Arc<Records>>,
}

impl KafkaWriter {
    /// Takes the sink over, and finds out how far it is.
    ///
    /// # Errors
    /// No broker answers or it refuses, the topic is not there or another one.
    pub async fn open(sink: &KafkaSink, holder: &str) -> Result<Self, ConnectorError> {
        let records = match registry(sink)? {
            Some((place, schemas, topic)) => Some(Records::register(&topic, &place, schemas).await?),
            None => None,
        };
        let mut writer = Self::take(sink, holder).await?;
        writer.records = records.map(Arc::new);
        let found = writer.read(true).await;
        let checked = found.and_then(|found| writer.check_topic(found));
        match checked {
            Ok(reached) => writer.reached = reached,
            Err(error) => {
                writer.close().await;
                return Err(error);
            }
        }
        Ok(writer)
    }

    /// Looks whether a new sink could write.
    ///
    /// # Errors
    /// It could not.
    pub async fn check(sink: &KafkaSink, holder: &str) -> Result<(), ConnectorError> {
        if let Some((place, schemas, topic)) = registry(sink)? {
            Records::check(&topic, &place, schemas).await?;
        }
        let writer = Self::take(sink, holder).await?;
        writer.close().await;
        Ok(())
    }

    async fn take(sink: &KafkaSink, holder: &str) -> Result<Self, ConnectorError> {
        let def = target(sink)?;
        let kafka = connect(&def.place).await?;
        let topic = topic_id(&kafka, &def).await?;
        create_progress_topic(&kafka, &def).await?;
        let producer = kafka
            .producer()
            .compression(codec(def.compression))
            .batch_size(BATCH_BYTES)
            .linger(Duration::from_millis(1))
            .delivery_timeout(DELIVERY_TIMEOUT)
            .max_block(REQUEST_TIMEOUT)
            .transaction_timeout(TRANSACTION_TIMEOUT)
            .metrics_push(false)
            .build_transactional(sink.id.clone())
            .await;
        let writer = KafkaWriter {
            producer: producer.map_err(|error| failed(&def.place, &error))?,
            def,
            id: sink.id.clone(),
            holder: holder.to_owned(),
            kafka,
            topic,
            reached: None,
            records: None,
        };
        let claim = writer.progress_record(writer.holder_key(), writer.holder.clone().into_bytes());
        if let Err(error) = writer.commit([claim]).await {
            writer.close().await;
            return Err(writer.error(&error));
        }
        Ok(writer)
    }

    fn holder_key(&self) -> String {
        format!("{}/holder", self.id)
    }

    fn progress_record(&self, key: String, value: Vec<u8>) -> Record {
        Record::new(self.def.progress_topic.clone(), value)
            .key(key)
            .partition(0)
    }

    /// Writes records in one transaction.
    async fn commit(&self, records: impl IntoIterator<Item = Record>) -> Result<(), KrafkaError> {
        self.producer.begin()?;
        for record in records {
            // What becomes of it decides whether the transaction can be committed.
            drop(self.producer.enqueue(record).await?);
        }
        self.producer.commit().await
    }

    /// What the progress topic says of this sink, up to our own name or as far as it can be read now.
    async fn read(&self, to_our_name: bool) -> Result<Found, ConnectorError> {
        let topic = &self.def.progress_topic;
        let consumer = self
            .kafka
            .consumer_without_group()
            .isolation_level(IsolationLevel::ReadCommitted)
            .auto_offset_reset(AutoOffsetReset::Earliest)
            .enable_auto_commit(false)
            .fetch_max_wait(POLL)
            .metrics_push(false)
            .build()
            .await
            .map_err(|error| self.error(&error))?;
        let reading = async {
            let (_, end) = consumer.fetch_watermarks(topic, 0).await?;
            consumer.assign(topic, vec![0]).await?;
            let mut found = Found::default();
            let began = Instant::now();
            while began.elapsed() < PROGRESS_TIMEOUT {
                for record in consumer.poll(POLL).await? {
                    let value = record.value.unwrap_or_default();
                    if record.key.as_deref() == Some(self.id.as_bytes()) {
                        found.progress = serde_json::from_slice(&value).ok();
                    } else if record.key.as_deref() == Some(self.holder_key().as_bytes()) {
                        found.holder = Some(String::from_utf8_lossy(&value).into_owned());
                    }
                }
                let is_there = match to_our_name {
                    true => found.holder.as_ref() == Some(&self.holder),
                    false => consumer.position(topic, 0).await.is_some_and(|at| at >= end),
                };
                if is_there {
                    return Ok(found);
                }
            }
            Err(KrafkaError::timeout(format!(
                "reading topic \"{topic}\", which has an open transaction"
            )))
        };
        let found = reading.await.map_err(|error| self.error(&error));
        if let Err(error) = consumer.close().await {
            tracing::debug!(%error, topic, "a reader of a topic was not closed cleanly");
        }
        found
    }

    /// How far the topic is, if it is the one that the sink wrote before.
    fn check_topic(&self, found: Found) -> Result<Option<Reached>, ConnectorError> {
        let Some(progress) = found.progress else {
            return Ok(None);
        };
        if progress.topic != self.topic {
            return Err(self.recreated());
        }
        Ok(Some(Reached {
            next: progress.next,
            sum: progress.sum,
        }))
    }

    fn recreated(&self) -> ConnectorError {
        ConnectorError::lasting(
            format!("topic \"{}\" was deleted and recreated", self.def.place.topic),
            "Rows written to the old topic are gone. To write all rows to the new one, drop the sink and create it again.",
        )
    }

    /// What to do after a transaction was refused: perhaps because another has our transactional id.
    async fn refused(&self, error: &KrafkaError) -> ConnectorError {
        match tokio::time::timeout(HOLDER_TIMEOUT, self.read(false)).await {
            Ok(Ok(Found {
                holder: Some(holder), ..
            })) if holder != self.holder => ConnectorError::lasting(
                "another server writes for this sink: its data directory is a copy of this one",
                "Stop one of them. In the copy, drop the sink and create it again.",
            ),
            _ => self.error(error),
        }
    }

    fn error(&self, error: &KrafkaError) -> ConnectorError {
        explain(&self.def.place.brokers, &self.def.place.topic, error)
    }
}

#[async_trait]
impl Writer for KafkaWriter {
    fn reached(&self) -> Said {
        self.reached.into()
    }

    async fn write(&mut self, reached: Reached, messages: Vec<Message>) -> Result<(), ConnectorError> {
        // A step into another topic would be the only one there.
        if topic_id(&self.kafka, &self.def).await? != self.topic {
            return Err(self.recreated());
        }
        let progress = Progress {
            next: reached.next,
            sum: reached.sum,
            topic: self.topic.clone(),
        };
        let progress =
            serde_json::to_vec(&progress).map_err(|error| ConnectorError::passing(error.to_string()))?;
        let messages = match &self.records {
            None => messages,
            Some(records) => encoded(records, messages).await?,
        };
        let topic = &self.def.place.topic;
        let records = messages.into_iter().map(|message| {
            let record = match message.value {
                Some(value) => Record::new(topic.clone(), value),
                None => Record::new(topic.clone(), "").without_value(),
            };
            match message.key {
                Some(key) => record.key(key),
                None => record,
            }
        });
        let records = records.chain([self.progress_record(self.id.clone(), progress)]);
        match self.commit(records).await {
            Ok(()) => {
                self.reached = Some(reached);
                Ok(())
            }
            Err(error) if error.is_retriable() => Err(self.error(&error)),
            Err(error) => Err(self.refused(&error).await),
        }
    }

    async fn close(&self) {
        let options = CloseOptions::new().timeout(CLOSE_TIMEOUT);
        if let Err(error) = self.producer.close_with(options).await {
            tracing::debug!(%error, topic = self.def.place.topic, "a writer of a topic was not closed cleanly");
        }
    }
}

fn target(sink: &KafkaSink) -> Result<KafkaTarget, ConnectorError> {
    sink.target()
        .map_err(|error| ConnectorError::lasting(error.message, "Create the sink again."))
}

/// The registry of a sink that writes Avro, its schemas and the topic.
fn registry(sink: &KafkaSink) -> Result<Option<(RegistryPlace, &AvroSchemas, String)>, ConnectorError> {
    let Some(schemas) = &sink.avro else {
        return Ok(None);
    };
    let target = target(sink)?;
    Ok(target.registry.map(|place| (place, schemas, target.place.topic)))
}

/// Messages as records of Avro.
async fn encoded(records: &Arc<Records>, messages: Vec<Message>) -> Result<Vec<Message>, ConnectorError> {
    let records = Arc::clone(records);
    let encode = move || messages.iter().map(|message| records.message(message)).collect();
    let encoded: SqlResult<Vec<Message>> = tokio::task::spawn_blocking(encode)
        .await
        .map_err(|error| ConnectorError::passing(error.to_string()))?;
    encoded.map_err(|error| {
        let hint = "Change the column in a query: CREATE SINK .. AS SELECT ..";
        ConnectorError::lasting(
            format!("a row cannot be written as Avro: {}", error.message),
            hint,
        )
    })
}

fn codec(codec: Codec) -> Compression {
    match codec {
        Codec::None => Compression::None,
        Codec::Gzip => Compression::Gzip,
        Codec::Snappy => Compression::Snappy,
        Codec::Lz4 => Compression::Lz4,
        Codec::Zstd => Compression::Zstd,
    }
}

/// The id of the topic.
async fn topic_id(kafka: &Kafka, def: &KafkaTarget) -> Result<String, ConnectorError> {
    let place = &def.place;
    let admin = kafka.admin();
    let asked = admin.describe_topics([place.topic.as_str()], Default::default());
    // The client goes on asking as long as no broker answers.
    let described = tokio::time::timeout(TOPIC_TIMEOUT, asked)
        .await
        .unwrap_or_else(|_| {
            Err(KrafkaError::timeout(format!(
                "no broker described the topic within {} seconds",
                TOPIC_TIMEOUT.as_secs()
            )))
        });
    let described = described.map_err(|error| failed(place, &error))?;
    match described.into_iter().next() {
        Some((_, Ok(topic))) => Ok(topic.topic_id.iter().map(|byte| format!("{byte:02x}")).collect()),
        Some((_, Err(error))) if is_unknown(&error) => Err(no_topic(&place.topic, &place.brokers)),
        Some((_, Err(error))) => Err(failed(place, &error)),
        None => Err(no_topic(&place.topic, &place.brokers)),
    }
}

fn is_unknown(error: &KrafkaError) -> bool {
    match error {
        KrafkaError::UnknownTopic { .. } => true,
        KrafkaError::Broker { code, .. } => *code == ErrorCode::UnknownTopicOrPartition,
        _ => false,
    }
}

/// Makes the topic in which sinks keep how far they are, unless it is there. Only the newest record of each sink counts, so its segments are
/// small: what they have too much is read at each start.
async fn create_progress_topic(kafka: &Kafka, def: &KafkaTarget) -> Result<(), ConnectorError> {
    let name = &def.progress_topic;
    let of_progress = |error: &KrafkaError| explain(&def.place.brokers, name, error);
    let new = NewTopic::new(name.clone(), 1, -1).map_err(|error| of_progress(&error))?;
    let new = new
        .with_config("cleanup.policy", "compact")
        .with_config("segment.bytes", "16777216")
        .with_config("min.cleanable.dirty.ratio", "0.1");
    let made = kafka.admin().create_topics([new], Default::default()).await;
    match made.map_err(|error| of_progress(&error))?.into_values().next() {
        Some(Err(KrafkaError::Broker {
            code: ErrorCode::TopicAlreadyExists,
            ..
        }))
        | Some(Ok(()))
        | None => {}
        Some(Err(error)) => return Err(of_progress(&error)),
    }
    let described = kafka
        .admin()
        .describe_topics([name.as_str()], Default::default())
        .await;
    let described = described.map_err(|error| of_progress(&error))?;
    match described.into_iter().next() {
        Some((_, Ok(topic))) if topic.partitions.len() != 1 => Err(ConnectorError::lasting(
            format!(
                "topic \"{name}\" has {} partitions, and the topic of the progress has one",
                topic.partitions.len()
            ),
            "Set progress.topic to another topic; it is created if it does not exist.",
        )),
        // One that was made just now may not be known to every broker yet.
        Some((_, Err(error))) if !is_unknown(&error) => Err(of_progress(&error)),
        _ => Ok(()),
    }
}
