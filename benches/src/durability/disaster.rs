//! Disaster: what is lost with a machine, and how soon another one answers, by the copy that `log_url` keeps.
//!
//! The copy is a directory on the same disk: what a link and a bucket add is not in it. Servers are in this process; the machine is lost in that
//! the copy is restored elsewhere as it is at some moment, while the server goes on to write.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use millrace_storage::offsite::{Place as CopyPlace, restore};
use millrace_wire::Server;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::bed::{Place, serve};
use crate::client::Client;
use crate::error::BenchError;
use crate::results::{Aim, Experiment, Run};
use crate::size::Size;
use crate::statistics::ms_since;
use crate::suite::Suite;

const POINT: &str = "recovery point";
const TIME: &str = "recovery time";
const COST: &str = "cost";
/// Rows of an INSERT while the machine is lost.
const ROWS: usize = 10;
/// How long the copy may take to be whole.
const PATIENCE: Duration = Duration::from_secs(600);

/// How much of everything a run does.
#[derive(Debug, Clone, PartialEq)]
pub struct Scale {
    /// How often the machine is lost, after how long each time.
    pub losses: usize,
    pub loss_after: Duration,
    /// Sizes of the table that is restored, in rows.
    pub sizes: Vec<usize>,
    /// For how long INSERTs are counted.
    pub counted: Duration,
}

impl Scale {
    /// Up to some hundreds of megabytes.
    pub fn real() -> Self {
        Scale {
            losses: 20,
            loss_after: Duration::from_millis(2_300),
            sizes: vec![100_000, 1_000_000, 4_000_000],
            counted: Duration::from_secs(15),
        }
    }

    /// Enough to see that it works.
    pub fn small() -> Self {
        Scale {
            losses: 2,
            loss_after: Duration::from_millis(400),
            sizes: vec![2_000],
            counted: Duration::from_millis(500),
        }
    }
}

/// The suite; it has no options of its own.
#[derive(Debug, Args)]
pub struct Disaster;

impl Suite for Disaster {
    const NAME: &'static str = "disaster";
    const ABOUT: &'static str = "Disaster: what is lost with a machine, and how soon another one answers";

    async fn run(&self, run: &mut Run) -> Result<(), BenchError> {
        let scale = match run.size() {
            Size::Real => Scale::real(),
            Size::Small => Scale::small(),
        };
        if cfg!(debug_assertions) {
            run.note("The program was not built with optimisation.");
        }
        if run.begins(POINT) {
            run.add(point(&scale).await?);
        }
        if run.begins(TIME) {
            run.add(time(&scale).await?);
        }
        if run.begins(COST) {
            run.add(cost(&scale).await?);
        }
        Ok(())
    }
}

/// A server that keeps a copy beside its data, if it is to.
async fn start(place: &Path, interval: Option<Duration>) -> Result<(Server, Client), BenchError> {
    let server = serve(&place.join("data"), |config| {
        if let Some(interval) = interval {
            config.log_url = Some(url(place));
            config.log_ship_interval = interval;
        }
    })
    .await?;
    let client = Client::connect(server.pg_addr()).await?;
    Ok((server, client))
}

fn url(place: &Path) -> String {
    format!("file://{}", place.join("copy").display())
}

/// Restores the copy; how long that took, in milliseconds, and the bytes.
async fn restored(place: &Path, data: &Path) -> Result<(f64, u64), BenchError> {
    let failed = |error: millrace_storage::StorageError| BenchError::Server(error.to_string());
    let begin = Instant::now();
    let restored = restore(&CopyPlace::open(&url(place)).map_err(failed)?, data).await;
    Ok((ms_since(begin), restored.map_err(failed)?.bytes))
}

/// INSERTs one after the other until it is told to end, and when each was acknowledged.
async fn write(
    client: &Client,
    stop: watch::Receiver<bool>,
    acknowledged: &Mutex<Vec<Instant>>,
) -> Result<(), BenchError> {
    let mut next = acknowledged.lock().len() * ROWS;
    while !*stop.borrow() {
        let last = next + ROWS - 1;
        let sql =
            format!("INSERT INTO e SELECT x, 'event ' || x FROM generate_series({next}, {last}) AS g(x)");
        client.run(&sql).await?;
        acknowledged.lock().push(Instant::now());
        next += ROWS;
    }
    Ok(())
}

