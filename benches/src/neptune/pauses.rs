//! What a stream task waits for while batch queries take every core (Neptune, figures 14 and 15).
//!
//! The 22 queries of TPC-H run one after the other, as batch work, in the runtime without a server around it. Meanwhile
//! stream-class tasks arrive at a fixed pace, each with a little to do, so that a query is paused and resumed all the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use millrace_oracle::rows::difference;
use millrace_resource::cpu::{CpuTimes, Durations};
use millrace_schedule::cpu::QueryClass;
use millrace_schedule::cpu::policy::SchedulerPolicy;
use millrace_sql_tests::Failure;
use millrace_sql_tests::batch::Batch;
use millrace_sql_tests::engine::Engine;
use millrace_sql_tests::tpch::{Query, Tpch, queries};

use super::Scale;
use crate::error::BenchError;
use crate::results::{Aim, Experiment, Run};

/// The experiment's name.
pub const NAME: &str = "pauses (figures 14, 15)";

/// Quantiles that are told.
const QUANTILES: [(f64, &str); 4] = [(0.5, "p50"), (0.95, "p95"), (0.99, "p99"), (1.0, "worst")];

/// Loads, answers alone, then answers while tasks of streams come and go, under each policy.
///
/// # Errors
/// A query fails, or differs from the plain answer.
pub async fn run(run: &mut Run, scale: &Scale) -> Result<(), BenchError> {
    Ok(measure(run, scale).await?)
}

async fn measure(run: &mut Run, scale: &Scale) -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let engine = Engine::start(directory.path(), scale.cores)?;
    let mut batch = Batch::new(engine.state(), scale.cores);
    eprintln!("loading scale factor {} ...", scale.factor);
    let tpch = Tpch::load(&engine, &mut batch, scale.factor).await?;
    let queries: Vec<Query> = queries(scale.factor)?.into_iter().take(scale.queries).collect();
    run.add(alone(&engine, &batch, &tpch, &queries, scale).await?);
    run.add(paused(&engine, &tpch, &queries, scale).await?);
    run.add(policies(&engine, &tpch, &queries, scale).await?);
    engine.shutdown().await;
    Ok(())
}

/// Each query, paused and resumed continuously.
async fn paused(
    engine: &Engine,
    tpch: &Tpch,
    queries: &[Query],
    scale: &Scale,
) -> Result<Experiment, Failure> {
    let mut experiment = Experiment::new(
        NAME,
        format!(
            "Each query as batch work under `lma`, {} times, while a stream task of {:?} arrives every {:?}. *Pause*: from the \
             arrival of a stream task that finds no slot until a batch task gives way. *Resume*: from the moment at which a \
             slot is free for a paused task until it runs.",
            scale.repetitions, scale.work, scale.every
        ),
    );
    for query in queries {
        let before = engine.runtime().cpu_times();
        for _ in 0..scale.repetitions {
            disturbed(engine, tpch, query, scale).await?;
        }
        let after = engine.runtime().cpu_times();
        let waits = of_class(&after, &before, QueryClass::Stream, |times| &times.wait);
        let pauses = after.pause.since(&before.pause);
        for (what, times) in [
            ("pause", &pauses),
            ("resume", &after.resume.since(&before.resume)),
            ("stream task's wait", &waits),
        ] {
            for (share, text) in QUANTILES {
                let aim = match (what, text) {
                    ("pause", "p99") => Some(Aim::MedianUnder(1_000.0)),
                    ("pause", "worst") => Some(Aim::MedianUnder(5_000.0)),
                    _ => None,
                };
                let value = micros(times.percentile(share));
                experiment.add(format!("{} {what}, {text}", query.name), "us", vec![value], aim);
            }
        }
        let count = pauses.count() as f64;
        experiment.add(format!("{} pauses", query.name), "", vec![count], None);
    }
    Ok(experiment)
}

/// All queries under each policy.
async fn policies(
    engine: &Engine,
    tpch: &Tpch,
    queries: &[Query],
    scale: &Scale,
) -> Result<Experiment, Failure> {
    let mut experiment = Experiment::new(
        "policies",
        format!(
            "The same queries, once each, while a stream task of {:?} arrives every {:?}. Its wait is from being ready to \
             running.",
            scale.work, scale.every
        ),
    );
    for policy in SchedulerPolicy::ALL {
        let (_, patience) = engine.runtime().policy();
        engine.runtime().set_policy(policy, patience);
        let before = engine.runtime().cpu_times();
        let mut total = 0.0;
        for query in queries {
            total += disturbed(engine, tpch, query, scale).await?;
        }
        let after = engine.runtime().cpu_times();
        let waits = of_class(&after, &before, QueryClass::Stream, |times| &times.wait);
        for (share, text) in QUANTILES {
            let value = micros(waits.percentile(share));
            experiment.add(format!("{policy}: stream wait, {text}"), "us", vec![value], None);
        }
        experiment.add(
            format!("{policy}: stream tasks"),
            "",
            vec![waits.count() as f64],
            None,
        );
        experiment.add(format!("{policy}: all queries"), "ms", vec![total], None);
        eprintln!(
            "{policy}: {total:.0} ms, stream wait p99 {:?}",
            waits.percentile(0.99)
        );
    }
    Ok(experiment)
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
