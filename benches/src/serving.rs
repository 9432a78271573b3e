//! Serving: what applications ask of a database thousands of times a second, of millrace and of PostgreSQL by turns.
//!
//! ```text
//!  serving/one      the latency of look-ups and small writes from one connection
//!  serving/clients  the rate of look-ups from several connections at a time, many others open beside them
//! ```
//! Everybody shares the machine's cores. Both write to the disk before they acknowledge (PostgreSQL's `fsync`, our `durability = group`, the defaults).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use tokio::task::JoinSet;
use tokio_postgres::types::ToSql;

use crate::bed;
use crate::client::Client;
use crate::error::BenchError;
use crate::results::{Aim, Experiment, Run};
use crate::size::Size;
use crate::statistics::{ms_since, quantile};
use crate::suite::Suite;
use crate::target::{FreshServer, Target};

const ONE: &str = "serving/one";
const CLIENTS: &str = "serving/clients";

/// How much of everything a run does.
#[derive(Debug, Clone, PartialEq)]
struct Scale {
    rows: u32,
    /// Statements of each kind in a turn.
    statements: u32,
    clients: u32,
    /// Connections that are open and say nothing.
    silent: u32,
    steady: Duration,
    runs: usize,
}

/// The suite, with its options.
#[derive(Debug, Args)]
pub struct Serving {
    /// Rows of the table
    #[arg(long, default_value_t = 100_000)]
    rows: u32,
    /// Statements of each kind in a turn
    #[arg(long, default_value_t = 2_000)]
    statements: u32,
    /// Connections that ask at a time
    #[arg(long, default_value_t = 8)]
    clients: u32,
    /// Connections that are open beside them and say nothing
    #[arg(long, default_value_t = 80)]
    silent: u32,
    /// How long the rate is measured
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// How often each figure is measured
    #[arg(long, default_value_t = 5)]
    runs: usize,
}

impl Serving {
    fn scale(&self, size: Size) -> Scale {
        match size {
            Size::Real => Scale {
                rows: self.rows,
                statements: self.statements,
                clients: self.clients,
                silent: self.silent,
                steady: Duration::from_secs(self.seconds),
                runs: self.runs,
            },
            Size::Small => Scale {
                rows: 1_000,
                statements: 20,
                clients: 4,
                silent: 5,
                steady: Duration::from_millis(200),
                runs: 1,
            },
        }
    }
}

impl Suite for Serving {
    const NAME: &'static str = "serving";
    const ABOUT: &'static str = "Look-ups and small writes of applications, beside PostgreSQL";

    async fn run(&self, run: &mut Run) -> Result<(), BenchError> {
        let size = run.size();
        let scale = self.scale(size);
        let target = Target::of(size)?;
        run.note("Clients and servers share the machine's cores.");
        let server = FreshServer::start(&target).await?;
        let mut sides = vec![Side {
            name: "millrace",
            config: config(server.server.pg(), "millrace"),
        }];
        // It runs until the end of the suite.
        let postgres = bed::postgres()?;
        match &postgres {
            Some((postgres, _)) => sides.push(Side {
                name: "PostgreSQL",
                config: config(SocketAddr::from(([127, 0, 0, 1], postgres.port())), "postgres"),
            }),
            None => run.note(
                "There was no PostgreSQL beside it: MILLRACE_POSTGRES_BIN names the folder of its programs.",
            ),
        }
        for side in &sides {
            side.fill(&scale).await?;
        }
        if run.begins(ONE) {
            run.add(one(&scale, &sides).await?);
        }
        if run.begins(CLIENTS) {
            run.add(clients(&scale, &sides).await?);
        }
        server.stop().await
    }
}

/// A server that is asked.
struct Side {
    name: &'static str,
    config: tokio_postgres::Config,
}

fn config(address: SocketAddr, name: &str) -> tokio_postgres::Config {
    let mut config = tokio_postgres::Config::new();
    config
        .host(address.ip().to_string())
        .port(address.port())
        .user(name)
        .dbname(name);
    config
}

impl Side {
    async fn client(&self) -> Result<Client, BenchError> {
        Client::connect_to(&self.config).await
    }

    async fn fill(&self, scale: &Scale) -> Result<(), BenchError> {
        let client = self.client().await?;
        client
            .run("CREATE TABLE accounts (id INT PRIMARY KEY, branch INT, balance INT, note TEXT)")
            .await?;
        client
            .run(&format!(
                "INSERT INTO accounts SELECT g, g % {}, 0, 'note ' || g::text FROM generate_series(1, {}) AS s(g)",
                scale.rows / 5,
                scale.rows
            ))
            .await?;
        client.run("CREATE INDEX ON accounts (branch)").await?;
        client
            .run("CREATE MATERIALIZED VIEW branches AS SELECT branch, sum(balance) AS total, count(*) AS n FROM accounts GROUP BY branch")
            .await?;
        if self.name == "PostgreSQL" {
            client.run("CREATE UNIQUE INDEX ON branches (branch)").await?;
            client.run("VACUUM ANALYZE").await?;
        }
        Ok(())
    }
}

