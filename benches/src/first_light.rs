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

use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::client::Client;
use crate::error::BenchError;
use crate::flights::{self, Flights};
use crate::machine;
use crate::results::Run;
use crate::target::{RunningServer, Target};

/// How much of everything a run does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scale {
    /// Probes of the disk, each time that it is probed.
    pub fsync_probes: usize,
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
            fsync_probes: 500,
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
            fsync_probes: 5,
            startups: 2,
            idle: Duration::from_millis(100),
            inserts: 20,
            flights: 3_000,
            copies: 1,
            point_selects: 50,
        }
    }
}

/// Runs the experiments whose names contain `only`.
///
/// # Errors
/// A server does not start, refuses something, or answers wrongly: a fast wrong answer is no result.
pub async fn run(
    mut run: Run,
    scale: &Scale,
    target: &Target,
    flights: &Flights,
    only: Option<&str>,
) -> Result<Run, BenchError> {
    let chosen = |name: &str| {
        let chosen = only.is_none_or(|only| name.contains(only));
        if chosen {
            eprintln!("{name} ...");
        }
        chosen
    };
    run.note(
        "Server and load generator share the machine's cores. Flights: ".to_owned() + &flights.origin + ".",
    );
    if *target == Target::InProcess {
        run.note(
            "The server ran inside the load generator's process, in whatever profile that was built: these numbers \
             show that the experiments work and nothing else.",
        );
    }
    if chosen(startup::NAME) {
        run.add(startup::run(scale, target).await?);
    }
    if chosen(idle::NAME) {
        run.add(idle::run(scale, target).await?);
    }
    if chosen(freshness::NAME) {
        run.add(freshness::run(scale, target).await?);
    }
    for set in &views::SETS {
        if chosen(set.experiment) {
            run.add(copy::run(scale, target, flights, set).await?);
        }
    }
    if chosen(point_select::NAME) {
        run.add(point_select::run(scale, target, flights).await?);
    }
    run.note(format!("Load after the run: {}.", machine::load_average()));
    Ok(run)
}

/// A server on a directory of its own, with one connection.
struct Bed {
    client: Client,
    server: RunningServer,
    _directory: TempDir,
}

impl Bed {
    /// Starts a server on an empty directory and connects.
    async fn make(target: &Target) -> Result<Self, BenchError> {
        let directory =
            tempfile::tempdir().map_err(BenchError::io("cannot make a directory for the server"))?;
        let server = target.start(&directory.path().join("data")).await?;
        Ok(Bed {
            client: Client::connect(server.pg()).await?,
            server,
            _directory: directory,
        })
    }

    /// Creates the streams, the table and the views of a set, and fills the table.
    async fn create(&self, flights: &Flights, set: &views::ViewSet) -> Result<(), BenchError> {
        self.client.run(flights::CREATE_FLIGHTS).await?;
        self.client.run(flights::CREATE_AIRLINES).await?;
        for view in set.views {
            let (name, select) = (view.name, view.select);
            self.client
                .run(&format!("CREATE MATERIALIZED VIEW {name} AS {select}"))
                .await?;
        }
        let airlines = flights.airlines_csv()?;
        self.client
            .copy_in("COPY airlines FROM STDIN (FORMAT csv)", &airlines)
            .await?;
        Ok(())
    }

    async fn stop(self) -> Result<(), BenchError> {
        drop(self.client);
        self.server.stop().await
    }
}

/// Milliseconds since `start`.
fn ms_since(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}

/// Bytes as megabytes of a million.
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
