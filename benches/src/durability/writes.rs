//! Writes: what very many small ones leave behind, beside the same rows that were written at once.
//!
//! ```text
//!  writes/inserts  a stream by single-row INSERTs, and the same stream in a few writes
//!  writes/updates  a table of a few rows that were changed again and again, and the same rows inserted once
//! ```
//! Both servers of an experiment run at the same time, on directories of their own, and are measured by turns.

use std::time::{Duration, Instant};

use clap::Args;
use futures::future::try_join_all;
use tokio_postgres::types::ToSql;

use crate::client::Client;
use crate::error::BenchError;
use crate::process::{cpu_time, megabytes, memory};
use crate::results::{Aim, Experiment, Run};
use crate::size::Size;
use crate::statistics::{median, ms_since};
use crate::suite::Suite;
use crate::target::{FreshServer, Target};

const INSERTS: &str = "inserts";
const UPDATES: &str = "updates";

/// What small writes may cost beside large ones, and a table that was changed beside one that was not.
const INSERTS_RATIO_MAX: f64 = 1.2;
const UPDATES_RATIO_MAX: f64 = 2.0;
/// Statements that a connection has under way.
const PIPELINED: u64 = 256;
/// Rows of a write of the stream that is written at once.
const LARGE_ROWS: u64 = 100_000;
/// Rows of the table that is changed.
const TABLE_ROWS: u64 = 1_000;
/// Of the changes, so many are statements of one row each: one in a hundred.
const SINGLE_SHARE: u64 = 100;
/// A server that takes less of a core is at rest.
const AT_REST_CORES: f64 = 0.03;
/// How long that is waited for.
const REST_WAIT: Duration = Duration::from_secs(900);

/// How much of everything a run does.
#[derive(Debug, Clone, PartialEq)]
struct Scale {
    rows: Vec<u64>,
    updates: u64,
    connections: usize,
    /// How long a server at rest is watched.
    watch: Duration,
    /// Single writes whose time is taken.
    writes: usize,
    /// How often each other figure is measured.
    runs: usize,
}

/// The suite, with its options.
#[derive(Debug, Args)]
pub struct Writes {
    /// Rows of the streams, one after the other
    #[arg(long, value_delimiter = ',', default_value = "1000000,10000000")]
    rows: Vec<u64>,
    /// Changes of rows of the table, in all
    #[arg(long, default_value_t = 10_000_000)]
    updates: u64,
    /// Connections that write at the same time
    #[arg(long, default_value_t = 8)]
    connections: usize,
}

impl Suite for Writes {
    const NAME: &'static str = "writes";
    const ABOUT: &'static str =
        "What very many small writes leave behind, beside the same rows written at once";

    async fn run(&self, run: &mut Run) -> Result<(), BenchError> {
        let scale = match run.size() {
            Size::Real => Scale {
                rows: self.rows.clone(),
                updates: self.updates,
                connections: self.connections,
                watch: Duration::from_secs(10),
                writes: 2_000,
                runs: 7,
            },
            Size::Small => Scale {
                rows: vec![2_000],
                updates: 20_000,
                connections: 2,
                watch: Duration::from_millis(50),
                writes: 20,
                runs: 1,
            },
        };
        let target = Target::of(run.size())?;
        if target == Target::InProcess {
            run.note(
                "Memory and processor time are those of this process, and servers were stopped, not killed.",
            );
        }
        if run.begins(INSERTS) {
            run.add(inserts(&scale, &target).await?);
        }
        if run.begins(UPDATES) {
            run.add(updates(&scale, &target).await?);
        }
        Ok(())
    }
}

/// A figure of both servers, the one with the small writes first.
struct Both {
    what: String,
    unit: &'static str,
    values: [Vec<f64>; 2],
    ratio_max: Option<f64>,
}

/// Two servers with the same rows: one that had them in small writes, one at once.
struct Pair<'a> {
    servers: [FreshServer; 2],
    target: &'a Target,
    scale: &'a Scale,
    measured: Vec<Both>,
}

impl<'a> Pair<'a> {
    async fn start(scale: &'a Scale, target: &'a Target) -> Result<Self, BenchError> {
        Ok(Pair {
            servers: [
                FreshServer::start(target).await?,
                FreshServer::start(target).await?,
            ],
            target,
            scale,
            measured: vec![],
        })
    }