/// What is asked.
struct Kind {
    name: &'static str,
    sql: &'static str,
    /// Whether the constants stand in the text.
    simple: bool,
    /// What PostgreSQL has too: its materialized views are not maintained.
    of_both: bool,
}

const KINDS: [Kind; 7] = [
    Kind {
        name: "point SELECT, prepared",
        sql: "SELECT note FROM accounts WHERE id = $1",
        simple: false,
        of_both: true,
    },
    Kind {
        name: "point SELECT, simple",
        sql: "SELECT note FROM accounts WHERE id = $1",
        simple: true,
        of_both: true,
    },
    Kind {
        name: "five rows by an index, prepared",
        sql: "SELECT id, note FROM accounts WHERE branch = $1",
        simple: false,
        of_both: true,
    },
    Kind {
        name: "row of a view, prepared",
        sql: "SELECT total, n FROM branches WHERE branch = $1",
        simple: false,
        of_both: true,
    },
    Kind {
        name: "UPDATE by key, prepared",
        sql: "UPDATE accounts SET balance = balance + 1 WHERE id = $1",
        simple: false,
        of_both: true,
    },
    Kind {
        name: "INSERT of a row, prepared",
        sql: "INSERT INTO accounts VALUES ($1, $1, 0, 'new')",
        simple: false,
        of_both: true,
    },
    Kind {
        name: "UPDATE, and the view's row with it",
        sql: "UPDATE accounts SET balance = balance + 1 WHERE id = $1; SELECT total FROM branches WHERE branch = 7",
        simple: true,
        of_both: false,
    },
];

/// The p50 and the p99 of each turn.
type Turns = (Vec<f64>, Vec<f64>);

/// The latency of each kind of statement.
async fn one(scale: &Scale, sides: &[Side]) -> Result<Experiment, BenchError> {
    let mut figures: BTreeMap<(usize, &str), Turns> = BTreeMap::new();
    let mut clients = vec![];
    for side in sides {
        clients.push((side, side.client().await?));
    }
    let mut number = 0;
    for run in 0..scale.runs {
        for (place, kind) in KINDS.iter().enumerate() {
            // By turns, and each of them first as often.
            let mut order: Vec<usize> = (0..clients.len()).collect();
            order.rotate_left(run % clients.len());
            for index in order {
                let (side, client) = &clients[index];
                if !kind.of_both && side.name != "millrace" {
                    continue;
                }
                let mut times = vec![];
                let statement = match kind.simple {
                    true => None,
                    false => Some(
                        client
                            .postgres()
                            .prepare(kind.sql)
                            .await
                            .map_err(BenchError::postgres(kind.sql))?,
                    ),
                };
                for _ in 0..scale.statements {
                    number += 1;
                    let key = match kind.sql.starts_with("INSERT") {
                        true => (scale.rows + number) as i32,
                        false => (number.wrapping_mul(7919) % (scale.rows / 5 - 1) + 1) as i32,
                    };
                    let begin = Instant::now();
                    let rows = match &statement {
                        Some(statement) => {
                            let rows = client
                                .postgres()
                                .query(statement, &[&key as &(dyn ToSql + Sync)])
                                .await;
                            rows.map_err(BenchError::postgres(kind.sql))?.len()
                        }
                        None => {
                            let mut found = 0;
                            for sql in kind.sql.replace("$1", &key.to_string()).split("; ") {
                                found = client.rows(sql).await?.len();
                            }
                            found
                        }
                    };
                    times.push(ms_since(begin));
                    let expected = match kind.sql {
                        sql if sql.contains("branch = $1") && sql.contains("id, note") => 5..6,
                        sql if sql.contains("SELECT") => 0..2,
                        _ => 0..1,
                    };
                    // What is inserted has branches of its own.
                    if !expected.contains(&rows) {
                        return Err(BenchError::Wrong(format!(
                            "{} with {key}: {rows} rows from {}",
                            kind.sql, side.name
                        )));
                    }
                }
                let figure = figures.entry((place, side.name)).or_default();
                figure.0.push(quantile(&times, 0.5));
                figure.1.push(quantile(&times, 0.99));
            }
        }
    }
    let mut experiment = Experiment::new(
        ONE,
        format!(
            "A table of {} rows with a primary key, an index with five rows a key and a view of sums. One connection sends {} statements \
             of a kind, waiting for each answer; each value is a turn's p50 or p99. With millrace the view is maintained meanwhile; with \
             PostgreSQL it is as it was filled.",
            scale.rows, scale.statements
        ),
    );
    for (place, kind) in KINDS.iter().enumerate() {
        let medians: Vec<Option<&Turns>> = sides
            .iter()
            .map(|side| figures.get(&(place, side.name)))
            .collect();
        for (side, figure) in sides.iter().zip(&medians) {
            if let Some((p50, p99)) = figure {
                experiment.add(
                    format!("{}: {} p50", kind.name, side.name),
                    "ms",
                    p50.clone(),
                    None,
                );
                experiment.add(
                    format!("{}: {} p99", kind.name, side.name),
                    "ms",
                    p99.clone(),
                    None,
                );
            }
        }
        if let [Some((ours, _)), Some((theirs, _))] = medians.as_slice() {
            let ratio = ours
                .iter()
                .zip(theirs)
                .map(|(ours, theirs)| ours / theirs)
                .collect();
            experiment.add(
                format!("{}: millrace / PostgreSQL", kind.name),
                "x",
                ratio,
                Some(Aim::MedianUnder(1.0)),
            );
        }
    }
    Ok(experiment)
}

