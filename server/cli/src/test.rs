//! `millrace test`: sqllogictest files, each against a server of its own on a temporary directory.
//!
//! The files are run over PostgreSQL's wire, so that what passes here is what a client sees. Values are compared as
//! texts; NULL is `NULL` and the empty text is `(empty)`. The server's clock stands still, so that `now()` has one answer:
//! see [`virtual_clock`].

mod binary;

use std::fmt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use clap::{Args, ValueEnum};
use futures::StreamExt;
use millrace_auth::seal::SealingKey;
pub use millrace_engine::clock::VirtualClock;
use millrace_wire::config::Config;
use millrace_wire::serve::Server;
use sqllogictest::{AsyncDB, DBOutput, DefaultColumnType, Runner};
use tokio_postgres::{Client, Config as PgConfig, NoTls, SimpleQueryMessage};

use crate::exit::misused;
use crate::logging;

/// Flags of `millrace test`.
#[derive(Debug, Args)]
pub struct TestArgs {
    /// The files
    #[arg(required = true, value_name = "FILE.slt")]
    files: Vec<PathBuf>,
    /// Which of the two query protocols to use
    #[arg(long, value_enum, default_value_t = Protocol::Simple)]
    protocol: Protocol,
}

/// How statements are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Protocol {
    /// As a text, answered in text.
    Simple,
    /// Parsed, described and executed.
    Extended,
}

/// Runs all files; exit status 1 if one failed.
pub async fn run(args: TestArgs) -> ExitCode {
    if let Err(message) = logging::init("warn") {
        return misused(&message);
    }
    let mut failed = 0;
    for file in &args.files {
        let started = Instant::now();
        match run_file(file, args.protocol).await {
            Ok(()) => println!(
                "ok    {} ({:.2} s)",
                file.display(),
                started.elapsed().as_secs_f64()
            ),
            Err(message) => {
                failed += 1;
                println!("FAIL  {}", file.display());
                eprintln!("{message}");
            }
        }
    }
    println!("{} passed, {failed} failed", args.files.len() - failed);
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    }
}

/// Runs one file against a server of its own.
///
/// # Errors
/// The server cannot be started, or the file's first failure, in words.
pub async fn run_file(file: &Path, protocol: Protocol) -> Result<(), String> {
    let directory =
        tempfile::tempdir().map_err(|error| format!("cannot create a temporary directory: {error}"))?;
    let server = Server::start_on(throw_away(directory.path()), Some(virtual_clock()))
        .await
        .map_err(|error| error.to_string())?;
    let outcome = run_file_on(&server, file, protocol).await;
    server.shutdown().await;
    outcome
}

/// Runs one file against a running server, which tests use to look at the same data twice.
///
/// # Errors
/// The file's first failure, in words.
pub async fn run_file_on(server: &Server, file: &Path, protocol: Protocol) -> Result<(), String> {
    let address = server.pg_addr();
    let mut runner = Runner::new(move || Connection::open(address, protocol));
    runner.add_label(match protocol {
        Protocol::Simple => "simple",
        Protocol::Extended => "extended",
    });
    let outcome = runner
        .run_file_async(file)
        .await
        .map_err(|error| error.display(false).to_string());
    runner.shutdown_async().await;
    outcome
}

/// The clock of a test file: it stands at 2026-01-01 00:00 UTC until `ALTER SYSTEM SET clock` moves it.
pub fn virtual_clock() -> Arc<VirtualClock> {
    Arc::new(VirtualClock::new(1_767_225_600_000_000))
}

/// A configuration on free loopback ports, for servers that do not last.
pub fn throw_away(directory: &Path) -> Config {
    let loopback = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    Config {
        data: directory.to_owned(),
        pg: loopback,
        http: loopback,
        secrets_key: Some(SealingKey::generate()),
        ..Config::default()
    }
}

/// One client of a test file.
pub struct Connection {
    client: Client,
    protocol: Protocol,
    driver: tokio::task::JoinHandle<()>,
}

