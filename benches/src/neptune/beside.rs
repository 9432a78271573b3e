//! A view that has to be fresh beside batch work that would take every core (Neptune, figures 9 to 13).
//!
//! ```text
//!   events at a rate --> stream --> view        latency: from an event's creation until the view can be read with it
//!   clients ----------> batch work, statement after statement, in the batch class
//! ```
//! Batch work is TPC-H over Parquet files, the training of the model by which a second view scores the events, or joins that
//! fill memory.
//!
//! Servers run in this process, which makes the events too: both share the cores with what is measured.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
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
pub const INFERENCE: &str = "scoring beside training (figure 10)";
pub const DEMAND: &str = "demand of streams (figures 11, 12)";
pub const PRESSURE: &str = "memory under pressure (figure 13)";

/// Clients that send statements at once.
const CLIENTS: usize = 2;
/// Joins at a time, of which each fills about a tenth of the memory.
const JOINS: [usize; 3] = [2, 4, 8];
/// What a server has without rows.
const SERVER_BYTES: u64 = 64 << 20;
/// With less a server does not get far, however few the rows.
const MEMORY_MIN: u64 = 256 << 20;
/// What the tables of the joins take, for each row that a join keeps.
const TABLE_BYTES: u64 = 3 * 2 * 16;
/// Quantiles that are drawn.
const QUANTILES: [f64; 7] = [0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 0.999];
/// Time between two looks at the memory in use.
const MEMORY_TICK: Duration = Duration::from_millis(50);

/// What clients do beside a stream.
struct BatchWork {
    /// What is made where the stream is, and what is made where the work is done.
    streams: Vec<String>,
    tables: Vec<String>,
    statements: Arc<Vec<String>>,
    clients: usize,
    /// What the server may have more than this process had before it, in bytes.
    memory: Option<u64>,
}

/// What came of a stream and batch work side by side.
struct Outcome {
    latencies_ms: Vec<f64>,
    /// Which statement ended, and the seconds that it took.
    done: Vec<(usize, f64)>,
    /// Those that there was no memory for.
    refused: u64,
    seconds: f64,
    memory_peak: u64,
}

impl Outcome {
    /// Seconds of work done in a second, with what each statement takes when there is nothing but batch work.
    fn work(&self, seconds_alone: &[f64]) -> f64 {
        let work: f64 = self.done.iter().map(|(query, _)| seconds_alone[*query]).sum();
        work / self.seconds
    }
}

/// All experiments; `is_wanted` says which.
///
/// # Errors
/// A server fails, or a view is wrong.
pub async fn run(run: &mut Run, scale: &Scale, is_wanted: impl Fn(&str) -> bool) -> Result<(), BenchError> {
    let events = TypedEvents::new(scale.batch_events);
    if is_wanted(POLICIES) || is_wanted(DEMAND) {
        let directory = tempfile::tempdir().map_err(BenchError::io("cannot make a directory for TPC-H"))?;
        let work = tpch(directory.path(), scale)?;
        let seconds_alone = alone(&work, &events, scale).await?;
        if is_wanted(POLICIES) {
            let what = format!(
                "The view of the Yahoo streaming benchmark beside {CLIENTS} clients that send TPC-H (scale factor {}, Parquet)",
                scale.factor,
            );
            policies(
                run,
                (POLICIES, "beside"),
                &what,
                &work,
                &events,
                &seconds_alone,
                scale,
            )
            .await?;
        }
        if is_wanted(DEMAND) {
            demand(run, &work, &events, &seconds_alone, scale).await?;
        }
    }
    if is_wanted(INFERENCE) {
        let work = training(scale);
        let seconds_alone = alone(&work, &events, scale).await?;
        let what = format!(
            "A view that scores events by logistic regression, beside the client that trains the model, over {} rows",
            scale.training_rows,
        );
        policies(
            run,
            (INFERENCE, "inference"),
            &what,
            &work,
            &events,
            &seconds_alone,
            scale,
        )
        .await?;
    }
    if is_wanted(PRESSURE) {
        pressure(run, &events, scale).await?;
    }
    Ok(())
}

fn tpch(directory: &Path, scale: &Scale) -> Result<BatchWork, BenchError> {
    eprintln!("writing TPC-H as Parquet ...");
    let broken = |error: millrace_sql_tests::Failure| BenchError::Server(error.to_string());
    let files = write_parquet(directory, scale.factor).map_err(broken)?;
    let queries = queries(scale.factor).map_err(broken)?;
    let statements = queries.into_iter().take(scale.queries).map(|query| query.sql);
    Ok(BatchWork {
        streams: vec![],
        tables: files.iter().map(TableFile::create).collect(),
        statements: Arc::new(statements.collect()),
        clients: CLIENTS,
        memory: None,
    })
}

