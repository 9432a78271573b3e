//! A long life in short: sessions, definitions, views, cancels, clients that do not read, and lost workers come and go round by round,
//! and what the server takes must stay where it is: memory, files, threads, and the disk.
//!
//! A round leaves as many rows as it found: the stream forgets, the table's rows are changed. So whatever grows from round to
//! round is a leak. The rounds of the first third are left out, in which caches fill; the middle of the last third is compared with that of
//! the second.
//!
//! `tests/soak.rs` does some rounds, `-- soak --seconds N` of the benches as many as fit.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio_postgres::Client;

use crate::crash::Process;
use crate::{Failure, connect, rows, run, words};

/// Rows of the table.
const ROWS: i64 = 300;
const SESSIONS: usize = 6;
const STATEMENTS: usize = 20;
/// A worker is lost every so many rounds.
const LOSS_EVERY: usize = 5;
/// Asked so often after a round.
const ASKED: usize = 9;

/// How long it goes on.
#[derive(Debug, Clone, Copy)]
pub enum Length {
    Rounds(usize),
    Time(Duration),
}

/// What the server takes after a round.
#[derive(Debug, Clone, Copy)]
pub struct Taken {
    pub resident_bytes: u64,
    pub files: u64,
    pub threads: u64,
    pub disk_bytes: u64,
    /// The middle of several.
    pub answer: Duration,
}

/// What it must not grow beyond: a part of what it was, and so much more.
struct Bound {
    what: &'static str,
    of: fn(&Taken) -> u64,
    percent: u64,
    more: u64,
}

const BOUNDS: [Bound; 4] = [
    Bound {
        what: "bytes of memory",
        of: |taken| taken.resident_bytes,
        percent: 125,
        more: 48 << 20,
    },
    Bound {
        what: "open files",
        of: |taken| taken.files,
        percent: 110,
        more: 12,
    },
    Bound {
        what: "threads",
        of: |taken| taken.threads,
        percent: 110,
        more: 12,
    },
    Bound {
        what: "bytes on the disk",
        of: |taken| taken.disk_bytes,
        percent: 150,
        more: 32 << 20,
    },
];

/// Lives through the rounds; what was taken after each. `tell` hears of each.
///
/// # Errors
/// Something grew, a statement failed that should not, or the server ended.
pub async fn soak(
    seed: u64,
    length: Length,
    mut tell: impl FnMut(usize, &Taken),
) -> Result<Vec<Taken>, Failure> {
    let directory = tempfile::tempdir()?;
    let process = Process::start(directory.path(), 2, false)?;
    let keeper = connect(process.pg).await?;
    for statement in [
        "CREATE TABLE t (id INT PRIMARY KEY, v BIGINT, w TEXT)",
        "CREATE STREAM s (id INT, v BIGINT, w TEXT) WITH (retention_size = '4 MB')",
        "CREATE MATERIALIZED VIEW by_id AS SELECT id, count(*) AS n, sum(v) AS v FROM s GROUP BY id",
        "CREATE MATERIALIZED VIEW joined AS SELECT t.id, t.v, by_id.n FROM t JOIN by_id ON by_id.id = t.id",
    ] {
        run(&keeper, statement).await?;
    }
    let fill = format!("INSERT INTO t SELECT i, 0, repeat('w', 50) FROM generate_series(1, {ROWS}) AS g(i)");
    run(&keeper, &fill).await?;
    let mut random = StdRng::seed_from_u64(seed);
    let mut taken = vec![];
    let started = Instant::now();
    let is_over = |done: usize| match length {
        Length::Rounds(rounds) => done >= rounds,
        Length::Time(time) => started.elapsed() >= time,
    };
    while !is_over(taken.len()) {
        round(&process, &keeper, taken.len(), &mut random).await?;
        let now = look(process.id(), directory.path(), &keeper).await?;
        tell(taken.len(), &now);
        taken.push(now);
    }
    let query = "SELECT t.id, t.v, by_id.n FROM t JOIN by_id ON by_id.id = t.id";
    let wrong =
        format!("({query} EXCEPT SELECT * FROM joined) UNION ALL (SELECT * FROM joined EXCEPT {query})");
    let wrong = rows(&keeper, &wrong).await?;
    if !wrong.is_empty() {
        return Err(format!("the view and its query differ in {wrong:?}").into());
    }
    process.kill()?;
    compare(&taken)?;
    Ok(taken)
}

/// Whether anything grew.
fn compare(taken: &[Taken]) -> Result<(), Failure> {
    let third = taken.len() / 3;
    let middle = |part: &[Taken], of: fn(&Taken) -> u64| {
        let mut values: Vec<u64> = part.iter().map(of).collect();
        values.sort_unstable();
        values.get(values.len() / 2).copied().unwrap_or(0)
    };
    for bound in BOUNDS {
        let before = middle(&taken[third..2 * third], bound.of);
        let after = middle(&taken[2 * third..], bound.of);
        if after > before * bound.percent / 100 + bound.more {
            return Err(format!("{before} {} became {after} in {} rounds", bound.what, taken.len()).into());
        }
    }
    Ok(())
}

