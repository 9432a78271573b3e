//! Streams first: what batch queries that take every core do to streams, and what they lose by it (Neptune, section 5).
//!
//! [`simulated`] is a cluster; [`pauses`] looks at single pauses, of each query of TPC-H and of plain threads; [`beside`] at a view of a server.

pub mod beside;
pub mod pauses;
pub mod simulated;
pub mod threads;
mod work;

use std::time::Duration;

use crate::error::BenchError;
use crate::results::Run;

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
            fsync_probes: 5,
        }
    }
}

/// All experiments; `only`: those whose name contains this.
///
/// # Errors
/// A server fails, or an answer is wrong.
pub async fn run(mut run: Run, scale: &Scale, only: Option<&str>) -> Result<Run, BenchError> {
    let is_wanted = |name: &str| only.is_none_or(|only| name.contains(only));
    if is_wanted(threads::NAME) {
        threads::run(&mut run, scale).await?;
    }
    if is_wanted(simulated::NAME) {
        simulated::run(&mut run, scale)?;
    }
    if is_wanted(pauses::NAME) {
        pauses::run(&mut run, scale).await?;
    }
    beside::run(&mut run, scale, is_wanted).await?;
    Ok(run)
}
