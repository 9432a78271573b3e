//! A view that has to be fresh beside batch work that would take every core (Neptune, figures 9 to 12).
//!
//! ```text
//!   events at a rate --> stream --> view        latency: from an event's creation until the view can be read with it
//!   two clients ------> TPC-H over Parquet files, query after query, in the batch class
//! ```
//! Servers run in this process, which makes the events too: both share the cores with what is measured.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use millrace_runtime::{Patience, SchedulerPolicy};
use millrace_sql_tests::tpch::{TableFile, queries, write_parquet};
use parking_lot::Mutex;

use super::Scale;
use crate::client::Client;
use crate::drizzle::typed::paced;
use crate::drizzle::ysb::{Bed, Form, TypedEvents};
use crate::error::BenchError;
use crate::plot::{Chart, Line};
use crate::process;
use crate::results::{Aim, Experiment, Run};
use crate::statistics::Sample;

/// The experiments' names.
pub const POLICIES: &str = "a view beside batch work (figures 9, 10)";
pub const DEMAND: &str = "demand of streams (figures 11, 12)";

/// Clients that send queries at once.
const CLIENTS: usize = 2;
/// Quantiles that are drawn.
const QUANTILES: [f64; 7] = [0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 0.999];
/// Time between two looks at the memory in use.
const MEMORY_TICK: Duration = Duration::from_millis(50);

/// Queries, and the files that they read.
struct BatchWork {
    files: Vec<TableFile>,
    queries: Arc<Vec<String>>,
}

/// What came of a stream and batch work side by side.
struct Outcome {
    latencies_ms: Vec<f64>,
    /// Which query ended, and the seconds that it took.
    done: Vec<(usize, f64)>,
    seconds: f64,
    memory_peak: u64,
}

impl Outcome {
    /// Seconds of work done in a second, with what each query takes when there is nothing but batch work.
    fn work(&self, seconds_alone: &[f64]) -> f64 {
        let work: f64 = self.done.iter().map(|(query, _)| seconds_alone[*query]).sum();
        work / self.seconds
    }
}

/// All experiments.
///
/// # Errors
/// A server fails, or a view is wrong.
pub async fn run(run: &mut Run, scale: &Scale) -> Result<(), BenchError> {
    let directory = tempfile::tempdir().map_err(BenchError::io("cannot make a directory for TPC-H"))?;
    eprintln!("writing TPC-H as Parquet ...");
    let broken = |error: millrace_sql_tests::Failure| BenchError::Server(error.to_string());
    let work = BatchWork {
        files: write_parquet(directory.path(), scale.factor).map_err(broken)?,
        queries: Arc::new(
            queries(scale.factor)
                .map_err(broken)?
                .into_iter()
                .take(scale.queries)
                .map(|query| query.sql)
                .collect(),
        ),
    };
    let events = TypedEvents::new(scale.batch_events);
    let alone = alone(&work, &events, scale).await?;
    let seconds_alone = seconds_alone(&alone, work.queries.len());
    policies(run, &work, &events, &seconds_alone, scale).await?;
    demand(run, &work, &events, &seconds_alone, scale).await
}

/// Batch work and no events.
async fn alone(work: &BatchWork, events: &TypedEvents, scale: &Scale) -> Result<Outcome, BenchError> {
    let bed = bed(SchedulerPolicy::Lma, Some(work), None).await?;
    // The first round reads the files for the first time.
    together(&bed, events, 0.0, Some(&bed), work, scale.beside / 4).await?;
    let outcome = together(&bed, events, 0.0, Some(&bed), work, scale.beside).await?;
    bed.stop().await;
    Ok(outcome)
}

/// The mean time of each query.
fn seconds_alone(alone: &Outcome, queries: usize) -> Vec<f64> {
    let mean = |query| {
        let times: Vec<f64> = (alone.done.iter())
            .filter(|(done, _)| *done == query)
            .map(|(_, seconds)| *seconds / CLIENTS as f64)
            .collect();
        times.iter().sum::<f64>() / times.len().max(1) as f64
    };
    (0..queries).map(mean).collect()
}