/// As `docs/examples/inference.sql` does it; a statement goes ten steps down the gradient.
fn training(scale: &Scale) -> BatchWork {
    let rows = scale.training_rows;
    BatchWork {
        streams: vec![
            "CREATE TABLE model (id INT PRIMARY KEY, w0 DOUBLE PRECISION, w1 DOUBLE PRECISION, w2 DOUBLE PRECISION)".to_owned(),
            "INSERT INTO model VALUES (0, 0, 0, 0)".to_owned(),
            "CREATE MATERIALIZED VIEW scored AS SELECT e.ad_id, count(*) AS events, avg(1 / (1 + exp(-(m.w0 + \
             m.w1 * e.user_id / 1e5 + m.w2 * e.page_id / 1e5)))) AS probability \
             FROM events e JOIN model FOR SYSTEM_TIME AS OF PROCTIME() AS m ON m.id = 0 GROUP BY e.ad_id"
                .to_owned(),
        ],
        tables: vec![
            "CREATE TABLE training (id BIGINT PRIMARY KEY, x1 DOUBLE PRECISION, x2 DOUBLE PRECISION, y DOUBLE PRECISION)"
                .to_owned(),
            format!(
                "INSERT INTO training SELECT n, x1, x2, CASE WHEN 0.5 + 2 * x1 - x2 > 0 THEN 1 ELSE 0 END FROM (SELECT n, \
                 2 * sin(n * 1.3) AS x1, 2 * cos(n * 2.7) AS x2 FROM generate_series(1, {rows}) AS g(n)) AS numbers"
            ),
        ],
        statements: Arc::new(vec![
            "INSERT INTO model WITH RECURSIVE descent(n, w0, w1, w2) AS (SELECT 0, w0, w1, w2 FROM model WHERE id = 0 UNION ALL \
             SELECT n + 1, max(w0) + avg(y - p), max(w1) + avg((y - p) * x1), max(w2) + avg((y - p) * x2) FROM (SELECT d.*, \
             t.x1, t.x2, t.y, 1 / (1 + exp(-(d.w0 + d.w1 * t.x1 + d.w2 * t.x2))) AS p FROM descent AS d CROSS JOIN training \
             AS t) AS predicted WHERE n < 10 GROUP BY n) SELECT 0, w0, w1, w2 FROM descent ORDER BY n DESC LIMIT 1 \
             ON CONFLICT (id) DO UPDATE SET w0 = excluded.w0, w1 = excluded.w1, w2 = excluded.w2"
                .to_owned(),
        ]),
        clients: 1,
        memory: None,
    }
}

/// So many joins at a time, each of which holds about a tenth of the memory that there is for queries.
fn joins(clients: usize, scale: &Scale) -> BatchWork {
    let rows = scale.join_rows;
    // A row of the side that is kept: two numbers, a hash and its place in the table.
    let memory = (rows as u64 * (32 * 10 + TABLE_BYTES)).max(MEMORY_MIN);
    BatchWork {
        streams: vec![],
        tables: vec![
            "CREATE TABLE kept (k BIGINT, v BIGINT)".to_owned(),
            format!("INSERT INTO kept SELECT n, n * 7 FROM generate_series(1, {rows}) AS g(n)"),
            "CREATE TABLE probed (k BIGINT, v BIGINT)".to_owned(),
            format!(
                "INSERT INTO probed SELECT n % {rows}, n FROM generate_series(1, {}) AS g(n)",
                2 * rows
            ),
        ],
        statements: Arc::new(vec![
            "SELECT count(*), sum(a.v + b.v) FROM kept AS a JOIN probed AS b ON a.k = b.k".to_owned(),
        ]),
        clients,
        memory: Some(memory),
    }
}

/// The mean time of each statement when there are no events.
async fn alone(work: &BatchWork, events: &TypedEvents, scale: &Scale) -> Result<Vec<f64>, BenchError> {
    let bed = bed(SchedulerPolicy::Lma, work, true, None).await?;
    // The first round reads the files for the first time.
    together(&bed, events, 0.0, Some(&bed), work, scale.beside / 4).await?;
    let outcome = together(&bed, events, 0.0, Some(&bed), work, scale.beside).await?;
    bed.stop().await;
    let mean = |statement| {
        let times: Vec<f64> = (outcome.done.iter())
            .filter(|(done, _)| *done == statement)
            .map(|(_, seconds)| *seconds / work.clients as f64)
            .collect();
        times.iter().sum::<f64>() / times.len().max(1) as f64
    };
    Ok((0..work.statements.len()).map(mean).collect())
}

