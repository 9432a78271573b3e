//! A topic of Kafka, partition by partition.
//!
//! The partitions are assigned by ourselves, without a consumer group: how far each was read is kept with the rows. Offsets
//! grow, with gaps where transactions end or compaction has removed records; one that does not grow is a topic that lost records.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use krafka::KrafkaError;
use krafka::consumer::{AutoOffsetReset, Consumer, ConsumerRecord, IsolationLevel, TopicPartition};
use millrace_catalog::connector::kafka::{KafkaDef, Start};

use super::connect::{PARTITIONS_EVERY, connect, explain, failed, no_topic};
use crate::source::{ConnectorError, Fetched, Lag, Position, Reader, Record};

/// How long one look for records waits.
const POLL: Duration = Duration::from_millis(500);
/// How long a partition may be without a leader at the start, and how often it is asked for.
const LEADER_WAIT: Duration = Duration::from_secs(5);
const LEADER_RETRY: Duration = Duration::from_millis(100);
/// How old what is known of the topic may be when records are handed out.
const IDENTITY_EVERY: Duration = Duration::from_secs(1);
/// Records at a time.
const RECORDS_MAX: i32 = 16_384;
/// Of one answer, and of one partition in it.
const FETCH_BYTES_MAX: i32 = 16 << 20;
const PARTITION_BYTES_MAX: i32 = 4 << 20;

/// See the module.
pub struct KafkaReader {
    topic: String,
    brokers: String,
    consumer: Consumer,
    /// The id of the topic, which another of the same name does not have.
    id: Option<String>,
    /// Of each partition the offset of the next record.
    next: BTreeMap<i32, i64>,
    looked: Instant,
    /// What was fetched, until it is known that the topic is the one that is read.
    polled: Vec<ConsumerRecord>,
}

impl KafkaReader {
    /// Connects, and goes on from a position; partitions that it does not have begin where the definition says.
    ///
    /// # Errors
    /// No broker answers or it refuses, the topic is not there or another one, records before the position are all that is left.
    pub async fn open(def: &KafkaDef, position: &Position) -> Result<Self, ConnectorError> {
        let kafka = connect(&def.place).await?;
        let isolation = match def.read_uncommitted {
            true => IsolationLevel::ReadUncommitted,
            false => IsolationLevel::ReadCommitted,
        };
        let consumer = kafka
            .consumer_without_group()
            .isolation_level(isolation)
            .auto_offset_reset(AutoOffsetReset::None)
            .enable_auto_commit(false)
            .max_poll_records(RECORDS_MAX)
            .max_buffered_records(2 * RECORDS_MAX)
            .fetch_max_bytes(FETCH_BYTES_MAX)
            .max_partition_fetch_bytes(PARTITION_BYTES_MAX)
            .fetch_max_wait(POLL)
            .idle_poll_backoff(Duration::from_millis(2))
            .metrics_push(false)
            .build()
            .await;
        let consumer = consumer.map_err(|error| failed(&def.place, &error))?;
        let mut reader = KafkaReader {
            topic: def.place.topic.clone(),
            brokers: def.place.brokers.clone(),
            consumer,
            id: None,
            next: BTreeMap::new(),
            looked: Instant::now(),
            polled: vec![],
        };
        let partitions = reader.partitions().await?;
        if let (Some(was), Some(is)) = (&position.of, &reader.id)
            && was != is
        {
            return Err(reader.recreated());
        }
        if let (Start::Offsets(offsets), true) = (&def.start, position.is_beginning()) {
            reader.check_given(offsets, &partitions).await?;
        }
        let mut start = position.splits.clone();
        let new: Vec<i32> = (partitions.iter().copied())
            .filter(|partition| !start.contains_key(partition))
            .collect();
        // A partition that came while the topic was being read has no record that was before it.
        let from = match position.is_beginning() {
            true => &def.start,
            false => &Start::Earliest,
        };
        start.extend(reader.beginning(from, &new).await?);
        reader.check(&start).await?;
        reader.assign(start).await?;
        Ok(reader)
    }

    /// The partitions that there are now.
    async fn partitions(&mut self) -> Result<BTreeSet<i32>, ConnectorError> {
        let metadata = self.consumer.fetch_metadata(Some(&self.topic)).await;
        let metadata = metadata.map_err(|error| self.error(&error))?;
        self.looked = Instant::now();
        let Some(topic) = metadata.topics.into_iter().find(|topic| topic.name == self.topic) else {
            return Err(no_topic(&self.topic, &self.brokers));
        };
        if let Some(id) = id_of(topic.topic_id) {
            self.id = Some(id);
        }
        let partitions: BTreeSet<i32> = topic.partitions.keys().copied().collect();
        Ok(partitions)
    }

