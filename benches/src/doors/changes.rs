//! How many transactions of a PostgreSQL server are followed, and how soon.
//!
//! Each client updates rows of its own, one in a transaction. A view counts the updates of each client, so that its rows tell
//! which commits they include.

use std::time::Instant;

use millrace_sql_tests::postgres::Postgres;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::Scale;
use super::follow::{Follower, now_us};
use super::snapshot::create_source;
use crate::client::Client;
use crate::error::BenchError;
use crate::process;
use crate::results::Experiment;
use crate::statistics::quantile;
use crate::target::{FreshServer, Target};

/// The experiment's name.
pub const NAME: &str = "postgres/changes";

const CLIENTS: u64 = 4;
const COLUMNS: &str = "id BIGINT PRIMARY KEY, client BIGINT, balance BIGINT, changes BIGINT, filler TEXT";

/// When each client's commits were acknowledged, in their order.
type Commits = Vec<Vec<u64>>;

/// What the turns measured, one value each.
#[derive(Default)]
struct Measured {
    alone: Vec<f64>,
    committed: Vec<f64>,
    share: Vec<f64>,
    followed: Vec<f64>,
    p50_ms: Vec<f64>,
    p99_ms: Vec<f64>,
    max_ms: Vec<f64>,
    cpu_us: Vec<f64>,
}

/// PostgreSQL alone and followed, by turns.
///
/// # Errors
/// A server fails, or the view has not what was committed.
pub async fn run(scale: &Scale, target: &Target, there: &Postgres) -> Result<Experiment, BenchError> {
    let mut measured = Measured::default();
    // Its log is written to new files at first, which takes longer.
    update_alone(scale, there).await?;
    for turn in 0..scale.runs {
        let mut alone = None;
        // What comes first changes, as the second may find more in caches.
        if turn % 2 == 0 {
            alone = Some(update_alone(scale, there).await?);
        }
        let committed = followed(scale, target, there, &mut measured).await?;
        let alone = match alone {
            Some(alone) => alone,
            None => update_alone(scale, there).await?,
        };
        measured.alone.push(alone);
        measured.share.push(100.0 * committed / alone);
    }
    let mut experiment = Experiment::new(
        NAME,
        format!(
            "{CLIENTS} connections to PostgreSQL update one row of {} after another for {:.1} s, each update a transaction that is \
             durable there. First without any source; then followed: a table here, and a view that counts the updates of each \
             connection, which is followed by COPY (SUBSCRIBE ..) TO STDOUT. By turns, \
             after one of PostgreSQL alone that is thrown away. Lag: from the time at which a client had \
             the answer to its commit until a row that includes it is seen; a commit may be seen before its answer is there. Each \
             value is one turn's.",
            scale.accounts,
            scale.steady.as_secs_f64(),
        ),
    );
    experiment.add("PostgreSQL alone: committed", "1/s", measured.alone, None);
    experiment.add("while followed: committed", "1/s", measured.committed, None);
    experiment.add("while followed / alone", "%", measured.share, None);
    experiment.add("seen, until the last was", "1/s", measured.followed, None);
    experiment.add("lag: p50", "ms", measured.p50_ms, None);
    experiment.add("lag: p99", "ms", measured.p99_ms, None);
    experiment.add("lag: max", "ms", measured.max_ms, None);
    experiment.add(
        "CPU time of the server for a transaction",
        "us",
        measured.cpu_us,
        None,
    );
    Ok(experiment)
}

/// One turn of PostgreSQL alone; commits a second.
async fn update_alone(scale: &Scale, there: &Postgres) -> Result<f64, BenchError> {
    fill(scale, there).await?;
    Ok(update(scale, there).await?.0)
}

/// Makes the table anew.
async fn fill(scale: &Scale, there: &Postgres) -> Result<(), BenchError> {
    let origin = there.client().await?;
    let fill = format!(
        "DROP TABLE IF EXISTS account; CREATE TABLE account ({COLUMNS}) WITH (fillfactor = 70); \
         INSERT INTO account SELECT i, i % {CLIENTS}, 0, 0, repeat(' ', 84) FROM generate_series(0, {}) AS i",
        scale.accounts - 1
    );
    for sql in [&fill, "VACUUM ANALYZE account", "CHECKPOINT"] {
        origin
            .batch_execute(sql)
            .await
            .map_err(BenchError::postgres(sql))?;
    }
    Ok(())
}

