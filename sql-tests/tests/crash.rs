//! kill -9 in the middle of writes: after the restart every acknowledged row is there once, what was not acknowledged is
//! there whole or not at all, every view equals its query, and of a lookup join, whose rows depend on when they came, nothing
//! that was read before is gone. The files of sinks say, added up, what the relations say that they were written from, and
//! none that was there is ever changed.
//!
//! There is a checkpoint every 200 ms or so, so that kills come before, in and after them. In some rounds checkpoint files
//! are damaged between the kill and the restart: then views may take longer to come up, and never have other rows.
//!
//! `MILLRACE_CRASH_ROUNDS` is the number of rounds, `MILLRACE_SEED` is the seed.
//!
//! The server runs in a child process: this program again, told so by an environment variable. The child prints where it
//! listens, and ends when its standard input does, so that none outlives the test.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Failed, Trial};
use millrace_server::Server;
use millrace_server::cli::test::throw_away;
use millrace_sql_tests::{Failure, TextRow, connect, rows, run, seed, sorted_rows, words};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

/// The variable that makes this program the server, and says on which directory.
const CHILD: &str = "MILLRACE_CRASH_TEST_DATA";
const CHECKPOINT_INTERVAL: Duration = Duration::from_millis(200);
/// The variable that says how many workers the server has: after each kill another number.
const WORKERS: &str = "MILLRACE_CRASH_TEST_WORKERS";
/// How often the server is killed, unless a variable says otherwise.
const ROUNDS: u64 = 8;
const WRITERS: u64 = 3;
/// The most writes of a round before the kill: most rounds are short, and some see several checkpoints.
const WRITES_MAX: u64 = 60;
const WRITES_MAX_LONG: u64 = 600;
/// The share of rounds after which a checkpoint file is damaged.
const DAMAGED: f64 = 0.25;
/// The view of which nothing is taken back.
const LOOKED_UP: &str = "SELECT e.id, a.version FROM event e JOIN account FOR SYSTEM_TIME AS OF PROCTIME() AS a \
                         ON e.writer = a.writer";

/// The views, and the queries that they must equal.
const VIEWS: [(&str, &str); 8] = [
    (
        "per_writer",
        "SELECT writer, count(*) AS n, sum(amount) AS total, max(id) AS last FROM event GROUP BY writer",
    ),
    (
        "named",
        "SELECT e.id, a.version FROM event e JOIN account a ON e.writer = a.writer WHERE e.amount > 50",
    ),
    ("busy", "SELECT writer, total FROM per_writer WHERE n > 3"),
    (
        "all_accounts",
        "SELECT a.writer, a.version, count(e.id) AS n, min(e.amount) AS least FROM account a \
         LEFT JOIN event e ON e.writer = a.writer AND e.amount < 20 GROUP BY a.writer, a.version",
    ),
    (
        "largest",
        "SELECT writer, id, amount FROM (SELECT writer, id, amount, row_number() OVER (PARTITION BY writer \
         ORDER BY amount DESC, id) AS place FROM event) WHERE place <= 3",
    ),
    ("amounts", "SELECT DISTINCT amount FROM event"),
    (
        "unpaired",
        "SELECT id FROM event WHERE amount = 7 AND id NOT IN (SELECT id FROM paired WHERE id % 2 = 0)",
    ),
    (
        "before",
        "SELECT id, lag(id) OVER (PARTITION BY writer ORDER BY id) AS earlier FROM event WHERE amount > 90",
    ),
];

/// Sinks: what each is of, its type and format, the columns of its files, and the query that they must equal.
const SINKS: [(&str, &str, &str, &str, &str); 4] = [
    (
        "FROM event",
        "append-only",
        "CSV",
        "id BIGINT, writer BIGINT, amount INT",
        "SELECT id, writer, amount FROM event",
    ),
    (
        "AS SELECT id, amount FROM event WHERE amount > 50",
        "append-only",
        "JSON",
        "id BIGINT, amount INT",
        "SELECT id, amount FROM event WHERE amount > 50",
    ),
    (
        "FROM per_writer",
        "changelog",
        "JSON",
        "writer BIGINT, n BIGINT, total BIGINT, last BIGINT",
        "SELECT writer, n, total, last FROM per_writer",
    ),
    (
        "FROM account",
        "changelog",
        "PARQUET",
        "writer BIGINT, last BIGINT, version INT",
        "SELECT writer, last, version FROM account",
    ),
];

fn main() {
    if let Some(directory) = std::env::var_os(CHILD) {
        serve(Path::new(&directory));
        return;
    }
    let arguments = Arguments::from_args();
    let trial = Trial::test("acknowledged_writes_survive_kill_9", || {
        let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
        let seed = seed();
        let total = number("MILLRACE_CRASH_ROUNDS").unwrap_or(ROUNDS);
        let runtime = Runtime::new()?;
        let outcome = runtime.block_on(rounds(seed, total));
        outcome.map_err(|error| Failed::from(format!("seed {seed}: {error}")))
    });
    libtest_mimic::run(&arguments, vec![trial]).exit();
}

