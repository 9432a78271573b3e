//! How soon a record of a topic is seen by whoever follows a view, at a steady rate.
//!
//! The producer is a process of its own, and writes each record at its scheduled time; records have that time. Records of an ad
//! are in one partition, so that a row of the view, which has the newest time and the count of an ad, tells exactly which
//! records it includes.

use std::time::Duration;

use krafka::Record;
use krafka::consumer::ConsumerRecord;
use millrace_sql_tests::kafka::{Broker, create_topic};
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;

use super::follow::{Follower, now_us};
use super::{Scale, kafka, kafka_failed, reading, records};
use crate::apart::{self, Apart};
use crate::client::Client;
use crate::error::BenchError;
use crate::process;
use crate::results::{Aim, Experiment};
use crate::size::Size;
use crate::statistics::Sample;
use crate::target::{FreshServer, Target};

/// The experiment's name.
pub const NAME: &str = "kafka/freshness";

/// A tenth of what Flink 2.3 needs at 50,000 records a second: medians of 44 ms, and 102 ms for the slowest hundredth.
const AIM_P50_MS: f64 = 4.4;
const AIM_P99_MS: f64 = 10.2;
/// How long the producer waits for more records before it sends a batch.
const LINGER: Duration = Duration::from_millis(1);
/// How often it looks what is due.
const TICK: Duration = Duration::from_micros(500);
/// What the producer needs to start.
const START_US: u64 = 2_000_000;

/// The producer: so many records a second into a topic, from a time on.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Feed {
    address: String,
    topic: String,
    begin_us: u64,
    rate: u64,
    count: u64,
}

/// How the producer did.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Fed {
    /// How long after its time the producer handed over a record, of all records.
    late_ms: Spread,
    /// Processor time in all.
    cpu_s: f64,
}

/// What is kept of many values.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Spread {
    p50: f64,
    p99: f64,
    max: f64,
}

impl Spread {
    fn of(values: Vec<f64>) -> Result<Spread, BenchError> {
        let sample = Sample::new(values).ok_or_else(|| BenchError::Wrong("there are no values".into()))?;
        let summary = sample.summary();
        Ok(Spread {
            p50: summary.median,
            p99: summary.p99,
            max: summary.max,
        })
    }
}

impl Feed {
    /// When a record is to be written.
    fn due_us(&self, event: u64) -> u64 {
        self.begin_us + event * 1_000_000 / self.rate
    }
}

impl Apart for Feed {
    const NAME: &'static str = "doors-feed";
    type Found = Fed;

    async fn run(&self) -> Result<Fed, BenchError> {
        let before = process::activity(std::process::id())?;
        let kafka = kafka(&self.address).await?;
        let producer = kafka
            .producer()
            .linger(LINGER)
            .batch_size(64 * 1024)
            .build()
            .await;
        let producer = producer.map_err(kafka_failed("cannot make a producer"))?;
        let (feed, runtime) = (self.clone(), tokio::runtime::Handle::current());
        // A thread of its own: the runtime's timers are too coarse.
        let fed = tokio::task::spawn_blocking(move || {
            let mut late_ms = Vec::with_capacity(feed.count as usize);
            for event in 0..feed.count {
                let due = feed.due_us(event);
                let mut now = now_us();
                while now < due {
                    std::thread::sleep(TICK);
                    now = now_us();
                }
                let record = Record::new(feed.topic.as_str(), records::json(event, due))
                    .partition(records::partition(event));
                // What the broker does not take is missing in the view.
                drop(
                    runtime
                        .block_on(producer.enqueue(record))
                        .map_err(kafka_failed("cannot write"))?,
                );
                late_ms.push((now - due) as f64 / 1e3);
            }
            runtime
                .block_on(producer.close())
                .map_err(kafka_failed("cannot write"))?;
            Ok::<_, BenchError>(late_ms)
        });
        let late_ms = fed.await.map_err(BenchError::engine)??;
        let done = process::activity(std::process::id())?.since(before);
        Ok(Fed {
            late_ms: Spread::of(late_ms)?,
            cpu_s: done.cpu_ns as f64 / 1e9,
        })
    }
}

/// What one run found.
struct Found {
    records_ms: Spread,
    updates_ms: Spread,
    updates_each_second: f64,
    fed: Fed,
    server_cpu_s: f64,
}

