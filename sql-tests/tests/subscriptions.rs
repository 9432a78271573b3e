//! Readers of subscriptions while the server is killed: each goes on where it was, and has every change once and in whole epochs.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt;
use millrace_sql_tests::crash::{Process, serve_if_child};
use millrace_sql_tests::outside::{Suite, line, rounds, until, write_until_told};
use millrace_sql_tests::{Failure, connect, rows, run, seed};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::sync::watch;

/// Accounts between which money moves, and what they have together.
const ACCOUNTS: i64 = 60;
const MONEY: i64 = ACCOUNTS * 1_000;
/// The subscription that is the history of a view.
const HISTORY: &str = "\"sums$history\"";
/// So many epochs of it are looked at again.
const LOOKS: usize = 40;
/// After so long without a row a reader connects again.
const IDLE: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    if serve_if_child() {
        return ExitCode::SUCCESS;
    }
    let directory = tempfile::tempdir().unwrap();
    Suite::new(directory.path(), ())
        .unwrap()
        .test("kills", async |_, place| kills(place).await)
        .test("backup", async |_, place| backup(place).await)
        .outcome()
}

/// What a reader holds: rows by their text, and how far it is.
#[derive(Default)]
struct Held {
    /// The last epoch of which it has everything; none: it has nothing yet.
    epoch: Option<i64>,
    rows: BTreeMap<String, i64>,
    /// How often it began again, and how many epochs it applied.
    connections: u64,
    epochs: u64,
    /// What it held at the end of each epoch, of a history.
    states: BTreeMap<i64, BTreeMap<String, i64>>,
}

impl Held {
    fn apply(&mut self, op: &str, row: String) -> Result<(), String> {
        let by = match op {
            "insert" | "update_insert" => 1,
            "delete" | "update_delete" => -1,
            other => return Err(format!("op {other}")),
        };
        let count = self.rows.entry(row.clone()).or_default();
        *count += by;
        match *count {
            0 => {
                self.rows.remove(&row);
                Ok(())
            }
            1 => Ok(()),
            count => Err(format!("{op} of {row}: it is there {count} times")),
        }
    }

    /// What the second column comes to.
    fn sum(&self) -> i64 {
        let second = |row: &String| row.split('|').nth(1).and_then(|cell| cell.parse::<i64>().ok());
        self.rows.keys().filter_map(second).sum()
    }
}

/// One that reads a subscription, again and again.
struct Reader {
    subscription: &'static str,
    /// What holds at the end of each epoch.
    check: fn(&Held) -> bool,
    is_history: bool,
    held: Mutex<Held>,
}

impl Reader {
    fn new(subscription: &'static str, check: fn(&Held) -> bool) -> Arc<Reader> {
        Arc::new(Reader {
            subscription,
            check,
            is_history: subscription == HISTORY,
            held: Mutex::default(),
        })
    }

    /// Reads until there is no server any more; an error is one of what was read.
    async fn read(&self, mut address: watch::Receiver<Option<SocketAddr>>, seed: u64) -> Result<(), Failure> {
        let mut random = StdRng::seed_from_u64(seed);
        loop {
            let Some(server) = *address.borrow_and_update() else {
                return Ok(());
            };
            let goes_away_after = random.random_range(5..400);
            if let Err(error) = self.read_from(server, goes_away_after).await {
                let error = error.to_string();
                if error.starts_with("wrong: ") {
                    return Err(error.into());
                }
            }
            tokio::time::sleep(Duration::from_millis(random.random_range(1..40))).await;
        }
    }

    /// Reads so many rows from one server.
    async fn read_from(&self, server: SocketAddr, rows_max: u32) -> Result<(), Failure> {
        let client = connect(server).await?;
        let epoch = self.held.lock().epoch;
        let sql = match epoch {
            None => format!("SUBSCRIBE {} WITH (PROGRESS)", self.subscription),
            Some(epoch) => format!(
                "SUBSCRIBE {} WITH (SNAPSHOT = false, PROGRESS) AS OF {epoch}",
                self.subscription
            ),
        };
        let wrong = |what: String| Failure::from(format!("wrong: {}: {sql}: {what}", self.subscription));
        let statement = client.prepare(&sql).await?;
        let columns = statement.columns().len();
        let sent = client.query_raw(&statement, Vec::<i32>::new()).await;
        let mut sent = Box::pin(match sent {
            Ok(sent) => sent,
            // What is not kept any more would be a gap.
            Err(error) if error.code().is_some_and(|code| code.code() == "72000") => {
                return Err(wrong(error.to_string()));
            }
            Err(error) => return Err(error.into()),
        });
        self.held.lock().connections += 1;
        let mut waiting: Vec<(String, String)> = vec![];
        let mut count = 0;
        loop {
            let next = tokio::time::timeout(IDLE, sent.try_next()).await;
            let row = match next {
                Err(_) | Ok(Ok(None)) => return Ok(()),
                Ok(Ok(Some(row))) => row,
                Ok(Err(error)) if error.code().is_some_and(|code| code.code() == "72000") => {
                    return Err(wrong(error.to_string()));
                }
                Ok(Err(error)) => return Err(error.into()),
            };
            count += 1;
            let told: i64 = row.get(0);
            if epoch.is_some_and(|epoch| told <= epoch) {
                return Err(wrong(format!("epoch {told} again")));
            }
            if !row.get::<_, bool>(1) {
                let cells: Vec<String> = (3..columns)
                    .map(|column| row.get::<_, i64>(column).to_string())
                    .collect();
                waiting.push((row.get(2), cells.join("|")));
                // It goes away in the middle of an epoch, too.
                if count > rows_max {
                    return Ok(());
                }
                continue;
            }
            let mut held = self.held.lock();
            if held.epoch.is_some_and(|epoch| told <= epoch) {
                return Err(wrong(format!("epoch {told} behind {:?}", held.epoch)));
            }
            for (op, row) in waiting.drain(..) {
                held.apply(&op, row)
                    .map_err(|what| wrong(format!("epoch {told}: {what}")))?;
            }
            held.epoch = Some(told);
            if self.is_history {
                let state = held.rows.clone();
                held.states.insert(told, state);
            }
            held.epochs += 1;
            if !(self.check)(&held) {
                return Err(wrong(format!("epoch {told} is not whole: {:?}", held.rows)));
            }
        }
    }
}

