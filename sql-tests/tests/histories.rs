//! Histories of concurrent transactions, over kill -9 and lost workers, without the anomalies that READ COMMITTED rules out; and of
//! transactions of which each reads in one statement or only writes, without any.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use libtest_mimic::{Arguments, Failed, Trial};
use millrace_sql_tests::crash::{Process, serve_if_child};
use millrace_sql_tests::histories::{End, Model, Operation, READ_COMMITTED, Seen, Transaction, check};
use millrace_sql_tests::{Failure, connect, rows, run, seed};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::sync::Notify;
use tokio_postgres::Client;

const CLIENTS: u64 = 4;
const TABLES: i64 = 3;
const KEYS: i64 = 7;
/// Transactions of a client between two starts.
const TRANSACTIONS: usize = 40;
/// How often the server is killed, unless `MILLRACE_CRASH_ROUNDS` says otherwise.
const ROUNDS: usize = 3;

/// Whether transactions read between their writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    Between,
    Alone,
}

fn table(key: i64) -> String {
    format!("h{}", key % TABLES)
}

async fn make(client: &Client) -> Result<(), Failure> {
    for number in 0..TABLES {
        run(
            client,
            &format!("CREATE TABLE h{number} (k INT PRIMARY KEY, v TEXT, n BIGINT, last BIGINT)"),
        )
        .await?;
    }
    for key in 0..KEYS {
        run(
            client,
            &format!("INSERT INTO {} VALUES ({key}, '', 0, 0)", table(key)),
        )
        .await?;
    }
    run(client, &format!("CREATE MATERIALIZED VIEW hv AS {}", of_tables())).await
}

fn of_tables() -> String {
    let parts: Vec<String> = (0..TABLES)
        .map(|number| format!("SELECT * FROM h{number}"))
        .collect();
    parts.join(" UNION ALL ")
}

/// What a query over keys shows.
async fn read(client: &Client, sql: &str) -> Result<Vec<(i64, Seen)>, Failure> {
    let mut found = vec![];
    for row in rows(client, sql).await? {
        let mut texts = row.into_iter().map(Option::unwrap_or_default);
        let mut next = || texts.next().unwrap_or_default();
        let (key, list, version, last) = (next(), next(), next(), next());
        let seen = Seen {
            list: list
                .split_whitespace()
                .map(str::parse)
                .collect::<Result<_, _>>()?,
            version: version.parse()?,
            last: last.parse()?,
        };
        found.push((key.parse()?, seen));
    }
    Ok(found)
}

/// What all clients share.
#[derive(Default)]
struct Shared {
    next_value: AtomicI64,
    committed: AtomicUsize,
    /// Told of each commit.
    moved: Notify,
    history: Mutex<Vec<Transaction>>,
}

/// How a statement came out.
enum Outcome {
    Done,
    /// The transaction is over, and did nothing.
    Refused,
    /// Nobody answers any more.
    Gone,
}

async fn statement(client: &Client, sql: &str) -> Result<Outcome, Failure> {
    match client.simple_query(sql).await {
        Ok(_) => Ok(Outcome::Done),
        Err(error) => match error.code().map(tokio_postgres::error::SqlState::code) {
            // Its worker was killed.
            Some("40001" | "40P01" | "57P02") => Ok(Outcome::Refused),
            Some("57P01") | None => Ok(Outcome::Gone),
            Some(_) => Err(format!("{sql}: {}", millrace_sql_tests::words(&error)).into()),
        },
    }
}

/// One client until it has done what it is to do, or the server is gone.
async fn act(client: Client, shared: Arc<Shared>, reading: Reading, seed: u64) -> Result<(), Failure> {
    let mut random = StdRng::seed_from_u64(seed);
    for _ in 0..TRANSACTIONS {
        let mut operations = vec![];
        let end = transaction(&client, &shared, reading, &mut random, &mut operations).await?;
        let is_gone = end != Some(End::Committed) && client.is_closed();
        if end == Some(End::Committed) {
            shared.committed.fetch_add(1, Ordering::AcqRel);
            shared.moved.notify_waiters();
        }
        let end = end.unwrap_or(End::Aborted);
        shared.history.lock().push(Transaction { operations, end });
        if is_gone {
            return Ok(());
        }
    }
    Ok(())
}

/// `None`: it was refused, or the server went away before it could commit.
async fn transaction(
    client: &Client,
    shared: &Shared,
    reading: Reading,
    random: &mut StdRng,
    operations: &mut Vec<Operation>,
) -> Result<Option<End>, Failure> {
    if random.random_bool(0.4) {
        let sql = match random.random_bool(0.5) {
            true => "SELECT * FROM hv".to_owned(),
            false => of_tables(),
        };
        let Ok(found) = read(client, &sql).await else {
            // It has changed nothing in any case; what it is to answer others find out.
            return Ok(None);
        };
        operations.extend(found.into_iter().map(|(key, seen)| Operation::Read { key, seen }));
        return Ok(Some(End::Committed));
    }
    let steps = random.random_range(1..4);
    let is_alone = steps == 1 && random.random_bool(0.5);
    if !is_alone && !matches!(statement(client, "BEGIN").await?, Outcome::Done) {
        return Ok(None);
    }
    for step in 0..steps {
        let key = random.random_range(0..KEYS);
        if reading == Reading::Between && random.random_bool(0.5) {
            let sql = format!("SELECT * FROM {} WHERE k = {key}", table(key));
            let Ok(found) = read(client, &sql).await else {
                if !is_alone {
                    statement(client, "ROLLBACK").await?;
                }
                return Ok(None);
            };
            operations.extend(found.into_iter().map(|(key, seen)| Operation::Read { key, seen }));
        }
        let value = 1 + shared.next_value.fetch_add(1, Ordering::AcqRel);
        operations.push(Operation::Write { key, value });
        let sql = format!(
            "UPDATE {} SET v = v || ' {value}', n = n + 1, last = {value} WHERE k = {key}",
            table(key)
        );
        match statement(client, &sql).await? {
            Outcome::Done => {}
            Outcome::Refused => {
                if !is_alone {
                    statement(client, "ROLLBACK").await?;
                }
                return Ok(None);
            }
            Outcome::Gone if is_alone => return Ok(Some(End::Unknown)),
            Outcome::Gone => return Ok(None),
        }
        // Some change their minds.
        if step + 1 == steps && !is_alone && random.random_bool(0.1) {
            statement(client, "ROLLBACK").await?;
            return Ok(None);
        }
    }
    if is_alone {
        return Ok(Some(End::Committed));
    }
    match statement(client, "COMMIT").await? {
        Outcome::Done => Ok(Some(End::Committed)),
        Outcome::Refused => Ok(None),
        Outcome::Gone => Ok(Some(End::Unknown)),
    }
}