async fn policies(
    run: &mut Run,
    work: &BatchWork,
    events: &TypedEvents,
    seconds_alone: &[f64],
    scale: &Scale,
) -> Result<(), BenchError> {
    let mut experiment = Experiment::new(
        POLICIES,
        format!(
            "The view of the Yahoo streaming benchmark under {} events a second, beside {CLIENTS} clients that send TPC-H \
             (scale factor {}, Parquet) in the batch class, {} s under each policy. *Isolated*: the stream alone. *Two \
             servers*: one for the stream, one for the queries, half the cores each. Work: seconds that the queries which \
             ended take when there is nothing else, for each second.",
            scale.rate,
            scale.factor,
            scale.beside.as_secs_f64(),
        ),
    );
    let mut lines = vec![];
    let isolated = {
        let bed = bed(SchedulerPolicy::Lma, None, None).await?;
        let outcome = together(&bed, events, scale.rate, None, work, scale.beside).await?;
        bed.stop().await;
        outcome
    };
    let of = |latencies: &[f64], quantile| {
        Sample::new(latencies.to_vec()).map_or(f64::NAN, |sample| sample.quantile(quantile))
    };
    let (median, p99) = (of(&isolated.latencies_ms, 0.5), of(&isolated.latencies_ms, 0.99));
    let mut report = |name: &str, outcome: &Outcome, has_aims: bool, work: Option<f64>| {
        let aim = |aim| has_aims.then_some(aim);
        let latencies = &outcome.latencies_ms;
        experiment.add(format!("{name}: latency"), "ms", latencies.clone(), None);
        for (share, text) in [(0.25, "p25"), (0.75, "p75")] {
            experiment.add(
                format!("{name}: latency, {text}"),
                "ms",
                vec![of(latencies, share)],
                None,
            );
        }
        experiment.add(
            format!("{name}: median against isolated"),
            "x",
            vec![of(latencies, 0.5) / median],
            aim(Aim::MedianUnder(1.03)),
        );
        experiment.add(
            format!("{name}: p99 against isolated"),
            "x",
            vec![of(latencies, 0.99) / p99],
            aim(Aim::MedianUnder(1.10)),
        );
        if let Some(work) = work {
            experiment.add(format!("{name}: batch work"), "s/s", vec![work], None);
        }
        lines.push(Line {
            name: name.to_owned(),
            points: QUANTILES
                .iter()
                .map(|quantile| (1.0 / (1.0 - quantile), of(latencies, *quantile)))
                .collect(),
        });
    };
    report("isolated", &isolated, false, None);
    let mut works = vec![];
    for policy in SchedulerPolicy::ALL {
        let bed = bed(policy, Some(work), None).await?;
        let outcome = together(&bed, events, scale.rate, Some(&bed), work, scale.beside).await?;
        bed.stop().await;
        let done = outcome.work(seconds_alone);
        works.push((policy, done));
        let name = policy.to_string();
        eprintln!(
            "{name}: p99 {:.2} ms, work {done:.3}",
            of(&outcome.latencies_ms, 0.99)
        );
        report(&name, &outcome, policy == SchedulerPolicy::Lma, Some(done));
    }
    {
        let half = Some(scale.cores.div_ceil(2));
        let streams = bed(SchedulerPolicy::Lma, None, half).await?;
        let batch = bed(SchedulerPolicy::Lma, Some(work), half).await?;
        let outcome = together(&streams, events, scale.rate, Some(&batch), work, scale.beside).await?;
        streams.stop().await;
        batch.stop().await;
        report("two servers", &outcome, false, Some(outcome.work(seconds_alone)));
    }
    let done_under = |wanted| {
        works
            .iter()
            .find(|(policy, _)| *policy == wanted)
            .map(|(_, done)| *done)
    };
    if let (Some(lma), Some(fifo)) = (
        done_under(SchedulerPolicy::Lma),
        done_under(SchedulerPolicy::Fifo),
    ) {
        experiment.add(
            "lma: batch work against fifo",
            "x",
            vec![lma / fifo],
            Some(Aim::MedianOver(0.97)),
        );
    }
    for (name, value) in [
        ("p99 against isolated", 1.12),
        ("batch work against fifo, worst", 0.95),
    ] {
        experiment.add(format!("paper: lma: {name}"), "x", vec![value], None);
    }
    run.add(experiment);
    run.draw(Chart {
        name: "beside",
        title: "Latency of a view beside batch work, by policy (figures 9, 10)".to_owned(),
        x: "one event of so many is later",
        y: "ms",
        lines,
    });
    Ok(())
}