/// Updates from all clients; commits a second, and when each was there.
async fn update(scale: &Scale, there: &Postgres) -> Result<(f64, Commits), BenchError> {
    let mut clients = JoinSet::new();
    let mut connections = vec![];
    for _ in 0..CLIENTS {
        connections.push(there.client().await?);
    }
    let begin = Instant::now();
    let (time, rows) = (scale.steady, scale.accounts / CLIENTS);
    for (number, connection) in (0_u64..).zip(connections) {
        clients.spawn(async move {
            let failed = || BenchError::postgres("cannot update");
            let sql = "UPDATE account SET balance = balance + $1, changes = changes + 1 WHERE id = $2";
            let sql = connection.prepare(sql).await.map_err(failed())?;
            let (mut commits, mut random) = (vec![], number);
            while begin.elapsed() < time {
                // Knuth's multiplier: all rows, in no order.
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let id = ((random >> 33) % rows * CLIENTS + number) as i64;
                let done = connection.execute(&sql, &[&((random >> 40) as i64), &id]).await;
                commits.push(now_us());
                if done.map_err(failed())? != 1 {
                    return Err(BenchError::Wrong(format!("there is no account {id}")));
                }
            }
            Ok((number, commits))
        });
    }
    let mut commits = vec![vec![]; CLIENTS as usize];
    while let Some(done) = clients.join_next().await {
        let (number, of_client) = done.map_err(BenchError::engine)??;
        commits[number as usize] = of_client;
    }
    let count: usize = commits.iter().map(Vec::len).sum();
    Ok((count as f64 / begin.elapsed().as_secs_f64(), commits))
}

/// One turn with a server that follows; commits a second.
async fn followed(
    scale: &Scale,
    target: &Target,
    there: &Postgres,
    measured: &mut Measured,
) -> Result<f64, BenchError> {
    fill(scale, there).await?;
    let bed = FreshServer::start(target).await?;
    for sql in [
        create_source(there),
        format!("CREATE TABLE account ({COLUMNS}) FROM pg TABLE 'public.account'"),
        "CREATE MATERIALIZED VIEW seen AS SELECT client, sum(changes)::bigint AS n FROM account GROUP BY client"
            .to_owned(),
    ] {
        bed.client.run(&sql).await?;
    }
    let observer = Client::connect(bed.server.pg()).await?;
    let mut follower = Follower::<2>::new(&observer, "seen").await?;
    let cpu = process::cpu_time(bed.server.pid())?;
    let begin_us = now_us();
    let (tell, mut told) = watch::channel(None::<Vec<u64>>);
    let watched = tokio::spawn(async move {
        let (mut rows, mut newest) = (vec![], vec![0; CLIENTS as usize]);
        while told.borrow().as_ref() != Some(&newest) {
            tokio::select! {
                row = follower.next() => {
                    let row = row?;
                    let [client, count] = row.columns;
                    let known = newest.get_mut(client as usize);
                    *known.ok_or_else(|| BenchError::Wrong(format!("there is no client {client}")))? = count;
                    rows.push(row);
                }
                // How many commits there are is known at the end.
                Ok(()) = told.changed() => {}
            }
        }
        Ok::<_, BenchError>(rows)
    });
    let updated = update(scale, there).await;
    if updated.is_err() {
        watched.abort();
    }
    let (committed, commits) = updated?;
    let counts = commits.iter().map(|of_client| of_client.len() as u64);
    tell.send_replace(Some(counts.collect()));
    let rows = watched.await.map_err(BenchError::engine)??;
    let cpu = process::cpu_time(bed.server.pid())?.saturating_sub(cpu);

    let (mut lags_ms, mut seen_of) = (vec![], [0; CLIENTS as usize]);
    for row in &rows {
        let [client, count] = row.columns;
        let of_client = &commits[client as usize];
        let seen = &mut seen_of[client as usize];
        let included = of_client.get(*seen..count as usize);
        let included =
            included.ok_or_else(|| BenchError::Wrong(format!("the view has {count} after {seen}")))?;
        lags_ms.extend((included.iter()).map(|commit_us| (row.seen_us as f64 - *commit_us as f64) / 1e3));
        *seen = count as usize;
    }
    let last_us = rows.last().map_or(begin_us, |row| row.seen_us);
    let count = lags_ms.len() as f64;
    measured.committed.push(committed);
    measured
        .followed
        .push(count / ((last_us - begin_us) as f64 / 1e6));
    measured.p50_ms.push(quantile(&lags_ms, 0.5));
    measured.p99_ms.push(quantile(&lags_ms, 0.99));
    measured.max_ms.push(quantile(&lags_ms, 1.0));
    measured.cpu_us.push(cpu.as_secs_f64() * 1e6 / count);
    drop(observer);
    bed.client.run("DROP STREAM pg CASCADE").await?;
    bed.stop().await?;
    Ok(committed)
}
