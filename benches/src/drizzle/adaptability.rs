//! A worker that is lost, and workers that join, while events come at a fixed rate (figures 7 and 10).

use std::time::{Duration, Instant};

use millrace_engine::testing::Testing;
use millrace_engine::{CutTimes, Runtime};
use millrace_schedule::group_size::GroupSize;
use millrace_schedule::id::WorkerId;

use super::Scale;
use super::typed::{Seen, paced};
use super::ysb::{Form, TypedEvents, Yahoo, now_micros};
use crate::error::BenchError;
use crate::plot::{Chart, Line};
use crate::results::{Aim, Experiment, Run};
use crate::statistics::Sample;

/// The experiment's name.
pub const NAME: &str = "a worker lost, two added (figures 7, 10)";

const WORKERS: usize = 4;
/// The worker that is lost.
const LOST: u32 = 1;
const INTERVAL: Duration = Duration::from_millis(10);
/// How much longer than before the slowest events of a window take for it to count as affected.
const AFFECTED: f64 = 2.0;
/// How many times as long as planned new workers may take to be used.
const WATCHED_MAX: usize = 10;
/// How often it is looked whether new workers have run anything.
const LOOK: Duration = Duration::from_millis(1);

/// What happens to the worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loss {
    /// It is killed, and the driver knows.
    Killed,
    /// Nobody can reach it any more: the driver finds out from its heartbeats.
    Silent,
}

/// Events that were created in one stretch of time.
struct Window {
    /// Its middle, in seconds since the start.
    at: f64,
    p99: f64,
    max: f64,
}

/// Measures both, for every group size.
///
/// # Errors
/// The server fails, the view is wrong, or new workers are never used.
pub async fn run(run: &mut Run, scale: &Scale) -> Result<(), BenchError> {
    let (window, watched) = (scale.window.as_secs_f64(), scale.watched.as_secs_f64());
    let mut experiment = Experiment::new(
        NAME,
        format!(
            "The Yahoo streaming benchmark with typed events, {} a second, an epoch every {} ms, groups of a fixed size; \
             {WORKERS} workers of one process, which shares its cores between them and the load generator. *Lost*: just after half \
             of {watched} s worker {LOST} is killed (KILL WORKER, so the driver knows at once) or cut off from everybody \
             (silent: the driver finds out by its heartbeats). Latency is the time from an event's creation to its visibility, by \
             windows of {window} s; a window is affected if its 99th percentile is over {AFFECTED} times the highest one before the \
             loss, the first window not counted. Checkpoints are taken at the end of a group, every second at most. *Added*: two \
             workers more than two, until both have run tasks; state moves between workers of one process without being copied.",
            scale.paced_events,
            INTERVAL.as_millis()
        ),
    );
    let events = TypedEvents::new(scale.batch_events);
    let mut lines = vec![];
    let losses = scale.group_sizes.iter().map(|group| (*group, Loss::Killed));
    let silent = scale.group_sizes.first().map(|group| (*group, Loss::Silent));
    for (group, loss) in losses.chain(silent) {
        let windows = lost(scale, &events, group, loss).await?;
        let how = if loss == Loss::Killed { "lost" } else { "silent" };
        let name = format!("{how}, groups of {group}");
        let begins = scale.watched.as_secs_f64() / 2.0;
        let (before, after): (Vec<&Window>, Vec<&Window>) = windows
            .iter()
            .skip(1)
            .partition(|w| w.at + window / 2.0 <= begins);
        let usual = before.iter().map(|w| w.p99).fold(0.0, f64::max);
        let affected = after.iter().filter(|w| w.p99 > AFFECTED * usual).count();
        let worst = after.iter().map(|w| w.max).fold(0.0, f64::max);
        let last = after.last().map_or(0.0, |w| w.p99);
        let aim = (loss == Loss::Killed).then_some(Aim::MedianUnder(1.5));
        experiment.add(
            format!("{name}: windows affected"),
            "",
            vec![affected as f64],
            aim,
        );
        experiment.add(
            format!("{name}: p99 before, of the worst window"),
            "ms",
            vec![usual],
            None,
        );
        experiment.add(format!("{name}: longest latency during"), "ms", vec![worst], None);
        experiment.add(format!("{name}: p99 of the last window"), "ms", vec![last], None);
        lines.push(Line {
            name,
            points: windows.iter().map(|w| (w.at, w.p99)).collect(),
        });
    }
    experiment.add(
        "paper: windows of 10 s affected, groups of 100, 128 machines",
        "",
        vec![1.0],
        None,
    );
    for group in &scale.group_sizes {
        let used = added(scale, &events, *group).await?;
        experiment.add(
            format!("added, groups of {group}: until both are used"),
            "s",
            vec![used.as_secs_f64()],
            None,
        );
    }
    experiment.add(
        "paper: until 64 more machines are used, groups of 50",
        "s",
        vec![10.0],
        None,
    );
    experiment.add(
        "paper: until 64 more machines are used, groups of 600",
        "s",
        vec![100.0],
        None,
    );
    run.add(experiment);
    run.draw(Chart {
        name: "lost-worker",
        title: "p99 latency by window when a worker is lost in the middle (figures 7, 10a)".to_owned(),
        x: "seconds",
        y: "ms",
        lines,
    });
    Ok(())
}

