//! Pausing coroutines against pausing threads (Neptune, figure 15): how long until all tasks have stopped, and until all
//! have gone on.
//!
//! Both do the same work, steps of some microseconds, and look after each whether to pause. Coroutines return to the
//! scheduler's queue; threads wait for a condition.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::executor::block_on;
use millrace_resource::cpu::CpuScheduler;
use millrace_resource::error::ResourceError;
use millrace_resource::gate::Gate;
use millrace_schedule::cpu::QueryClass;
use parking_lot::{Condvar, Mutex};

use super::Scale;
use crate::error::BenchError;
use crate::plot::{Chart, Line};
use crate::results::{Experiment, Run};
use crate::statistics::Sample;

/// The experiment's name.
pub const NAME: &str = "coroutines and threads (figure 15)";

/// What a task does between two looks.
const STEP: Duration = Duration::from_micros(10);
/// What a task does between being resumed and being paused again.
const BETWEEN: Duration = Duration::from_micros(500);

/// How long it took to stop them all and to get them all going again, each time, in microseconds.
#[derive(Default)]
struct Times {
    pause: Vec<f64>,
    resume: Vec<f64>,
}

/// Measures both for every parallelism.
///
/// # Errors
/// No threads can be started.
pub async fn run(run: &mut Run, scale: &Scale) -> Result<(), BenchError> {
    let scale = scale.clone();
    let measured = tokio::task::spawn_blocking(move || {
        let both = |parallelism: &usize| {
            let coroutines = coroutines(*parallelism, &scale)?;
            Ok((*parallelism, coroutines, threads(*parallelism, &scale)))
        };
        scale
            .parallelism
            .iter()
            .map(both)
            .collect::<Result<Vec<_>, BenchError>>()
    });
    let measured = measured.await.map_err(BenchError::engine)??;
    let mut experiment = Experiment::new(
        NAME,
        format!(
            "So many tasks, each with steps of {} us, on all cores. *Pause*: until no task runs. *Resume*: until every \
             task that could run at once has made a step.",
            STEP.as_micros()
        ),
    );
    let mut lines: Vec<Line> = vec![];
    for (parallelism, coroutines, threads) in measured {
        for (name, times) in [("coroutines", coroutines), ("threads", threads)] {
            for (what, values) in [("pause", times.pause), ("resume", times.resume)] {
                let title = format!("{name}, {what}: p99");
                if let Some(sample) = Sample::new(values.clone()) {
                    let point = (parallelism as f64, sample.quantile(0.99));
                    match lines.iter_mut().find(|line| line.name == title) {
                        Some(line) => line.points.push(point),
                        None => lines.push(Line {
                            name: title,
                            points: vec![point],
                        }),
                    }
                }
                experiment.add(format!("{parallelism} {name}: {what}"), "us", values, None);
            }
        }
    }
    run.add(experiment);
    run.draw(Chart {
        name: "threads",
        title: "Pausing and resuming all tasks (figure 15)".to_owned(),
        x: "tasks",
        y: "us",
        lines,
    });
    Ok(())
}

fn step() {
    let begin = Instant::now();
    while begin.elapsed() < STEP {
        std::hint::spin_loop();
    }
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Batch tasks that a stream task on every slot makes give way.
fn coroutines(parallelism: usize, scale: &Scale) -> Result<Times, BenchError> {
    let cpu = CpuScheduler::start(scale.cores, None).map_err(BenchError::engine)?;
    let is_over = Arc::new(AtomicBool::new(false));
    let steps = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..parallelism)
        .map(|_| {
            let (is_over, steps) = (Arc::clone(&is_over), Arc::clone(&steps));
            cpu.spawn::<_, ResourceError>(QueryClass::Batch, move |gate| {
                async move {
                    while !is_over.load(Ordering::Relaxed) {
                        step();
                        steps.fetch_add(1, Ordering::Relaxed);
                        gate.checkpoint().await;
                    }
                    Ok(())
                }
                .boxed()
            })
        })
        .collect();
    let mut times = Times::default();
    for _ in 0..scale.rounds {
        std::thread::sleep(BETWEEN);
        let arrived = Arc::new(std::sync::Barrier::new(scale.cores));
        let begin = Instant::now();
        let streams: Vec<_> = (0..scale.cores)
            .map(|_| {
                let arrived = Arc::clone(&arrived);
                cpu.spawn::<_, ResourceError>(QueryClass::Stream, move |_| {
                    async move {
                        // All slots are taken when all are here.
                        arrived.wait();
                        Ok(Instant::now())
                    }
                    .boxed()
                })
            })
            .collect();
        let stopped = streams
            .into_iter()
            .map(block_on)
            .collect::<Result<Vec<_>, _>>()
            .map_err(BenchError::engine)?;
        let stopped = stopped.into_iter().max().unwrap_or(begin);
        times.pause.push(micros(stopped.duration_since(begin)));
        let before = steps.load(Ordering::Relaxed);
        while steps.load(Ordering::Relaxed) < before + parallelism.min(scale.cores) {
            std::hint::spin_loop();
        }
        times.resume.push(micros(stopped.elapsed()));
    }
    is_over.store(true, Ordering::Relaxed);
    for task in tasks {
        block_on(task).map_err(BenchError::engine)?;
    }
    cpu.stop();
    Ok(times)
}

#[derive(Default)]
struct Signal {
    is_paused: Mutex<bool>,
    changed: Condvar,
    /// The same, to look at without the lock.
    asks: AtomicBool,
    waiting: AtomicUsize,
    steps: AtomicUsize,
    is_over: AtomicBool,
}

/// Threads that wait when they are told to, as many as there are tasks.
fn threads(parallelism: usize, scale: &Scale) -> Times {
    let signal = Arc::new(Signal::default());
    let threads: Vec<_> = (0..parallelism)
        .map(|_| {
            let signal = Arc::clone(&signal);
            std::thread::spawn(move || {
                while !signal.is_over.load(Ordering::Relaxed) {
                    step();
                    signal.steps.fetch_add(1, Ordering::Relaxed);
                    if signal.asks.load(Ordering::Relaxed) {
                        let mut is_paused = signal.is_paused.lock();
                        signal.waiting.fetch_add(1, Ordering::Relaxed);
                        while *is_paused {
                            signal.changed.wait(&mut is_paused);
                        }
                        signal.waiting.fetch_sub(1, Ordering::Relaxed);
                    }
                }
            })
        })
        .collect();
    let mut times = Times::default();
    for _ in 0..scale.rounds {
        std::thread::sleep(BETWEEN);
        let begin = Instant::now();
        *signal.is_paused.lock() = true;
        signal.asks.store(true, Ordering::Relaxed);
        while signal.waiting.load(Ordering::Relaxed) < parallelism {
            std::thread::yield_now();
        }
        let stopped = Instant::now();
        times.pause.push(micros(stopped.duration_since(begin)));
        let before = signal.steps.load(Ordering::Relaxed);
        signal.asks.store(false, Ordering::Relaxed);
        *signal.is_paused.lock() = false;
        signal.changed.notify_all();
        while signal.steps.load(Ordering::Relaxed) < before + parallelism.min(scale.cores) {
            std::thread::yield_now();
        }
        times.resume.push(micros(stopped.elapsed()));
        while signal.waiting.load(Ordering::Relaxed) > 0 {
            std::thread::yield_now();
        }
    }
    signal.is_over.store(true, Ordering::Relaxed);
    for thread in threads {
        // It only spins and waits.
        let _ = thread.join();
    }
    times
}