/// Feeds and follows, as often as is asked.
///
/// # Errors
/// The broker or the server fails, or the view has not what was written.
pub async fn run(
    scale: &Scale,
    size: Size,
    target: &Target,
    broker: &Broker,
) -> Result<Experiment, BenchError> {
    let mut found = vec![];
    let mut alone = vec![];
    for turn in 0..scale.runs {
        found.push(once(scale, size, target, broker, turn).await?);
        alone.push(read_alone(scale, size, broker, turn).await?);
    }
    let mut experiment = Experiment::new(
        NAME,
        format!(
            "A producer in a process of its own writes {} JSON records a second into {} partitions for {:.1} s (linger {} ms, \
             acknowledged), each at its scheduled time, which it has in it. A view has the newest time and the count of each of {} \
             ads, and is followed by COPY (SUBSCRIBE ..) TO STDOUT. Of every record that was scheduled after the first {:.1} s: from \
             its scheduled time until a row that includes it is seen. Of every update (the rows of an epoch): from the scheduled time \
             of its newest record until its last row is seen. A late producer counts against the result; how late it was stands \
             below. Each value is one run's. By turns with the client library alone, which reads the topic in this process: until it \
             has the record. The aim is a tenth of Flink 2.3's 44 and 102 ms, measured of every record, at 50,000 records/s on two \
             such cores with producer and broker beside it.",
            scale.rate,
            records::PARTITIONS,
            scale.steady.as_secs_f64(),
            LINGER.as_millis(),
            records::ADS,
            scale.warm_up.as_secs_f64(),
        ),
    );
    let mut add = |name: &str, unit, value: &dyn Fn(&Found) -> f64, aim| {
        experiment.add(name, unit, found.iter().map(value).collect(), aim);
    };
    let under = |bound| Some(Aim::MedianUnder(bound));
    add("records: p50", "ms", &|f| f.records_ms.p50, under(AIM_P50_MS));
    add("records: p99", "ms", &|f| f.records_ms.p99, under(AIM_P99_MS));
    add("records: max", "ms", &|f| f.records_ms.max, None);
    add("updates: p50", "ms", &|f| f.updates_ms.p50, None);
    add("updates: p99", "ms", &|f| f.updates_ms.p99, None);
    add("updates: max", "ms", &|f| f.updates_ms.max, None);
    add("updates", "1/s", &|f| f.updates_each_second, None);
    add("producer late: p50", "ms", &|f| f.fed.late_ms.p50, None);
    add("producer late: p99", "ms", &|f| f.fed.late_ms.p99, None);
    add("producer late: max", "ms", &|f| f.fed.late_ms.max, None);
    add("CPU time of the producer", "s", &|f| f.fed.cpu_s, None);
    add("CPU time of the server", "s", &|f| f.server_cpu_s, None);
    let mut add = |name: &str, value: &dyn Fn(&(Spread, Fed)) -> f64| {
        let name = format!("the client library alone: {name}");
        experiment.add(name, "ms", alone.iter().map(value).collect(), None);
    };
    add("records: p50", &|(records_ms, _)| records_ms.p50);
    add("records: p99", &|(records_ms, _)| records_ms.p99);
    add("records: max", &|(records_ms, _)| records_ms.max);
    add("producer late: p99", &|(_, fed)| fed.late_ms.p99);
    Ok(experiment)
}

async fn once(
    scale: &Scale,
    size: Size,
    target: &Target,
    broker: &Broker,
    turn: usize,
) -> Result<Found, BenchError> {
    let topic = format!("fresh_{turn}");
    create_topic(&kafka(&broker.address()).await?, &topic, records::PARTITIONS).await?;
    let bed = FreshServer::start(target).await?;
    bed.client
        .run(&format!(
            "CREATE STREAM events ({}) WITH (connector = 'kafka', topic = '{topic}', properties.bootstrap.server = '{}') \
             FORMAT PLAIN ENCODE JSON",
            records::COLUMNS,
            broker.address()
        ))
        .await?;
    bed.client
        .run(
            "CREATE MATERIALIZED VIEW newest AS \
             SELECT ad_id, max(event_time) AS sent, count(*) AS n FROM events GROUP BY ad_id",
        )
        .await?;
    let observer = Client::connect(bed.server.pg()).await?;
    let follower = Follower::new(&observer, "newest").await?;
    let cpu = process::cpu_time(bed.server.pid())?;
    let feed = feed(scale, broker, topic);
    let watched = tokio::spawn(watch(follower, feed.clone(), scale.warm_up));
    let ((records_ms, updates_ms), fed) = feed_while(size, &feed, watched).await?;
    let server_cpu_s = process::cpu_time(bed.server.pid())?
        .saturating_sub(cpu)
        .as_secs_f64();
    drop(observer);
    bed.stop().await?;
    let counted = scale.steady.saturating_sub(scale.warm_up).as_secs_f64();
    Ok(Found {
        records_ms: Spread::of(records_ms)?,
        updates_each_second: updates_ms.len() as f64 / counted,
        updates_ms: Spread::of(updates_ms)?,
        fed,
        server_cpu_s,
    })
}

