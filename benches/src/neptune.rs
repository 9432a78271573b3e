//! Streams first: what batch queries that take every core do to streams, and what they lose by it (Neptune, section 5).
//!
//! [`simulated`] is a cluster; [`pauses`] looks at single pauses, of each query of TPC-H and of plain threads; [`beside`] at a view of a server, and [`targets`]
//! at one that says how fresh it is to be.

pub mod beside;
pub mod pauses;
pub mod simulated;
pub mod targets;
pub mod threads;
mod together;
mod work;

use std::time::Duration;

use clap::Args;

use crate::error::BenchError;
use crate::machine;
use crate::results::Run;
use crate::size::Size;
use crate::suite::Suite;

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
    /// For how long a view and batch work run side by side, and how often under each policy.
    pub beside: Duration,
    pub rounds_beside: usize,
    /// Events a second of that view, and the rates at which its demand grows; events of a batch at most.
    pub rate: f64,
    pub rates: Vec<f64>,
    pub batch_events: usize,
    /// Rows by which a model is trained, and of which a join keeps.
    pub training_rows: usize,
    pub join_rows: usize,
    /// Simulated time of the cluster.
    pub simulated: Duration,
    /// Tasks, and threads, that are paused together; and how often.
    pub parallelism: Vec<usize>,
    pub rounds: usize,
}

impl Scale {
    /// A scale factor on all cores; a stream task each millisecond takes a twentieth of one.
    pub fn real(factor: f64) -> Self {
        Scale {
            factor,
            cores: machine::cores(),
            repetitions: 3,
            queries: 22,
            every: Duration::from_millis(1),
            work: Duration::from_micros(50),
            beside: Duration::from_secs(15),
            rounds_beside: 3,
            rate: 500_000.0,
            rates: vec![0.0, 100_000.0, 500_000.0, 1e6, 2e6, 4e6, 8e6],
            batch_events: 20_000,
            training_rows: 200_000,
            join_rows: 1_000_000,
            simulated: Duration::from_secs(20),
            parallelism: vec![2, 4, 8, 16, 32, 64],
            rounds: 50,
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
            beside: Duration::from_millis(200),
            rounds_beside: 1,
            rate: 10_000.0,
            rates: vec![0.0, 10_000.0],
            batch_events: 500,
            training_rows: 2_000,
            join_rows: 20_000,
            simulated: Duration::from_secs(1),
            parallelism: vec![2, 4],
            rounds: 10,
        }
    }
}

/// The suite, with its options.
#[derive(Debug, Args)]
pub struct Neptune {
    /// TPC-H's scale factor
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
}

impl Suite for Neptune {
    const NAME: &'static str = "neptune";
    const ABOUT: &'static str = "Streams first: what stream tasks wait for while TPC-H takes every core, under each scheduling policy";

    async fn run(&self, run: &mut Run) -> Result<(), BenchError> {
        let scale = match run.size() {
            Size::Real => Scale::real(self.scale),
            Size::Small => Scale::small(),
        };
        if run.begins(threads::NAME) {
            threads::run(run, &scale).await?;
        }
        if run.begins(simulated::NAME) {
            simulated::run(run, &scale)?;
        }
        if run.begins(pauses::NAME) {
            pauses::run(run, &scale).await?;
        }
        beside::run(run, &scale).await
    }
}
