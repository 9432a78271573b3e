//! Tenants: what one who means no good does to another.
//!
//! ```text
//!  tenants/beside     a role that wants all it can get, beside one that asks for little now and then
//!  tenants/strangers  a thousand clients that are slow, stop half-way, send garbage or far too much, beside a view that is written to
//! ```
//! Everybody shares the machine's cores with the server.

mod beside;
mod strangers;

use std::time::Duration;

use clap::Args;

use crate::error::BenchError;
use crate::results::Run;
use crate::size::Size;
use crate::suite::Suite;
use crate::target::Target;

/// How much of everything a run does.
#[derive(Debug, Clone, PartialEq)]
struct Scale {
    /// How long each turn is measured.
    steady: Duration,
    /// Rows of the tables.
    rows: u64,
    /// Connections of the role that wants everything.
    hostile: usize,
    /// Clients that do not behave, at a time.
    strangers: usize,
    /// How often each figure is measured.
    runs: usize,
}

/// The suite, with its options.
#[derive(Debug, Args)]
pub struct Tenants {
    /// How long each turn is measured
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Rows of the tables
    #[arg(long, default_value_t = 1_000_000)]
    rows: u64,
    /// Connections of the role that wants everything
    #[arg(long, default_value_t = 16)]
    hostile: usize,
    /// Clients that do not behave, at a time
    #[arg(long, default_value_t = 1_000)]
    strangers: usize,
    /// How often each figure is measured
    #[arg(long, default_value_t = 3)]
    runs: usize,
}

impl Tenants {
    fn scale(&self, size: Size) -> Scale {
        match size {
            Size::Real => Scale {
                steady: Duration::from_secs(self.seconds),
                rows: self.rows,
                hostile: self.hostile,
                strangers: self.strangers,
                runs: self.runs,
            },
            Size::Small => Scale {
                steady: Duration::from_millis(500),
                rows: 2_000,
                hostile: 3,
                strangers: 40,
                runs: 1,
            },
        }
    }
}

impl Suite for Tenants {
    const NAME: &'static str = "tenants";
    const ABOUT: &'static str = "What a hostile role, and hostile strangers, do to others";

    async fn run(&self, run: &mut Run) -> Result<(), BenchError> {
        let size = run.size();
        let scale = self.scale(size);
        let target = Target::of(size)?;
        run.note("Clients and server share the machine's cores.");
        if run.begins(beside::NAME) {
            run.add(beside::run(&scale, &target).await?);
        }
        if run.begins(strangers::NAME) {
            run.add(strangers::run(&scale, &target).await?);
        }
        Ok(())
    }
}