/// The producer of a run, which begins when it has had time to start.
fn feed(scale: &Scale, broker: &Broker, topic: String) -> Feed {
    Feed {
        address: broker.address(),
        topic,
        begin_us: now_us() + START_US,
        rate: scale.rate,
        count: (scale.rate as f64 * scale.steady.as_secs_f64()) as u64,
    }
}

/// Runs the producer until who watches has seen all.
async fn feed_while<T>(
    size: Size,
    feed: &Feed,
    watched: JoinHandle<Result<T, BenchError>>,
) -> Result<(T, Fed), BenchError> {
    let fed = apart::measure(size, feed, None).await;
    // A producer that failed says why; its records would only be waited for.
    if fed.is_err() {
        watched.abort();
    }
    let fed = fed?;
    Ok((watched.await.map_err(BenchError::engine)??, fed))
}

/// How soon the client library has the records.
async fn read_alone(
    scale: &Scale,
    size: Size,
    broker: &Broker,
    turn: usize,
) -> Result<(Spread, Fed), BenchError> {
    let kafka = kafka(&broker.address()).await?;
    let topic = format!("alone_{turn}");
    create_topic(&kafka, &topic, records::PARTITIONS).await?;
    let feed = feed(scale, broker, topic.clone());
    let (count, first_us) = (feed.count, feed.begin_us + scale.warm_up.as_micros() as u64);
    let watched = tokio::spawn(async move {
        let mut of_records = Vec::with_capacity(count as usize);
        let show = |records: Vec<ConsumerRecord>| {
            let now = now_us();
            for record in records {
                let due_us = record.value.as_deref().and_then(records::time_us);
                let due_us = due_us.ok_or_else(|| BenchError::Wrong("a record has no time".into()))?;
                if due_us >= first_us {
                    of_records.push((now as f64 - due_us as f64) / 1e3);
                }
            }
            Ok(())
        };
        reading::read(&kafka, &topic, count, show).await?;
        Ok(of_records)
    });
    let (records_ms, fed) = feed_while(size, &feed, watched).await?;
    Ok((Spread::of(records_ms)?, fed))
}

/// Follows the view until it has all records: milliseconds of every record and of every update.
async fn watch(
    mut follower: Follower<3>,
    feed: Feed,
    warm_up: Duration,
) -> Result<(Vec<f64>, Vec<f64>), BenchError> {
    let mut events = vec![vec![]; records::ADS];
    for event in 0..feed.count {
        events[records::ad(event)].push(event);
    }
    let first_us = feed.begin_us + warm_up.as_micros() as u64;
    let ms = |seen_us: u64, due_us: u64| (seen_us as f64 - due_us as f64) / 1e3;
    // A list that grows is moved, which takes tens of milliseconds in which nobody looks.
    let mut of_records = Vec::with_capacity(feed.count as usize);
    let mut of_updates = Vec::with_capacity(feed.count as usize);
    let mut seen_of = vec![0; records::ADS];
    let mut seen = 0;
    // The epoch whose rows come, the newest time in it, and when its last row came.
    let mut update = (0, 0, 0);
    while seen < feed.count {
        let row = follower.next().await?;
        let [ad_id, sent_us, count] = row.columns;
        let wrong = || BenchError::Wrong(format!("the view has {:?} after {seen} records", row.columns));
        let ad = records::ad_of(ad_id).ok_or_else(wrong)?;
        let included = events[ad].get(seen_of[ad]..count as usize).ok_or_else(wrong)?;
        if included.last().map(|event| feed.due_us(*event)) != Some(sent_us) {
            return Err(wrong());
        }
        for event in included {
            let due_us = feed.due_us(*event);
            if due_us >= first_us {
                of_records.push(ms(row.seen_us, due_us));
            }
        }
        seen += included.len() as u64;
        seen_of[ad] = count as usize;
        if row.epoch != update.0 {
            if update.1 >= first_us {
                of_updates.push(ms(update.2, update.1));
            }
            update = (row.epoch, 0, 0);
        }
        update = (row.epoch, update.1.max(sent_us), row.seen_us);
    }
    of_updates.push(ms(update.2, update.1));
    Ok((of_records, of_updates))
}