    async fn run(&self, sql: &str) -> Result<(), BenchError> {
        for server in &self.servers {
            server.client.run(sql).await?;
        }
        Ok(())
    }

    fn add(&mut self, what: impl Into<String>, unit: &'static str, values: [Vec<f64>; 2], ratio_max: f64) {
        self.measured.push(Both {
            what: what.into(),
            unit,
            values,
            ratio_max: Some(ratio_max),
        });
    }

    /// Measures by turns; the first turn warms up, where there is more than one.
    async fn by_turns(
        &mut self,
        what: &str,
        ratio_max: f64,
        measure: impl AsyncFn(&FreshServer) -> Result<f64, BenchError>,
    ) -> Result<(), BenchError> {
        eprintln!("{what} ...");
        let mut values = [vec![], vec![]];
        for turn in 0..=self.scale.runs {
            for (server, values) in self.servers.iter().zip(&mut values) {
                let value = measure(server).await?;
                if turn > 0 {
                    values.push(value);
                }
            }
        }
        self.add(what, "ms", values, ratio_max);
        Ok(())
    }

    /// Memory, and the processor's time of a server that nobody asks for anything.
    async fn at_rest(&mut self, when: &str, ratio_max: f64) -> Result<(), BenchError> {
        eprintln!("at rest {when} ...");
        let mut resident = [vec![], vec![]];
        let mut cores = [vec![], vec![]];
        for place in 0..2 {
            let pid = self.servers[place].server.pid();
            if *self.target != Target::InProcess {
                wait_for_rest(pid).await?;
            }
            let (begin, used) = (Instant::now(), cpu_time(pid)?);
            tokio::time::sleep(self.scale.watch).await;
            let used = cpu_time(pid)?.saturating_sub(used);
            cores[place].push(100.0 * used.as_secs_f64() / begin.elapsed().as_secs_f64());
            resident[place].push(megabytes(memory(pid)?.resident));
        }
        self.add(format!("resident memory {when}"), "MB", resident, ratio_max);
        // In steps of 10 ms of so many seconds: a ratio of two such figures says nothing.
        self.measured.push(Both {
            what: format!("processor at rest {when}"),
            unit: "% of a core",
            values: cores,
            ratio_max: None,
        });
        Ok(())
    }

    /// Times from exec, after a SIGKILL, to the first right answer.
    async fn restarts(mut self, query: &str, answer: f64, ratio_max: f64) -> Result<Self, BenchError> {
        eprintln!("restarts ...");
        let mut times = [vec![], vec![]];
        for _ in 0..self.scale.runs {
            let mut next = vec![];
            for (server, times) in self.servers.into_iter().zip(&mut times) {
                let server = server.kill_and_start(self.target).await?;
                let found = server.client.number(query).await?;
                if found != answer {
                    return Err(BenchError::Wrong(format!(
                        "{query} answers {found}, not {answer}"
                    )));
                }
                times.push(ms_since(server.server.begin()));
                next.push(server);
            }
            self.servers = next
                .try_into()
                .map_err(|_| BenchError::Server("a server is gone".to_owned()))?;
        }
        self.add("restart to the first right answer", "ms", times, ratio_max);
        Ok(self)
    }

    /// Puts what was measured into the experiment, and stops the servers.
    async fn end(
        self,
        prefix: &str,
        names: [&str; 2],
        experiment: &mut Experiment,
    ) -> Result<(), BenchError> {
        for Both {
            what,
            unit,
            values,
            ratio_max,
        } in self.measured
        {
            let ratio = median(&values[0]) / median(&values[1]);
            for (name, values) in names.iter().zip(values) {
                experiment.add(format!("{prefix}{what}, {name}"), unit, values, None);
            }
            if let Some(bound) = ratio_max {
                let aim = Some(Aim::MedianUnder(bound));
                experiment.add(format!("{prefix}{what}: ratio"), "times", vec![ratio], aim);
            }
        }
        for server in self.servers {
            server.stop().await?;
        }
        Ok(())
    }
}