async fn bed(workers: usize, group: u64) -> Result<Yahoo, BenchError> {
    let bed = Yahoo::new(Form::Typed, workers).await?;
    // The view has less work than four workers could do.
    bed.host
        .client
        .run("ALTER SYSTEM SET pipeline_spread = 'all'")
        .await?;
    bed.host.runtime.set_group_size(GroupSize::Fixed(group));
    let cuts = CutTimes {
        interval: Some(INTERVAL),
        ..CutTimes::default()
    };
    bed.host.runtime.set_cut_times(cuts);
    Ok(bed)
}

/// Loses a worker in the middle; returns the windows in order.
async fn lost(
    scale: &Scale,
    events: &TypedEvents,
    group: u64,
    loss: Loss,
) -> Result<Vec<Window>, BenchError> {
    let bed = bed(WORKERS, group).await?;
    // In the middle of a window: what was created just before it waits, too.
    let (runtime, lost_after) = (bed.host.runtime.clone(), scale.watched / 2 + scale.window / 2);
    let start = now_micros() as f64;
    let losing = tokio::spawn(async move {
        tokio::time::sleep(lost_after).await;
        match loss {
            Loss::Killed => runtime.kill_worker(LOST),
            Loss::Silent => runtime.cut_off_worker(LOST),
        }
    });
    let (seen, views) = paced(&bed, events, scale.paced_events as f64, scale.watched).await?;
    losing
        .await
        .map_err(BenchError::engine)?
        .map_err(BenchError::engine)?;
    bed.check(views).await?;
    bed.stop().await;
    let length = scale.window.as_secs_f64();
    let count = (scale.watched.as_secs_f64() / length).ceil() as usize;
    let mut latencies = vec![vec![]; count];
    for Seen { created, latency_ms } in seen {
        let window = ((created - start) / 1e6 / length) as usize;
        latencies[window.min(count - 1)].push(latency_ms);
    }
    let windows = (0..).zip(latencies).filter_map(|(number, latencies)| {
        let sample = Sample::new(latencies)?;
        Some(Window {
            at: (f64::from(number) + 0.5) * length,
            p99: sample.quantile(0.99),
            max: sample.quantile(1.0),
        })
    });
    Ok(windows.collect())
}

/// Adds two workers in the middle; returns how long it takes until both have run tasks.
async fn added(scale: &Scale, events: &TypedEvents, group: u64) -> Result<Duration, BenchError> {
    let bed = bed(2, group).await?;
    let (runtime, half) = (bed.host.runtime.clone(), scale.watched / 2);
    let adding = tokio::spawn(async move {
        tokio::time::sleep(half).await;
        let start = Instant::now();
        let added = [add(&runtime)?, add(&runtime)?];
        loop {
            let workers = runtime.workers();
            let used = workers
                .iter()
                .filter(|worker| added.contains(&WorkerId(worker.id)) && worker.cpu_ns > 0);
            if used.count() == added.len() {
                return Ok::<_, BenchError>(start.elapsed());
            }
            tokio::time::sleep(LOOK).await;
        }
    });
    let mut views = 0;
    for _ in 0..WATCHED_MAX {
        views += paced(&bed, events, scale.paced_events as f64, scale.watched)
            .await?
            .1;
        if adding.is_finished() {
            break;
        }
    }
    if !adding.is_finished() {
        adding.abort();
        return Err(BenchError::Wrong(format!(
            "with groups of {group}, new workers were never used"
        )));
    }
    let used = adding.await.map_err(BenchError::engine)??;
    bed.check(views).await?;
    bed.stop().await;
    Ok(used)
}

fn add(runtime: &Runtime) -> Result<WorkerId, BenchError> {
    runtime.add_worker().map_err(BenchError::engine)
}