/// The child: a server until standard input ends.
fn serve(directory: &Path) {
    let runtime = Runtime::new().expect("a thread and an epoll instance can be had");
    let server = runtime
        .block_on(async {
            let mut config = throw_away(directory);
            config.tuning.checkpoint_interval = Some(CHECKPOINT_INTERVAL);
            config.cores = Some(1);
            config.workers = std::env::var(WORKERS).ok().and_then(|text| text.parse().ok());
            Server::start(config).await
        })
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
    fn start(directory: &Path, workers: u64) -> Result<Process, Failure> {
        let mut child = Command::new(std::env::current_exe()?)
            .env(CHILD, directory)
            .env(WORKERS, workers.to_string())
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
    /// Rows of the lookup join that somebody has read.
    looked_up: BTreeSet<TextRow>,
    /// Files of sinks.
    files: BTreeMap<PathBuf, Vec<u8>>,
}

/// What rounds have seen besides rows.
#[derive(Debug, Default)]
struct Seen {
    /// Views that came back from a checkpoint, and that were filled again.
    restored: u64,
    filled: u64,
    damaged: u64,
    /// The longest time from the start of a process to its first answer.
    slowest: Duration,
}

async fn rounds(seed: u64, total: u64) -> Result<(), Failure> {
    println!("seed {seed}");
    let mut seen = Seen::default();
    let mut random = StdRng::seed_from_u64(seed);
    let directory = tempfile::tempdir()?;
    let sinks = tempfile::tempdir()?;
    let mut known = Known::default();
    let next_id = Arc::new(AtomicU64::new(1));

    let mut process = Process::start(directory.path(), 1)?;
    create(process.address, sinks.path()).await?;
    for round in 0..total {
        let is_long = random.random_bool(0.3);
        let kill_after = random.random_range(1..=if is_long { WRITES_MAX_LONG } else { WRITES_MAX });
        let failed = |error: Failure| format!("round {round}, killed after {kill_after} writes: {error}");
        write_until_killed(process, kill_after, &next_id, &mut random, &mut known)
            .await
            .map_err(failed)?;
        if random.random_bool(DAMAGED) {
            seen.damaged += damage(&directory.path().join("checkpoints"), &mut random)?;
            // Without the epoch log rows are cut anew, and a lookup join may find others.
            known.looked_up.clear();
        }
        let started = Instant::now();
        process = Process::start(directory.path(), random.random_range(1..=3))?;
        check(process.address, &mut known, &mut seen)
            .await
            .map_err(failed)?;
        check_sinks(process.address, sinks.path(), &mut known)
            .await
            .map_err(failed)?;
        seen.slowest = seen.slowest.max(started.elapsed());
    }
    println!("{total} rounds: {seen:?}");
    if seen.restored == 0 && total >= ROUNDS {
        return Err("no view ever came back from a checkpoint".into());
    }
    process.kill()
}

/// Damages one of the checkpoints' files in one of the ways in which files are damaged. Returns how many.
fn damage(directory: &Path, random: &mut StdRng) -> Result<u64, Failure> {
    let mut files: Vec<PathBuf> = vec![];
    for entry in std::fs::read_dir(directory)? {
        files.push(entry?.path());
    }
    files.sort();
    let Some(file) = files.choose(random) else {
        return Ok(0);
    };
    let mut bytes = std::fs::read(file)?;
    match random.random_range(0..4) {
        0 => std::fs::remove_file(file)?,
        1 => {
            bytes.truncate(random.random_range(0..=bytes.len()));
            std::fs::write(file, bytes)?;
        }
        2 => {
            bytes.extend((0..random.random_range(1..2000)).map(|_| random.random::<u8>()));
            std::fs::write(file, bytes)?;
        }
        _ => {
            for _ in 0..random.random_range(1..20) {
                if !bytes.is_empty() {
                    let place = random.random_range(0..bytes.len());
                    bytes[place] ^= 1 << random.random_range(0..8);
                }
            }
            std::fs::write(file, bytes)?;
        }
    }
    Ok(1)
}

async fn create(address: SocketAddr, sinks: &Path) -> Result<(), Failure> {
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
    run(
        &client,
        &format!("CREATE MATERIALIZED VIEW looked_up AS {LOOKED_UP}"),
    )
    .await?;
    for (place, (input, sink_type, format, ..)) in SINKS.iter().enumerate() {
        let path = sinks.join(place.to_string());
        std::fs::create_dir(&path)?;
        let sql = format!(
            "CREATE SINK sink_{place} {input} WITH (connector = 'file', path = '{}', type = '{sink_type}', \
             rollover_seconds = 0) FORMAT PLAIN ENCODE {format}",
            path.display()
        );
        run(&client, &sql).await?;
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
    let reader = connect(process.address).await?;
    let (stop, mut is_over) = tokio::sync::oneshot::channel::<()>();
    let reading = tokio::spawn(async move {
        let mut read = vec![];
        // It ends with the server, or with the round.
        while is_over.try_recv() == Err(tokio::sync::oneshot::error::TryRecvError::Empty)
            && let Ok(rows) = rows(&reader, "SELECT * FROM looked_up").await
        {
            read = rows;
        }
        read
    });
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
    drop(stop);
    known.looked_up.extend(reading.await?);
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
async fn check(address: SocketAddr, known: &mut Known, seen: &mut Seen) -> Result<(), Failure> {
    let client = connect(address).await?;
    for row in rows(&client, "SELECT state, view, why_filled FROM mr_catalog.recovery").await? {
        match row[0].as_deref() {
            Some("restored") => seen.restored += 1,
            Some("filled") => seen.filled += 1,
            _ => return Err(format!("a view is {row:?}").into()),
        }
    }
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
    let looked_up: BTreeSet<TextRow> = rows(&client, "SELECT * FROM looked_up")
        .await?
        .into_iter()
        .collect();
    // A view that had to be filled again joins what exists by then.
    let is_filled = "SELECT 1 FROM mr_catalog.recovery WHERE view = 'looked_up' AND state = 'filled'";
    if !rows(&client, is_filled).await?.is_empty() {
        known.looked_up = looked_up.clone();
    }
    if let Some(gone) = known.looked_up.iter().find(|row| !looked_up.contains(*row)) {
        return Err(format!("{gone:?} of the lookup join was read, and is gone").into());
    }
    let last =
        "SELECT a.writer FROM account a JOIN per_writer p ON a.writer = p.writer WHERE a.last <> p.last";
    match rows(&client, last).await?.len() {
        0 => Ok(()),
        _ => Err("an account does not know its last event".into()),
    }
}

/// Compares what files of sinks say with what they were written from, and with what they said before.
async fn check_sinks(address: SocketAddr, sinks: &Path, known: &mut Known) -> Result<(), Failure> {
    let client = connect(address).await?;
    run(&client, "FLUSH").await?;
    let failing = "SELECT name, error FROM mr_catalog.sinks WHERE state <> 'running'";
    if let Some(row) = rows(&client, failing).await?.first() {
        return Err(format!("a sink does not run: {row:?}").into());
    }
    for (place, (_, sink_type, format, columns, query)) in SINKS.iter().enumerate() {
        let path = sinks.join(place.to_string());
        for entry in std::fs::read_dir(&path)? {
            let file = entry?.path();
            if file.to_string_lossy().ends_with(".tmp") {
                return Err(format!("{} is not finished", file.display()).into());
            }
            let bytes = std::fs::read(&file)?;
            if let Some(before) = known.files.insert(file.clone(), bytes.clone())
                && before != bytes
            {
                return Err(format!("{} was changed", file.display()).into());
            }
        }
        let op = if *sink_type == "changelog" {
            "op TEXT, "
        } else {
            ""
        };
        run(
            &client,
            &format!(
                "CREATE EXTERNAL TABLE files_{place} ({op}{columns}) STORED AS {format} LOCATION '{}/'",
                path.display()
            ),
        )
        .await?;
        let names: Vec<&str> = columns
            .split(", ")
            .filter_map(|column| column.split(' ').next())
            .collect();
        let names = names.join(", ");
        let change = match op {
            "" => "1",
            _ => "CASE op WHEN 'insert' THEN 1 WHEN 'delete' THEN -1 END",
        };
        let added_up = format!(
            "SELECT {names}, sum({change}) FROM files_{place} GROUP BY {names} HAVING sum({change}) <> 0"
        );
        let files = sorted_rows(&client, &added_up).await?;
        let rows = sorted_rows(
            &client,
            &format!("SELECT {names}, count(*) FROM ({query}) GROUP BY {names}"),
        )
        .await?;
        if files != rows {
            return Err(format!("the files of sink {place} say\n{files:?}\nand {query}\n{rows:?}").into());
        }
        run(&client, &format!("DROP TABLE files_{place}")).await?;
    }
    Ok(())
}

async fn ids(client: &Client, sql: &str) -> Result<Vec<i64>, Failure> {
    let rows = rows(client, sql).await?;
    let ids = rows.into_iter().flatten().flatten();
    Ok(ids.map(|id| id.parse()).collect::<Result<_, _>>()?)
}