async fn round(
    process: &Process,
    keeper: &Client,
    number: usize,
    random: &mut StdRng,
) -> Result<(), Failure> {
    let mut sessions = vec![];
    for _ in 0..SESSIONS {
        let client = connect(process.pg).await?;
        sessions.push(tokio::spawn(session(client, random.random())));
    }
    let view = format!("late{number}");
    let query = "SELECT t.id, max(t.w) AS w, count(s.v) AS n FROM t JOIN s ON s.id = t.id GROUP BY t.id";
    run(keeper, &format!("CREATE MATERIALIZED VIEW {view} AS {query}")).await?;
    run(keeper, &format!("CREATE TABLE {view}_t AS SELECT * FROM t")).await?;
    run(keeper, &format!("CREATE INDEX {view}_i ON {view}_t (v)")).await?;
    if number % LOSS_EVERY == LOSS_EVERY - 1 {
        let workers = rows(keeper, "SHOW WORKERS").await?;
        let first = workers.first().and_then(|row| row.first().cloned().flatten());
        let first = first.ok_or("there is a worker")?;
        run(keeper, "ADD WORKER").await?;
        run(keeper, &format!("KILL WORKER {first}")).await?;
    }
    for session in sessions {
        session.await??;
    }
    run(keeper, &format!("DROP MATERIALIZED VIEW {view}")).await?;
    run(keeper, &format!("DROP TABLE {view}_t")).await
}

/// What one client does before it goes away, as it happens to.
async fn session(client: Client, seed: u64) -> Result<(), Failure> {
    let mut random = StdRng::seed_from_u64(seed);
    for _ in 0..STATEMENTS {
        let id = random.random_range(1..=ROWS);
        let statement = match random.random_range(0..10) {
            0..=2 => format!("UPDATE t SET v = v + 1 WHERE id = {id}"),
            3 | 4 => format!(
                "INSERT INTO s SELECT {id} + i % 3, i, repeat('x', 100) FROM generate_series(1, 100) AS g(i)"
            ),
            5 => format!("SELECT * FROM joined WHERE id = {id}"),
            6 => {
                let name = random.random_range(0..1_000_000);
                format!("PREPARE p{name} AS SELECT * FROM t WHERE id = $1; EXECUTE p{name}({id})")
            }
            7 => "BEGIN; DECLARE c CURSOR FOR SELECT * FROM by_id; FETCH 3 FROM c; ROLLBACK".to_owned(),
            // Cancelled, as a rule.
            8 => "SET statement_timeout = '5ms'; \
                  SELECT count(*) FROM generate_series(1, 3000000) AS a(i) WHERE i % 7 = 1"
                .to_owned(),
            _ => format!("BEGIN; UPDATE t SET v = v + 1 WHERE id = {id}; ROLLBACK"),
        };
        if let Err(error) = client.simple_query(&statement).await {
            let code = error.code().map(tokio_postgres::error::SqlState::code);
            // A timeout, and what waits for others or has lost its worker.
            if !matches!(code, Some("57014" | "40001" | "40P01" | "55P03" | "57P02")) {
                return Err(format!("{statement}: {}", words(&error)).into());
            }
        }
        client.simple_query("ROLLBACK; RESET statement_timeout").await?;
    }
    // Some go in the middle of an answer that they do not read.
    if random.random_bool(0.3) {
        let _unread = client
            .query_raw("SELECT * FROM t, by_id", Vec::<i32>::new())
            .await?;
    }
    Ok(())
}

async fn look(process: u32, data: &Path, client: &Client) -> Result<Taken, Failure> {
    let mut times = vec![];
    for _ in 0..ASKED {
        let asked = Instant::now();
        rows(client, "SELECT n FROM by_id WHERE id = 7").await?;
        times.push(asked.elapsed());
    }
    times.sort_unstable();
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let field = |name: &str| -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse().ok()
    };
    Ok(Taken {
        resident_bytes: field("VmRSS:").ok_or("the process has memory")? << 10,
        files: fs::read_dir(format!("/proc/{process}/fd"))?.count() as u64,
        threads: field("Threads:").ok_or("the process has threads")?,
        disk_bytes: bytes_below(data)?,
        answer: times[ASKED / 2],
    })
}

/// Bytes of the files in a folder and those below it.
///
/// # Errors
/// The folder cannot be listed.
pub fn bytes_below(path: &Path) -> std::io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        // A file may go between being listed and being looked at.
        bytes += match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => bytes_below(&entry.path()).unwrap_or(0),
            Ok(metadata) => metadata.len(),
            Err(_) => 0,
        };
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_grows_is_told() {
        let taken = |files: u64| Taken {
            resident_bytes: 1 << 30,
            files,
            threads: 20,
            disk_bytes: 1 << 20,
            answer: Duration::ZERO,
        };
        let flat: Vec<Taken> = (0..30).map(|_| taken(50)).collect();
        assert!(compare(&flat).is_ok());
        let growing: Vec<Taken> = (0..30).map(|round| taken(50 + 3 * round)).collect();
        let error = compare(&growing).unwrap_err().to_string();
        assert!(error.contains("open files"), "{error}");
    }
}
