//! A role that wants all it can get, beside one that asks for little now and then.

use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::Scale;
use crate::client::Client;
use crate::error::BenchError;
use crate::results::{Aim, Experiment};
use crate::statistics::{ms_since, quantile};
use crate::target::{FreshServer, Target};

/// The experiment's name.
pub const NAME: &str = "tenants/beside";

/// What the other asks, so often.
const ASKED: &str = "SELECT count(*), sum(v) FROM t WHERE id % 100 = 7";
const EVERY: Duration = Duration::from_millis(20);
/// What the hostile role asks, all the time: some of it long, some of it often.
const HOSTILE: [&str; 3] = [
    "SELECT a.v % 1000, count(*), sum(a.v * b.v) FROM t a JOIN t b ON a.v = b.v GROUP BY 1 ORDER BY 3 DESC LIMIT 10",
    "SELECT count(DISTINCT id % 5000), max(v) FROM t",
    "SELECT 1",
];

/// By turns: the other alone, beside the hostile role as it is, and beside it with limits.
///
/// # Errors
/// The server fails.
pub async fn run(scale: &Scale, target: &Target) -> Result<Experiment, BenchError> {
    let server = FreshServer::start(target).await?;
    let address = server.server.pg();
    let fill = format!(
        "CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT); \
         INSERT INTO t SELECT g, g * 7919 % 10007 FROM generate_series(1::bigint, {}) AS s(g)",
        scale.rows
    );
    for sql in fill
        .split("; ")
        .chain(["CREATE USER hostile", "CREATE USER other"])
    {
        server.client.run(sql).await?;
    }
    let limits =
        "ALTER ROLE hostile SET (cpu_share = 10, query_priority_max = 'batch', memory_limit = '256MB')";
    let (mut alone, mut beside, mut limited, mut done) = (vec![], vec![], vec![], vec![]);
    for _ in 0..scale.runs {
        alone.push(turn(scale, address, 0).await?.0);
        let (p99, queries) = turn(scale, address, scale.hostile).await?;
        beside.push(p99);
        done.push(queries);
        server.client.run(limits).await?;
        limited.push(turn(scale, address, scale.hostile).await?.0);
        server.client.run("ALTER ROLE hostile RESET ALL").await?;
    }
    let ratio = |others: &[f64]| -> Vec<f64> {
        others
            .iter()
            .zip(&alone)
            .map(|(other, alone)| 100.0 * other / alone)
            .collect()
    };
    let (as_it_is, with_limits) = (ratio(&beside), ratio(&limited));
    server.stop().await?;
    let mut experiment = Experiment::new(
        NAME,
        format!(
            "A table of {} rows. One role asks `{ASKED}` every {} ms; beside it {} connections of another ask for joins, distinct counts and \
             `SELECT 1` without a pause, for {:.1} s a turn: with equal shares, and with cpu_share = 10, query_priority_max = 'batch' and \
             memory_limit = '256MB'. By turns, after one alone. Each value is one turn's p99, or its ratio to the one alone.",
            scale.rows,
            EVERY.as_millis(),
            scale.hostile,
            scale.steady.as_secs_f64()
        ),
    );
    experiment.add("alone: p99", "ms", alone, None);
    experiment.add("beside the hostile role: p99", "ms", beside, None);
    experiment.add("beside it with limits: p99", "ms", limited, None);
    experiment.add("beside / alone", "%", as_it_is, None);
    experiment.add(
        "beside with limits / alone",
        "%",
        with_limits,
        Some(Aim::MedianUnder(110.0)),
    );
    experiment.add("queries of the hostile role", "1/s", done, None);
    Ok(experiment)
}

/// The p99 of what the other asks, and what the hostile role got done a second.
async fn turn(
    scale: &Scale,
    address: std::net::SocketAddr,
    hostile: usize,
) -> Result<(f64, f64), BenchError> {
    let (stop, stopped) = watch::channel(false);
    let (mut attackers, mut running) = (JoinSet::new(), vec![]);
    for number in 0..hostile {
        let client = Client::connect_as(address, "hostile").await?;
        let stopped = stopped.clone();
        running.push(client.postgres().cancel_token());
        attackers.spawn(async move {
            let mut done = 0_u64;
            for sql in HOSTILE.iter().cycle().skip(number) {
                if *stopped.borrow() {
                    break;
                }
                // What its limits refuse is none.
                done += u64::from(client.rows(sql).await.is_ok());
            }
            done
        });
    }
    let other = Client::connect_as(address, "other").await?;
    let (begin, mut times) = (Instant::now(), vec![]);
    let mut next = tokio::time::interval(EVERY);
    while begin.elapsed() < scale.steady {
        next.tick().await;
        let asked = Instant::now();
        other.rows(ASKED).await?;
        times.push(ms_since(asked));
    }
    let seconds = begin.elapsed().as_secs_f64();
    stop.send_replace(true);
    // The last one of each may be long.
    for query in running {
        let cancelled = query.cancel_query(tokio_postgres::NoTls).await;
        cancelled.map_err(BenchError::postgres("cancel"))?;
    }
    let mut done = 0;
    while let Some(attacker) = attackers.join_next().await {
        done += attacker.map_err(|error| BenchError::Server(error.to_string()))?;
    }
    Ok((quantile(times, 0.99), done as f64 / seconds))
}
