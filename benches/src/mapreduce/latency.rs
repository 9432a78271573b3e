//! How long events take until the views show them, by their rate, up to where the views do not keep up (figure 7): service
//! levels and communities of interest, by the statements of the examples.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use millrace_generator::random::{Random, Zipf};

use super::Scale;
use crate::bed::{Bed, append};
use crate::drizzle::ysb::now_micros;
use crate::error::BenchError;
use crate::results::Experiment;

const SLA: &str = include_str!("../../../docs/examples/sla.sql");
const COMMUNITIES: &str = include_str!("../../../docs/examples/communities.sql");
/// The time between two writes.
const TICK: Duration = Duration::from_millis(10);
/// Later than this, the views do not keep up: higher rates are not tried.
const SATURATED: Duration = Duration::from_secs(2);
/// Users of telephones.
const USERS: u64 = 100_000;

pub(super) async fn run(scale: &Scale) -> Result<Vec<Experiment>, BenchError> {
    let mut calls = Calls::new();
    Ok(vec![
        measure(scale, "service levels", SLA, "step", &mut |first, rows| {
            steps(first, rows)
        })
        .await?,
        measure(scale, "communities", COMMUNITIES, "call", &mut |_, rows| {
            calls.rows(rows)
        })
        .await?,
    ])
}

async fn measure(
    scale: &Scale,
    name: &'static str,
    example: &str,
    stream: &str,
    make: &mut dyn FnMut(u64, u64) -> Result<RecordBatch, BenchError>,
) -> Result<Experiment, BenchError> {
    let mut experiment = Experiment::new(
        name,
        format!(
            "From the moment at which events are due, one write each {TICK:?}, until all views of the example show them; for {:?} at each rate.",
            scale.each
        ),
    );
    // Without the example's own rows, which come last.
    let statements = example.split("INSERT INTO").next().unwrap_or_default();
    for rate in &scale.rates {
        let bed = Bed::new(&[statements]).await?;
        let stream = bed.relation(stream)?;
        let mut latencies = vec![];
        let mut under_way = FuturesUnordered::new();
        let (begin, mut due, mut sent) = (Instant::now(), TICK, 0);
        while due <= scale.each {
            let events = (due.as_secs_f64() * *rate as f64) as u64;
            let rows = make(sent, (events - sent).max(1))?;
            sent = events.max(sent + 1);
            tokio::time::sleep_until((begin + due).into()).await;
            let runtime = bed.runtime.clone();
            let scheduled = due;
            under_way.push(tokio::spawn(async move {
                let written = append(&runtime, vec![(stream, rows)]).await?;
                runtime.wait_for(&written).await.map_err(BenchError::engine)?;
                Ok::<Duration, BenchError>(begin.elapsed().saturating_sub(scheduled))
            }));
            due += TICK;
        }
        while let Some(latency) = under_way.next().await {
            latencies.push(latency.map_err(BenchError::engine)?);
        }
        let latencies: Vec<Duration> = latencies.into_iter().collect::<Result<_, _>>()?;
        bed.stop().await;
        let worst = latencies.iter().copied().max().unwrap_or_default();
        eprintln!("{name} at {rate}/s: worst {worst:?}");
        let millis = latencies
            .iter()
            .map(|latency| latency.as_secs_f64() * 1e3)
            .collect();
        experiment.add(format!("{rate} events/s"), "ms", millis, None);
        if worst > SATURATED {
            break;
        }
    }
    Ok(experiment)
}

fn batch(fields: Vec<Field>, columns: Vec<ArrayRef>) -> Result<RecordBatch, BenchError> {
    let schema: SchemaRef = Arc::new(Schema::new(fields));
    RecordBatch::try_new(schema, columns).map_err(BenchError::engine)
}

fn time(name: &str) -> Field {
    Field::new(
        name,
        DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        false,
    )
}

fn now(rows: u64) -> ArrayRef {
    let times = TimestampMicrosecondArray::from(vec![now_micros(); rows as usize]);
    Arc::new(times.with_timezone("UTC"))
}

/// Steps of transactions, each of which passes four, one after the other.
fn steps(first: u64, rows: u64) -> Result<RecordBatch, BenchError> {
    let events = first..first + rows;
    batch(
        vec![
            Field::new("tx", DataType::Int64, false),
            Field::new("step", DataType::Int32, false),
            time("ts"),
        ],
        vec![
            Arc::new(Int64Array::from_iter_values(
                events.clone().map(|event| (event / 4) as i64),
            )),
            Arc::new(Int32Array::from_iter_values(
                events.map(|event| (event % 4 + 1) as i32),
            )),
            now(rows),
        ],
    )
}

/// Calls between users, some of whom call a lot.
struct Calls {
    zipf: Zipf,
    random: Random,
}

impl Calls {
    fn new() -> Self {
        Calls {
            zipf: Zipf::new(USERS, 0.8),
            random: Random::at(2011, 0, 0),
        }
    }

    fn rows(&mut self, rows: u64) -> Result<RecordBatch, BenchError> {
        let mut users = || -> ArrayRef {
            let names = (0..rows).map(|_| format!("user {}", self.zipf.rank(&mut self.random)));
            Arc::new(StringArray::from_iter_values(names))
        };
        let (callers, callees) = (users(), users());
        batch(
            vec![
                Field::new("caller", DataType::Utf8, false),
                Field::new("callee", DataType::Utf8, false),
                time("ts"),
            ],
            vec![callers, callees, now(rows)],
        )
    }
}
