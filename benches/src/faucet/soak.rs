//! Everything that fills memory at once, under a limit: a source that is faster than its view, joins on a skewed key, views
//! that are filled, a client that reads slowly; and beside them a view that is to stay fresh.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use futures::StreamExt;
use millrace_engine::{Runtime, WriteToken};
use millrace_planner::RelationId;
use millrace_storage::ChangeBatch;
use serde::{Deserialize, Serialize};

use crate::apart::Apart;
use crate::bed::{Bed, Place};
use crate::client::Client;
use crate::error::BenchError;
use crate::process;

/// Rows of one write to the source that is too fast, and writes under way.
const FLOOD_ROWS: usize = 10_000;
const FLOOD_WRITES: usize = 4;
/// Time between two writes to the stream of the view that is to stay fresh, and rows of each.
const CALM_EVERY: Duration = Duration::from_millis(2);
const CALM_ROWS: usize = 10;
/// The slow client takes a row, and waits so long.
const SLOW: Duration = Duration::from_millis(2);
/// Time between two looks at the memory in use.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Soak {
    pub seconds: u64,
    /// In bytes.
    pub memory_limit: u64,
    /// Rows of the table that views are filled from and that the slow client reads.
    pub table_rows: u64,
    /// Rows of each side of the join, with four keys in all.
    pub join_rows: u64,
}

/// What was found.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Soaked {
    /// The most that was resident, in bytes.
    pub resident_max: u64,
    /// Milliseconds until a write was in the view that is to stay fresh, without anything else and with it.
    pub alone_ms: Vec<f64>,
    pub beside_ms: Vec<f64>,
    pub flood_rows: u64,
    /// Writes that were refused in the end, and written again.
    pub flood_refused: u64,
    /// From the last write of the flood until its view had all.
    pub drained_seconds: f64,
    pub filled: u64,
    pub fills_refused: u64,
    pub joins: u64,
    pub slow_rows: u64,
}

/// What the parts of a soak share.
#[derive(Debug, Default)]
struct Shared {
    is_over: AtomicBool,
    flood_rows: AtomicU64,
    flood_refused: AtomicU64,
    filled: AtomicU64,
    fills_refused: AtomicU64,
    joins: AtomicU64,
    slow_rows: AtomicU64,
    resident_max: AtomicU64,
}

impl Shared {
    fn goes_on(&self) -> bool {
        !self.is_over.load(Ordering::Relaxed)
    }
}

impl Apart for Soak {
    const NAME: &'static str = "faucet-soak";
    type Found = Soaked;

