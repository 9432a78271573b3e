//! A worker is lost: how long what is written then cannot be read.

use std::time::{Duration, Instant};

use super::Scale;
use super::machines::{Machines, Place};
use crate::client::Client;
use crate::error::BenchError;
use crate::results::{Aim, Experiment};
use crate::statistics::ms_since;

/// The experiment's name.
pub const NAME: &str = "cluster/loss";

const GROUPS: u64 = 100_000;

/// For each way to lose one of three machines, the time from then until a row that is written is in the view.
///
/// # Errors
/// The server fails, or an answer is wrong.
pub async fn run(scale: &Scale, place: &Place) -> Result<Experiment, BenchError> {
    let mut experiment = Experiment::new(
        NAME,
        format!(
            "A view of {GROUPS} groups over three machines, to which a row is written every few milliseconds. One worker is killed (SIGKILL), or stopped \
             (SIGSTOP); the time from then until the next row that is written can be read, and the median of the writes before it. Another worker joins, and it begins again."
        ),
    );
    let machines_count = 3.min(scale.machines);
    for (name, is_stopped, aim) in [("killed", false, 1_000.0), ("stopped", true, 2_000.0)] {
        let (mut usual, mut lost, mut readers) = (vec![], vec![], vec![]);
        for _ in 0..scale.runs {
            let mut machines = Machines::start(place, machines_count + 1).await?;
            let client = Client::connect(machines.pg()).await?;
            client.run("CREATE STREAM s (k BIGINT, v BIGINT)").await?;
            client
                .run("CREATE MATERIALIZED VIEW m AS SELECT k, count(*) AS n, sum(v) AS total FROM s GROUP BY k")
                .await?;
            machines.grow(machines_count).await?;
            let groups = GROUPS.min(scale.rows);
            client
                .run(&format!(
                    "INSERT INTO s SELECT g, 1 FROM generate_series(1, {groups}) g"
                ))
                .await?;
            let mut written = groups;
            let until = Instant::now() + scale.steady / 2;
            let mut times = vec![];
            while Instant::now() < until {
                times.push(write_and_read(&client, &mut written).await?);
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            times.sort_by(f64::total_cmp);
            usual.push(times[times.len() / 2]);
            let since = Instant::now();
            machines.lose_one(is_stopped)?;
            // What was there can be read all the time; what is written now waits for the recovery.
            let reading = Client::connect(machines.pg()).await?;
            client.run("INSERT INTO s VALUES (1, 1)").await?;
            written += 1;
            reading.rows("SELECT count(*) FROM s").await?;
            readers.push(ms_since(since));
            check(&client, written).await?;
            lost.push(ms_since(since));
            machines.stop().await?;
        }
        experiment.add(format!("{name}: a write and its read before"), "ms", usual, None);
        experiment.add(
            format!("{name}: until the write was acknowledged"),
            "ms",
            readers,
            None,
        );
        experiment.add(
            format!("{name}: until it could be read"),
            "ms",
            lost,
            Some(Aim::MedianUnder(aim)),
        );
    }
    Ok(experiment)
}

async fn write_and_read(client: &Client, written: &mut u64) -> Result<f64, BenchError> {
    let since = Instant::now();
    client.run("INSERT INTO s VALUES (1, 1)").await?;
    *written += 1;
    check(client, *written).await?;
    Ok(ms_since(since))
}

async fn check(client: &Client, written: u64) -> Result<(), BenchError> {
    let answer = client.rows("SELECT sum(n) FROM m").await?;
    let counted = answer.first().and_then(|row| row.first().cloned().flatten());
    match counted == Some(written.to_string()) {
        true => Ok(()),
        false => Err(BenchError::Wrong(format!(
            "the view has {counted:?} of {written} rows"
        ))),
    }
}
