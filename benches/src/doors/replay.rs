//! How fast a topic that was written before is read into a stream and counted by a view.

use std::time::{Duration, Instant};

use bytes::Bytes;
use krafka::{Kafka, Record};
use millrace_sql_tests::kafka::{Broker, create_topic};

use super::{Scale, kafka, kafka_failed, reading, records, until};
use crate::error::BenchError;
use crate::process;
use crate::results::Experiment;
use crate::target::{FreshServer, Target};

/// The experiment's name.
pub const NAME: &str = "kafka/replay";

/// What is read as what.
struct Form {
    name: &'static str,
    topic: &'static str,
    columns: &'static str,
    key: &'static str,
}

const FORMS: [Form; 3] = [
    Form {
        name: "JSON",
        topic: "replay_json",
        columns: records::COLUMNS,
        key: "ad_id % 100",
    },
    Form {
        name: "CSV",
        topic: "replay_csv",
        columns: records::COLUMNS,
        key: "ad_id % 100",
    },
    Form {
        name: "BYTES",
        topic: "replay_json",
        columns: "value BYTEA",
        key: "value IS NULL",
    },
];

/// What the runs measured, one value each.
#[derive(Default)]
struct Measured {
    rate: Vec<f64>,
    cpu_us: Vec<f64>,
}

/// Reads each topic in turn, as often as is asked.
///
/// # Errors
/// The broker or the server fails, or a view has another count.
pub async fn run(scale: &Scale, target: &Target, broker: &Broker) -> Result<Experiment, BenchError> {
    let kafka = kafka(&broker.address()).await?;
    let json_bytes = write(&kafka, FORMS[0].topic, scale.records, records::json).await?;
    let csv_bytes = write(&kafka, FORMS[1].topic, scale.records, records::csv).await?;
    let mut measured: [Measured; FORMS.len()] = Default::default();
    let mut alone = vec![];
    for _ in 0..scale.runs {
        for (form, measured) in FORMS.iter().zip(&mut measured) {
            let (seconds, cpu) = read(form, scale.records, target, broker).await?;
            measured.rate.push(scale.records as f64 / seconds);
            measured
                .cpu_us
                .push(cpu.as_secs_f64() * 1e6 / scale.records as f64);
        }
        let begin = Instant::now();
        reading::read(&kafka, FORMS[0].topic, scale.records, |_| Ok(())).await?;
        alone.push(scale.records as f64 / begin.elapsed().as_secs_f64());
    }
    let mut experiment = Experiment::new(
        NAME,
        format!(
            "A topic of {} partitions with {} records of the Yahoo streaming benchmark ({:.0} bytes as JSON, {:.0} as CSV, not \
             compressed), written before. On a new server CREATE STREAM and CREATE MATERIALIZED VIEW (a count by 100 keys; of \
             BYTES, which are the JSON texts, of all together); the clock runs from then until the view has counted all. By turns, and beside \
             them the client library alone, which reads the JSON topic and throws it away.",
            records::PARTITIONS,
            scale.records,
            json_bytes as f64 / scale.records as f64,
            csv_bytes as f64 / scale.records as f64,
        ),
    );
    for (form, measured) in FORMS.iter().zip(measured) {
        let name = form.name;
        experiment.add(format!("{name}: rate"), "records/s", measured.rate, None);
        experiment.add(
            format!("{name}: CPU time of the server for a record"),
            "us",
            measured.cpu_us,
            None,
        );
    }
    experiment.add("the client library alone: rate", "records/s", alone, None);
    Ok(experiment)
}

/// Makes a topic and writes it; how many bytes the values have together.
async fn write(
    kafka: &Kafka,
    topic: &str,
    count: u64,
    value: fn(u64, u64) -> Bytes,
) -> Result<usize, BenchError> {
    create_topic(kafka, topic, records::PARTITIONS).await?;
    let producer = kafka.producer().batch_size(256 * 1024).build().await;
    let producer = producer.map_err(kafka_failed("cannot make a producer"))?;
    let mut bytes = 0;
    for event in 0..count {
        // One a microsecond, since the first of November 2026.
        let value = value(event, 1_793_491_200_000_000 + event);
        bytes += value.len();
        let record = Record::new(topic, value).partition(records::partition(event));
        // What was not taken is missing in the view's count.
        drop(
            producer
                .enqueue(record)
                .await
                .map_err(kafka_failed("cannot write"))?,
        );
    }
    producer.close().await.map_err(kafka_failed("cannot write"))?;
    Ok(bytes)
}

/// Seconds until all is counted, and the server's processor time.
async fn read(
    form: &Form,
    count: u64,
    target: &Target,
    broker: &Broker,
) -> Result<(f64, Duration), BenchError> {
    let bed = FreshServer::start(target).await?;
    let cpu = process::cpu_time(bed.server.pid())?;
    let begin = Instant::now();
    let Form {
        name,
        topic,
        columns,
        key,
    } = form;
    bed.client
        .run(&format!(
            "CREATE STREAM events ({columns}) WITH (connector = 'kafka', topic = '{topic}', properties.bootstrap.server = '{}') \
             FORMAT PLAIN ENCODE {name}",
            broker.address()
        ))
        .await?;
    bed.client
        .run(&format!(
            "CREATE MATERIALIZED VIEW counts AS SELECT {key} AS k, count(*) AS n FROM events GROUP BY {key}"
        ))
        .await?;
    let counted = "SELECT coalesce(sum(n), 0) FROM counts";
    until(&bed.client, counted, count).await?;
    let seconds = begin.elapsed().as_secs_f64();
    let cpu = process::cpu_time(bed.server.pid())?.saturating_sub(cpu);
    bed.stop().await?;
    Ok((seconds, cpu))
}