    async fn run(&self) -> Result<Soaked, BenchError> {
        let bed = Bed::start(Place::Disk, |config| {
            config.tuning.memory_limit = Some(self.memory_limit);
        })
        .await?;
        for statement in self.statements() {
            bed.client.run(&statement).await?;
        }
        let shared = Arc::new(Shared::default());
        let (calm, flood) = (bed.relation("calm")?, bed.relation("flood")?);
        let watcher = tokio::spawn(watch(Arc::clone(&shared)));
        let mut calm_rows = 0;
        let alone = Duration::from_secs(self.seconds / 10 + 1);
        let alone_ms = keep_fresh(&bed.runtime, calm, alone, &mut calm_rows).await?;
        let address = bed.server.pg_addr();
        let mut floods = vec![];
        for _ in 0..FLOOD_WRITES {
            floods.push(tokio::spawn(write_flood(
                bed.runtime.clone(),
                flood,
                Arc::clone(&shared),
            )));
        }
        let others = [
            tokio::spawn(join(Client::connect(address).await?, Arc::clone(&shared))),
            tokio::spawn(fill(
                Client::connect(address).await?,
                self.table_rows,
                Arc::clone(&shared),
            )),
            tokio::spawn(read_slowly(Client::connect(address).await?, Arc::clone(&shared))),
        ];
        let length = Duration::from_secs(self.seconds);
        let beside_ms = keep_fresh(&bed.runtime, calm, length, &mut calm_rows).await?;
        shared.is_over.store(true, Ordering::Relaxed);
        let begin = Instant::now();
        for flood in floods {
            let last = flood.await.map_err(BenchError::engine)??;
            bed.runtime.wait_for(&last).await.map_err(BenchError::engine)?;
        }
        let drained_seconds = begin.elapsed().as_secs_f64();
        for other in others {
            other.await.map_err(BenchError::engine)??;
        }
        watcher.await.map_err(BenchError::engine)??;
        let flood_rows = shared.flood_rows.load(Ordering::Relaxed);
        for (what, rows) in [("fresh", calm_rows), ("behind", flood_rows)] {
            let counted = bed
                .client
                .number(&format!("SELECT coalesce(sum(n), 0) FROM {what}"))
                .await?;
            if counted != rows as f64 {
                return Err(BenchError::Wrong(format!("{what} has {counted} of {rows} rows")));
            }
        }
        let kept = bed.client.number("SELECT sum(n) FROM pairs").await?;
        let joined = bed
            .client
            .number("SELECT count(*) FROM hub AS h JOIN spoke AS s ON h.k = s.k")
            .await?;
        if kept != joined {
            return Err(BenchError::Wrong(format!("{kept} pairs instead of {joined}")));
        }
        bed.stop().await;
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Ok(Soaked {
            resident_max: count(&shared.resident_max),
            alone_ms,
            beside_ms,
            flood_rows,
            flood_refused: count(&shared.flood_refused),
            drained_seconds,
            filled: count(&shared.filled),
            fills_refused: count(&shared.fills_refused),
            joins: count(&shared.joins),
            slow_rows: count(&shared.slow_rows),
        })
    }
}

impl Soak {
    fn statements(&self) -> Vec<String> {
        let (table, side) = (self.table_rows, self.join_rows);
        vec![
            "CREATE STREAM calm (k BIGINT, v BIGINT)".to_owned(),
            "CREATE MATERIALIZED VIEW fresh AS SELECT k, count(*) AS n FROM calm GROUP BY k".to_owned(),
            "CREATE STREAM flood (k BIGINT, v BIGINT)".to_owned(),
            // What takes long for each row.
            "CREATE MATERIALIZED VIEW behind AS SELECT k, count(*) AS n, max(md5(repeat(v::text, 50))) AS hash \
             FROM flood GROUP BY k"
                .to_owned(),
            "CREATE TABLE big (id BIGINT PRIMARY KEY, v BIGINT, t TEXT)".to_owned(),
            format!("INSERT INTO big SELECT n, n % 1000, repeat('x', 50) FROM generate_series(1, {table}) AS g(n)"),
            "CREATE TABLE hub (id BIGINT PRIMARY KEY, k BIGINT, v BIGINT)".to_owned(),
            "CREATE TABLE spoke (id BIGINT PRIMARY KEY, k BIGINT)".to_owned(),
            format!("INSERT INTO hub SELECT n, n % 4, n FROM generate_series(1, {side}) AS g(n)"),
            format!("INSERT INTO spoke SELECT n, n % 4 FROM generate_series(1, {side}) AS g(n)"),
            "CREATE MATERIALIZED VIEW pairs AS SELECT h.v % 10 AS g, count(*) AS n FROM hub AS h JOIN spoke AS s \
             ON h.k = s.k GROUP BY h.v % 10"
                .to_owned(),
        ]
    }
}

fn rows(count: usize, from: u64) -> Result<ChangeBatch, BenchError> {
    let column = |of: fn(u64) -> i64| -> ArrayRef {
        Arc::new((from..from + count as u64).map(of).collect::<Int64Array>())
    };
    let columns = [
        ("k", column(|row| row as i64 % 100)),
        ("v", column(|row| row as i64)),
    ];
    let rows = RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true)));
    Ok(ChangeBatch::insertions(rows.map_err(BenchError::engine)?))
}