async fn point(scale: &Scale) -> Result<Experiment, BenchError> {
    let mut experiment = Experiment::new(
        POINT,
        format!(
            "One client makes INSERTs of {ROWS} rows one after the other. Every {} ms the copy is restored elsewhere as it is then; \
             the recovery point is how long before that the first INSERT was acknowledged that is not there (0: none is missing).",
            scale.loss_after.as_millis()
        ),
    );
    for (name, interval) in [
        ("1s", Duration::from_secs(1)),
        ("100ms", Duration::from_millis(100)),
    ] {
        let place = Place::Disk.directory()?;
        let (server, client) = start(place.path(), Some(interval)).await?;
        client.run("CREATE STREAM e (n BIGINT, t TEXT)").await?;
        client
            .run("CREATE MATERIALIZED VIEW v AS SELECT n % 10 AS g, count(*) AS c FROM e GROUP BY n % 10")
            .await?;
        until_whole(&client).await?;
        let acknowledged = Arc::new(Mutex::new(vec![]));
        let (stop, stopping) = watch::channel(false);
        let writer = write(&client, stopping, &acknowledged);
        let losing = async {
            let mut points = vec![];
            let mut rates = vec![];
            for loss in 0..scale.losses {
                let before = acknowledged.lock().len();
                tokio::time::sleep(scale.loss_after).await;
                let lost_at = Instant::now();
                let there = acknowledged.lock().len();
                rates.push((there - before) as f64 * ROWS as f64 / scale.loss_after.as_secs_f64());
                let elsewhere = place.path().join(format!("elsewhere{loss}"));
                restored(place.path(), &elsewhere).await?;
                let other = serve(&elsewhere, |_| {}).await?;
                let client = Client::connect(other.pg_addr()).await?;
                let rows = client.number("SELECT count(*) FROM e").await? as usize;
                let counted = client.number("SELECT coalesce(sum(c), 0)::bigint FROM v").await? as usize;
                if !rows.is_multiple_of(ROWS) || rows != counted {
                    return Err(BenchError::Server(format!(
                        "{rows} rows are there, and the view has {counted}"
                    )));
                }
                let first_lost = acknowledged.lock().get(rows / ROWS).copied();
                let lost = first_lost.map_or(Duration::ZERO, |at| lost_at.saturating_duration_since(at));
                points.push(lost.as_secs_f64() * 1e3);
                drop(client);
                other.shutdown().await;
                std::fs::remove_dir_all(&elsewhere).map_err(BenchError::io("cannot remove a directory"))?;
            }
            stop.send_replace(true);
            Ok::<_, BenchError>((points, rates))
        };
        let (written, lost) = tokio::join!(writer, losing);
        written?;
        let (points, rates) = lost?;
        let aim = Aim::MedianUnder(interval.as_secs_f64() * 1e3 + 250.0);
        experiment.add(format!("{name}: lost"), "ms", points, Some(aim));
        experiment.add(format!("{name}: rows a second meanwhile"), "rows/s", rates, None);
        drop(client);
        server.shutdown().await;
    }
    Ok(experiment)
}

