//! Drizzle: what grouped, pre-scheduled micro-batches cost and give.
//!
//! The paper's experiments (SOSP'17, section 5) with its numbers beside ours. Clusters are simulated ([`simulated`]); what
//! one machine can show is measured on it.

pub mod adaptability;
pub mod coordination;
pub mod json;
pub mod simulated;
pub mod typed;
pub mod ysb;

use std::time::Duration;

use clap::Args;

use crate::error::BenchError;
use crate::results::Run;
use crate::size::Size;
use crate::suite::Suite;

/// How much of everything a run does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scale {
    /// Sizes of simulated clusters, ascending.
    pub workers: Vec<u32>,
    /// Micro-batches of a simulated job, and how often it is run.
    pub batches: u64,
    pub trials: u64,
    /// For how long a group size is watched.
    pub tuning_seconds: u64,
    /// Epochs for each group size, in one process.
    pub epochs: u64,
    /// Events of a batch, and of an HTTP request.
    pub batch_events: usize,
    pub request_events: usize,
    /// For how long as many events as possible are sent, and events at a given rate.
    pub burst: Duration,
    pub paced: Duration,
    /// Where workers are lost and added: group sizes, events a second, for how long, and the windows of that time.
    pub group_sizes: Vec<u64>,
    pub paced_events: u64,
    pub watched: Duration,
    pub window: Duration,
}

impl Scale {
    /// What the issue asks for.
    pub fn real() -> Self {
        Scale {
            workers: vec![4, 8, 16, 32, 64, 128],
            batches: 100,
            trials: 5,
            tuning_seconds: 120,
            epochs: 2_000,
            batch_events: 20_000,
            request_events: 4_000,
            burst: Duration::from_secs(3),
            paced: Duration::from_secs(4),
            group_sizes: vec![10, 50, 100, 300, 600],
            paced_events: 100_000,
            watched: Duration::from_secs(20),
            window: Duration::from_secs(1),
        }
    }

    /// Enough to see that every experiment works.
    pub fn small() -> Self {
        Scale {
            workers: vec![2, 4, 32],
            batches: 10,
            trials: 1,
            tuning_seconds: 8,
            epochs: 20,
            batch_events: 500,
            request_events: 200,
            burst: Duration::from_millis(100),
            paced: Duration::from_millis(50),
            group_sizes: vec![5],
            paced_events: 10_000,
            watched: Duration::from_secs(4),
            window: Duration::from_millis(500),
        }
    }
}

/// The suite; it has no options of its own.
#[derive(Debug, Args)]
pub struct Drizzle;

impl Suite for Drizzle {
    const NAME: &'static str = "drizzle";
    const ABOUT: &'static str = "Drizzle's experiments: coordination on simulated clusters, latency and throughput of the Yahoo streaming benchmark";

    async fn run(&self, run: &mut Run) -> Result<(), BenchError> {
        let scale = match run.size() {
            Size::Real => Scale::real(),
            Size::Small => Scale::small(),
        };
        simulated::run(run, &scale)?;
        if run.begins(coordination::NAME) {
            run.add(coordination::run(&scale).await?);
        }
        if run.begins(typed::NAME) {
            typed::run(run, &scale).await?;
        }
        if run.begins(adaptability::NAME) {
            adaptability::run(run, &scale).await?;
        }
        if run.begins(json::NAME) {
            run.add(json::run(&scale).await?);
        }
        Ok(())
    }
}

/// Processor time of this thread so far.
fn thread_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}