/// The rate of point SELECTs from several connections.
async fn clients(scale: &Scale, sides: &[Side]) -> Result<Experiment, BenchError> {
    let mut figures: BTreeMap<(bool, &str), Vec<f64>> = BTreeMap::new();
    for run in 0..scale.runs {
        for simple in [false, true] {
            for index in 0..sides.len() {
                let side = &sides[(index + run) % sides.len()];
                let rate = turn(scale, side, simple).await?;
                figures.entry((simple, side.name)).or_default().push(rate);
            }
        }
    }
    let mut experiment = Experiment::new(
        CLIENTS,
        format!(
            "{} connections ask for rows of the same table by its key without a pause, each waiting for its answer, for {:.1} s; {} more \
             connections are open and say nothing. The clients are threads of one process beside the server.",
            scale.clients,
            scale.steady.as_secs_f64(),
            scale.silent
        ),
    );
    for simple in [false, true] {
        let how = if simple { "simple" } else { "prepared" };
        let name = format!("{} clients, point SELECTs {how}", scale.clients);
        for side in sides {
            let rates = figures.get(&(simple, side.name)).cloned().unwrap_or_default();
            experiment.add(format!("{name}: {}", side.name), "1/s", rates, None);
        }
        if let [Some(ours), Some(theirs)] = sides
            .iter()
            .map(|side| figures.get(&(simple, side.name)))
            .collect::<Vec<_>>()
            .as_slice()
        {
            let ratio = ours
                .iter()
                .zip(*theirs)
                .map(|(ours, theirs)| ours / theirs)
                .collect();
            experiment.add(
                format!("{name}: millrace / PostgreSQL"),
                "x",
                ratio,
                Some(Aim::MedianOver(1.0)),
            );
        }
    }
    Ok(experiment)
}

/// Point SELECTs a second.
async fn turn(scale: &Scale, side: &Side, simple: bool) -> Result<f64, BenchError> {
    const SQL: &str = "SELECT note FROM accounts WHERE id = $1";
    let mut silent = vec![];
    for _ in 0..scale.silent {
        silent.push(side.client().await?);
    }
    let (mut asking, rows) = (JoinSet::new(), scale.rows);
    let end = Instant::now() + scale.steady;
    let begin = Instant::now();
    for number in 0..scale.clients {
        let client = Arc::new(side.client().await?);
        asking.spawn(async move {
            let statement = client
                .postgres()
                .prepare(SQL)
                .await
                .map_err(BenchError::postgres(SQL))?;
            let (mut key, mut done) = (number * 997, 0_u64);
            while Instant::now() < end {
                key = key.wrapping_mul(7919).wrapping_add(1);
                let id = (key % rows + 1) as i32;
                let found = match simple {
                    true => client.rows(&SQL.replace("$1", &id.to_string())).await?.len(),
                    false => {
                        let found = client
                            .postgres()
                            .query(&statement, &[&id as &(dyn ToSql + Sync)])
                            .await;
                        found.map_err(BenchError::postgres(SQL))?.len()
                    }
                };
                if found != 1 {
                    return Err(BenchError::Wrong(format!("{found} rows have the key {id}")));
                }
                done += 1;
            }
            Ok(done)
        });
    }
    let mut done = 0;
    while let Some(client) = asking.join_next().await {
        done += client.map_err(|error| BenchError::Server(error.to_string()))??;
    }
    drop(silent);
    Ok(done as f64 / begin.elapsed().as_secs_f64())
}
