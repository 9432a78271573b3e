//! kill -9 in the middle of writes: after the restart every acknowledged row is there once, what was not acknowledged is
//! there whole or not at all, and every view equals its query.
//!
//! The server runs in a child process: this program again, told so by an environment variable. The child prints where it
//! listens, and ends when its standard input does, so that none outlives the test.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use libtest_mimic::{Arguments, Failed, Trial};
use millrace_sql_tests::{Failure, connect, rows, run, sorted_rows, start, words};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

/// The variable that makes this program the server, and says on which directory.
const CHILD: &str = "MILLRACE_CRASH_TEST_DATA";
/// How often the server is killed.
const ROUNDS: u64 = 6;
const WRITERS: u64 = 3;
/// The most writes of a round before the kill.
const WRITES_MAX: u64 = 60;

/// The views, and the queries that they must equal.
const VIEWS: [(&str, &str); 3] = [
    (
        "per_writer",
        "SELECT writer, count(*) AS n, sum(amount) AS total, max(id) AS last FROM event GROUP BY writer",
    ),
    (
        "named",
        "SELECT e.id, a.version FROM event e JOIN account a ON e.writer = a.writer WHERE e.amount > 50",
    ),
    ("busy", "SELECT writer, total FROM per_writer WHERE n > 3"),
];

fn main() {
    if let Some(directory) = std::env::var_os(CHILD) {
        serve(Path::new(&directory));
        return;
    }
    let arguments = Arguments::from_args();
    let trial = Trial::test("acknowledged_writes_survive_kill_9", || {
        let seed = rand::rng().random();
        let runtime = Runtime::new()?;
        let outcome = runtime.block_on(rounds(seed));
        outcome.map_err(|error| Failed::from(format!("seed {seed}: {error}")))
    });
    libtest_mimic::run(&arguments, vec![trial]).exit();
}

/// The child: a server until standard input ends.
fn serve(directory: &Path) {
    let runtime = Runtime::new().expect("a thread and an epoll instance can be had");
    let server = runtime
        .block_on(start(directory))
        .expect("the server starts again after any crash");
    println!("{}", server.pg_addr());
    std::io::stdout().flush().expect("the parent listens");
    let mut line = String::new();
    // Nothing is ever sent: this returns when the parent is gone.
    let _ = std::io::stdin().read_line(&mut line);
}

/// A running child.
struct Process {
    child: Child,
    address: SocketAddr,
}

