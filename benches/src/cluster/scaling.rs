//! Rows a second into a view, over one machine after the other.

use std::time::Instant;

use super::Scale;
use super::machines::{Machines, Place};
use crate::client::Client;
use crate::error::BenchError;
use crate::results::{Aim, Experiment};

/// The experiment's name.
pub const NAME: &str = "cluster/scaling";

/// Views, from little work a row to much.
const VIEWS: [(&str, &str); 3] = [
    (
        "keyed sums",
        "SELECT k, count(*) AS n, sum(v) AS total FROM s GROUP BY k",
    ),
    (
        "join, then sums",
        "SELECT d.name, count(*) AS n, sum(s.v) AS total FROM s JOIN d ON d.k = s.k GROUP BY d.name",
    ),
    (
        "texts that are taken apart",
        "SELECT regexp_replace(upper(w), '[AEIOU]+', '-', 'g') AS root, count(*) AS n, max(length(w)) AS longest \
         FROM (SELECT 'word' || md5((k * 31 + v % 97)::text) || md5(v::text) AS w FROM s) GROUP BY 1",
    ),
];
const KEYS: u64 = 10_000;
/// Rows of an INSERT.
const PIECE: u64 = 20_000;

/// For each number of machines, the rate of each view: from the first row sent until all of them are read.
///
/// # Errors
/// The server fails, or an answer is wrong.
pub async fn run(scale: &Scale, place: &Place) -> Result<Experiment, BenchError> {
    let mut experiment = Experiment::new(
        NAME,
        format!(
            "{} rows in INSERTs of {PIECE}, made by the server itself, until a view over them has all. One view at a time, over 1, 2, 4 .. machines by turns.",
            scale.rows
        ),
    );
    let counts: Vec<usize> = (0..)
        .map(|power| 1 << power)
        .take_while(|count| *count <= scale.machines)
        .collect();
    let mut rates: Vec<Vec<Vec<f64>>> = vec![vec![vec![]; counts.len()]; VIEWS.len()];
    for _ in 0..scale.runs {
        let mut machines = Machines::start(place, scale.machines).await?;
        let client = Client::connect(machines.pg()).await?;
        client
            .run("CREATE TABLE d (k BIGINT PRIMARY KEY, name TEXT)")
            .await?;
        let names = format!(
            "INSERT INTO d SELECT g, 'name' || g % 100 FROM generate_series(0, {}) g",
            KEYS - 1
        );
        client.run(&names).await?;
        for (at, count) in counts.iter().enumerate() {
            for (view, (_, query)) in VIEWS.iter().enumerate() {
                client.run("CREATE STREAM s (k BIGINT, v BIGINT)").await?;
                client
                    .run(&format!("CREATE MATERIALIZED VIEW m AS {query}"))
                    .await?;
                machines.grow(*count).await?;
                rates[view][at].push(rate(&client, scale.rows).await?);
                client.run("DROP MATERIALIZED VIEW m").await?;
                client.run("DROP STREAM s").await?;
            }
        }
        machines.stop().await?;
    }
    for ((name, _), rates) in VIEWS.iter().zip(rates) {
        let alone = rates[0].clone();
        for (count, rates) in counts.iter().zip(rates) {
            let many = *count as f64;
            let efficiency = rates.iter().zip(&alone).map(|(rate, alone)| rate / alone / many);
            let efficiency: Vec<f64> = efficiency.collect();
            experiment.add(format!("{name}, {count} machines"), "rows/s", rates, None);
            if *count > 1 {
                let aim = (*count == 4).then_some(Aim::MedianOver(0.85));
                experiment.add(
                    format!("{name}, {count} machines: efficiency"),
                    "",
                    efficiency,
                    aim,
                );
            }
        }
    }
    Ok(experiment)
}

async fn rate(client: &Client, rows: u64) -> Result<f64, BenchError> {
    let since = Instant::now();
    let mut sent = 0;
    while sent < rows {
        let last = (sent + PIECE).min(rows);
        let insert = format!(
            "INSERT INTO s SELECT g * 7919 % {KEYS}, g FROM generate_series({}::bigint, {last}) g",
            sent + 1
        );
        client.run(&insert).await?;
        sent = last;
    }
    // A reader of what was acknowledged waits for it.
    let answer = client.rows("SELECT sum(n) FROM m").await?;
    let counted = answer.first().and_then(|row| row.first().cloned().flatten());
    match counted == Some(rows.to_string()) {
        true => Ok(rows as f64 / since.elapsed().as_secs_f64()),
        false => Err(BenchError::Wrong(format!(
            "the view has {counted:?} of {rows} rows"
        ))),
    }
}
