//! A view that says how fresh it is to be: whether it is, and what the epochs that are not made leave for others.

use std::time::Duration;

use millrace_engine::CutTimes;
use millrace_schedule::cpu::policy::SchedulerPolicy;

use super::Scale;
use super::together::{Outcome, bed, together};
use super::work::BatchWork;
use crate::drizzle::ysb::TypedEvents;
use crate::error::BenchError;
use crate::results::{Aim, Experiment, Run};
use crate::statistics::Sample;

/// The experiment's name.
pub const NAME: &str = "freshness targets beside batch work";

/// None: as fresh as can be.
const TARGETS: [Option<Duration>; 4] = [
    None,
    Some(Duration::from_millis(20)),
    Some(Duration::from_millis(50)),
    Some(Duration::from_millis(200)),
];

/// What was seen of a target, round by round.
#[derive(Default)]
struct Rounds {
    latencies_ms: Vec<f64>,
    p99_ms: Vec<f64>,
    kept: Vec<f64>,
    epochs: Vec<f64>,
    demand: Vec<f64>,
    work: Vec<f64>,
}

/// Rows that were seen in time, as a share.
fn kept(outcome: &Outcome, target: Duration) -> f64 {
    let most = target.as_secs_f64() * 1e3;
    let within = outcome.latencies_ms.iter().filter(|latency| **latency <= most);
    within.count() as f64 / outcome.latencies_ms.len().max(1) as f64
}

/// The experiment.
///
/// # Errors
/// A server fails, or the view is wrong.
pub async fn run(
    run: &mut Run,
    work: &BatchWork,
    events: &TypedEvents,
    seconds_alone: &[f64],
    scale: &Scale,
) -> Result<(), BenchError> {
    let mut experiment = Experiment::new(
        NAME,
        format!(
            "The view of the Yahoo streaming benchmark under {} events a second, alone and beside clients that send TPC-H (scale factor {}, \
             Parquet) in the batch class, under `lma` and with targets for its freshness; {} rounds by turns, {} s each. Latency: from an \
             event's creation, which the target does not count: it is written once a millisecond and becomes durable first. Demand: the share \
             of the cores that the stream's tasks take. Work: as in the experiments of policies.",
            scale.rate,
            scale.factor,
            scale.rounds_beside,
            scale.beside.as_secs_f64(),
        ),
    );
    let mut seen: Vec<[Rounds; 2]> = TARGETS.iter().map(|_| Default::default()).collect();
    for round in 0..scale.rounds_beside {
        for (target, rounds) in TARGETS.iter().zip(&mut seen) {
            for (has_work, rounds) in [false, true].into_iter().zip(rounds) {
                let bed = bed(SchedulerPolicy::Lma, work, has_work, None).await?;
                bed.host.runtime.set_cut_times(CutTimes {
                    freshness: *target,
                    ..CutTimes::default()
                });
                let (times, epochs) = (bed.host.runtime.cpu_times(), bed.host.runtime.epochs_total());
                let batch = has_work.then_some(&bed);
                let outcome = together(&bed, events, scale.rate, batch, work, scale.beside).await?;
                let busy = bed.host.runtime.cpu_times().poll[0].since(&times.poll[0]).sum;
                let epochs = bed.host.runtime.epochs_total() - epochs;
                bed.stop().await;
                rounds.epochs.push(epochs as f64 / outcome.seconds);
                let share = busy.as_secs_f64() / outcome.seconds / scale.cores as f64;
                rounds.demand.push(100.0 * share);
                if let Some(sample) = Sample::new(outcome.latencies_ms.clone()) {
                    rounds.p99_ms.push(sample.quantile(0.99));
                }
                rounds
                    .kept
                    .extend(target.map(|target| 100.0 * kept(&outcome, target)));
                if has_work {
                    rounds.work.push(outcome.work(seconds_alone));
                }
                eprintln!(
                    "{target:?}, round {round}, {}: p99 {:?} ms, {:?} epochs/s",
                    if has_work { "beside" } else { "alone" },
                    rounds.p99_ms.last(),
                    rounds.epochs.last()
                );
                rounds.latencies_ms.extend(outcome.latencies_ms);
            }
        }
    }
    for (target, rounds) in TARGETS.iter().zip(seen) {
        let name = target.map_or_else(
            || "no target".to_owned(),
            |target| format!("{} ms", target.as_millis()),
        );
        for (place, rounds) in ["alone", "beside TPC-H"].into_iter().zip(rounds) {
            let name = format!("{name}, {place}");
            experiment.add(format!("{name}: latency"), "ms", rounds.latencies_ms, None);
            experiment.add(format!("{name}: p99"), "ms", rounds.p99_ms, None);
            if !rounds.kept.is_empty() {
                let aim = Some(Aim::MedianOver(99.0));
                experiment.add(format!("{name}: events within the target"), "%", rounds.kept, aim);
            }
            experiment.add(format!("{name}: epochs"), "1/s", rounds.epochs, None);
            experiment.add(format!("{name}: demand"), "%", rounds.demand, None);
            if !rounds.work.is_empty() {
                experiment.add(format!("{name}: batch work"), "s/s", rounds.work, None);
            }
        }
    }
    run.add(experiment);
    Ok(())
}