    /// Where new partitions begin.
    async fn beginning(&self, start: &Start, new: &[i32]) -> Result<BTreeMap<i32, i64>, ConnectorError> {
        let mut found = BTreeMap::new();
        if let Start::Timestamp(ms) = start {
            let names: Vec<(&str, i32)> = new.iter().map(|partition| (&*self.topic, *partition)).collect();
            let offsets = self.consumer.offsets_for_times(&names, *ms).await;
            for ((_, partition), offset) in offsets {
                let offset = offset.map_err(|error| self.error(&error))?;
                if offset >= 0 {
                    found.insert(partition, offset);
                }
            }
        }
        for partition in new {
            if found.contains_key(partition) {
                continue;
            }
            let (first, end) = self.watermarks(*partition).await?;
            let offset = match start {
                Start::Earliest => first,
                // Nothing is as new as the time that was given.
                Start::Latest | Start::Timestamp(_) => end,
                Start::Offsets(offsets) => offsets.get(partition).copied().unwrap_or(first),
            };
            found.insert(*partition, offset);
        }
        Ok(found)
    }

    /// The first offset of a partition and the one after its last. A partition that was made just now, or moves, has no leader
    /// for a moment.
    async fn watermarks(&self, partition: i32) -> Result<(i64, i64), ConnectorError> {
        let until = Instant::now() + LEADER_WAIT;
        loop {
            match self.consumer.fetch_watermarks(&self.topic, partition).await {
                Ok(found) => return Ok(found),
                Err(error @ KrafkaError::Broker { .. }) if error.is_retriable() && Instant::now() < until => {
                    tokio::time::sleep(LEADER_RETRY).await;
                    // So that it is asked who leads now.
                    let metadata = self.consumer.fetch_metadata(Some(&self.topic)).await;
                    metadata.map_err(|error| self.error(&error))?;
                }
                Err(error) => return Err(self.error(&error)),
            }
        }
    }

    fn recreated(&self) -> ConnectorError {
        ConnectorError::lasting(
            format!("topic \"{}\" was deleted and recreated", self.topic),
            "Rows already read are kept. Create another stream for the new topic.",
        )
    }

    /// Makes sure that what was fetched is of the topic that is read, and not of another of its name. Brokers of today are asked for records by
    /// the topic's id, and so another one's come only when the client knows of it; older ones by the name, and so it is asked again soon.
    async fn check_topic(&mut self) -> Result<(), ConnectorError> {
        if self.looked.elapsed() > IDENTITY_EVERY {
            return self.look_for_partitions().await;
        }
        let known = self.consumer.fetch_metadata(None).await;
        let known = known.map_err(|error| self.error(&error))?;
        match known.topics.iter().find(|topic| topic.name == self.topic) {
            Some(topic) if id_of(topic.topic_id) == self.id => Ok(()),
            // What the client says of it now is asked of the broker.
            _ => self.look_for_partitions().await,
        }
    }

    /// Refuses offsets to begin at that are not there.
    async fn check_given(
        &self,
        offsets: &BTreeMap<i32, i64>,
        partitions: &BTreeSet<i32>,
    ) -> Result<(), ConnectorError> {
        let hint = "Choose other scan.startup.specific-offsets.";
        for (partition, offset) in offsets {
            if !partitions.contains(partition) {
                let what = format!("topic \"{}\" has no partition {partition}", self.topic);
                return Err(ConnectorError::lasting(what, hint));
            }
            let (first, end) = self.watermarks(*partition).await?;
            if !(first..=end).contains(offset) {
                return Err(ConnectorError::lasting(
                    format!(
                        "partition {partition} of topic \"{}\" can be read from offset {first} to {end}, and not from {offset}",
                        self.topic
                    ),
                    hint,
                ));
            }
        }
        Ok(())
    }

    /// Refuses to go on where records are missing.
    async fn check(&self, start: &BTreeMap<i32, i64>) -> Result<(), ConnectorError> {
        for (partition, offset) in start {
            let (first, end) = self.watermarks(*partition).await?;
            if *offset < first {
                return Err(self.lost(
                    *partition,
                    format!(
                        "records {offset} to {} were removed before they were read",
                        first - 1
                    ),
                ));
            }
            if *offset > end {
                return Err(self.lost(
                    *partition,
                    format!(
                        "it ends at {end}, but was read up to {offset} before: the broker has lost records"
                    ),
                ));
            }
        }
        Ok(())
    }

