//! More than one machine: what others add, what their loss costs, and what moving to and from them does to readers.
//!
//! ```text
//!  cluster/scaling    rows a second into views over 1, 2 and 4 machines
//!  cluster/loss       a worker is killed, or stopped: until what is written then can be read
//!  cluster/elastic    a worker joins and is let go beside writers and readers: their longest gaps
//! ```
//! The machines are network namespaces of this one, joined by a bridge, each with a share of a core of its own (`machines`): the senders and
//! the links have the rest. Where that is not allowed they are processes on loopback that share all cores, and the results say so.

mod elastic;
mod loss;
mod machines;
mod scaling;

use std::time::Duration;

use clap::Args;

use crate::error::BenchError;
use crate::results::Run;
use crate::size::Size;
use crate::suite::Suite;

/// How much of everything a run does.
#[derive(Debug, Clone, PartialEq)]
struct Scale {
    /// How many machines there are at most.
    machines: usize,
    /// Rows that are sent in a turn.
    rows: u64,
    /// How often each figure is measured.
    runs: usize,
    /// How long a turn beside readers takes.
    steady: Duration,
}

/// The suite, with its options.
#[derive(Debug, Args)]
pub struct Cluster {
    /// Machines at most; 1, 2, 4 .. of them are compared
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(2..=8))]
    machines: u64,
    /// Rows that are sent in a turn
    #[arg(long, default_value_t = 400_000)]
    rows: u64,
    /// How often each figure is measured
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// How long a turn beside readers takes
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
}

impl Suite for Cluster {
    const NAME: &'static str = "cluster";
    const ABOUT: &'static str = "Workers on several machines: scaling, loss, joining and leaving";

    async fn run(&self, run: &mut Run) -> Result<(), BenchError> {
        let scale = match run.size() {
            Size::Real => Scale {
                machines: self.machines as usize,
                rows: self.rows,
                runs: self.runs,
                steady: Duration::from_secs(self.seconds),
            },
            Size::Small => Scale {
                machines: 2,
                rows: 2_000,
                runs: 1,
                steady: Duration::from_millis(300),
            },
        };
        let place = machines::Place::of(run.size())?;
        run.note(place.says());
        if run.begins(scaling::NAME) {
            run.add(scaling::run(&scale, &place).await?);
        }
        if run.begins(loss::NAME) {
            run.add(loss::run(&scale, &place).await?);
        }
        if run.begins(elastic::NAME) {
            run.add(elastic::run(&scale, &place).await?);
        }
        Ok(())
    }
}