async fn demand(
    run: &mut Run,
    work: &BatchWork,
    events: &TypedEvents,
    seconds_alone: &[f64],
    scale: &Scale,
) -> Result<(), BenchError> {
    let mut experiment = Experiment::new(
        DEMAND,
        format!(
            "The same at a growing rate of events, {} s each, under `lma` and without pausing (`fifo`). Demand: the share of \
             the cores that the stream's tasks take. Memory: the most that the process had resident.",
            scale.beside.as_secs_f64() / 2.0,
        ),
    );
    let mut lines = vec![];
    for policy in [SchedulerPolicy::Lma, SchedulerPolicy::Fifo] {
        let (mut p99s, mut works) = (vec![], vec![]);
        for rate in &scale.rates {
            let bed = bed(policy, Some(work), None).await?;
            let before = bed.runtime.cpu_times();
            let outcome = together(&bed, events, *rate, Some(&bed), work, scale.beside / 2).await?;
            let busy = bed.runtime.cpu_times().poll[0].since(&before.poll[0]).sum;
            bed.stop().await;
            let demand = 100.0 * busy.as_secs_f64() / outcome.seconds / scale.cores as f64;
            let done = outcome.work(seconds_alone);
            let name = format!("{policy}, {rate} events/s");
            experiment.add(format!("{name}: demand"), "%", vec![demand], None);
            experiment.add(format!("{name}: batch work"), "s/s", vec![done], None);
            experiment.add(
                format!("{name}: memory"),
                "MB",
                vec![outcome.memory_peak as f64 / 1e6],
                None,
            );
            if let Some(sample) = Sample::new(outcome.latencies_ms.clone()) {
                p99s.push((*rate, sample.quantile(0.99)));
                experiment.add(format!("{name}: latency"), "ms", outcome.latencies_ms, None);
            }
            works.push((rate.max(1.0), done.max(1e-3)));
        }
        for (what, points) in [("p99, ms", p99s), ("batch work, s/s", works)] {
            lines.push(Line {
                name: format!("{policy}: {what}"),
                points,
            });
        }
    }
    run.add(experiment);
    run.draw(Chart {
        name: "demand",
        title: "Latency and batch work by the demand of the stream (figures 11, 12)".to_owned(),
        x: "events a second",
        y: "ms; seconds a second",
        lines,
    });
    Ok(())
}

/// A server with the stream and its view, and the tables of the batch work if there is some.
async fn bed(
    policy: SchedulerPolicy,
    work: Option<&BatchWork>,
    cores: Option<usize>,
) -> Result<Bed, BenchError> {
    let bed = Bed::on_cores(Form::Typed, 1, cores).await?;
    bed.runtime.set_policy(policy, Patience::default());
    for file in work.map_or(&[][..], |work| &work.files) {
        bed.client.run(&file.create()).await?;
    }
    Ok(bed)
}

/// Events at a rate (none at 0) for a while, and queries on a server if one is given.
async fn together(
    streams: &Bed,
    events: &TypedEvents,
    rate: f64,
    batch: Option<&Bed>,
    work: &BatchWork,
    length: Duration,
) -> Result<Outcome, BenchError> {
    let is_over = Arc::new(AtomicBool::new(false));
    let done: Arc<Mutex<Vec<(usize, f64)>>> = Arc::default();
    let mut clients = vec![];
    if let Some(batch) = batch {
        for client in 0..CLIENTS {
            let address = batch.server.pg_addr();
            let queries = Arc::clone(&work.queries);
            let (is_over, done) = (Arc::clone(&is_over), Arc::clone(&done));
            let first = client * queries.len() / CLIENTS;
            clients.push(tokio::spawn(send_queries(address, queries, first, is_over, done)));
        }
    }
    let watcher = tokio::spawn(watch_memory(Arc::clone(&is_over)));
    let start = Instant::now();
    let seen = if rate > 0.0 {
        let before = streams.counted().await?;
        let (seen, counted) = paced(streams, events, rate, length).await?;
        streams.check(before + counted).await?;
        seen
    } else {
        tokio::time::sleep(length).await;
        vec![]
    };
    let seconds = start.elapsed().as_secs_f64();
    let done_now = done.lock().clone();
    is_over.store(true, Ordering::Relaxed);
    for client in clients {
        // What is under way does not count; under some policies it might never end.
        client.abort();
        if let Ok(outcome) = client.await {
            outcome?;
        }
    }
    Ok(Outcome {
        latencies_ms: seen.iter().map(|seen| seen.latency_ms).collect(),
        done: done_now,
        seconds,
        memory_peak: watcher.await.map_err(BenchError::engine)??,
    })
}

/// Sends queries in turn, from the given one on.
async fn send_queries(
    address: SocketAddr,
    queries: Arc<Vec<String>>,
    first: usize,
    is_over: Arc<AtomicBool>,
    done: Arc<Mutex<Vec<(usize, f64)>>>,
) -> Result<(), BenchError> {
    let client = Client::connect(address).await?;
    client.run("SET query_priority = 'batch'").await?;
    for query in (0..queries.len()).cycle().skip(first) {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let begin = Instant::now();
        client.rows(&queries[query]).await?;
        done.lock().push((query, begin.elapsed().as_secs_f64()));
    }
    Ok(())
}

/// The most memory that this process has had while it is watched.
async fn watch_memory(is_over: Arc<AtomicBool>) -> Result<u64, BenchError> {
    let mut peak = 0;
    let mut tick = tokio::time::interval(MEMORY_TICK);
    while !is_over.load(Ordering::Relaxed) {
        tick.tick().await;
        peak = peak.max(process::memory(std::process::id())?.resident);
    }
    Ok(peak)
}
