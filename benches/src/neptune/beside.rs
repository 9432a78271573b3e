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

use std::time::{Duration, Instant};

use millrace_engine::CutTimes;
use millrace_schedule::cpu::policy::SchedulerPolicy;

use super::together::{Outcome, bed, together};
use super::work::{BatchWork, CLIENTS, joins, tpch, training};
use super::{Scale, targets};
use crate::bed::Place;
use crate::client::Client;
use crate::drizzle::ysb::{TypedEvents, Yahoo};
use crate::error::BenchError;
use crate::plot::{Chart, Line};
use crate::results::{Aim, Experiment, Run};
use crate::statistics::Sample;

/// The experiments' names.
pub const POLICIES: &str = "a view beside batch work (figures 9, 10)";
pub const EVEN: &str = "even epochs beside batch work (figures 9, 10)";
pub const INFERENCE: &str = "scoring beside training (figure 10)";
pub const DEMAND: &str = "demand of streams (figures 11, 12)";
pub const PRESSURE: &str = "memory under pressure (figure 13)";

/// The time between two epochs where they are even.
const EVEN_INTERVAL: Duration = Duration::from_millis(100);
/// Joins at a time, of which each fills about a tenth of the memory.
const JOINS: [usize; 3] = [2, 4, 8];
/// Quantiles that are drawn.
const QUANTILES: [f64; 7] = [0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 0.999];

/// All experiments of this kind that are chosen.
///
/// # Errors
/// A server fails, or a view is wrong.
pub async fn run(run: &mut Run, scale: &Scale) -> Result<(), BenchError> {
    let events = TypedEvents::new(scale.batch_events);
    if [POLICIES, EVEN, DEMAND, targets::NAME]
        .iter()
        .any(|name| run.wants(name))
    {
        let directory = Place::Disk.directory()?;
        let work = tpch(directory.path(), scale)?;
        let seconds_alone = alone(&work, scale).await?;
        let what = format!(
            "The view of the Yahoo streaming benchmark beside {CLIENTS} clients that send TPC-H (scale factor {}, Parquet)",
            scale.factor,
        );
        if run.begins(POLICIES) {
            let streams = Streams::new(POLICIES, "beside", what.clone());
            policies(run, streams, &work, &events, &seconds_alone, scale).await?;
        }
        if run.begins(EVEN) {
            let what = format!(
                "{what}, with epochs of {} ms under every policy, as the paper's micro-batches are: so its work is the same under \
                 each,",
                EVEN_INTERVAL.as_millis(),
            );
            let streams = Streams::new(EVEN, "even", what).every(EVEN_INTERVAL);
            policies(run, streams, &work, &events, &seconds_alone, scale).await?;
        }
        if run.begins(targets::NAME) {
            targets::run(run, &work, &events, &seconds_alone, scale).await?;
        }
        if run.begins(DEMAND) {
            demand(run, &work, &events, &seconds_alone, scale).await?;
        }
    }
    if run.begins(INFERENCE) {
        let work = training(scale);
        let seconds_alone = alone(&work, scale).await?;
        let what = format!(
            "A view that scores events by logistic regression, beside the client that trains the model, over {} rows",
            scale.training_rows,
        );
        let streams = Streams::new(INFERENCE, "inference", what);
        policies(run, streams, &work, &events, &seconds_alone, scale).await?;
    }
    if run.begins(PRESSURE) {
        pressure(run, &events, scale).await?;
    }
    Ok(())
}

/// The median time of each statement when there is nothing else.
async fn alone(work: &BatchWork, scale: &Scale) -> Result<Vec<f64>, BenchError> {
    let bed = bed(SchedulerPolicy::Lma, work, true, None).await?;
    let client = Client::connect(bed.host.server.pg_addr()).await?;
    client.run("SET query_priority = 'batch'").await?;
    let mut seconds = vec![];
    for statement in work.statements.iter() {
        let mut times = vec![];
        // The first time reads files that nobody has read.
        for _ in 0..=scale.repetitions {
            let begin = Instant::now();
            client.rows(statement).await?;
            times.push(begin.elapsed().as_secs_f64());
        }
        times.remove(0);
        seconds.push(Sample::new(times).map_or(0.0, |times| times.quantile(0.5)));
    }
    bed.stop().await;
    Ok(seconds)
}

