//! Transactions come while the server, and the one that it follows, are killed.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use millrace_sql_tests::crash::Process;
use millrace_sql_tests::outside::{line, rounds, until};
use millrace_sql_tests::postgres::Postgres;
use millrace_sql_tests::{Failure, connect, run, seed};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::source;

/// Money goes from one table to another; whoever reads both finds all of it, always, and at the end each row is as it is there.
pub async fn kills(server: &mut Postgres, place: &Path) -> Result<(), Failure> {
    let rounds = rounds("POSTGRES_ROUNDS");
    let seed = seed();
    println!("kills: {rounds} rounds, SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let there = server.client().await?;
    there
        .batch_execute(
            "CREATE TABLE left_ (id int PRIMARY KEY, v bigint); CREATE TABLE right_ (id int PRIMARY KEY, v bigint);
             CREATE TABLE later (id int PRIMARY KEY, v bigint);
             INSERT INTO left_ SELECT i, 100 FROM generate_series(1, 2000) i;
             INSERT INTO right_ SELECT i, 100 FROM generate_series(1, 2000) i;
             INSERT INTO later SELECT i, 100 FROM generate_series(1, 2000) i",
        )
        .await?;
    let mut ours = Process::start(place, 1, false)?;
    let client = connect(ours.pg).await?;
    run(&client, &source("kills", server, "")).await?;
    for table in ["left_", "right_"] {
        run(
            &client,
            &format!("CREATE TABLE {table} (id INT PRIMARY KEY, v BIGINT) FROM kills TABLE '{table}'"),
        )
        .await?;
    }
    run(&client, "CREATE MATERIALIZED VIEW sums AS SELECT id % 10 AS d, count(*) AS n, sum(v) AS v FROM left_ GROUP BY 1").await?;
    drop(client);
    let stop = Arc::new(AtomicBool::new(false));
    let port = server.port();
    let changing = {
        let stop = Arc::clone(&stop);
        let mut random = StdRng::seed_from_u64(random.random());
        tokio::spawn(async move {
            let mut committed = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                let mut config = tokio_postgres::Config::new();
                config
                    .host("127.0.0.1")
                    .port(port)
                    .user("postgres")
                    .dbname("postgres");
                let Ok((client, connection)) = config.connect(tokio_postgres::NoTls).await else {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    continue;
                };
                tokio::spawn(connection);
                while !stop.load(Ordering::Relaxed) {
                    let (from, to, amount) = (
                        random.random_range(1..=2000),
                        random.random_range(1..=2000),
                        random.random_range(1..50),
                    );
                    let end = if random.random_bool(0.1) {
                        "ROLLBACK"
                    } else {
                        "COMMIT"
                    };
                    let moved = format!(
                        "BEGIN; UPDATE left_ SET v = v - {amount} WHERE id = {from};
                         UPDATE right_ SET v = v + {amount} WHERE id = {to}; UPDATE later SET v = v + 1 WHERE id = {to};
                         DELETE FROM left_ WHERE id = {to} + 2000; INSERT INTO left_ VALUES ({from} + 2000, 0) ON CONFLICT DO NOTHING; {end}"
                    );
                    if client.batch_execute(&moved).await.is_err() {
                        break;
                    }
                    committed += 1;
                }
            }
            committed
        })
    };
    let total = "SELECT (SELECT sum(v) FROM left_) + (SELECT sum(v) FROM right_)";
    for round in 0..rounds {
        tokio::time::sleep(Duration::from_millis(random.random_range(50..1000))).await;
        let client = connect(ours.pg).await?;
        let found = line(&client, total).await?;
        if found != "400000" {
            return Err(format!("there is {found} instead of 400000").into());
        }
        if round == rounds / 2 {
            // It is killed while a table is copied, or has just been.
            let create = "CREATE TABLE later (id INT PRIMARY KEY, v BIGINT) FROM kills TABLE 'later'";
            let creating = run(&client, create);
            let _ = tokio::time::timeout(Duration::from_millis(random.random_range(5..300)), creating).await;
            ours.kill()?;
            ours = Process::start(place, 1, false)?;
            let client = connect(ours.pg).await?;
            if run(&client, create).await.is_err() {
                until(&client, "SELECT count(*) FROM later", "2000").await?;
            }
        } else if random.random_bool(0.4) {
            server.kill()?;
            server.run()?;
        } else {
            ours.kill()?;
            ours = Process::start(place, random.random_range(1..3), false)?;
        }
    }
    stop.store(true, Ordering::Relaxed);
    let committed = changing.await?;
    let there = server.client().await?;
    let client = connect(ours.pg).await?;
    for table in ["left_", "right_", "later"] {
        let sql = format!("SELECT id, v FROM {table} ORDER BY id");
        let expected = line(&there, &sql).await?;
        until(&client, &sql, &expected).await?;
    }
    let difference = "SELECT count(*) FROM (SELECT id % 10, count(*), sum(v) FROM left_ GROUP BY 1 EXCEPT SELECT * FROM sums) d";
    until(&client, difference, "0").await?;
    println!("kills: about {committed} transactions");
    run(&client, "DROP STREAM kills CASCADE").await?;
    ours.kill()
}
