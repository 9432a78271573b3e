//! A client that wants to end the server, or to stop it for everybody: statements of a `grammar` with sizes, depths and counts
//! turned up, expressions in which operations take turns (`turns`), and bytes at random in each state of the protocol (`bytes`).
//! And views over few short rows that become gigabytes (`wide`).
//!
//! The server is a child process with little address space, so that what takes memory without asking for it ends the process there
//! and then. After each attack another session has to be answered; at the end a view has to be what its query says. Attacks
//! are refused or answered, whatever they like: what a single one is answered with is the business of other tests.
//!
//! `tests/hostile.rs` runs a few hundred; `MILLRACE_HOSTILE=100000` as many as are wanted.

mod bytes;
mod grammar;
mod shapes;
mod turns;
mod values;
mod wide;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::runtime::Runtime;
use tokio::time::timeout;
use tokio_postgres::{Client, NoTls};

use self::grammar::{Attack, Grammar};
pub use self::wide::wide_rows;
use crate::crash::Process;
use crate::{Failure, TextRow, connect, run, sorted_rows, words};

/// What the server may have besides its program: its threads and its memory, of which its limit is a fifth then.
const ADDRESS_SPACE: u64 = 1 << 30;
/// How long a statement may take by itself.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(1);
/// Whoever waits longer waits for something that never happens. It says nothing of how fast the server is.
const PATIENCE: Duration = Duration::from_secs(60);
/// Each of so many attacks is one with bytes.
const WITH_BYTES: u32 = 8;
/// Each of so many others is one with turns.
const WITH_TURNS: u32 = 12;
/// Each of so many ends with a look at the view.
const WITH_VIEW: u64 = 50;

/// What attacks have seen.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    pub statements: u64,
    pub answered: u64,
    /// By SQLSTATE.
    pub refused: std::collections::BTreeMap<String, u64>,
    /// Attacks that were still at it when they were given up.
    pub given_up: u64,
    /// Connections that ended.
    pub disconnected: u64,
    pub with_bytes: u64,
    /// The longest time until the other session was answered.
    pub slowest: Duration,
    /// The longest attack.
    pub longest: Duration,
}

/// Attacks a server so often. `tell` hears now and then what was seen.
///
/// # Errors
/// The attack after which the server is gone or answers nobody, or a view that is not its query; with the seed.
pub fn attack(seed: u64, total: u64, tell: impl FnMut(&Seen)) -> Result<Seen, Failure> {
    let runtime = Runtime::new()?;
    let outcome = runtime.block_on(attacks(seed, total, tell));
    outcome.map_err(|error| format!("seed {seed}: {error}").into())
}

async fn attacks(seed: u64, total: u64, mut tell: impl FnMut(&Seen)) -> Result<Seen, Failure> {
    let directory = tempfile::tempdir()?;
    let mut process = Process::start_confined(directory.path(), ADDRESS_SPACE)?;
    let witness = connect(process.pg).await?;
    for statement in SETUP {
        run(&witness, statement).await?;
    }
    let mut random = StdRng::seed_from_u64(seed);
    // Of their own, so that a seed's other attacks stay what they were.
    let mut turning = StdRng::seed_from_u64(!seed);
    let mut seen = Seen::default();
    let shows = std::env::var_os("MILLRACE_HOSTILE_SHOW").is_some();
    let mut attacker = attacker(process.pg).await?;
    for number in 0..total {
        let started = Instant::now();
        let what = if random.random_ratio(1, WITH_BYTES) {
            seen.with_bytes += 1;
            bytes::attack(process.pg, &mut random).await
        } else {
            let attack = match turning.random_ratio(1, WITH_TURNS) {
                true => Attack::Statements(vec![turns::statement(&mut turning)]),
                false => Grammar::new(&mut random).attack(),
            };
            if shows {
                println!("{number}: {}", shortened(&attack.to_string()));
            }
            let outcome = run_attack(&attacker, &attack, &mut seen).await;
            if shows {
                let outcome = outcome.as_ref().map_or("given up", String::as_str);
                println!("{number}: {outcome}");
                println!("{number}: {:?}, {}", started.elapsed(), memory(process.id()));
            }
            if outcome.is_none() {
                // Whatever it still does, it does without a client.
                attacker = self::attacker(process.pg).await.map_err(|error| {
                    format!(
                        "after {}: no new session: {error}",
                        shortened(&attack.to_string())
                    )
                })?;
            }
            attack.to_string()
        };
        seen.statements += 1;
        seen.longest = seen.longest.max(started.elapsed());
        let looked = Instant::now();
        let alive = timeout(PATIENCE, run(&witness, "SELECT 1")).await;
        seen.slowest = seen.slowest.max(looked.elapsed());
        let failed = |error: &str| format!("attack {number}, {}\n{error}", shortened(&what));
        match alive {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                // A process that ends closes its connections before anybody hears how it ended.
                tokio::time::sleep(Duration::from_millis(500)).await;
                let ended = process
                    .ended()
                    .map_or("it runs".to_owned(), |status| status.to_string());
                return Err(failed(&format!(
                    "the other session is not answered: {error}; the server: {ended}"
                ))
                .into());
            }
            Err(_) => return Err(failed("the other session is not answered").into()),
        }
        if number % WITH_VIEW == WITH_VIEW - 1 {
            check_view(&witness)
                .await
                .map_err(|error| failed(&error.to_string()))?;
            tell(&seen);
        }
    }
    check_view(&witness).await?;
    tell(&seen);
    process.kill()?;
    Ok(seen)
}

