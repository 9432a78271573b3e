//! Streams first: what a stream task waits for while batch queries take every core, and what these lose by it (Neptune,
//! section 5).
//!
//! The 22 queries of TPC-H run one after the other, as batch work, in the runtime without a server around it. Meanwhile
//! stream-class tasks arrive at a fixed pace, each with a little to do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use millrace_runtime::{CpuTimes, Durations, QueryClass, SchedulerPolicy};
use millrace_sql_tests::Failure;
use millrace_sql_tests::batch::Batch;
use millrace_sql_tests::engine::Engine;
use millrace_sql_tests::rows::difference;
use millrace_sql_tests::tpch::{Query, Tpch, queries};

use crate::error::BenchError;
use crate::results::{Aim, Experiment, Run};

/// How much of everything a run does.
#[derive(Debug, Clone, PartialEq)]
pub struct Scale {
    /// TPC-H's scale factor.
    pub factor: f64,
    /// CPU slots, and partitions of plain DataFusion's plans.
    pub cores: usize,
    /// How often each query is measured alone.
    pub repetitions: usize,
    /// The queries that run, from the first on.
    pub queries: usize,
    /// The time between two stream tasks, and what each has to do.
    pub every: Duration,
    pub work: Duration,
    /// Probes of the disk.
    pub fsync_probes: usize,
}

impl Scale {
    /// A scale factor on all cores; a stream task each millisecond takes a twentieth of one.
    pub fn real(factor: f64) -> Self {
        Scale {
            factor,
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            repetitions: 3,
            queries: 22,
            every: Duration::from_millis(1),
            work: Duration::from_micros(50),
            fsync_probes: 100,
        }
    }

    /// Enough to see that the experiment works.
    pub fn small() -> Self {
        Scale {
            factor: 0.02,
            cores: 2,
            repetitions: 1,
            queries: 6,
            every: Duration::from_millis(2),
            work: Duration::from_micros(50),
            fsync_probes: 5,
        }
    }
}

/// Loads, answers alone, then answers under each policy with stream tasks beside.
///
/// # Errors
/// A query fails, or differs from the plain answer.
pub async fn run(run: Run, scale: &Scale) -> Result<Run, BenchError> {
    measure(run, scale)
        .await
        .map_err(|error| match error.downcast::<BenchError>() {
            Ok(error) => *error,
            Err(error) => BenchError::Server(error.to_string()),
        })
}

async fn measure(mut run: Run, scale: &Scale) -> Result<Run, Failure> {
    let directory = tempfile::tempdir()?;
    let engine = Engine::start(directory.path(), scale.cores)?;
    let mut batch = Batch::new(engine.state(), scale.cores);
    eprintln!("loading scale factor {} ...", scale.factor);
    let tpch = Tpch::load(&engine, &mut batch, scale.factor).await?;
    let queries: Vec<Query> = queries(scale.factor)?.into_iter().take(scale.queries).collect();
    run.add(alone(&engine, &batch, &tpch, &queries, scale).await?);
    let mut summary = Experiment::new(
        "policies",
        format!(
            "The same queries, once each, while a stream task of {:?} arrives every {:?}. Its wait is from being ready to \
             running; the pause is from its arrival until a batch task gave way.",
            scale.work, scale.every
        ),
    );
    for policy in SchedulerPolicy::ALL {
        let (_, patience) = engine.runtime().policy();
        engine.runtime().set_policy(policy, patience);
        let mut each = Experiment::new(
            policy_name(policy),
            format!("Each query under {policy}, with the waits of the stream tasks that came meanwhile."),
        );
        let before = engine.runtime().cpu_times();
        let mut times = vec![];
        for query in &queries {
            let before = engine.runtime().cpu_times();
            let time = disturbed(&engine, &tpch, query, scale).await?;
            let after = engine.runtime().cpu_times();
            times.push(time);
            each.add(format!("{} time", query.name), "ms", vec![time], None);
            let waits = of_class(&after, &before, QueryClass::Stream, |times| &times.wait);
            let polls = of_class(&after, &before, QueryClass::Batch, |times| &times.poll);
            each.add(
                format!("{} stream wait p99", query.name),
                "us",
                vec![micros(waits.percentile(0.99))],
                None,
            );
            each.add(
                format!("{} batch poll p99", query.name),
                "us",
                vec![micros(polls.percentile(0.99))],
                None,
            );
        }
        let after = engine.runtime().cpu_times();
        let waits = of_class(&after, &before, QueryClass::Stream, |times| &times.wait);
        let pauses = after.pause.since(&before.pause);
        let aim = (policy == SchedulerPolicy::Lma).then_some(Aim::MedianUnder(1_000.0));
        summary.add(
            format!("{policy}: stream wait p50"),
            "us",
            vec![micros(waits.percentile(0.5))],
            None,
        );
        summary.add(
            format!("{policy}: stream wait p99"),
            "us",
            vec![micros(waits.percentile(0.99))],
            aim,
        );
        summary.add(
            format!("{policy}: pause p99"),
            "us",
            vec![micros(pauses.percentile(0.99))],
            None,
        );
        summary.add(
            format!("{policy}: stream tasks"),
            "",
            vec![waits.count() as f64],
            None,
        );
        summary.add(
            format!("{policy}: all queries"),
            "ms",
            vec![times.iter().sum()],
            None,
        );
        eprintln!(
            "{policy}: {:.0} ms, stream wait p99 {:?}",
            times.iter().sum::<f64>(),
            waits.percentile(0.99)
        );
        run.add(each);
    }
    run.add(summary);
    engine.shutdown().await;
    Ok(run)
}