impl Connection {
    async fn open(address: std::net::SocketAddr, protocol: Protocol) -> Result<Self, Failure> {
        let mut config = PgConfig::new();
        config
            .host(address.ip().to_string())
            .port(address.port())
            .user("millrace")
            .dbname("millrace");
        let (client, connection) = config.connect(NoTls).await.map_err(Failure)?;
        let driver = tokio::spawn(async move {
            // Whoever waits for an answer hears of a lost connection.
            let _ = connection.await;
        });
        Ok(Connection {
            client,
            protocol,
            driver,
        })
    }

    async fn run_simple(&self, sql: &str) -> Result<DBOutput<DefaultColumnType>, tokio_postgres::Error> {
        let mut messages = pin!(self.client.simple_query_raw(sql).await?);
        let mut columns = None;
        let mut rows = Vec::new();
        let mut affected = 0;
        while let Some(message) = messages.next().await {
            match message? {
                SimpleQueryMessage::RowDescription(described) => columns = Some(described.len()),
                SimpleQueryMessage::Row(row) => {
                    rows.push((0..row.len()).map(|index| shown(row.get(index))).collect());
                }
                SimpleQueryMessage::CommandComplete(count) => affected = count,
                _ => {}
            }
        }
        Ok(match columns {
            Some(columns) => DBOutput::Rows {
                types: vec![DefaultColumnType::Any; columns],
                rows,
            },
            None => DBOutput::StatementComplete(affected),
        })
    }

    /// The driver asks for binary results, so this also tests that binary and text agree.
    async fn run_extended(&self, sql: &str) -> Result<DBOutput<DefaultColumnType>, tokio_postgres::Error> {
        let statement = self.client.prepare(sql).await?;
        if statement.columns().is_empty() {
            return Ok(DBOutput::StatementComplete(
                self.client.execute(&statement, &[]).await?,
            ));
        }
        let rows = self.client.query(&statement, &[]).await?;
        let show = |row: &tokio_postgres::Row| {
            (0..row.len())
                .map(|index| Ok(shown(binary::text(row, index)?.as_deref())))
                .collect()
        };
        let types = vec![DefaultColumnType::Any; statement.columns().len()];
        Ok(DBOutput::Rows {
            types,
            rows: rows
                .iter()
                .map(show)
                .collect::<Result<_, tokio_postgres::Error>>()?,
        })
    }
}

#[async_trait]
impl AsyncDB for Connection {
    type Error = Failure;
    type ColumnType = DefaultColumnType;

    async fn run(&mut self, sql: &str) -> Result<DBOutput<DefaultColumnType>, Failure> {
        match self.protocol {
            Protocol::Simple => self.run_simple(sql).await,
            Protocol::Extended => self.run_extended(sql).await,
        }
        .map_err(Failure)
    }

    async fn shutdown(&mut self) {
        self.driver.abort();
    }

    fn engine_name(&self) -> &str {
        "millrace"
    }

    async fn sleep(duration: Duration) {
        tokio::time::sleep(duration).await;
    }

    fn error_sql_state(error: &Failure) -> Option<String> {
        error.0.code().map(|code| code.code().to_owned())
    }
}

/// A failed statement, with everything that the server said about it.
#[derive(Debug)]
pub struct Failure(tokio_postgres::Error);

impl std::error::Error for Failure {}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(error) = self.0.as_db_error() else {
            return write!(f, "{}", self.0);
        };
        write!(f, "{}", error.message())?;
        for more in [error.detail(), error.hint(), error.where_()]
            .into_iter()
            .flatten()
        {
            write!(f, "\n{more}")?;
        }
        Ok(())
    }
}

/// A value as the files write it.
fn shown(value: Option<&str>) -> String {
    match value {
        None => "NULL".to_owned(),
        Some("") => "(empty)".to_owned(),
        Some(text) => text.to_owned(),
    }
}