/// What was seen under a policy, round by round.
#[derive(Default)]
struct Rounds {
    latencies_ms: Vec<f64>,
    median: Vec<f64>,
    p99: Vec<f64>,
    p99_of_seconds: Vec<f64>,
    work: Vec<f64>,
}

/// The median, the 99th percentile, and the median second's 99th percentile, in milliseconds.
type Quantiles = [f64; 3];

impl Rounds {
    /// `isolated`: the same round's.
    fn add(&mut self, outcome: Outcome, isolated: Option<Quantiles>, work: Option<f64>) -> Option<Quantiles> {
        let sample = Sample::new(outcome.latencies_ms.clone())?;
        let seconds = Sample::new(outcome.p99_of_seconds)?;
        let own = [sample.quantile(0.5), sample.quantile(0.99), seconds.quantile(0.5)];
        if let Some([median, p99, of_seconds]) = isolated {
            self.median.push(own[0] / median);
            self.p99.push(own[1] / p99);
            self.p99_of_seconds.push(own[2] / of_seconds);
        }
        self.work.extend(work);
        self.latencies_ms.extend(outcome.latencies_ms);
        Some(own)
    }

    fn report(self, name: &str, experiment: &mut Experiment, has_aims: bool) -> Line {
        let aim = |aim| has_aims.then_some(aim);
        let sample = Sample::new(self.latencies_ms.clone());
        let of = |quantile| {
            sample
                .as_ref()
                .map_or(f64::NAN, |sample| sample.quantile(quantile))
        };
        experiment.add(format!("{name}: latency"), "ms", self.latencies_ms, None);
        for (share, text) in [(0.25, "p25"), (0.75, "p75")] {
            experiment.add(format!("{name}: latency, {text}"), "ms", vec![of(share)], None);
        }
        if !self.median.is_empty() {
            let (median, p99) = (Aim::MedianUnder(1.03), Aim::MedianUnder(1.10));
            experiment.add(
                format!("{name}: median against isolated"),
                "x",
                self.median,
                aim(median),
            );
            experiment.add(format!("{name}: p99 against isolated"), "x", self.p99, aim(p99));
            let seconds = self.p99_of_seconds;
            experiment.add(
                format!("{name}: the median second's p99 against isolated"),
                "x",
                seconds,
                None,
            );
        }
        if !self.work.is_empty() {
            experiment.add(format!("{name}: batch work"), "s/s", self.work, None);
        }
        Line {
            name: name.to_owned(),
            points: QUANTILES
                .iter()
                .map(|quantile| (1.0 / (1.0 - quantile), of(*quantile)))
                .collect(),
        }
    }
}

/// A view that is looked at under every policy.
struct Streams {
    name: &'static str,
    chart: &'static str,
    what: String,
    /// The time between two epochs; none: as soon as there is input.
    interval: Option<Duration>,
}

impl Streams {
    fn new(name: &'static str, chart: &'static str, what: String) -> Self {
        let interval = None;
        Streams {
            name,
            chart,
            what,
            interval,
        }
    }

    fn every(self, interval: Duration) -> Self {
        let interval = Some(interval);
        Streams { interval, ..self }
    }

    async fn bed(
        &self,
        policy: SchedulerPolicy,
        work: &BatchWork,
        has_work: bool,
        cores: Option<usize>,
    ) -> Result<Yahoo, BenchError> {
        let bed = bed(policy, work, has_work, cores).await?;
        let cuts = CutTimes {
            interval: self.interval,
            ..CutTimes::default()
        };
        bed.host.runtime.set_cut_times(cuts);
        Ok(bed)
    }
}