impl Process {
    fn start(directory: &Path) -> Result<Process, Failure> {
        let mut child = Command::new(std::env::current_exe()?)
            .env(CHILD, directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = child.stdout.take().ok_or("the child has an output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        let address = line
            .trim()
            .parse()
            .map_err(|_| format!("the server did not start: {line:?}"));
        match address {
            Ok(address) => Ok(Process { child, address }),
            Err(message) => {
                child.kill()?;
                child.wait()?;
                Err(message.into())
            }
        }
    }

    /// SIGKILL: nothing is flushed, nothing is said.
    fn kill(mut self) -> Result<(), Failure> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

/// What the writers know.
#[derive(Default)]
struct Known {
    /// Ids whose write was acknowledged.
    acknowledged: BTreeSet<i64>,
    /// Writes whose answer never came: each is there whole or not at all.
    in_doubt: Vec<Vec<i64>>,
}

async fn rounds(seed: u64) -> Result<(), Failure> {
    let mut random = StdRng::seed_from_u64(seed);
    let directory = tempfile::tempdir()?;
    let mut known = Known::default();
    let next_id = Arc::new(AtomicU64::new(1));

    let mut process = Process::start(directory.path())?;
    create(process.address).await?;
    for round in 0..ROUNDS {
        let kill_after = random.random_range(1..=WRITES_MAX);
        let failed = |error: Failure| format!("round {round}, killed after {kill_after} writes: {error}");
        write_until_killed(process, kill_after, &next_id, &mut random, &mut known)
            .await
            .map_err(failed)?;
        process = Process::start(directory.path())?;
        check(process.address, &mut known).await.map_err(failed)?;
    }
    process.kill()
}

async fn create(address: SocketAddr) -> Result<(), Failure> {
    let client = connect(address).await?;
    run(
        &client,
        "CREATE STREAM event (id BIGINT NOT NULL, writer BIGINT, amount INT)",
    )
    .await?;
    run(
        &client,
        "CREATE TABLE account (writer BIGINT PRIMARY KEY, last BIGINT, version INT)",
    )
    .await?;
    run(&client, "CREATE TABLE paired (id BIGINT PRIMARY KEY)").await?;
    for (name, query) in VIEWS {
        run(&client, &format!("CREATE MATERIALIZED VIEW {name} AS {query}")).await?;
    }
    for writer in 0..WRITERS {
        run(&client, &format!("INSERT INTO account VALUES ({writer}, 0, 0)")).await?;
    }
    Ok(())
}

/// What a writer reports: the ids of a write, and why it failed if it did.
type Report = (Vec<i64>, Option<String>);

/// Writes from several connections; the server is killed once so many writes were acknowledged.
async fn write_until_killed(
    process: Process,
    kill_after: u64,
    next_id: &Arc<AtomicU64>,
    random: &mut StdRng,
    known: &mut Known,
) -> Result<(), Failure> {
    let (reports, mut reported) = mpsc::unbounded_channel::<Report>();
    for writer in 0..WRITERS {
        let client = connect(process.address).await?;
        let (reports, next_id) = (reports.clone(), Arc::clone(next_id));
        let mut random = StdRng::seed_from_u64(random.random());
        tokio::spawn(async move {
            loop {
                let count = random.random_range(1..=4);
                let first = next_id.fetch_add(count, Ordering::Relaxed);
                let ids: Vec<i64> = (first..first + count).map(|id| id as i64).collect();
                let failure = commit(&client, &write(writer, &ids, &mut random)).await.err();
                let last = failure.is_some();
                // The receiver is gone when the round failed.
                if reports.send((ids, failure)).is_err() || last {
                    return;
                }
            }
        });
    }
    drop(reports);
    let mut writes = 0;
    let mut process = Some(process);
    while let Some((ids, failure)) = reported.recv().await {
        if let Some(failure) = failure {
            if process.is_some() {
                return Err(format!("a write of {ids:?} failed while the server ran: {failure}").into());
            }
            known.in_doubt.push(ids);
            continue;
        }
        known.acknowledged.extend(ids);
        writes += 1;
        if writes >= kill_after
            && let Some(process) = process.take()
        {
            process.kill()?;
        }
    }
    Ok(())
}

/// Runs a transaction, again when another was in its way: it left nothing behind then.
async fn commit(client: &Client, transaction: &str) -> Result<(), String> {
    loop {
        let Err(error) = client.batch_execute(transaction).await else {
            return Ok(());
        };
        if error.code() != Some(&SqlState::T_R_SERIALIZATION_FAILURE) {
            return Err(words(&error));
        }
        client
            .batch_execute("ROLLBACK")
            .await
            .map_err(|error| words(&error))?;
    }
}

/// A write over a stream and two tables, as one transaction: each time in one of the ways to say so.
fn write(writer: u64, ids: &[i64], random: &mut StdRng) -> String {
    let amount = random.random_range(0..100);
    let events: Vec<String> = ids
        .iter()
        .map(|id| format!("({id}, {writer}, {amount})"))
        .collect();
    let pairs: Vec<String> = ids.iter().map(|id| format!("({id})")).collect();
    let last = ids[ids.len() - 1];
    let statements = format!(
        "INSERT INTO event VALUES {}; INSERT INTO paired VALUES {}; \
         UPDATE account SET last = {last}, version = version + 1 WHERE writer = {writer}",
        events.join(", "),
        pairs.join(", ")
    );
    if random.random() {
        format!("BEGIN; {statements}; COMMIT")
    } else {
        statements
    }
}

/// Compares what is there with what is known; what was in doubt is known afterwards.
async fn check(address: SocketAddr, known: &mut Known) -> Result<(), Failure> {
    let client = connect(address).await?;
    let events = ids(&client, "SELECT id FROM event ORDER BY id").await?;
    let stored: BTreeSet<i64> = events.iter().copied().collect();
    if stored.len() != events.len() {
        return Err("an event is there twice".into());
    }
    if let Some(lost) = known.acknowledged.iter().find(|id| !stored.contains(id)) {
        return Err(format!("event {lost} was acknowledged and is lost").into());
    }
    for write in std::mem::take(&mut known.in_doubt) {
        match write.iter().filter(|id| stored.contains(id)).count() {
            0 => {}
            count if count == write.len() => known.acknowledged.extend(write),
            _ => return Err(format!("only a part of the write {write:?} is there").into()),
        }
    }
    if stored != known.acknowledged {
        let unknown: Vec<&i64> = stored.difference(&known.acknowledged).collect();
        return Err(format!("events {unknown:?} come from nowhere").into());
    }
    if ids(&client, "SELECT id FROM paired ORDER BY id").await? != events {
        return Err("a transaction is there in one relation and not in the other".into());
    }
    for (name, query) in VIEWS {
        let view = sorted_rows(&client, &format!("SELECT * FROM {name}")).await?;
        let base = sorted_rows(&client, query).await?;
        if view != base {
            return Err(format!("{name} is\n{view:?}\nand its query says\n{base:?}").into());
        }
    }
    let last =
        "SELECT a.writer FROM account a JOIN per_writer p ON a.writer = p.writer WHERE a.last <> p.last";
    match rows(&client, last).await?.len() {
        0 => Ok(()),
        _ => Err("an account does not know its last event".into()),
    }
}

async fn ids(client: &Client, sql: &str) -> Result<Vec<i64>, Failure> {
    let rows = rows(client, sql).await?;
    let ids = rows.into_iter().flatten().flatten();
    Ok(ids.map(|id| id.parse()).collect::<Result<_, _>>()?)
}
