//! Checkpoints: what they cost views that go on meanwhile, and what they write.

use std::time::{Duration, Instant};

use clap::Args;

use super::Bank;
use crate::error::BenchError;
use crate::results::{Aim, Experiment, Run};
use crate::size::Size;
use crate::statistics::{median, quantile};
use crate::suite::Suite;
use crate::target::Target;

/// The experiments' names.
const BESIDE: &str = "beside views";
const SIZE: &str = "size by change";

/// How much of everything a run does.
#[derive(Debug, Clone, PartialEq)]
pub struct Scale {
    pub accounts: usize,
    /// How long each setting is watched, and how often all of them are.
    pub watch: Duration,
    pub rounds: usize,
    /// Intervals between checkpoints.
    pub intervals: Vec<&'static str>,
    /// Rows of one change.
    pub rows: usize,
    /// Changes of rows between two checkpoints, for what is written.
    pub changes: Vec<usize>,
}

impl Scale {
    /// More than half a gigabyte of state, watched for two minutes.
    pub fn real() -> Self {
        Scale {
            accounts: 3_000_000,
            watch: Duration::from_secs(12),
            rounds: 3,
            intervals: vec!["off", "10s", "1s"],
            rows: 100,
            changes: vec![100, 10_000, 1_000_000],
        }
    }

    /// Enough to see that it works.
    pub fn small() -> Self {
        Scale {
            accounts: 5_000,
            watch: Duration::from_millis(300),
            rounds: 1,
            intervals: vec!["off", "50ms"],
            rows: 10,
            changes: vec![10, 1_000],
        }
    }
}

/// The suite; it has no options of its own.
#[derive(Debug, Args)]
pub struct Checkpoints;

impl Suite for Checkpoints {
    const NAME: &'static str = "checkpoint";
    const ABOUT: &'static str = "Checkpoints: what they cost views that go on meanwhile, and what they write";

    async fn run(&self, run: &mut Run) -> Result<(), BenchError> {
        let scale = match run.size() {
            Size::Real => Scale::real(),
            Size::Small => Scale::small(),
        };
        let target = Target::of(run.size())?;
        eprintln!("{} accounts ...", scale.accounts);
        let mut bank = Bank::open(&target, scale.accounts).await?;
        if run.begins(BESIDE) {
            run.add(beside(&mut bank, &scale).await?);
        }
        if run.begins(SIZE) {
            run.add(size(&mut bank, &scale).await?);
        }
        bank.check().await?;
        bank.stop().await
    }
}

/// Changes one after the other, each until a view shows it, with checkpoints and without, by turns.
async fn beside(bank: &mut Bank, scale: &Scale) -> Result<Experiment, BenchError> {
    let mut experiment = Experiment::new(
        BESIDE,
        format!(
            "One connection changes {} rows of {} and asks a view that then has to show it, again and again, for {} s with \
             each interval between checkpoints, {} times by turns. Before that all is in a checkpoint.",
            scale.rows,
            scale.accounts,
            scale.watch.as_secs_f64(),
            scale.rounds
        ),
    );
    bank.checkpoint().await?;
    let mut latencies = vec![vec![]; scale.intervals.len()];
    let mut rates = vec![vec![]; scale.intervals.len()];
    let mut place = 0;
    for _ in 0..scale.rounds {
        for (setting, interval) in scale.intervals.iter().enumerate() {
            eprintln!("checkpoint_interval = {interval} ...");
            let sql = format!("ALTER SYSTEM SET checkpoint_interval = '{interval}'");
            bank.host.client.run(&sql).await?;
            let (begin, mut done) = (Instant::now(), 0);
            while begin.elapsed() < scale.watch {
                let start = Instant::now();
                place = (place + 7_919 * scale.rows) % (scale.accounts - scale.rows);
                bank.add(place, scale.rows).await?;
                bank.check().await?;
                latencies[setting].push(start.elapsed().as_secs_f64() * 1e3);
                done += 1;
            }
            rates[setting].push(f64::from(done) / begin.elapsed().as_secs_f64());
        }
    }
    bank.host
        .client
        .run("ALTER SYSTEM SET checkpoint_interval = 'off'")
        .await?;
    let p99 = |values: &[f64]| quantile(values, 0.99);
    let base = (median(&rates[0]), p99(&latencies[0]));
    for (setting, interval) in scale.intervals.iter().enumerate() {
        let name = |what: &str| format!("{interval}: {what}");
        let (rate, slowest) = (median(&rates[setting]), p99(&latencies[setting]));
        experiment.add(name("changes"), "1/s", rates[setting].clone(), None);
        experiment.add(name("change to visible"), "ms", latencies[setting].clone(), None);
        if setting > 0 {
            let aim = Some(Aim::MedianOver(0.95));
            experiment.add(name("rate / rate without"), "times", vec![rate / base.0], aim);
            let aim = Some(Aim::MedianUnder(2.0));
            experiment.add(name("p99 / p99 without"), "times", vec![slowest / base.1], aim);
        }
    }
    Ok(experiment)
}

/// What a checkpoint writes after so many rows changed.
async fn size(bank: &mut Bank, scale: &Scale) -> Result<Experiment, BenchError> {
    let mut experiment = Experiment::new(
        SIZE,
        "So many rows next to each other change, then there is a checkpoint: bytes that it had to write, and the time until \
         it was committed. A changed row is about 60 bytes in the table, and is in two views.",
    );
    let first = bank.checkpoint().await?;
    experiment.add("all that there is", "MB", vec![first.total / 1e6], None);
    for changes in &scale.changes {
        let count = (*changes).min(bank.accounts / 2);
        bank.add(bank.accounts / 4, count).await?;
        bank.check().await?;
        let cost = bank.checkpoint().await?;
        let name = |what: &str| format!("{count} rows: {what}");
        experiment.add(name("written"), "kB", vec![cost.written / 1e3], None);
        experiment.add(name("of all"), "%", vec![100.0 * cost.written / cost.total], None);
        experiment.add(name("time"), "ms", vec![cost.milliseconds], None);
    }
    Ok(experiment)
}