/// Waits until a server has nothing left to do.
async fn wait_for_rest(pid: u32) -> Result<(), BenchError> {
    const STEP: Duration = Duration::from_secs(3);
    let begin = Instant::now();
    loop {
        let used = cpu_time(pid)?;
        tokio::time::sleep(STEP).await;
        if (cpu_time(pid)?.saturating_sub(used)).as_secs_f64() < AT_REST_CORES * STEP.as_secs_f64() {
            return Ok(());
        }
        if begin.elapsed() > REST_WAIT {
            return Err(BenchError::Server(format!(
                "the server does not come to rest in {} s",
                REST_WAIT.as_secs()
            )));
        }
    }
}

/// Executes a statement of one number once for each of the numbers, over several connections, each statement by itself.
async fn one_by_one(
    server: &FreshServer,
    connections: usize,
    sql: &str,
    numbers: u64,
) -> Result<(), BenchError> {
    let share = numbers.div_ceil(connections as u64);
    let writers = (0..connections as u64).map(async |writer| {
        let client = Client::connect(server.server.pg()).await?;
        let client = client.postgres();
        let failed = || BenchError::postgres(sql);
        let statement = client.prepare(sql).await.map_err(failed())?;
        let (mut next, end) = (writer * share, numbers.min((writer + 1) * share));
        while next < end {
            let after = end.min(next + PIPELINED);
            let numbers: Vec<(i64, String)> = (next..after)
                .map(|number| (number as i64, format!("the text of {number}")))
                .collect();
            try_join_all(numbers.iter().map(async |(number, text)| {
                let values: [&(dyn ToSql + Sync); 2] = [number, text];
                client
                    .execute(&statement, &values[..statement.params().len()])
                    .await
            }))
            .await
            .map_err(failed())?;
            next = after;
        }
        Ok::<(), BenchError>(())
    });
    try_join_all(writers).await.map(drop)
}

async fn inserts(scale: &Scale, target: &Target) -> Result<Experiment, BenchError> {
    let mut experiment = Experiment::new(
        INSERTS,
        format!(
            "A stream of two columns. On one server by INSERTs of one row, each a transaction of its own, {} connections with {} \
             under way each; on the other by INSERTs of {} rows. When both are at rest: memory, {} more INSERTs of a row each, one \
             after the other, scans, back-fills of a view over it, by turns; then both are killed (SIGKILL) and started again.",
            scale.connections, PIPELINED, LARGE_ROWS, scale.writes
        ),
    );
    for rows in &scale.rows {
        eprintln!("{rows} rows ...");
        let mut pair = Pair::start(scale, target).await?;
        pair.run("CREATE STREAM s (k BIGINT, v TEXT)").await?;
        let select = |first: u64, last: u64| {
            format!("SELECT x, 'the text of ' || x FROM generate_series({first}, {last}) AS g(x)")
        };
        let begin = Instant::now();
        let sql = "INSERT INTO s VALUES ($1, $2)";
        one_by_one(&pair.servers[0], scale.connections, sql, *rows).await?;
        let seconds = [vec![begin.elapsed().as_secs_f64()], vec![]];
        for first in (0..*rows).step_by(LARGE_ROWS as usize) {
            let last = (first + LARGE_ROWS).min(*rows) - 1;
            pair.servers[1]
                .client
                .run(&format!("INSERT INTO s {}", select(first, last)))
                .await?;
        }
        pair.measured.push(Both {
            what: "time of writing".to_owned(),
            unit: "s",
            values: seconds,
            ratio_max: None,
        });
        pair.at_rest("after the writes", INSERTS_RATIO_MAX).await?;
        let mut times = [vec![], vec![]];
        for _ in 0..scale.writes {
            for (server, times) in pair.servers.iter().zip(&mut times) {
                let sql = format!("INSERT INTO s {}", select(*rows, *rows));
                times.push(server.client.time(&sql).await?);
            }
        }
        let p99 = times
            .each_ref()
            .map(|times| vec![crate::statistics::quantile(times, 0.99)]);
        pair.add("INSERT of a row", "ms", times, INSERTS_RATIO_MAX);
        pair.add("p99 of these", "ms", p99, INSERTS_RATIO_MAX);
        let written = (*rows + scale.writes as u64) as f64;
        let count = "SELECT count(*) FROM s";
        pair.by_turns("scan of all rows", INSERTS_RATIO_MAX, async |server| {
            let begin = Instant::now();
            let rows = server.client.rows("SELECT count(*), sum(k) FROM s").await?;
            let is_right = rows
                .first()
                .is_some_and(|row| row[0] == Some(written.to_string()));
            match is_right {
                true => Ok(ms_since(begin)),
                false => Err(BenchError::Wrong(format!("{rows:?} of {written} rows"))),
            }
        })
        .await?;
        pair.by_turns("back-fill of a view", INSERTS_RATIO_MAX, async |server| {
            let begin = Instant::now();
            let sql = "CREATE MATERIALIZED VIEW m AS SELECT k % 100 AS g, count(*) AS n, sum(k) AS k FROM s GROUP BY 1";
            server.client.run(sql).await?;
            let milliseconds = ms_since(begin);
            let found = server.client.number("SELECT sum(n) FROM m").await?;
            server.client.run("DROP MATERIALIZED VIEW m").await?;
            match found == written {
                true => Ok(milliseconds),
                false => Err(BenchError::Wrong(format!(
                    "the view has {found} of {written} rows"
                ))),
            }
        })
        .await?;
        let mut pair = pair.restarts(count, written, INSERTS_RATIO_MAX).await?;
        pair.at_rest("after the restart", INSERTS_RATIO_MAX).await?;
        let prefix = format!("{rows} rows: ");
        pair.end(&prefix, ["one by one", "at once"], &mut experiment)
            .await?;
    }
    Ok(experiment)
}