async fn policies(
    run: &mut Run,
    (name, chart): (&'static str, &'static str),
    what: &str,
    work: &BatchWork,
    events: &TypedEvents,
    seconds_alone: &[f64],
    scale: &Scale,
) -> Result<(), BenchError> {
    let mut experiment = Experiment::new(
        name,
        format!(
            "{what} in the batch class, under {} events a second, {} s under each policy. *Isolated*: the stream alone. *Two \
             servers*: one for the stream, one for the batch work, half the cores each. Work: seconds that the statements which \
             ended take when there is nothing else, for each second.",
            scale.rate,
            scale.beside.as_secs_f64(),
        ),
    );
    let mut lines = vec![];
    let isolated = {
        let bed = bed(SchedulerPolicy::Lma, work, false, None).await?;
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
        let bed = bed(policy, work, true, None).await?;
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
        let streams = bed(SchedulerPolicy::Lma, work, false, half).await?;
        let batch = bed(SchedulerPolicy::Lma, work, true, half).await?;
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
        name: chart,
        title: format!("Latency: {name}"),
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
            let bed = bed(policy, work, true, None).await?;
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

/// How the latency of a view grows with the memory that batch work fills.
async fn pressure(run: &mut Run, events: &TypedEvents, scale: &Scale) -> Result<(), BenchError> {
    let mut experiment = Experiment::new(
        PRESSURE,
        format!(
            "The view of the Yahoo streaming benchmark under {} events a second, beside {JOINS:?} joins at a time, each of which \
             keeps {} rows and so holds about a tenth of the memory that there is for queries; {} s under each policy.",
            scale.rate,
            scale.join_rows,
            scale.beside.as_secs_f64() / 2.0,
        ),
    );
    let mut lines = vec![];
    for policy in SchedulerPolicy::ALL {
        let mut p99s = vec![];
        for clients in JOINS {
            let work = joins(clients, scale);
            let bed = bed(policy, &work, true, None).await?;
            let outcome = together(&bed, events, scale.rate, Some(&bed), &work, scale.beside / 2).await?;
            bed.stop().await;
            let name = format!("{policy}, {clients} joins");
            if let Some(sample) = Sample::new(outcome.latencies_ms.clone()) {
                p99s.push((clients as f64, sample.quantile(0.99)));
            }
            experiment.add(format!("{name}: latency"), "ms", outcome.latencies_ms, None);
            let rate = outcome.done.len() as f64 / outcome.seconds;
            experiment.add(format!("{name}: joins"), "1/s", vec![rate], None);
            let refused = outcome.refused as f64;
            experiment.add(format!("{name}: joins refused"), "", vec![refused], None);
        }
        lines.push(Line {
            name: policy.to_string(),
            points: p99s,
        });
    }
    run.add(experiment);
    run.draw(Chart {
        name: "pressure",
        title: "Latency of a view by joins that fill memory (figure 13)".to_owned(),
        x: "joins",
        y: "ms, p99",
        lines,
    });
    Ok(())
}

/// A server with the stream and its view, and with what the work needs if it is done there.
async fn bed(
    policy: SchedulerPolicy,
    work: &BatchWork,
    has_work: bool,
    cores: Option<usize>,
) -> Result<Bed, BenchError> {
    let before = process::memory(std::process::id())?.resident;
    let bed = Bed::with(Form::Typed, |config| {
        config.cores = cores;
        // Queries give way from four fifths of the limit on.
        config.tuning.memory_limit = work.memory.map(|memory| (before + SERVER_BYTES + memory) / 4 * 5);
    })
    .await?;
    bed.runtime.set_policy(policy, Patience::default());
    let tables = has_work.then_some(&work.tables).into_iter().flatten();
    for statement in work.streams.iter().chain(tables) {
        bed.client.run(statement).await?;
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
    let refused = Arc::new(AtomicU64::new(0));
    let mut clients = vec![];
    if let Some(batch) = batch {
        for client in 0..work.clients {
            let sender = Sender {
                address: batch.server.pg_addr(),
                statements: Arc::clone(&work.statements),
                first: client * work.statements.len() / work.clients,
                is_over: Arc::clone(&is_over),
                done: Arc::clone(&done),
                refused: Arc::clone(&refused),
            };
            clients.push(tokio::spawn(sender.send()));
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
        refused: refused.load(Ordering::Relaxed),
        seconds,
        memory_peak: watcher.await.map_err(BenchError::engine)??,
    })
}

/// A client that sends statements in turn.
struct Sender {
    address: SocketAddr,
    statements: Arc<Vec<String>>,
    first: usize,
    is_over: Arc<AtomicBool>,
    done: Arc<Mutex<Vec<(usize, f64)>>>,
    refused: Arc<AtomicU64>,
}

impl Sender {
    async fn send(self) -> Result<(), BenchError> {
        let client = Client::connect(self.address).await?;
        client.run("SET query_priority = 'batch'").await?;
        for statement in (0..self.statements.len()).cycle().skip(self.first) {
            if self.is_over.load(Ordering::Relaxed) {
                break;
            }
            let begin = Instant::now();
            match client.rows(&self.statements[statement]).await {
                Ok(_) => self.done.lock().push((statement, begin.elapsed().as_secs_f64())),
                Err(error) if error.is_out_of_memory() => _ = self.refused.fetch_add(1, Ordering::Relaxed),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
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
