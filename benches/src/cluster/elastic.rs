//! A worker joins and is let go, beside those who write and read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::Scale;
use super::machines::{Machines, Place};
use crate::client::Client;
use crate::error::BenchError;
use crate::results::{Aim, Experiment};
use crate::statistics::ms_since;

/// The experiment's name.
pub const NAME: &str = "cluster/elastic";

const GROUPS: u64 = 100_000;
const EVERY: Duration = Duration::from_millis(5);

/// The longest time that a read and a write with its read took: before, while a worker joins, and while it is let go.
///
/// # Errors
/// The server fails.
pub async fn run(scale: &Scale, place: &Place) -> Result<Experiment, BenchError> {
    let mut experiment = Experiment::new(
        NAME,
        format!(
            "A view of {GROUPS} groups on one machine. One connection reads it and another writes a row and reads that, each every {} ms; a worker joins, and \
             is let go again. Each value is the longest of a turn of {:.1} s.",
            EVERY.as_millis(),
            scale.steady.as_secs_f64()
        ),
    );
    let names = ["before", "a worker joins", "it is let go"];
    let mut longest: Vec<(Vec<f64>, Vec<f64>)> = vec![(vec![], vec![]); names.len()];
    for _ in 0..scale.runs {
        let mut machines = Machines::start(place, 2).await?;
        let client = Client::connect(machines.pg()).await?;
        client.run("CREATE STREAM s (k BIGINT, v BIGINT)").await?;
        client
            .run("CREATE MATERIALIZED VIEW m AS SELECT k, count(*) AS n, sum(v) AS total FROM s GROUP BY k")
            .await?;
        let groups = GROUPS.min(scale.rows);
        client
            .run(&format!(
                "INSERT INTO s SELECT g, 1 FROM generate_series(1, {groups}) g"
            ))
            .await?;
        for (turn, longest) in longest.iter_mut().enumerate() {
            let is_over = Arc::new(AtomicBool::new(false));
            let reads = every(&machines, &is_over, vec!["SELECT n FROM m WHERE k = 7"]).await?;
            let writes = every(
                &machines,
                &is_over,
                vec!["INSERT INTO s VALUES (7, 1)", "SELECT n FROM m WHERE k = 7"],
            )
            .await?;
            let until = Instant::now() + scale.steady;
            match turn {
                1 => machines.grow(2).await?,
                2 => {
                    let newest = "SELECT max(id) FROM mr_catalog.workers";
                    let rows = client.rows(newest).await?;
                    let id = rows
                        .first()
                        .and_then(|row| row.first().cloned().flatten())
                        .unwrap_or_default();
                    client.run(&format!("DROP WORKER {id}")).await?;
                }
                _ => {}
            }
            tokio::time::sleep_until(until.into()).await;
            is_over.store(true, Ordering::Release);
            let joined = |error: tokio::task::JoinError| BenchError::Server(error.to_string());
            longest.0.push(reads.await.map_err(joined)??);
            longest.1.push(writes.await.map_err(joined)??);
        }
        machines.stop().await?;
    }
    for (name, (reads, writes)) in names.into_iter().zip(longest) {
        experiment.add(
            format!("{name}: the longest read"),
            "ms",
            reads,
            Some(Aim::MedianUnder(250.0)),
        );
        experiment.add(
            format!("{name}: the longest write with its read"),
            "ms",
            writes,
            None,
        );
    }
    Ok(experiment)
}

/// Runs these statements again and again; the longest time that they took together, in milliseconds.
async fn every(
    machines: &Machines,
    is_over: &Arc<AtomicBool>,
    statements: Vec<&'static str>,
) -> Result<tokio::task::JoinHandle<Result<f64, BenchError>>, BenchError> {
    let client = Client::connect(machines.pg()).await?;
    let is_over = Arc::clone(is_over);
    Ok(tokio::spawn(async move {
        let mut longest: f64 = 0.0;
        while !is_over.load(Ordering::Acquire) {
            let since = Instant::now();
            for sql in &statements {
                client.rows(sql).await?;
            }
            longest = longest.max(ms_since(since));
            tokio::time::sleep(EVERY).await;
        }
        Ok(longest)
    }))
}