const SETUP: [&str; 4] = [
    "CREATE TABLE t (id INT PRIMARY KEY, v TEXT)",
    "INSERT INTO t SELECT g, 'row ' || g FROM generate_series(1, 100) AS s(g)",
    "CREATE TABLE own (id INT, v TEXT)",
    "CREATE MATERIALIZED VIEW small AS SELECT length(v) AS n, count(*) AS rows FROM t GROUP BY length(v)",
];

/// The session that attacks.
async fn attacker(address: SocketAddr) -> Result<Client, Failure> {
    let client = timeout(PATIENCE, connect(address))
        .await
        .map_err(|_| "nobody is let in")??;
    let limit = format!("SET statement_timeout = {}", STATEMENT_TIMEOUT.as_millis());
    timeout(PATIENCE, run(&client, &limit))
        .await
        .map_err(|_| "a new session is not answered")??;
    Ok(client)
}

/// What came of an attack; none if the session cannot go on.
async fn run_attack(client: &Client, attack: &Attack, seen: &mut Seen) -> Option<String> {
    let token = client.cancel_token();
    let ends = attack.run(client);
    tokio::pin!(ends);
    // It has a timeout of its own. Where that does not help a cancel is tried, and then the client goes away.
    let outcome = match timeout(STATEMENT_TIMEOUT * 5, &mut ends).await {
        Ok(outcome) => outcome,
        Err(_) => {
            let cancelled = timeout(STATEMENT_TIMEOUT, token.cancel_query(NoTls)).await;
            drop(cancelled);
            match timeout(STATEMENT_TIMEOUT * 5, &mut ends).await {
                Ok(outcome) => outcome,
                Err(_) => {
                    seen.given_up += 1;
                    return None;
                }
            }
        }
    };
    let told = match outcome {
        Ok(()) => {
            seen.answered += 1;
            "answered".to_owned()
        }
        Err(error) if error.is_closed() || error.as_db_error().is_none() => {
            seen.disconnected += 1;
            return None;
        }
        Err(error) => {
            let told = words(&error);
            let code = told.chars().take(5).collect();
            *seen.refused.entry(code).or_default() += 1;
            shortened(&told)
        }
    };
    // No transaction stays open, aborted or not.
    let ended = timeout(PATIENCE, client.simple_query("ROLLBACK")).await;
    ended.is_ok_and(|outcome| outcome.is_ok()).then_some(told)
}

/// The view is its query, over rows that have changed.
async fn check_view(witness: &Client) -> Result<(), Failure> {
    let check = async {
        run(witness, "UPDATE t SET v = v || 'x' WHERE id % 7 = 0").await?;
        let view = rows_once_there_is_memory(witness, "SELECT * FROM small").await?;
        let query = "SELECT length(v), count(*) FROM t GROUP BY length(v)";
        let query = rows_once_there_is_memory(witness, query).await?;
        match view == query {
            true => Ok(()),
            false => Err(format!("the view is not its query: {view:?} and {query:?}").into()),
        }
    };
    timeout(PATIENCE, check)
        .await
        .map_err(|_| "the view does not follow")?
}

/// The rows of a query, which is refused as long as the memory of attacks has not been given back.
async fn rows_once_there_is_memory(client: &Client, query: &str) -> Result<Vec<TextRow>, Failure> {
    loop {
        match sorted_rows(client, query).await {
            Err(error) if error.to_string().contains("\n53200: ") => {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            outcome => return outcome,
        }
    }
}

/// What a process takes: addresses, and memory.
fn memory(pid: u32) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let fields = ["VmSize", "VmRSS"].map(|name| {
        let line = status.lines().find(|line| line.starts_with(name));
        line.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .unwrap_or_default()
    });
    fields.join(", ")
}

/// An attack that is short enough for a message.
fn shortened(text: &str) -> String {
    let length_max = match std::env::var_os("MILLRACE_HOSTILE_SHOW") {
        Some(shown) if shown == "all" => usize::MAX,
        _ => 2_000,
    };
    let short: String = text.chars().take(length_max).collect();
    match text.chars().nth(length_max) {
        Some(_) => format!("{short} ... ({} bytes)", text.len()),
        None => short,
    }
}