/// Waits until all that was acknowledged is in the copy.
async fn until_whole(client: &Client) -> Result<(), BenchError> {
    let begin = Instant::now();
    let now = client
        .number("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint")
        .await?;
    let covered =
        "SELECT coalesce((extract(epoch FROM covered_until) * 1000)::bigint, 0) FROM mr_catalog.shipping";
    while client.number(covered).await? <= now {
        if begin.elapsed() > PATIENCE {
            return Err(BenchError::Server("the copy is not made".to_owned()));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

async fn time(scale: &Scale) -> Result<Experiment, BenchError> {
    let mut experiment = Experiment::new(
        TIME,
        "A table with an aggregate over it, all of it in a checkpoint of the copy. The time that restoring takes, and from then until the \
         aggregate answers rightly on a server over what was restored."
            .to_owned(),
    );
    for size in &scale.sizes {
        eprintln!("{size} rows ...");
        let place = Place::Disk.directory()?;
        let (server, client) = start(place.path(), Some(Duration::from_secs(1))).await?;
        client
            .run("CREATE TABLE account (id BIGINT PRIMARY KEY, branch INT, balance BIGINT, note TEXT)")
            .await?;
        client
            .run("CREATE MATERIALIZED VIEW v AS SELECT branch, count(*) AS c FROM account GROUP BY branch")
            .await?;
        let begin = Instant::now();
        for first in (0..*size).step_by(50_000) {
            let last = (first + 50_000).min(*size) - 1;
            client
                .run(&format!(
                    "INSERT INTO account SELECT x, x % 1000, x % 7, 'the note of account number ' || x \
                     FROM generate_series({first}, {last}) AS g(x)"
                ))
                .await?;
        }
        until_whole(&client).await?;
        let name = |what: &str| format!("{size} rows: {what}");
        experiment.add(name("written and shipped in"), "ms", vec![ms_since(begin)], None);
        drop(client);
        // An orderly end has the last checkpoint.
        server.shutdown().await;
        let (mut times, mut answers, mut bytes) = (vec![], vec![], vec![]);
        for time in 0..3 {
            let elsewhere = place.path().join(format!("elsewhere{time}"));
            let (took, read) = restored(place.path(), &elsewhere).await?;
            times.push(took);
            bytes.push(read as f64 / 1e6);
            let begin = Instant::now();
            let other = serve(&elsewhere, |_| {}).await?;
            let client = Client::connect(other.pg_addr()).await?;
            let counted = client.number("SELECT sum(c)::bigint FROM v").await?;
            answers.push(ms_since(begin));
            if counted != *size as f64 {
                return Err(BenchError::Server(format!(
                    "the view counts {counted} of {size} rows"
                )));
            }
            drop(client);
            other.shutdown().await;
        }
        experiment.add(name("restored"), "ms", times, None);
        experiment.add(name("read"), "MB", bytes, None);
        experiment.add(
            name("then the first right answer"),
            "ms",
            answers,
            Some(Aim::MedianUnder(3_000.0)),
        );
    }
    Ok(experiment)
}

async fn cost(scale: &Scale) -> Result<Experiment, BenchError> {
    let mut experiment = Experiment::new(
        COST,
        format!(
            "One client makes INSERTs of {ROWS} rows one after the other for {} s, on a server with a copy every second and on one without, in \
             turn.",
            scale.counted.as_secs_f64()
        ),
    );
    let (mut with, mut without) = (vec![], vec![]);
    for turn in 0..4 {
        let interval = (turn % 2 == 0).then_some(Duration::from_secs(1));
        let place = Place::Disk.directory()?;
        let (server, client) = start(place.path(), interval).await?;
        client.run("CREATE STREAM e (n BIGINT, t TEXT)").await?;
        let acknowledged = Mutex::new(vec![]);
        let (stop, stopping) = watch::channel(false);
        let ending = async {
            tokio::time::sleep(scale.counted).await;
            stop.send_replace(true);
        };
        let (written, ()) = tokio::join!(write(&client, stopping, &acknowledged), ending);
        written?;
        let rate = acknowledged.lock().len() as f64 / scale.counted.as_secs_f64();
        if interval.is_some() {
            &mut with
        } else {
            &mut without
        }
        .push(rate);
        drop(client);
        server.shutdown().await;
    }
    let ratios = with
        .iter()
        .zip(&without)
        .map(|(with, without)| with / without.max(1e-9));
    let ratios = ratios.collect();
    experiment.add("INSERTs a second with a copy", "1/s", with, None);
    experiment.add("INSERTs a second without", "1/s", without, None);
    experiment.add("with / without", "times", ratios, None);
    Ok(experiment)
}