/// Writes a few rows now and again, and waits until they are in the view.
async fn keep_fresh(
    runtime: &Runtime,
    calm: RelationId,
    length: Duration,
    written: &mut u64,
) -> Result<Vec<f64>, BenchError> {
    let begin = Instant::now();
    let mut tick = tokio::time::interval(CALM_EVERY);
    let mut latencies = vec![];
    while begin.elapsed() < length {
        tick.tick().await;
        let sent = Instant::now();
        let token = runtime
            .append(vec![(calm, rows(CALM_ROWS, *written)?)], None)
            .await;
        let token = token.map_err(BenchError::engine)?;
        runtime.wait_for(&token).await.map_err(BenchError::engine)?;
        *written += CALM_ROWS as u64;
        latencies.push(sent.elapsed().as_secs_f64() * 1e3);
    }
    Ok(latencies)
}

/// Writes as fast as the server takes it.
async fn write_flood(
    runtime: Runtime,
    flood: RelationId,
    shared: Arc<Shared>,
) -> Result<WriteToken, BenchError> {
    let mut last = WriteToken::default();
    while shared.goes_on() {
        let from = shared.flood_rows.load(Ordering::Relaxed);
        match runtime.append(vec![(flood, rows(FLOOD_ROWS, from)?)], None).await {
            Ok(token) => {
                shared.flood_rows.fetch_add(FLOOD_ROWS as u64, Ordering::Relaxed);
                last = token;
            }
            Err(_) => _ = shared.flood_refused.fetch_add(1, Ordering::Relaxed),
        }
    }
    Ok(last)
}

/// Moves rows from one key of the join to another: each has a quarter of the other side as partners.
async fn join(client: Client, shared: Arc<Shared>) -> Result<(), BenchError> {
    while shared.goes_on() {
        client
            .run("UPDATE hub SET k = (k + 1) % 4 WHERE id % 10 = 0")
            .await?;
        shared.joins.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Makes a view over all rows of the table, and drops it.
async fn fill(client: Client, table_rows: u64, shared: Arc<Shared>) -> Result<(), BenchError> {
    while shared.goes_on() {
        let made = client
            .run("CREATE MATERIALIZED VIEW filled AS SELECT id % 100000 AS g, count(*) AS n, max(t) AS t FROM big GROUP BY 1")
            .await;
        match made {
            Ok(()) => {}
            Err(error) if error.is_out_of_memory() => {
                shared.fills_refused.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            Err(error) => return Err(error),
        }
        let rows = client.rows("SELECT sum(n) FROM filled").await?;
        if rows[0][0].as_deref() != Some(table_rows.to_string().as_str()) {
            return Err(BenchError::Wrong(format!(
                "a view over {table_rows} rows has {rows:?}"
            )));
        }
        client.run("DROP MATERIALIZED VIEW filled").await?;
        shared.filled.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Reads the table row by row.
async fn read_slowly(client: Client, shared: Arc<Shared>) -> Result<(), BenchError> {
    while shared.goes_on() {
        let rows = client
            .postgres()
            .query_raw("SELECT id, v, t FROM big", Vec::<String>::new())
            .await
            .map_err(BenchError::postgres("reading slowly"))?;
        let mut rows = std::pin::pin!(rows);
        while shared.goes_on()
            && let Some(row) = rows.next().await
        {
            row.map_err(BenchError::postgres("reading slowly"))?;
            shared.slow_rows.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(SLOW).await;
        }
    }
    Ok(())
}

async fn watch(shared: Arc<Shared>) -> Result<(), BenchError> {
    // The most from now on.
    fs::write("/proc/self/clear_refs", "5").map_err(BenchError::io("cannot reset the peak of memory"))?;
    while shared.goes_on() {
        tokio::time::sleep(LOOK_EVERY).await;
        let peak = process::memory(std::process::id())?.peak;
        shared.resident_max.fetch_max(peak, Ordering::Relaxed);
    }
    Ok(())
}
