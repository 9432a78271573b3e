//! The doors: how fast and how soon what others keep is here, from a real Kafka broker and a real PostgreSQL server.
//!
//! ```text
//!  kafka/replay       topic that was written before ----> stream --> view has counted all of it
//!  kafka/freshness    producer at a steady rate --------> stream --> view --> who follows the view
//!  postgres/snapshot  table with rows ------------------> table
//!  postgres/changes   updates, committed one by one ----> table  --> view --> who follows the view
//! ```
//! Broker, PostgreSQL, producer, server and observer share the machine's cores.

mod changes;
mod follow;
mod freshness;
mod reading;
mod records;
mod replay;
mod snapshot;

pub use freshness::Feed;

use std::time::{Duration, Instant};

use clap::Args;
use krafka::Kafka;
use millrace_sql_tests::kafka::{Broker, JARS};
use millrace_sql_tests::postgres::{BIN, Postgres};
use tempfile::TempDir;

use crate::bed::{self, Place};
use crate::client::Client;
use crate::error::BenchError;
use crate::results::Run;
use crate::size::Size;
use crate::suite::Suite;
use crate::target::Target;

/// How long the next row may take before a run gives up.
const PATIENCE: Duration = Duration::from_secs(60);

/// How much of everything a run does.
#[derive(Debug, Clone, PartialEq)]
struct Scale {
    /// Records of a topic that is replayed.
    records: u64,
    /// Records a second of the steady producer.
    rate: u64,
    /// How long it produces, and clients update.
    steady: Duration,
    /// What of that is not counted.
    warm_up: Duration,
    /// Rows of the table that is copied.
    rows: u64,
    /// Rows of the table that is updated.
    accounts: u64,
    /// How often each figure is measured.
    runs: usize,
}

/// The suite, with its options.
#[derive(Debug, Args)]
pub struct Doors {
    /// Records of the topic that is replayed
    #[arg(long, default_value_t = 2_000_000)]
    records: u64,
    /// Records a second of the steady producer
    #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(1..))]
    rate: u64,
    /// How long it produces, and clients update; of the producer the first quarter is not counted
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Rows of the table that is copied
    #[arg(long, default_value_t = 600_000)]
    rows: u64,
    /// How often each figure is measured
    #[arg(long, default_value_t = 3)]
    runs: usize,
}

impl Doors {
    fn scale(&self, size: Size) -> Scale {
        match size {
            Size::Real => {
                let steady = Duration::from_secs(self.seconds);
                Scale {
                    records: self.records,
                    rate: self.rate,
                    steady,
                    warm_up: steady / 4,
                    rows: self.rows,
                    accounts: 100_000,
                    runs: self.runs,
                }
            }
            Size::Small => Scale {
                records: 3_000,
                rate: 1_000,
                steady: Duration::from_millis(800),
                warm_up: Duration::from_millis(200),
                rows: 2_000,
                accounts: 1_000,
                runs: 1,
            },
        }
    }
}

impl Suite for Doors {
    const NAME: &'static str = "doors";
    const ABOUT: &'static str = "How fast and how soon rows of Kafka and PostgreSQL are here";

    async fn run(&self, run: &mut Run) -> Result<(), BenchError> {
        let size = run.size();
        let scale = self.scale(size);
        let target = Target::of(size)?;
        run.note("Broker, PostgreSQL, producers, server and observer share the machine's cores.");
        if run.wants(replay::NAME) || run.wants(freshness::NAME) {
            let (broker, _directory) = broker()?;
            if run.begins(replay::NAME) {
                run.add(replay::run(&scale, &target, &broker).await?);
            }
            if run.begins(freshness::NAME) {
                run.add(freshness::run(&scale, size, &target, &broker).await?);
            }
        }
        if run.wants(snapshot::NAME) || run.wants(changes::NAME) {
            let (postgres, _directory) = postgres()?;
            if run.begins(snapshot::NAME) {
                run.add(snapshot::run(&scale, &target, &postgres).await?);
            }
            if run.begins(changes::NAME) {
                run.add(changes::run(&scale, &target, &postgres).await?);
            }
        }
        Ok(())
    }
}

/// A broker on a directory of its own.
fn broker() -> Result<(Broker, TempDir), BenchError> {
    let directory = Place::Disk.directory()?;
    let broker = Broker::start(&directory.path().join("broker"))?;
    let broker = broker.ok_or_else(|| {
        BenchError::Server(format!(
            "there is no Kafka broker: set {JARS} to the folder of its jars (.ci/run puts them into target/kafka/jars), or \
             choose other experiments with --only postgres"
        ))
    })?;
    Ok((broker, directory))
}

/// A PostgreSQL server on a directory of its own.
fn postgres() -> Result<(Postgres, TempDir), BenchError> {
    bed::postgres()?.ok_or_else(|| {
        BenchError::Server(format!(
            "there is no PostgreSQL: set {BIN} to the folder of its programs (initdb, postgres), or choose other experiments \
             with --only kafka"
        ))
    })
}

/// For `map_err`: an error of the broker or of the client of it.
fn kafka_failed(doing: &'static str) -> impl FnOnce(krafka::error::KrafkaError) -> BenchError {
    move |error| BenchError::Server(format!("{doing}: {error}"))
}

/// A client of the broker at this address.
async fn kafka(address: &str) -> Result<Kafka, BenchError> {
    let kafka = Kafka::builder(address).connect().await;
    kafka.map_err(kafka_failed("cannot connect to the broker"))
}

/// Asks until the answer is this number.
async fn until(client: &Client, sql: &str, expected: u64) -> Result<(), BenchError> {
    let (mut last, mut moved) = (f64::NAN, Instant::now());
    loop {
        let found = client.number(sql).await?;
        if found == expected as f64 {
            return Ok(());
        }
        if found != last {
            (last, moved) = (found, Instant::now());
        }
        if moved.elapsed() > PATIENCE || found > expected as f64 {
            return Err(BenchError::Wrong(format!(
                "{sql} answers {found} instead of {expected}; sources: {:?}",
                client
                    .rows("SELECT name, state, bad_records, error FROM mr_catalog.sources")
                    .await?
            )));
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
