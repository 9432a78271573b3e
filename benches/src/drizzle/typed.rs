//! Typed events, handed over as Arrow: how many a second, how soon they are visible.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::ysb::{self, Form, TypedEvents, Yahoo, now_micros};
use super::{Scale, thread_cpu};
use crate::error::BenchError;
use crate::plot::{Chart, Line};
use crate::results::{Aim, Experiment, Run};
use crate::statistics::Sample;

/// The experiment's name.
pub const NAME: &str = "latency and rate (figures 6b, 8)";

/// Writes that are under way at once when as many events as possible are sent.
const WRITES_MAX: usize = 8;
/// Writes that are under way at once when events are sent at a rate; beyond that the load generator waits.
const PACED_WRITES_MAX: usize = 10_000;
/// Time between two batches of a load generator.
const TICK: Duration = Duration::from_millis(1);
/// Events of a batch whose latency is taken, evenly spaced.
const SAMPLES: usize = 5;
/// Rates as shares of the highest one.
const SHARES: [f64; 9] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9];
/// Latency targets, in milliseconds.
const TARGETS_MS: [f64; 5] = [5.0, 10.0, 25.0, 100.0, 500.0];

/// Measures with partial aggregation and without.
///
/// # Errors
/// The server fails, or the view is wrong.
pub async fn run(run: &mut Run, scale: &Scale) -> Result<(), BenchError> {
    let mut experiment = Experiment::new(
        NAME,
        format!(
            "The Yahoo streaming benchmark with typed events (seven columns, 48 bytes), handed to the engine as Arrow by a \
             thread of this process, which shares the cores with it; log in memory. *Highest rate*: {WRITES_MAX} writes of \
             {} events under way at any time, until all are visible. *Latency* is the time from an event's creation to \
             the moment at which the view with it can be read, of {SAMPLES} events of each batch; events are created evenly \
             and sent every {} ms. *With* and *without* partial aggregation in front of the last exchange.",
            scale.batch_events,
            TICK.as_millis()
        ),
    );
    let mut lines = vec![];
    for (is_combining, name) in [(true, "with"), (false, "without")] {
        let events = TypedEvents::new(scale.batch_events);
        let mut highest = vec![];
        for trial in 0..=scale.trials {
            let bed = combining(is_combining).await?;
            let burst = burst(&bed, &events, scale.burst).await?;
            bed.check(burst.views).await?;
            bed.stop().await;
            // The first one warms up.
            if trial > 0 {
                highest.push(burst.rate);
                if is_combining && trial == scale.trials {
                    experiment.add(
                        "processor time of the load generator an event",
                        "ns",
                        vec![burst.generator_ns],
                        None,
                    );
                }
            }
        }
        let top = Sample::new(highest.clone()).map_or(0.0, |sample| sample.quantile(0.5));
        let aim = is_combining.then_some(Aim::MedianOver(10e6));
        experiment.add(format!("{name}: highest rate"), "events/s", highest, aim);
        let mut points = vec![];
        for share in SHARES {
            let bed = combining(is_combining).await?;
            let (seen, counted) = paced(&bed, &events, top * share, scale.paced).await?;
            let latencies: Vec<f64> = seen.iter().map(|seen| seen.latency_ms).collect();
            bed.check(counted).await?;
            bed.stop().await;
            let Some(sample) = Sample::new(latencies.clone()) else {
                continue;
            };
            let is_half = is_combining && share == 0.5;
            experiment.add(
                format!("{name}: latency at {:.0} % of it", share * 100.0),
                "ms",
                latencies,
                is_half.then_some(Aim::MedianAndP99Under(10.0)),
            );
            points.push((top * share, sample.quantile(0.99)));
        }
        for target in TARGETS_MS {
            let within = points.iter().filter(|(_, p99)| *p99 <= target);
            let rate = within.map(|(rate, _)| *rate).fold(0.0, f64::max);
            experiment.add(
                format!("{name}: highest rate tried with p99 within {target} ms"),
                "events/s",
                vec![rate],
                None,
            );
        }
        lines.push(Line {
            name: format!("p99, {name}"),
            points,
        });
    }
    experiment.add(
        "paper: Drizzle with partial aggregation, 100 ms, 128 machines of 4 cores",
        "events/s",
        vec![35e6],
        None,
    );
    run.add(experiment);
    run.draw(Chart {
        name: "latency",
        title: "Latency of typed events by rate (figures 6b, 8)".to_owned(),
        x: "events a second",
        y: "ms",
        lines,
    });
    Ok(())
}

/// A server of its own for each measurement: the log of them all would not fit into memory.
async fn combining(is_on: bool) -> Result<Yahoo, BenchError> {
    let bed = Yahoo::new(Form::Typed, 1).await?;
    bed.host.runtime.set_combining(bed.view, is_on);
    Ok(bed)
}

/// What came of as many events as possible.
pub struct Burst {
    /// Events a second until all were visible.
    pub rate: f64,
    /// How many are counted.
    pub views: u64,
    /// Processor time of the load generator for each.
    pub generator_ns: f64,
}

