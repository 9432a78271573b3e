//! A sink writes a table of PostgreSQL while the server, and that one, are killed.

use std::path::Path;
use std::time::Duration;

use millrace_sql_tests::crash::Process;
use millrace_sql_tests::outside::{line, rounds, until};
use millrace_sql_tests::postgres::Postgres;
use millrace_sql_tests::{Failure, connect, run, seed};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::sinks::sink;

/// Each row of the stream is there once, and the table that is kept up to date is what the view is.
pub(crate) async fn kills(server: &mut Postgres, place: &Path) -> Result<(), Failure> {
    let rounds = rounds("POSTGRES_ROUNDS");
    let seed = seed();
    println!("sink_kills: {rounds} rounds, SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let there = server.client().await?;
    there
        .batch_execute(
            "CREATE TABLE events_there (id bigint, v bigint); CREATE TABLE sums_there (g bigint PRIMARY KEY, n bigint, v bigint)",
        )
        .await?;
    let mut ours = Process::start(place, 1, false)?;
    let client = connect(ours.pg).await?;
    for sql in [
        "CREATE STREAM events (id BIGINT, v BIGINT)".to_owned(),
        "CREATE TABLE kept (id BIGINT PRIMARY KEY, v BIGINT)".to_owned(),
        "CREATE MATERIALIZED VIEW sums AS SELECT id % 50 AS g, count(*) AS n, sum(v)::bigint AS v FROM kept GROUP BY 1".to_owned(),
        sink("events_out", "FROM events", server, "events_there", ""),
        sink("sums_out", "FROM sums", server, "sums_there", ", type = 'upsert'"),
    ] {
        run(&client, &sql).await?;
    }
    drop(client);
    let mut written = 0_u64;
    for _ in 0..rounds {
        let client = connect(ours.pg).await?;
        for _ in 0..random.random_range(1..30) {
            let (first, count) = (written + 1, random.random_range(1..200));
            // Both or neither; what is not known is asked.
            let sql = format!(
                "BEGIN; INSERT INTO events SELECT i, i * 2 FROM generate_series({first}, {last}) AS i;
                 INSERT INTO kept SELECT i, i FROM generate_series({first}, {last}) AS i;
                 DELETE FROM kept WHERE id % 7 = {rest}; UPDATE kept SET v = v + 1 WHERE id % 11 = {rest}; COMMIT",
                last = written + count,
                rest = random.random_range(0..7),
            );
            run(&client, &sql).await?;
            written += count;
        }
        tokio::time::sleep(Duration::from_millis(random.random_range(0..400))).await;
        match random.random_range(0..10) {
            0..4 => {
                server.kill()?;
                server.run()?;
            }
            4..9 => {
                ours.kill()?;
                ours = Process::start(place, random.random_range(1..3), false)?;
            }
            _ => {
                ours.kill()?;
                server.kill()?;
                server.run()?;
                ours = Process::start(place, 1, false)?;
            }
        }
    }
    let there = server.client().await?;
    let client = connect(ours.pg).await?;
    let expected = format!("{written} {written} {}", written * (written + 1));
    let events = "SELECT count(*), count(DISTINCT id), sum(v) FROM events_there";
    until(&there, events, &expected).await?;
    let sums = line(&client, "SELECT g, n, v FROM sums ORDER BY g").await?;
    until(&there, "SELECT g, n, v FROM sums_there ORDER BY g", &sums).await?;
    println!("sink_kills: {written} rows");
    ours.kill()
}