async fn updates(scale: &Scale, target: &Target) -> Result<Experiment, BenchError> {
    // Each row is changed as often as the others.
    let single = (scale.updates / SINGLE_SHARE).next_multiple_of(TABLE_ROWS);
    let whole = (scale.updates - single) / TABLE_ROWS;
    let mut experiment = Experiment::new(
        UPDATES,
        format!(
            "A table of {TABLE_ROWS} rows with a key, and {} changes of its rows: {single} UPDATEs of one row by its key, and {whole} \
             of all rows. On another server the same rows were inserted once. Disk, memory, and restarts after a SIGKILL.",
            single + whole * TABLE_ROWS
        ),
    );
    let mut pair = Pair::start(scale, target).await?;
    pair.run("CREATE TABLE t (k BIGINT PRIMARY KEY, n BIGINT, v TEXT)")
        .await?;
    let rows = format!(
        "SELECT x, 0, 'the text of ' || x FROM generate_series(0, {}) AS g(x)",
        TABLE_ROWS - 1
    );
    pair.run(&format!("INSERT INTO t {rows}")).await?;
    let client = &pair.servers[0].client;
    let begin = Instant::now();
    for _ in 0..whole {
        client.run("UPDATE t SET n = n + 1").await?;
    }
    let sql = format!("UPDATE t SET n = n + 1 WHERE k = $1::bigint % {TABLE_ROWS}");
    one_by_one(&pair.servers[0], scale.connections, &sql, single).await?;
    let seconds = [vec![begin.elapsed().as_secs_f64()], vec![]];
    let changes = (single + whole * TABLE_ROWS) as f64;
    let found = client.number("SELECT sum(n) FROM t").await?;
    if found != changes {
        return Err(BenchError::Wrong(format!("{found} of {changes} changes")));
    }
    pair.servers[1]
        .client
        .run(&format!("UPDATE t SET n = {}", changes / TABLE_ROWS as f64))
        .await?;
    pair.measured.push(Both {
        what: "time of writing".to_owned(),
        unit: "s",
        values: seconds,
        ratio_max: None,
    });
    pair.at_rest("after the writes", UPDATES_RATIO_MAX).await?;
    let disk = [
        vec![megabytes(pair.servers[0].disk_bytes()?)],
        vec![megabytes(pair.servers[1].disk_bytes()?)],
    ];
    pair.add("disk", "MB", disk, UPDATES_RATIO_MAX);
    let mut pair = pair
        .restarts("SELECT sum(n) FROM t", changes, UPDATES_RATIO_MAX)
        .await?;
    pair.at_rest("after the restart", UPDATES_RATIO_MAX).await?;
    pair.end("", ["changed", "inserted once"], &mut experiment)
        .await?;
    Ok(experiment)
}