    fn lost(&self, partition: i32, what: String) -> ConnectorError {
        ConnectorError::lasting(
            format!("partition {partition} of topic \"{}\": {what}", self.topic),
            "Rows already read are kept. To start over with what the topic has now, create another stream.",
        )
    }

    async fn assign(&mut self, start: BTreeMap<i32, i64>) -> Result<(), ConnectorError> {
        let all: Vec<i32> = (self.next.keys().chain(start.keys()).copied())
            .collect::<BTreeSet<i32>>()
            .into_iter()
            .collect();
        let assigned = self.consumer.assign(&self.topic, all).await;
        assigned.map_err(|error| self.error(&error))?;
        for (partition, offset) in &start {
            let sought = self.consumer.seek(&self.topic, *partition, *offset).await;
            sought.map_err(|error| self.error(&error))?;
        }
        self.next.extend(start);
        Ok(())
    }

    /// Takes partitions in that came since.
    async fn look_for_partitions(&mut self) -> Result<(), ConnectorError> {
        let before = self.id.clone();
        let now = self.partitions().await?;
        if before.is_some() && before != self.id {
            return Err(self.recreated());
        }
        let new: Vec<i32> = (now.into_iter())
            .filter(|partition| !self.next.contains_key(partition))
            .collect();
        if !new.is_empty() {
            tracing::info!(topic = self.topic, partitions = ?new, "new partitions are read from now on");
            let start = self.beginning(&Start::Earliest, &new).await?;
            self.assign(start).await?;
        }
        Ok(())
    }

    /// What the broker has next.
    async fn poll(&mut self) -> Result<Vec<ConsumerRecord>, ConnectorError> {
        match self.consumer.poll(POLL).await {
            Ok(records) => Ok(records),
            Err(KrafkaError::NoOffset { .. }) => {
                self.look_for_partitions().await?;
                // What is missing is told by the offsets that there are.
                self.check(&self.next).await?;
                Err(ConnectorError::passing(format!(
                    "topic \"{}\": offsets that were there are not known to the broker",
                    self.topic
                )))
            }
            Err(error) => Err(self.error(&error)),
        }
    }

    fn error(&self, error: &KrafkaError) -> ConnectorError {
        explain(&self.brokers, &self.topic, error)
    }
}

/// The id of a topic as it is kept; none: the broker has none.
fn id_of(id: [u8; 16]) -> Option<String> {
    (id != [0; 16]).then(|| id.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[async_trait]
impl Reader for KafkaReader {
    async fn next(&mut self) -> Result<Fetched, ConnectorError> {
        if self.looked.elapsed() > PARTITIONS_EVERY {
            self.look_for_partitions().await?;
        }
        if self.polled.is_empty() {
            self.polled = self.poll().await?;
        }
        if !self.polled.is_empty() {
            self.check_topic().await?;
        }
        let polled = std::mem::take(&mut self.polled);
        let mut fetched = Fetched::default();
        fetched.records.reserve(polled.len());
        for record in polled {
            let next = self.next.get(&record.partition).copied().unwrap_or(record.offset);
            if record.offset < next {
                // Perhaps because it is another topic now.
                self.look_for_partitions().await?;
                let what = format!(
                    "record {} came after record {}: the broker has lost records",
                    record.offset,
                    next - 1
                );
                return Err(self.lost(record.partition, what));
            }
            self.next.insert(record.partition, record.offset + 1);
            fetched
                .position
                .splits
                .insert(record.partition, record.offset + 1);
            let headers = record.headers.iter();
            fetched.records.push(Record {
                split: record.partition,
                offset: record.offset,
                timestamp_ms: (record.timestamp >= 0).then_some(record.timestamp),
                headers: headers
                    .map(|(name, value)| (name.to_string(), value.clone()))
                    .collect(),
                key: record.key,
                value: record.value,
            });
        }
        fetched.position.of.clone_from(&self.id);
        Ok(fetched)
    }

    fn position(&self) -> Position {
        Position {
            of: self.id.clone(),
            splits: self.next.clone(),
            file: None,
        }
    }

    async fn lag(&mut self) -> Lag {
        let lags = self.consumer.lag().await;
        let lag = |partition: &i32| {
            let key = TopicPartition::new(self.topic.clone(), *partition);
            lags.get(&key).and_then(|lag| lag.lag)
        };
        Lag {
            splits: (self.next.keys())
                .map(|partition| (*partition, lag(partition)))
                .collect(),
        }
    }

    async fn close(&mut self) {
        if let Err(error) = self.consumer.close().await {
            tracing::debug!(%error, topic = self.topic, "a reader of a topic was not closed cleanly");
        }
    }
}
