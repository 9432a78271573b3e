//! Point queries on a view by its key, over one connection.

use std::time::Instant;

use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use crate::error::BenchError;
use crate::first_light::views::{self, ViewSet};
use crate::first_light::{Scale, create};
use crate::flights::Flights;
use crate::process;
use crate::results::Experiment;
use crate::statistics::ms_since;
use crate::target::{FreshServer, Target};

/// The experiment's name.
pub const NAME: &str = "point queries";

const COLUMNS: &str = "SELECT flights, mean_delay FROM flights_by_plane WHERE tailnum = ";
/// The same keys in every run.
const SEED: u64 = 2013;

/// Queries a view of thousands of groups, in both protocols, without and with an index.
pub async fn run(scale: &Scale, target: &Target, flights: &Flights) -> Result<Experiment, BenchError> {
    let bed = FreshServer::start(target).await?;
    let set = ViewSet {
        views: &[views::FLIGHTS_BY_PLANE],
        ..views::AGGREGATED
    };
    create(&bed.client, flights, &set).await?;
    bed.client
        .copy_in("COPY flights FROM STDIN (FORMAT csv)", &flights.csv()?)
        .await?;
    let planes = flights.tailnums();
    let mut random = StdRng::seed_from_u64(SEED);
    let keys = (0..scale.point_selects).filter_map(|_| planes.choose(&mut random));
    let keys: Vec<&str> = keys.map(String::as_str).collect();

    let mut experiment = Experiment::new(
        NAME,
        format!(
            "{} queries by a random key, one after the other over one connection, on a view with {} groups. First \
             without an index of its own, then with one on the key.",
            keys.len(),
            planes.len()
        ),
    );
    measure(&bed, "no index", &keys, &mut experiment).await?;
    bed.client
        .run("CREATE INDEX flights_by_plane_tailnum ON flights_by_plane (tailnum)")
        .await?;
    measure(&bed, "index", &keys, &mut experiment).await?;
    bed.stop().await?;
    Ok(experiment)
}

async fn measure(
    bed: &FreshServer,
    index: &str,
    keys: &[&str],
    experiment: &mut Experiment,
) -> Result<(), BenchError> {
    let pid = bed.server.pid();
    for protocol in ["simple protocol", "prepared"] {
        let cpu = process::cpu_time(pid)?;
        let start = Instant::now();
        let times = match protocol {
            "prepared" => prepared(bed, keys).await?,
            _ => simple(bed, keys).await?,
        };
        let seconds = start.elapsed().as_secs_f64();
        let cpu = process::cpu_time(pid)?.saturating_sub(cpu);
        let count = keys.len() as f64;
        let what = format!("{index}, {protocol}");
        experiment.add(format!("{what}: latency"), "ms", times, None);
        experiment.add(format!("{what}: rate"), "queries/s", vec![count / seconds], None);
        let cpu_ms = cpu.as_secs_f64() * 1e3 / count;
        experiment.add(format!("{what}: server CPU per query"), "ms", vec![cpu_ms], None);
    }
    Ok(())
}

async fn simple(bed: &FreshServer, keys: &[&str]) -> Result<Vec<f64>, BenchError> {
    let mut times = Vec::with_capacity(keys.len());
    for key in keys {
        let query = format!("{COLUMNS}'{key}'");
        let start = Instant::now();
        let rows = bed.client.rows(&query).await?;
        times.push(ms_since(start));
        check(rows.len(), key)?;
    }
    Ok(times)
}

async fn prepared(bed: &FreshServer, keys: &[&str]) -> Result<Vec<f64>, BenchError> {
    let postgres = bed.client.postgres();
    let failed = || BenchError::postgres("a prepared point query");
    let query = postgres
        .prepare(&format!("{COLUMNS}$1"))
        .await
        .map_err(failed())?;
    let mut times = Vec::with_capacity(keys.len());
    for key in keys {
        let start = Instant::now();
        let rows = postgres.query(&query, &[key]).await.map_err(failed())?;
        times.push(ms_since(start));
        check(rows.len(), key)?;
    }
    Ok(times)
}

fn check(rows: usize, key: &str) -> Result<(), BenchError> {
    if rows == 1 {
        return Ok(());
    }
    Err(BenchError::Wrong(format!(
        "plane {key} has {rows} rows instead of one"
    )))
}
