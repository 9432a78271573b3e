//! The operators of StreamMapReduce (Brito et al., 2011, section 5): windows that slide, a word count, service levels and
//! communities of interest; and queries of Nexmark that need windows.
//!
//! A server runs in this process, with its log in memory where there is such a directory, so that no disk is measured.
//! Events are handed to it as Arrow.

pub(crate) mod bed;
mod latency;
mod moving_average;
mod nexmark;
mod words;

use std::time::Duration;

use crate::error::BenchError;
use crate::results::Run;

/// How much of everything a run does.
#[derive(Debug, Clone, PartialEq)]
pub struct Scale {
    /// Keys, events and sizes of windows in microseconds of the moving average.
    pub keys: u64,
    pub events: u64,
    pub window_micros: Vec<i64>,
    /// Bytes of text.
    pub text_bytes: u64,
    /// Events a second that are tried, each for so long.
    pub rates: Vec<u64>,
    pub each: Duration,
    /// Events of all three kinds.
    pub nexmark_events: u64,
    /// Probes of the disk.
    pub fsync_probes: usize,
}

impl Scale {
    /// As in the paper: 10,000 keys, windows of 5 ms to 50 s; 500 MB of text.
    pub fn real() -> Self {
        Scale {
            keys: 10_000,
            events: 2_000_000,
            window_micros: vec![5_000, 50_000, 500_000, 5_000_000, 50_000_000],
            text_bytes: 500_000_000,
            rates: vec![1_000, 10_000, 25_000, 50_000, 100_000, 200_000, 400_000],
            each: Duration::from_secs(5),
            nexmark_events: 1_000_000,
            fsync_probes: 100,
        }
    }

    /// Enough to see that the experiments work.
    pub fn small() -> Self {
        Scale {
            keys: 100,
            events: 20_000,
            window_micros: vec![50_000],
            text_bytes: 200_000,
            rates: vec![500],
            each: Duration::from_millis(300),
            nexmark_events: 5_000,
            fsync_probes: 5,
        }
    }
}

/// The experiments, by name.
pub const EXPERIMENTS: [&str; 4] = ["moving average", "word count", "latency", "nexmark"];

/// Runs all experiments, or those whose name contains `only`.
///
/// # Errors
/// The server fails, or a view does not hold what it should.
pub async fn run(mut run: Run, scale: &Scale, only: Option<&str>) -> Result<Run, BenchError> {
    for name in EXPERIMENTS
        .into_iter()
        .filter(|name| only.is_none_or(|only| name.contains(only)))
    {
        eprintln!("{name} ...");
        let experiments = match name {
            "moving average" => vec![moving_average::run(scale).await?],
            "word count" => vec![words::run(scale).await?],
            "latency" => latency::run(scale).await?,
            _ => vec![nexmark::run(scale).await?],
        };
        for experiment in experiments {
            run.add(experiment);
        }
    }
    Ok(run)
}