async fn policies(
    run: &mut Run,
    view: Streams,
    work: &BatchWork,
    events: &TypedEvents,
    seconds_alone: &[f64],
    scale: &Scale,
) -> Result<(), BenchError> {
    let Streams {
        name, chart, what, ..
    } = &view;
    let mut experiment = Experiment::new(
        name,
        format!(
            "{what} in the batch class, under {} events a second; {} rounds, in each of which every policy has {} s; ratios are \
             those of a round. *Isolated*: the stream alone. *Two servers*: one for the stream, one for the batch work, half \
             the cores each. Work: seconds that the statements which ended take when there is nothing else, for each second; \
             of those under way, a part.",
            scale.rate,
            scale.rounds_beside,
            scale.beside.as_secs_f64(),
        ),
    );
    let mut isolated = Rounds::default();
    let mut by_policy = SchedulerPolicy::ALL.map(|policy| (policy, Rounds::default()));
    let mut two = Rounds::default();
    let (mut batch_alone, mut against_fifo) = (vec![], vec![]);
    for round in 0..scale.rounds_beside {
        let own = {
            let bed = view.bed(SchedulerPolicy::Lma, work, false, None).await?;
            let outcome = together(&bed, events, scale.rate, None, work, scale.beside).await?;
            bed.stop().await;
            isolated.add(outcome, None, None)
        };
        let bed_alone = view.bed(SchedulerPolicy::Lma, work, true, None).await?;
        let outcome = together(&bed_alone, events, 0.0, Some(&bed_alone), work, scale.beside).await?;
        bed_alone.stop().await;
        batch_alone.push(outcome.work(seconds_alone));
        let mut done_under = [0.0; SchedulerPolicy::ALL.len()];
        for ((policy, rounds), done) in by_policy.iter_mut().zip(&mut done_under) {
            let bed = view.bed(*policy, work, true, None).await?;
            let mut outcome = together(&bed, events, scale.rate, Some(&bed), work, scale.beside).await?;
            bed.stop().await;
            if *policy == SchedulerPolicy::Kill {
                // It begins again and again.
                outcome.under_way.clear();
            }
            *done = outcome.work(seconds_alone);
            let seen = rounds.add(outcome, own, Some(*done));
            eprintln!("{policy}, round {round}: {seen:.2?} ms of {own:.2?}, work {done:.3}");
        }
        let half = Some(scale.cores.div_ceil(2));
        let streams = view.bed(SchedulerPolicy::Lma, work, false, half).await?;
        let batch = view.bed(SchedulerPolicy::Lma, work, true, half).await?;
        let outcome = together(&streams, events, scale.rate, Some(&batch), work, scale.beside).await?;
        streams.stop().await;
        batch.stop().await;
        let done = outcome.work(seconds_alone);
        two.add(outcome, own, Some(done));
        let of = |wanted| SchedulerPolicy::ALL.iter().position(|policy| *policy == wanted);
        if let (Some(lma), Some(fifo)) = (of(SchedulerPolicy::Lma), of(SchedulerPolicy::Fifo)) {
            against_fifo.push(done_under[lma] / done_under[fifo]);
        }
    }
    experiment.add("batch work without events", "s/s", batch_alone, None);
    let mut lines = vec![isolated.report("isolated", &mut experiment, false)];
    for (policy, rounds) in by_policy {
        lines.push(rounds.report(
            &policy.to_string(),
            &mut experiment,
            policy == SchedulerPolicy::Lma,
        ));
    }
    lines.push(two.report("two servers", &mut experiment, false));
    experiment.add(
        "lma: batch work against fifo",
        "x",
        against_fifo,
        Some(Aim::MedianOver(0.97)),
    );
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
            let before = bed.host.runtime.cpu_times();
            let outcome = together(&bed, events, *rate, Some(&bed), work, scale.beside / 2).await?;
            let busy = bed.host.runtime.cpu_times().poll[0].since(&before.poll[0]).sum;
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