/// As many events as possible for a while.
///
/// # Errors
/// The server refuses some.
pub async fn burst(bed: &Yahoo, events: &TypedEvents, length: Duration) -> Result<Burst, BenchError> {
    let slots = Arc::new(Semaphore::new(WRITES_MAX));
    let failure: Arc<Mutex<Option<BenchError>>> = Arc::default();
    let (mut sent, mut views, mut generator) = (0_u64, 0, Duration::ZERO);
    let rows = events.rows();
    let start = Instant::now();
    while start.elapsed() < length {
        let slot = Arc::clone(&slots).acquire_owned().await;
        let slot = slot.map_err(BenchError::engine)?;
        let cpu = thread_cpu();
        let now = now_micros();
        let (batch, counted) = events.between(rows, now - 1_000, now)?;
        generator += thread_cpu().saturating_sub(cpu);
        sent += rows as u64;
        views += counted;
        let (runtime, stream, failure) = (bed.host.runtime.clone(), bed.events, Arc::clone(&failure));
        tokio::spawn(async move {
            let written = async {
                let token = ysb::append(&runtime, stream, batch).await?;
                runtime.wait_for(&token).await.map_err(BenchError::engine)
            };
            if let Err(error) = written.await {
                failure.lock().get_or_insert(error);
            }
            drop(slot);
        });
    }
    let all = slots.acquire_many(WRITES_MAX as u32).await;
    drop(all.map_err(BenchError::engine)?);
    let seconds = start.elapsed().as_secs_f64();
    if let Some(error) = failure.lock().take() {
        return Err(error);
    }
    Ok(Burst {
        rate: sent as f64 / seconds,
        views,
        generator_ns: generator.as_nanos() as f64 / sent as f64,
    })
}

/// An event that became visible.
#[derive(Debug, Clone, Copy)]
pub struct Seen {
    /// When it was created, in microseconds since 1970.
    pub created: f64,
    pub latency_ms: f64,
}

/// By what events at a rate are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writes {
    /// Whatever is due, a thousand times a second.
    EachTick,
    /// As many events as there are, as soon as so many are due.
    Whole,
}

/// Events at a rate, written each tick; see [`paced_in`].
///
/// # Errors
/// The server refuses some.
pub async fn paced(
    bed: &Yahoo,
    events: &TypedEvents,
    rate: f64,
    length: Duration,
) -> Result<(Vec<Seen>, u64), BenchError> {
    paced_in(bed, events, rate, length, Writes::EachTick).await
}

/// Events at a rate, whatever becomes of them; returns what became of some of them, and how many are counted.
///
/// # Errors
/// The server refuses some.
pub async fn paced_in(
    bed: &Yahoo,
    events: &TypedEvents,
    rate: f64,
    length: Duration,
    writes: Writes,
) -> Result<(Vec<Seen>, u64), BenchError> {
    let latencies: Arc<Mutex<Vec<Seen>>> = Arc::default();
    let failed = Arc::new(AtomicU64::new(0));
    let under_way = Arc::new(Semaphore::new(PACED_WRITES_MAX));
    let start = Instant::now();
    let (mut sent, mut views) = (0_u64, 0);
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    let mut before = now_micros();
    while start.elapsed() < length {
        tick.tick().await;
        let now = now_micros();
        // Whatever is due by now, and no more at once than there are events.
        let due = (start.elapsed().as_secs_f64() * rate) as u64;
        let mut left = due.saturating_sub(sent) as usize;
        if writes == Writes::Whole {
            left -= left % events.rows();
            if left == 0 {
                continue;
            }
        }
        let step = (now - before) as f64 / left.max(1) as f64;
        let mut from = before as f64;
        while left > 0 {
            let rows = left.min(events.rows());
            let to = from + step * rows as f64;
            let (batch, counted) = events.between(rows, from as i64, to as i64)?;
            sent += rows as u64;
            views += counted;
            left -= rows;
            let (runtime, stream) = (bed.host.runtime.clone(), bed.events);
            let (latencies, failed) = (Arc::clone(&latencies), Arc::clone(&failed));
            let permit = Arc::clone(&under_way).acquire_owned().await;
            let permit = permit.map_err(BenchError::engine)?;
            tokio::spawn(async move {
                let written = async {
                    let token = ysb::append(&runtime, stream, batch).await?;
                    runtime.until_visible(&token).await.map_err(BenchError::engine)
                };
                match written.await {
                    Ok(()) => {
                        let seen = now_micros() as f64;
                        let mut latencies = latencies.lock();
                        for sample in 0..SAMPLES {
                            let created = from + (to - from) * (sample as f64 + 0.5) / SAMPLES as f64;
                            latencies.push(Seen {
                                created,
                                latency_ms: (seen - created) / 1e3,
                            });
                        }
                    }
                    Err(_) => _ = failed.fetch_add(1, Ordering::Relaxed),
                }
                drop(permit);
            });
            from = to;
        }
        before = now;
    }
    let all = under_way.acquire_many(PACED_WRITES_MAX as u32).await;
    drop(all.map_err(BenchError::engine)?);
    match failed.load(Ordering::Relaxed) {
        0 => Ok((std::mem::take(&mut *latencies.lock()), views)),
        failed => Err(BenchError::engine(format!("{failed} writes were refused"))),
    }
}
