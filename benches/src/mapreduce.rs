//! The operators of StreamMapReduce (Brito et al., 2011, section 5): windows that slide, a word count, service levels and
//! communities of interest; and queries of Nexmark that need windows.
//!
//! A server runs in this process, with its log in memory where there is such a directory, so that no disk is measured.
//! Events are handed to it as Arrow.

mod latency;
mod moving_average;
mod nexmark;
mod words;

use std::time::Duration;

use clap::Args;

use crate::error::BenchError;
use crate::results::Run;
use crate::size::Size;
use crate::suite::Suite;

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
        }
    }
}

/// The experiments' names.
const MOVING_AVERAGE: &str = "moving average";
const WORD_COUNT: &str = "word count";
const LATENCY: &str = "latency";
const NEXMARK: &str = "nexmark";

/// The suite; it has no options of its own.
#[derive(Debug, Args)]
pub struct MapReduce;

impl Suite for MapReduce {
    const NAME: &'static str = "mapreduce";
    const ABOUT: &'static str =
        "StreamMapReduce's experiments: moving average, word count, latency by rate; Nexmark over windows";

    async fn run(&self, run: &mut Run) -> Result<(), BenchError> {
        let scale = match run.size() {
            Size::Real => Scale::real(),
            Size::Small => Scale::small(),
        };
        if run.begins(MOVING_AVERAGE) {
            run.add(moving_average::run(&scale).await?);
        }
        if run.begins(WORD_COUNT) {
            run.add(words::run(&scale).await?);
        }
        if run.begins(LATENCY) {
            for experiment in latency::run(&scale).await? {
                run.add(experiment);
            }
        }
        if run.begins(NEXMARK) {
            run.add(nexmark::run(&scale).await?);
        }
        Ok(())
    }
}