/// Waits until so many transactions have committed, or the clients are through.
async fn until_committed(shared: &Shared, count: usize) {
    loop {
        let moved = shared.moved.notified();
        if shared.committed.load(Ordering::Acquire) >= count {
            return;
        }
        moved.await;
    }
}

async fn round(
    directory: &Path,
    number: usize,
    shared: &Arc<Shared>,
    reading: Reading,
    seed: u64,
) -> Result<(), Failure> {
    let mut random = StdRng::seed_from_u64(seed.wrapping_add(7 * number as u64));
    let process = Process::start(directory, 2, false)?;
    let client = connect(process.pg).await?;
    if number == 0 {
        make(&client).await?;
    }
    let mut clients = vec![];
    for _ in 0..CLIENTS {
        let client = connect(process.pg).await?;
        clients.push(tokio::spawn(act(
            client,
            Arc::clone(shared),
            reading,
            random.random(),
        )));
    }
    let all = async {
        let mut outcomes = vec![];
        for client in clients {
            outcomes.push(client.await?);
        }
        outcomes.into_iter().collect::<Result<(), Failure>>()
    };
    tokio::pin!(all);
    let before = shared.committed.load(Ordering::Acquire);
    let lost = before + random.random_range(5..20);
    let killed = lost + random.random_range(5..60);
    let events = async {
        until_committed(shared, lost).await;
        run(&client, "KILL WORKER 1").await?;
        run(&client, "ADD WORKER").await?;
        until_committed(shared, killed).await;
        Ok::<(), Failure>(())
    };
    let outcome = tokio::select! {
        outcome = &mut all => Some(outcome),
        events = events => { events?; None }
    };
    process.kill()?;
    match outcome {
        Some(outcome) => outcome,
        None => all.await,
    }
}

async fn tried(reading: Reading, seed: u64) -> Result<(), Failure> {
    let rounds = std::env::var("MILLRACE_CRASH_ROUNDS").ok();
    let rounds = rounds.and_then(|text| text.parse().ok()).unwrap_or(ROUNDS);
    let directory = tempfile::tempdir()?;
    let shared = Arc::new(Shared::default());
    for number in 0..rounds {
        round(directory.path(), number, &shared, reading, seed).await?;
    }
    let process = Process::start(directory.path(), 1, false)?;
    let client = connect(process.pg).await?;
    let last: BTreeMap<i64, Seen> = read(&client, &of_tables()).await?.into_iter().collect();
    let of_view: BTreeMap<i64, Seen> = read(&client, "SELECT * FROM hv").await?.into_iter().collect();
    if last != of_view {
        return Err(format!("tables and view differ: {last:?}, {of_view:?}").into());
    }
    process.kill()?;
    let mut history = std::mem::take(&mut *shared.history.lock());
    let reads = last.iter().map(|(key, seen)| Operation::Read {
        key: *key,
        seen: seen.clone(),
    });
    history.push(Transaction {
        operations: reads.collect(),
        end: End::Committed,
    });
    let ends = [End::Committed, End::Aborted, End::Unknown].map(|end| {
        history
            .iter()
            .filter(|transaction| transaction.end == end)
            .count()
    });
    println!("{reading:?}: {ends:?} transactions committed, aborted and in doubt");
    if ends[0] < rounds * 10 {
        return Err("hardly anything was committed".into());
    }
    for model in [Model::List, Model::Register] {
        let mut found = check(&history, &last, model);
        println!("{reading:?}, {model:?}: {:?}", found.keys().collect::<Vec<_>>());
        if reading == Reading::Between {
            found.retain(|anomaly, _| READ_COMMITTED.contains(anomaly));
        }
        if let Some((anomaly, what)) = found.first_key_value() {
            return Err(format!("{anomaly:?}: {what}").into());
        }
    }
    Ok(())
}

fn main() {
    if serve_if_child() {
        return;
    }
    let arguments = Arguments::from_args();
    let trial = |name: &str, reading: Reading| {
        Trial::test(name, move || {
            let seed = seed();
            let runtime = tokio::runtime::Runtime::new()?;
            runtime
                .block_on(tried(reading, seed))
                .map_err(|error| Failed::from(format!("seed {seed}: {error}")))
        })
    };
    let trials = vec![
        trial(
            "transactions_have_no_anomaly_that_read_committed_rules_out",
            Reading::Between,
        ),
        trial("statements_have_no_anomaly_at_all", Reading::Alone),
    ];
    libtest_mimic::run(&arguments, trials).exit();
}