fn policy_name(policy: SchedulerPolicy) -> &'static str {
    match policy {
        SchedulerPolicy::Lma => "under lma",
        SchedulerPolicy::Lb => "under lb",
        SchedulerPolicy::Fifo => "under fifo",
        SchedulerPolicy::Fair => "under fair",
        SchedulerPolicy::Kill => "under kill",
    }
}

fn of_class(
    after: &CpuTimes,
    before: &CpuTimes,
    class: QueryClass,
    which: fn(&CpuTimes) -> &[Durations; 3],
) -> Durations {
    which(after)[class as usize].since(&which(before)[class as usize])
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// Each query alone, against plain DataFusion over the same rows on as many cores, and how long its polls are.
async fn alone(
    engine: &Engine,
    batch: &Batch,
    tpch: &Tpch,
    queries: &[Query],
    scale: &Scale,
) -> Result<Experiment, Failure> {
    let mut experiment = Experiment::new(
        "alone",
        "Each query alone as batch work, planning included, against plain DataFusion over the same rows on as many cores; \
         and the polls of its tasks, which bound how long anything more urgent waits.",
    );
    let (mut plain_total, mut ours_total) = (0.0, 0.0);
    for query in queries {
        let (mut plain, mut ours) = (vec![], vec![]);
        let expected = batch.answer(&query.query).await?;
        let found = engine
            .query(&tpch.relations, &query.query, QueryClass::Batch)
            .await?;
        if let Some(difference) = difference(&found, &expected)? {
            return Err(BenchError::Wrong(format!("{}: {difference}", query.name)).into());
        }
        let before = engine.runtime().cpu_times();
        for _ in 0..scale.repetitions {
            let begin = Instant::now();
            batch.answer(&query.query).await?;
            plain.push(begin.elapsed().as_secs_f64() * 1e3);
            let begin = Instant::now();
            engine
                .query(&tpch.relations, &query.query, QueryClass::Batch)
                .await?;
            ours.push(begin.elapsed().as_secs_f64() * 1e3);
        }
        let polls = of_class(
            &engine.runtime().cpu_times(),
            &before,
            QueryClass::Batch,
            |times| &times.poll,
        );
        let least = |times: &[f64]| times.iter().copied().fold(f64::INFINITY, f64::min);
        plain_total += least(&plain);
        ours_total += least(&ours);
        experiment.add(format!("{} plain", query.name), "ms", plain, None);
        experiment.add(format!("{} in stages", query.name), "ms", ours, None);
        experiment.add(
            format!("{} poll p99", query.name),
            "us",
            vec![micros(polls.percentile(0.99))],
            None,
        );
        experiment.add(
            format!("{} poll p99.9", query.name),
            "us",
            vec![micros(polls.percentile(0.999))],
            None,
        );
    }
    experiment.add(
        "all, in stages / plain (best of each)",
        "times",
        vec![ours_total / plain_total],
        None,
    );
    Ok(experiment)
}

/// One query while stream tasks come and go; its time in milliseconds.
async fn disturbed(engine: &Engine, tpch: &Tpch, query: &Query, scale: &Scale) -> Result<f64, Failure> {
    let is_over = Arc::new(AtomicBool::new(false));
    let pace = {
        let (runtime, over, scale) = (engine.runtime().clone(), Arc::clone(&is_over), scale.clone());
        tokio::spawn(async move {
            let mut interval = tokio::time::interval(scale.every);
            while !over.load(Ordering::Relaxed) {
                interval.tick().await;
                let work = scale.work;
                let task = runtime.compute(QueryClass::Stream, move || {
                    let begin = Instant::now();
                    while begin.elapsed() < work {
                        std::hint::spin_loop();
                    }
                });
                match task {
                    Ok(task) => task.detach(),
                    Err(_) => return,
                }
            }
        })
    };
    let begin = Instant::now();
    let answer = engine
        .query(&tpch.relations, &query.query, QueryClass::Batch)
        .await;
    let time = begin.elapsed().as_secs_f64() * 1e3;
    is_over.store(true, Ordering::Relaxed);
    pace.await?;
    answer?;
    Ok(time)
}
