//! What the tests beside a real server of somebody else share: a list of tests over one server, and asking until an answer comes.

use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rand::Rng;
use rand::rngs::StdRng;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio_postgres::Client;

use crate::{Failure, connect, rows, run};

/// How long an answer may take to come.
const PATIENCE: Duration = Duration::from_secs(40);

/// Tests over one server, each with a folder of its own. The first argument that is no option chooses those whose names have it.
pub struct Suite<'d, S> {
    directory: &'d Path,
    server: S,
    runtime: Runtime,
    only: Option<String>,
    failed: usize,
}

impl<'d, S> Suite<'d, S> {
    /// # Errors
    /// Threads cannot be started.
    pub fn new(directory: &'d Path, server: S) -> Result<Self, Failure> {
        Ok(Suite {
            directory,
            server,
            runtime: Runtime::new()?,
            only: std::env::args()
                .skip(1)
                .find(|argument| !argument.starts_with('-')),
            failed: 0,
        })
    }

    /// Runs one, and says how it went.
    pub fn test(
        &mut self,
        name: &str,
        work: impl AsyncFnOnce(&mut S, &Path) -> Result<(), Failure>,
    ) -> &mut Self {
        if self
            .only
            .as_ref()
            .is_some_and(|only| !name.contains(only.as_str()))
        {
            return self;
        }
        let place = self.directory.join(name);
        let began = Instant::now();
        match self.runtime.block_on(work(&mut self.server, &place)) {
            Ok(()) => println!("{name}: ok, {:.1} s", began.elapsed().as_secs_f64()),
            Err(error) => {
                self.failed += 1;
                println!("{name}: FAILED: {error}");
            }
        }
        self
    }

    /// How the process ends.
    pub fn outcome(&self) -> ExitCode {
        match self.failed {
            0 => ExitCode::SUCCESS,
            _ => ExitCode::FAILURE,
        }
    }
}

/// How many rounds of kills the variable asks for.
pub fn rounds(variable: &str) -> u64 {
    let asked = std::env::var(variable).ok().and_then(|text| text.parse().ok());
    asked.unwrap_or(6)
}

/// Writes until the server is killed: rows with the next numbers into `s (n, t)`, and values of few keys into `k (id, v)`, some of
/// which go. `statements` and `rows`: how many at most of each, and how many rows each time.
///
/// # Errors
/// What the server says.
pub async fn write_before_a_kill(
    client: &Client,
    random: &mut StdRng,
    number: &mut u64,
    statements: u32,
    rows: u64,
) -> Result<(), Failure> {
    for _ in 0..random.random_range(1..statements) {
        let next = *number + random.random_range(1..rows);
        let inserted = format!(
            "INSERT INTO s SELECT i, 'x' || i FROM generate_series({number}, {}) AS g(i)",
            next - 1
        );
        run(client, &inserted).await?;
        *number = next;
        let id = random.random_range(0..20);
        let put =
            format!("INSERT INTO k VALUES ({id}, {number}) ON CONFLICT (id) DO UPDATE SET v = EXCLUDED.v");
        run(client, &put).await?;
        if random.random_bool(0.1) {
            run(client, &format!("DELETE FROM k WHERE id = {}", id / 2)).await?;
        }
    }
    tokio::time::sleep(Duration::from_millis(random.random_range(1..300))).await;
    Ok(())
}

/// Runs statements, of which each is made when the one before is answered, until it is told to end (no address), and connects again when
/// the server goes away. What is not acknowledged may be there: the server itself says what is.
pub async fn write_until_told(
    mut address: watch::Receiver<Option<SocketAddr>>,
    mut statement: impl FnMut() -> String,
) {
    loop {
        let Some(server) = *address.borrow_and_update() else {
            return;
        };
        if let Ok(client) = connect(server).await {
            while run(&client, &statement()).await.is_ok() && address.borrow().is_some() {}
        }
        if address.borrow().is_some() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Rows as a line: cells with spaces between, rows with commas.
///
/// # Errors
/// What the server says.
pub async fn line(client: &Client, sql: &str) -> Result<String, Failure> {
    let row = |row: Vec<Option<String>>| {
        let cells = row
            .into_iter()
            .map(|cell| cell.unwrap_or_else(|| "NULL".to_owned()));
        cells.collect::<Vec<_>>().join(" ")
    };
    let rows = rows(client, sql).await?;
    Ok(rows.into_iter().map(row).collect::<Vec<_>>().join(", "))
}

/// Asks until the answer is what is expected.
///
/// # Errors
/// It never is; what the server says.
pub async fn until(client: &Client, sql: &str, expected: &str) -> Result<(), Failure> {
    let began = Instant::now();
    loop {
        let found = line(client, sql).await?;
        if found == expected {
            return Ok(());
        }
        if began.elapsed() > PATIENCE {
            let sources = line(client, "SELECT name, state, error FROM mr_catalog.sources").await;
            let sources = sources.unwrap_or_default();
            return Err(format!("{sql}: {found} instead of {expected}; {sources}").into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The error of a statement.
///
/// # Errors
/// It has none.
pub async fn refused(client: &Client, sql: &str) -> Result<String, Failure> {
    match run(client, sql).await {
        Ok(()) => Err(format!("{sql} was not refused").into()),
        Err(error) => Ok(error.to_string()),
    }
}
