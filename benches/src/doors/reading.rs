//! The client library of Kafka alone, which reads a topic and throws it away: what a source here cannot be better than.

use std::time::Duration;

use krafka::Kafka;
use krafka::consumer::{AutoOffsetReset, ConsumerRecord};

use super::{PATIENCE, kafka_failed, records};
use crate::error::BenchError;

/// Shows the first so many records of a topic, a poll's at a time. The consumer waits as that of a source does.
///
/// # Errors
/// The broker fails, or there are not as many.
pub async fn read(
    kafka: &Kafka,
    topic: &str,
    count: u64,
    mut show: impl FnMut(Vec<ConsumerRecord>) -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    let failed = || kafka_failed("cannot read");
    let consumer = kafka
        .consumer_without_group()
        .auto_offset_reset(AutoOffsetReset::Earliest)
        .enable_auto_commit(false)
        .max_poll_records(16_384)
        .max_buffered_records(32_768)
        .fetch_max_bytes(16 << 20)
        .max_partition_fetch_bytes(4 << 20)
        .fetch_max_wait(Duration::from_millis(500))
        .idle_poll_backoff(Duration::from_millis(2))
        .build()
        .await
        .map_err(failed())?;
    let assigned = consumer.assign(topic, (0..records::PARTITIONS).collect()).await;
    assigned.map_err(failed())?;
    let mut read = 0;
    while read < count {
        let records = consumer.poll(PATIENCE).await.map_err(failed())?;
        if records.is_empty() {
            return Err(BenchError::Wrong(format!(
                "the topic has {read} of {count} records"
            )));
        }
        read += records.len() as u64;
        show(records)?;
    }
    consumer.close().await.map_err(failed())
}
