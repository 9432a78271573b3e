//! First light: what one server on one machine does for its first user.
//!
//! Start-up, the cost of doing nothing, how soon an INSERT shows in a view, how fast a year of flights is copied in
//! under live views, and how fast a view answers point queries.

pub mod copy;
pub mod freshness;
pub mod idle;
pub mod point_select;
pub mod startup;
pub mod views;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};

use crate::client::Client;
use crate::error::BenchError;
use crate::flights::{self, Flights};
use crate::results::Run;
use crate::size::Size;
use crate::suite::Suite;
use crate::target::Target;

/// How much of everything a run does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scale {
    /// How often a server is started.
    pub startups: usize,
    /// How long an idle server is given to settle, and is then watched.
    pub idle: Duration,
    /// INSERTs that are each looked for in a view.
    pub inserts: usize,
    /// Flights in the stream.
    pub flights: usize,
    /// How often they are copied, for each set of views.
    pub copies: usize,
    /// Point queries of each kind.
    pub point_selects: usize,
}

impl Scale {
    /// What the issue asks for.
    pub fn real() -> Self {
        Scale {
            startups: 10,
            idle: Duration::from_secs(10),
            inserts: 2_000,
            flights: flights::ROWS_OF_THE_YEAR,
            copies: 5,
            point_selects: 10_000,
        }
    }

    /// Enough to see that every experiment works.
    pub fn small() -> Self {
        Scale {
            startups: 2,
            idle: Duration::from_millis(100),
            inserts: 20,
            flights: 3_000,
            copies: 1,
            point_selects: 50,
        }
    }
}

/// The suite, with its options.
#[derive(Debug, Args)]
pub struct FirstLight {
    /// The flights of a year, as .ndjson, .ndjson.gz, .csv or .csv.gz [default: January's, repeated]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    flights: Option<PathBuf>,
}

impl Suite for FirstLight {
    const NAME: &'static str = "first-light";
    const ABOUT: &'static str =
        "Start-up, idle cost, freshness, bulk loading and point queries of one server";

    async fn run(&self, run: &mut Run) -> Result<(), BenchError> {
        let scale = match run.size() {
            Size::Real => Scale::real(),
            Size::Small => Scale::small(),
        };
        let target = Target::of(run.size())?;
        let flights = flights::load(self.flights.as_deref(), scale.flights)?;
        let origin = &flights.origin;
        run.note(format!(
            "Server and load generator share the machine's cores. Flights: {origin}."
        ));
        if run.begins(startup::NAME) {
            run.add(startup::run(&scale, &target).await?);
        }
        if run.begins(idle::NAME) {
            run.add(idle::run(&scale, &target).await?);
        }
        if run.begins(freshness::NAME) {
            let probes = run.fsync_probes();
            run.add(freshness::run(&scale, &target, probes).await?);
        }
        for set in &views::SETS {
            if run.begins(set.experiment) {
                run.add(copy::run(&scale, &target, &flights, set).await?);
            }
        }
        if run.begins(point_select::NAME) {
            run.add(point_select::run(&scale, &target, &flights).await?);
        }
        Ok(())
    }
}

/// Creates the streams, the table and the views of a set, and fills the table.
async fn create(client: &Client, flights: &Flights, set: &views::ViewSet) -> Result<(), BenchError> {
    client.run(flights::CREATE_FLIGHTS).await?;
    client.run(flights::CREATE_AIRLINES).await?;
    for view in set.views {
        let (name, select) = (view.name, view.select);
        client
            .run(&format!("CREATE MATERIALIZED VIEW {name} AS {select}"))
            .await?;
    }
    let airlines = flights.airlines_csv()?;
    client
        .copy_in("COPY airlines FROM STDIN (FORMAT csv)", &airlines)
        .await?;
    Ok(())
}