/// Rows change, views are filled again, connections and the server are ended at any time.
async fn kills(place: &Path) -> Result<(), Failure> {
    let rounds = rounds("SUBSCRIPTION_ROUNDS");
    let seed = seed();
    println!("kills: {rounds} rounds, MILLRACE_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let mut server = Process::start(place, 1, false)?;
    let client = connect(server.pg).await?;
    for sql in [
        "CREATE STREAM s (a BIGINT)".to_owned(),
        "CREATE TABLE accounts (id BIGINT PRIMARY KEY, v BIGINT)".to_owned(),
        format!("INSERT INTO accounts SELECT i, 1000 FROM generate_series(0, {}) AS g(i)", ACCOUNTS - 1),
        "CREATE MATERIALIZED VIEW sums WITH (history = '1 day') AS SELECT id % 7 AS g, sum(v)::BIGINT AS v, count(*) AS n FROM accounts GROUP BY id % 7".to_owned(),
        "CREATE SUBSCRIPTION of_accounts FROM accounts WITH (retention = '1 day')".to_owned(),
        "CREATE SUBSCRIPTION of_s FROM s WITH (retention = '1 day')".to_owned(),
    ] {
        run(&client, &sql).await?;
    }
    drop(client);
    let readers = [
        Reader::new("of_accounts", |held| held.sum() == MONEY),
        Reader::new(HISTORY, |held| held.sum() == MONEY),
        Reader::new("of_s", |_| true),
    ];
    let (told, address) = watch::channel(Some(server.pg));
    let mut reading: Vec<_> = (readers.iter())
        .map(|reader| {
            let (reader, address, seed) = (Arc::clone(reader), address.clone(), random.random());
            tokio::spawn(async move { reader.read(address, seed).await })
        })
        .collect();
    let (writes, may_write) = watch::channel(Some(server.pg));
    let writing = tokio::spawn(write(may_write, random.random()));
    for round in 0..rounds {
        tokio::time::sleep(Duration::from_millis(random.random_range(50..1500))).await;
        server.kill()?;
        // Of the first two each kind is one.
        if round == 1 || round > 1 && random.random_range(0..3) == 0 {
            std::fs::remove_dir_all(place.join("checkpoints"))?;
        }
        server = Process::start(place, random.random_range(1..3), false)?;
        told.send_replace(Some(server.pg));
        writes.send_replace(Some(server.pg));
        for (reader, task) in readers.iter().zip(&reading) {
            if task.is_finished() {
                println!(
                    "kills: the reader of {} ended in round {round}",
                    reader.subscription
                );
            }
        }
    }
    writes.send_replace(None);
    writing.await?;
    let client = connect(server.pg).await?;
    let running = "SELECT count(*) FROM mr_catalog.subscriptions WHERE state = 'running'";
    until(&client, running, "3").await?;
    run(&client, "FLUSH").await?;
    // Nothing is written any more: a cursor from now on begins when all is kept.
    for reader in &readers {
        let name = reader.subscription;
        run(
            &client,
            &format!("DECLARE c SUBSCRIPTION CURSOR FOR {name}; CLOSE c"),
        )
        .await?;
        let newest = format!(
            "SELECT newest_epoch FROM mr_catalog.subscriptions WHERE name = '{}'",
            name.trim_matches('"')
        );
        let newest: i64 = line(&client, &newest).await?.parse()?;
        let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
        while reader.held.lock().epoch != Some(newest) {
            if let Some(ended) = reading.iter_mut().find(|task| task.is_finished()) {
                ended.await??;
            }
            if tokio::time::Instant::now() > deadline {
                let epoch = reader.held.lock().epoch;
                return Err(format!("{name}: {epoch:?} instead of {newest}").into());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    told.send_replace(None);
    server_says(&client, &readers).await?;
    let states = std::mem::take(&mut readers[1].held.lock().states);
    let step = states.len().div_ceil(LOOKS).max(1);
    for (epoch, state) in states.iter().step_by(step) {
        let found = counted(&client, &format!("SELECT g, v, n FROM sums AS OF {epoch}")).await?;
        if found != *state {
            return Err(format!("sums as of {epoch}: {found:?} instead of {state:?}").into());
        }
    }
    server.kill()?;
    for task in reading {
        task.await??;
    }
    Ok(())
}

/// Rows of a query, and how often each is there.
async fn counted(client: &tokio_postgres::Client, query: &str) -> Result<BTreeMap<String, i64>, Failure> {
    let mut found: BTreeMap<String, i64> = BTreeMap::new();
    for row in rows(client, query).await? {
        let cells: Vec<String> = row.into_iter().map(Option::unwrap_or_default).collect();
        *found.entry(cells.join("|")).or_default() += 1;
    }
    Ok(found)
}

/// What readers hold is what there is.
async fn server_says(client: &tokio_postgres::Client, readers: &[Arc<Reader>; 3]) -> Result<(), Failure> {
    let queries = [
        "SELECT id, v FROM accounts",
        "SELECT g, v, n FROM sums",
        "SELECT a FROM s",
    ];
    for (reader, query) in readers.iter().zip(queries) {
        let there = counted(client, query).await?;
        let held = reader.held.lock();
        println!(
            "kills: {}: {} rows, {} epochs, {} connections",
            reader.subscription,
            held.rows.len(),
            held.epochs,
            held.connections
        );
        if held.rows != there {
            return Err(format!("{}: {:?} instead of {there:?}", reader.subscription, held.rows).into());
        }
    }
    Ok(())
}

/// Moves money and appends rows until it is told to end. What is not acknowledged may be there: the server itself says what is.
async fn write(address: watch::Receiver<Option<SocketAddr>>, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let mut number = 0_i64;
    let statement = move || {
        number += 1;
        match random.random_range(0..8) {
            0..2 => {
                format!("INSERT INTO s SELECT {number} * 100 + i FROM generate_series(0, 19) AS g(i)")
            }
            2 => "UPDATE accounts SET v = 1000".to_owned(),
            _ => {
                let from = random.random_range(0..ACCOUNTS);
                let to = (from + random.random_range(1..ACCOUNTS)) % ACCOUNTS;
                let amount = random.random_range(1..100);
                format!(
                    "UPDATE accounts SET v = v + CASE id WHEN {to} THEN {amount} ELSE -{amount} END WHERE id IN ({from}, {to})"
                )
            }
        }
    };
    write_until_told(address, statement).await;
}

/// A server that was restored has not what was told since the backup: whoever was further is told so.
async fn backup(place: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(place)?;
    let (data, copy, again) = (place.join("data"), place.join("backup"), place.join("again"));
    let server = Process::start(&data, 1, false)?;
    let client = connect(server.pg).await?;
    for sql in [
        "CREATE TABLE t (a BIGINT PRIMARY KEY)",
        "CREATE SUBSCRIPTION s FROM t WITH (retention = '1 day')",
        "INSERT INTO t VALUES (1)",
        "DECLARE c SUBSCRIPTION CURSOR FOR s",
    ] {
        run(&client, sql).await?;
    }
    let newest = "SELECT newest_epoch FROM mr_catalog.subscriptions";
    let before = line(&client, newest).await?;
    run(&client, &format!("BACKUP TO '{}'", copy.display())).await?;
    run(&client, "INSERT INTO t VALUES (2)").await?;
    run(&client, "DECLARE d SUBSCRIPTION CURSOR FOR s").await?;
    let lost = line(&client, newest).await?;
    server.kill()?;
    millrace_storage::restore(&copy, &again)?;
    let server = Process::start(&again, 1, false)?;
    let client = connect(server.pg).await?;
    until(&client, "SELECT state FROM mr_catalog.subscriptions", "running").await?;
    for epoch in [&before, &lost] {
        let declare = format!("DECLARE c SUBSCRIPTION CURSOR FOR s SINCE {epoch}");
        let error = client
            .batch_execute(&declare)
            .await
            .err()
            .ok_or("it has gone on")?;
        if error.code().is_none_or(|code| code.code() != "72000") {
            return Err(format!("{declare}: {error}").into());
        }
    }
    run(&client, "DECLARE c SUBSCRIPTION CURSOR FOR s FULL").await?;
    run(&client, "INSERT INTO t VALUES (3)").await?;
    let mut told: Vec<String> = vec![];
    while told.len() < 2 {
        let fetched = rows(&client, "FETCH 1 FROM c WITH (timeout = '10s')").await?;
        told.extend(
            fetched
                .into_iter()
                .map(|mut row| row.swap_remove(2).unwrap_or_default()),
        );
    }
    match told == ["1", "3"] {
        true => server.kill(),
        false => Err(format!("{told:?}").into()),
    }
}
